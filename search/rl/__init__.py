"""Tuning by reinforcement learning: environments over the schedule spaces."""

try:
    import gymnasium  # noqa: F401
except ImportError as error:
    raise ImportError(
        "reinforcement learning needs gymnasium and stable-baselines3, which the extra `rl` "
        "brings: pip install 'tensortune[rl]'"
    ) from error
