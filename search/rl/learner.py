"""A policy that is being trained, and its checkpoints."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

try:
    from safetensors import SafetensorError
    from safetensors.torch import load as load_tensors
    from safetensors.torch import save as save_tensors
    from stable_baselines3.common.logger import Logger, configure
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"training a policy needs {error.name}: pip install 'tensortune[rl]'", name=error.name
    ) from error

from ...costmodel.base import ModelFileError
from ...costmodel.model_file import ModelFile
from .algorithms import StackedEnv, make_algorithm, observation_of, weight_name
from .callbacks import Curve, OnPoint
from .config import TrainConfig
from .environments import VERSION, actions_of, make_env, settings_of
from .networks import Actor, one_thread
from .policy import Policy
from .speed import Remembered, Speed
from .tuning_env import Spaces

_KIND = "rl-checkpoint"


class CheckpointError(ValueError):
    """A checkpoint that a training can't go on from; the message says why."""


class Learner:
    """A policy, the environments that it learns in, and the algorithm.

    A stretch of steps (`learn`) begins with fresh episodes and seeds of its own, which depend on
    nothing but the run's seed and how many steps there were. So a run that goes on from a
    checkpoint learns what it would have learnt anyway, to the last bit; with DQN, whose checkpoints
    do not hold the steps that it remembers, it does not.

    Args:
        config: The run's configuration.
        spaces: The workloads and their spaces.
        speed: What is paid for.
        on_point: Called with each point of the learning curve.
        tensorboard: Folder for TensorBoard's files; none by default, or where it isn't installed.
    """

    def __init__(
        self,
        config: TrainConfig,
        spaces: Spaces[Any],
        speed: Speed,
        *,
        on_point: OnPoint | None = None,
        tensorboard: Path | None = None,
    ) -> None:
        self.config = config
        self.settings = settings_of(config.environment, config.settings)
        shared = Remembered(speed)
        count = config.ppo.envs if config.algorithm == "ppo" else config.dqn.envs
        self.env = StackedEnv(
            [
                make_env(config.environment, self.settings, spaces, shared, config.pay)
                for _ in range(count)
            ]
        )
        every = count * config.ppo.rollout if config.algorithm == "ppo" else 1000
        self.curve = Curve(every, on_point)
        self.span = (0, config.steps)
        logged = tensorboard is not None and find_spec("tensorboard") is not None
        self._logger = configure(str(tensorboard), ["tensorboard"]) if logged else Logger(None, [])
        # The algorithm asks for what is left before it is there.
        self.model: Any = None
        self._make()

    @property
    def steps(self) -> int:
        """Steps so far."""
        return 0 if self.model is None else int(self.model.num_timesteps)

    def begin_anew(self, speed: Speed, until: int) -> None:
        """Begin with a new policy, which another speed pays for, and which learns for some steps.

        Args:
            speed: What pays from now on.
            until: Steps there will be then; what becomes less with the steps does so until then.
        """
        self.env.pay_by(Remembered(speed))
        self.span = (self.steps, until)
        self.curve.clear()
        self._make()

    def _make(self) -> None:
        steps = self.steps
        self.model = make_algorithm(self.config, self.env, self._left)
        self.model.num_timesteps = steps
        self.model.set_logger(self._logger)

    def pay_by(self, speed: Speed) -> None:
        """Let the environments pay for another speed, from the next stretch on."""
        self.env.pay_by(Remembered(speed))

    def learn(self, until: int) -> None:
        """Go on until there were so many steps, or a few more to complete a rollout."""
        if self.steps >= until:
            return
        # DummyVecEnv numbers its environments from the seed on.
        self.model.set_random_seed((self.config.seed * 1_000_003 + self.steps * 97) % 2**31)
        self.model._last_obs = None  # so that it resets the environments
        with one_thread():
            self.model.learn(
                until - self.steps, self.curve, log_interval=1, reset_num_timesteps=False
            )

    def policy(self, meta: dict[str, Any]) -> Policy:
        """The policy as it is now.

        Args:
            meta: How it was trained.
        """
        network = self.config.network
        net = Actor(
            observation=observation_of(self.env.envs[0]),
            graph_hidden=network.graph_hidden,
            layers=network.layers,
            actions=len(actions_of(self.config.environment, self.settings).names),
            activation=network.activation,
        )
        weights = self.model.policy.state_dict()
        net.load_state_dict(
            {name: weights[weight_name(name, self.config)] for name in net.state_dict()}
        )
        net.eval()
        return Policy(self.config.environment, self.settings, meta, net)

    def save(self, path: Path, state: dict[str, Any]) -> None:
        """Write a checkpoint, without pickle; others see the old file or the whole new one.

        Args:
            path: The file.
            state: What the run has to remember besides, as JSON.
        """
        model = self.model
        optimizer = {
            f"{number}.{name}": value
            for number, entry in model.policy.optimizer.state_dict()["state"].items()
            for name, value in entry.items()
        }
        header = {
            "version": VERSION,
            "config": self.config.to_json(),
            "steps": self.steps,
            "span": list(self.span),
            "updates": model._n_updates,
            "curve": self.curve.to_json(),
            "run": state,
        }
        # Some parameters go by two names, and safetensors wants each once in memory.
        weights = {name: value.clone() for name, value in model.policy.state_dict().items()}
        parts = {"weights": save_tensors(weights), "optimizer": save_tensors(optimizer)}
        ModelFile(_KIND, {}, parts=parts, state=header).write(path)

    def restore(self, path: Path) -> dict[str, Any]:
        """Go on from a checkpoint.

        Returns:
            The run's own state, as it was given to `save`.

        Raises:
            CheckpointError: the file is damaged, of environments of another version, or of a run
                that was configured otherwise.
            FileNotFoundError: there is no such file.
        """
        try:
            file = ModelFile.read(path, _KIND)
            state = file.state
            if state["version"] != VERSION:
                raise CheckpointError(
                    f"{path} is of environments of version {state['version']}, and this library's "
                    f"are of version {VERSION}: begin a new run in another folder"
                )
            _check_config(path, state["config"], self.config)
            self._take(file)
        except ModelFileError as error:
            raise CheckpointError(f"{error}; begin a new run in another folder") from error
        except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise CheckpointError(
                f"{path} is no whole checkpoint ({error}): begin a new run in another folder"
            ) from error
        return dict(state["run"])

    def _take(self, file: ModelFile) -> None:
        state, model = file.state, self.model
        model.policy.load_state_dict(load_tensors(file.parts["weights"]))
        found: dict[int, dict[str, Any]] = {}
        for name, value in load_tensors(file.parts["optimizer"]).items():
            number, _, what = name.partition(".")
            found.setdefault(int(number), {})[what] = value
        optimizer = model.policy.optimizer
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": found, "param_groups": groups})
        model.num_timesteps, model._n_updates = int(state["steps"]), int(state["updates"])
        self.span = (int(state["span"][0]), int(state["span"][1]))
        self.curve.restore(state["curve"])

    def _left(self) -> float:
        begun, end = self.span
        return min(1.0, max(0.0, (end - self.steps) / max(1, end - begun)))


def _check_config(path: Path, given: dict[str, Any], config: TrainConfig) -> None:
    made = TrainConfig.of(given).to_json()
    for name, value in config.to_json().items():
        if made[name] != value:
            raise CheckpointError(
                f"{path} is of a run with `{name}` {made[name]}, and this one has {value}: begin a "
                "new run in another folder, or go on with the folder's own config.json"
            )
