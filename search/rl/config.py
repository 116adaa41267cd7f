"""What a training run does, as one typed value that is written to its folder."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from .environments import settings_of

Reward = Literal["model", "measured", "toy"]
Algorithm = Literal["ppo", "dqn"]
Part = TypeVar("Part")


class ConfigError(ValueError):
    """A configuration that can't be used; the message names the setting and what it may be."""


@dataclass(frozen=True)
class Network:
    """The policy's network.

    Attributes:
        layers: Sizes of the layers behind the encoder; the critic has its own of the same sizes.
        graph_hidden: Numbers that a loop is described by in the encoder of graphs.
        activation: `tanh` or `relu`.
    """

    layers: tuple[int, ...] = (128, 128)
    graph_hidden: int = 32
    activation: Literal["tanh", "relu"] = "tanh"


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation with masked actions; mostly MLIR RL's settings.

    Attributes:
        envs: Environments that are stepped together.
        rollout: Steps of each of them between two updates.
        batch: Steps in a batch.
        epochs: How often an update sees each step.
        learning_rate: Adam's step at the beginning; it falls to 0 in a straight line.
        gamma: What a reward a step later is worth. At 1 the sum of an episode is its gain.
        gae_lambda: Weight of longer returns in the advantages.
        clip: How far a batch may move the odds of an action.
        entropy: Weight of the entropy in the loss at the beginning.
        last_entropy: The same at the end.
        value: Weight of the critic's loss.
        max_grad_norm: Longest gradient; a longer one is shortened.
    """

    envs: int = 32
    rollout: int = 40
    batch: int = 256
    epochs: int = 6
    learning_rate: float = 1e-3
    gamma: float = 1.0
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.1
    last_entropy: float = 0.005
    value: float = 0.5
    max_grad_norm: float = 0.5


@dataclass(frozen=True)
class DQN:
    """Deep Q-learning, for the cursor. It knows no masks: an action that is not legal is wasted.

    Attributes:
        envs: Environments that are stepped together.
        learning_rate: Adam's step.
        buffer: Steps that are remembered.
        learning_starts: Steps before the first update.
        batch: Steps in a batch.
        train_freq: Steps of each environment between two updates.
        gradient_steps: Batches of an update.
        gamma: What a reward a step later is worth.
        target_interval: Steps between two copies of the network into the target.
        exploration: Share of the steps over which random actions become rare.
        last_epsilon: Share of random actions after that.
    """

    envs: int = 8
    learning_rate: float = 5e-4
    buffer: int = 20_000
    learning_starts: int = 1000
    batch: int = 64
    train_freq: int = 4
    gradient_steps: int = 8
    gamma: float = 1.0
    target_interval: int = 1000
    exploration: float = 0.4
    last_epsilon: float = 0.05


@dataclass(frozen=True)
class Rounds:
    """How the model that pays is learnt along with the policy (`reward = "model"`).

    Each round trains a policy anew, for one that has settled does not leave again for what a better
    model pays more.

    Attributes:
        rounds: How often programs are measured, the model is fitted and a policy trained.
        last: Share of all steps that the last round's policy is trained for.
        shapes: Workloads whose programs are measured, drawn from all.
        programs: Programs of each of them, in every round.
        first_programs: The same in the first round.
        random: Share of the programs that are drawn at random. Of the others one half is what the
            policy's episodes end with, the other what the model ranks first among these.
        trees: Trees of the model.
        depth: Depth of a tree.
        learning_rate: How much of its optimum each tree contributes.
    """

    rounds: int = 4
    last: float = 0.45
    shapes: int = 40
    programs: int = 16
    first_programs: int = 32
    random: float = 0.25
    trees: int = 300
    depth: int = 5
    learning_rate: float = 0.1


@dataclass(frozen=True)
class TrainConfig:
    """A training run; the defaults are those that the policy of this package was trained with.

    Attributes:
        environment: `cursor`, `transform` or `knob`.
        settings: What it is made with besides; see `environments.DEFAULTS`.
        suite: Suite of the workloads to train on.
        workloads: Keys of workloads to train on besides.
        most: Of more workloads in the suite that many are drawn.
        random_products: Matrix products of random sides from 16 to 512 to train on besides.
        cores: Cores that kernels run on.
        reward: `model` learns a cost model of measured programs along the way, `measured` measures
            what every step leads to, `toy` is a made-up speed with a known best.
        pay: Whether every step pays what it gains, or the last one for all.
        algorithm: `ppo` or `dqn`.
        steps: Steps of the environments, in all.
        checkpoint_every: Steps between two checkpoints.
        seed: Seed of all that is drawn.
        network: The policy's network.
        ppo: Settings of `ppo`.
        dqn: Settings of `dqn`.
        rounds: Settings of `reward = "model"`.
    """

    environment: str = "transform"
    settings: Mapping[str, Any] = field(
        default_factory=lambda: {"observation": "graph", "finished": True}
    )
    suite: str = "looptune-train"
    workloads: tuple[str, ...] = ()
    most: int = 160
    random_products: int = 32
    cores: int = 1
    reward: Reward = "model"
    pay: Literal["step", "end"] = "step"
    algorithm: Algorithm = "ppo"
    steps: int = 300_000
    checkpoint_every: int = 10_000
    seed: int = 0
    network: Network = Network()
    ppo: PPO = PPO()
    dqn: DQN = DQN()
    rounds: Rounds = Rounds()

    @classmethod
    def read(cls, path: Path) -> TrainConfig:
        """Read a configuration from a TOML or JSON file; what it leaves out is the default.

        Raises:
            ConfigError: it does not parse, or a setting is unknown or of the wrong type.
            FileNotFoundError: there is no such file.
        """
        text = path.read_text()
        try:
            value = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        except ValueError as error:
            kind = "JSON" if path.suffix == ".json" else "TOML"
            raise ConfigError(f"{path} is not {kind}: {error}") from error
        return cls.of(value)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TrainConfig:
        """A configuration from plain values, as `to_json` gives them.

        Raises:
            ConfigError: a setting is unknown, of the wrong type, or out of range.
        """
        if isinstance(value, Mapping) and value.get("environment", cls.environment) != (
            cls.environment
        ):
            value = {"settings": {}, **value}  # those that are usual are another environment's
        return _checked(_read(cls, value, ""))

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def changed(self, **settings: Any) -> TrainConfig:
        """A copy with other settings; those that are None stay as they are.

        Raises:
            ConfigError: one is unknown, of the wrong type, or out of range.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        if given.get("environment", self.environment) != self.environment:
            given.setdefault("settings", {})
        return TrainConfig.of(self.to_json() | given)


def to_toml(config: TrainConfig) -> str:
    """The configuration as TOML, which `TrainConfig.read` reads."""
    lines, tables = [], []
    for name, value in config.to_json().items():
        if isinstance(value, dict):
            inside = [f"{key} = {json.dumps(entry)}" for key, entry in value.items()]
            tables += ["", f"[{name}]", *inside]
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join([*lines, *tables, ""])


def _checked(config: TrainConfig) -> TrainConfig:
    try:
        settings_of(config.environment, config.settings)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if config.algorithm == "dqn" and config.environment != "cursor":
        raise ConfigError(
            "`algorithm = dqn` knows no masks, and is for the cursor only: take ppo, or "
            "`environment = cursor`"
        )
    if config.reward in ("model", "toy") and config.environment == "knob":
        raise ConfigError(
            f"`reward = {config.reward}` is of loop nests: the environment of knobs takes "
            "`reward = measured`"
        )
    counts = {
        "steps": config.steps,
        "checkpoint_every": config.checkpoint_every,
        "most": config.most,
        "cores": config.cores,
        "rounds.rounds": config.rounds.rounds,
        "rounds.shapes": config.rounds.shapes,
        "ppo.envs": config.ppo.envs,
        "dqn.envs": config.dqn.envs,
    }
    if not 0 < config.rounds.last <= 1:
        raise ConfigError(f"`rounds.last` is a share of the steps, not {config.rounds.last}")
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"`{name}` is 1 or more, not {count}")
    if config.checkpoint_every > config.steps:
        return replace(config, checkpoint_every=config.steps)
    return config


def _read(kind: type[Part], value: Any, where: str) -> Part:
    """A dataclass from plain values."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"`{where or 'the configuration'}` is a table of settings, not {value!r}")
    hints = get_type_hints(kind)
    known = {entry.name for entry in fields(kind)}  # type: ignore[arg-type]
    for name in value:
        if name not in known:
            raise ConfigError(
                f"there is no setting `{where}{name}`; there are {', '.join(sorted(known))}"
            )
    return kind(**{name: _value(hints[name], given, where + name) for name, given in value.items()})


def _value(kind: Any, given: Any, where: str) -> Any:
    """A setting's value, checked and made of its type."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _read(kind, given, f"{where}.")
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        if given not in inside:
            raise ConfigError(f"`{where}` is one of {', '.join(inside)}, not {given!r}")
        return given
    if origin is tuple:
        if not isinstance(given, (list, tuple)):
            raise ConfigError(f"`{where}` is a list, not {given!r}")
        return tuple(_value(inside[0], entry, where) for entry in given)
    if kind is float and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    wanted = Mapping if origin is not None else kind
    if not isinstance(given, wanted) or (kind is int and isinstance(given, bool)):
        name = "a table" if origin is not None else f"of type {kind.__name__}"
        raise ConfigError(f"`{where}` is {name}, not {given!r}")
    return given
