"""stable-baselines3's algorithms, set up for our environments and networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

try:
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import DQN
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import DummyVecEnv
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"training a policy needs {error.name}: pip install 'tensortune[rl]'", name=error.name
    ) from error

from .config import TrainConfig
from .networks import ACTIVATIONS, make_encoder
from .speed import Remembered
from .tuning_env import TuningEnv, prefetch

Left = Callable[[], float]
"""The share of a run's steps that is left, from 1 to 0."""


class StackedEnv(DummyVecEnv):
    """Environments stepped one after the other, whose speeds are asked for at once.

    Args:
        envs: The environments; they share one `Remembered` speed.
    """

    envs: list[TuningEnv[Any]]

    def __init__(self, envs: Sequence[TuningEnv[Any]]) -> None:
        super().__init__([lambda env=env: env for env in envs])

    def step_wait(self) -> Any:
        """See `DummyVecEnv`, which copies all that the environments tell as well."""
        prefetch(self.envs, self.actions)
        infos: list[dict[str, Any]] = []
        for number, env in enumerate(self.envs):
            seen, self.buf_rews[number], ended, cut, info = env.step(self.actions[number])
            info["TimeLimit.truncated"] = cut and not ended
            self.buf_dones[number] = ended or cut
            if ended or cut:
                info["terminal_observation"] = seen
                seen, self.reset_infos[number] = env.reset()
            self._save_obs(number, seen)
            infos.append(info)
        return self._obs_from_buf(), self.buf_rews.copy(), self.buf_dones.copy(), infos

    def pay_by(self, speed: Remembered) -> None:
        """Let all environments pay for another speed, from their next reset on."""
        for env in self.envs:
            env.speed = speed


class Extractor(BaseFeaturesExtractor):
    """Our encoders in the form that stable-baselines3 takes.

    Args:
        observation_space: As stable-baselines3 gives it.
        observation: See `networks.make_encoder`.
        hidden: See `networks.make_encoder`.
    """

    def __init__(
        self, observation_space: gymnasium.Space[Any], observation: dict[str, int], hidden: int
    ) -> None:
        encoder = make_encoder(observation, hidden)
        super().__init__(observation_space, encoder.width)
        self.encoder = encoder

    def forward(self, observations: Any) -> Any:
        """Features, of shape (batch, `features_dim`)."""
        return self.encoder(observations)


def observation_of(env: TuningEnv[Any]) -> dict[str, int]:
    """What `networks.make_encoder` has to know of an environment's observations."""
    space = env.observation_space
    if isinstance(space, gymnasium.spaces.Dict):
        return dict(env.observer.shape._asdict())  # type: ignore[attr-defined,unused-ignore]
    return {"inputs": int(np.prod(space.shape or (0,)))}


def make_algorithm(config: TrainConfig, env: StackedEnv, left: Left) -> Any:
    """The algorithm that a configuration names.

    Args:
        config: The run's configuration.
        env: The environments.
        left: What the learning rate, the entropy's weight and random actions become less with;
            stable-baselines3's own schedules begin anew at every stretch of steps.
    """
    return _ppo(config, env, left) if config.algorithm == "ppo" else _dqn(config, env, left)


def weight_name(name: str, config: TrainConfig) -> str:
    """What stable-baselines3 calls a weight of an `Actor`."""
    part, _, rest = name.partition(".")
    if config.algorithm == "ppo":
        if part == "encoder":
            return f"features_extractor.{name}"
        return f"mlp_extractor.policy_net.{rest}" if part == "body" else f"action_net.{rest}"
    if part == "encoder":
        return f"q_net.features_extractor.{name}"
    return f"q_net.q_net.{rest if part == 'body' else f'{2 * len(config.network.layers)}.{rest}'}"


def _ppo(config: TrainConfig, env: StackedEnv, left: Left) -> Any:
    ppo = config.ppo
    model = _AnnealedPPO(
        _network_name(env),
        env,
        learning_rate=lambda _: ppo.learning_rate * left(),
        n_steps=ppo.rollout,
        batch_size=ppo.batch,
        n_epochs=ppo.epochs,
        gamma=ppo.gamma,
        gae_lambda=ppo.gae_lambda,
        clip_range=ppo.clip,
        ent_coef=ppo.entropy,
        vf_coef=ppo.value,
        max_grad_norm=ppo.max_grad_norm,
        policy_kwargs=_networks(config, env),
        seed=config.seed,
        device="cpu",
    )
    fall = ppo.entropy - ppo.last_entropy
    model.entropy = lambda: ppo.last_entropy + fall * left()
    return model


class _AnnealedPPO(MaskablePPO):
    """PPO whose weight of the entropy changes as it learns."""

    entropy: Any = None

    def train(self) -> None:
        """See `MaskablePPO`."""
        self.ent_coef = float(self.entropy())
        super().train()


def _dqn(config: TrainConfig, env: StackedEnv, left: Left) -> Any:
    dqn = config.dqn
    model = DQN(
        _network_name(env),
        env,
        learning_rate=dqn.learning_rate,
        buffer_size=dqn.buffer,
        learning_starts=dqn.learning_starts,
        batch_size=dqn.batch,
        train_freq=dqn.train_freq,
        gradient_steps=dqn.gradient_steps,
        gamma=dqn.gamma,
        target_update_interval=dqn.target_interval,
        policy_kwargs=_networks(config, env),
        seed=config.seed,
        device="cpu",
    )
    until = max(1e-9, dqn.exploration)

    def epsilon(_: float) -> float:
        done = min(1.0, (1.0 - left()) / until)
        return 1.0 + done * (dqn.last_epsilon - 1.0)

    model.exploration_schedule = epsilon
    return model


def _network_name(env: StackedEnv) -> str:
    several = isinstance(env.observation_space, gymnasium.spaces.Dict)
    return "MultiInputPolicy" if several else "MlpPolicy"


def _networks(config: TrainConfig, env: StackedEnv) -> dict[str, Any]:
    network = config.network
    return {
        "net_arch": list(network.layers),
        "activation_fn": ACTIVATIONS[network.activation],
        "features_extractor_class": Extractor,
        "features_extractor_kwargs": {
            "observation": observation_of(env.envs[0]),
            "hidden": network.graph_hidden,
        },
    }
