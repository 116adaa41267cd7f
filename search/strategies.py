"""The search strategies by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module

from ..data.loop_space import LoopSpace
from ..data.sketch_space import SketchSpace
from ..data.space import Space
from .annealing import SimulatedAnnealing
from .base import Strategy
from .beam import BeamSearch
from .evolution import Evolution
from .random_search import RandomSearch

STRATEGIES: dict[str, Callable[[Space, int], Strategy]] = {
    "annealing": SimulatedAnnealing,
    "beam": BeamSearch,
    "evolution": Evolution,
    "random": RandomSearch,
}
POLICY_STRATEGIES = {
    "rl": "PolicySearch",
    "rl+learning": "FineTunedSearch",
    "rl+annealing": "PolicyAnnealing",
}
"""Strategies that follow a trained policy: classes of `rl.strategy`, which needs the extra `rl`."""


def find_strategy(
    name: str, policy: str | os.PathLike[str] | None = None
) -> Callable[[Space, int], Strategy]:
    """The maker of a strategy, from a space and a seed.

    Args:
        name: A strategy of ours, or `package.module:Name` for one of the user's own.
        policy: The file of the policy that it follows, where it follows one; None for the one that
            comes with the package.

    Raises:
        ValueError: there is none of that name, a package that it needs is missing, or the policy is
            of no use to it.
        FileNotFoundError: there is no such policy.
    """
    if name in POLICY_STRATEGIES:
        return _find_policy_strategy(name, policy)
    if policy is not None:
        raise ValueError(
            f"the strategy `{name}` follows no policy; {', '.join(POLICY_STRATEGIES)} do"
        )
    module, colon, attribute = name.partition(":")
    if colon:
        try:
            made: Callable[[Space, int], Strategy] = getattr(import_module(module), attribute)
        # Whatever the user's module raises when it is imported, the name leads to no strategy.
        except Exception as error:
            raise ValueError(f"the strategy `{name}` can't be imported: {error}") from None
        if not callable(made):
            raise ValueError(f"the strategy `{name}` can't be called with a space and a seed")
        return made
    if name not in STRATEGIES:
        known = ", ".join([*STRATEGIES, *POLICY_STRATEGIES])
        raise ValueError(
            f"there is no strategy `{name}`; the strategies are {known}, and package.module:Name"
        )
    return STRATEGIES[name]


def _find_policy_strategy(
    name: str, policy: str | os.PathLike[str] | None
) -> Callable[[Space, int], Strategy]:
    try:
        module = import_module(".rl.strategy", __package__)
    except ImportError as error:
        raise ValueError(f"the strategy `{name}` can't be used here: {error}") from None
    # Read here, so that a file that is of no use is told of before anything is set up.
    return partial(getattr(module, POLICY_STRATEGIES[name]), policy=module.load_policy(policy))


def default_space(strategy: str) -> str:
    """The space that a strategy searches when none is asked for."""
    return LoopSpace.name if strategy in POLICY_STRATEGIES else SketchSpace.name
