"""A trained policy: its file, and acting by it.

Acting needs torch and no stable-baselines3. Policies are shared as files without pickle, see
`costmodel.model_file`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .networks import Actor, one_thread  # first: its absence says which extra to install

# isort: split

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_weights
from safetensors.torch import save as save_weights

from ...costmodel.base import ModelFileError
from ...costmodel.model_file import ModelFile, StrPath
from ...data.candidate import Candidate
from ...data.spaces import NamedSpace
from .environments import VERSION, actions_of, columns_of, make_env, space_of
from .speed import Query, Speed
from .tuning_env import Spaces, TuningEnv

Array = npt.NDArray[np.float64]

KIND = "policy"
SHIPPED = Path(__file__).with_name("policies") / "contractions.ttp"
"""The policy of this package: for contractions, on one core."""

# How often episodes are drawn anew while candidates are missing, each time with less regard to
# what the policy prefers.
_TRIES = 4
_HOTTER = 1.5


class PolicyFileError(ValueError):
    """A policy's file that can't be used; the message names what it is and what was wanted."""


def no_speed(queries: Sequence[Query]) -> Array:
    """No reward, for acting."""
    return np.zeros(len(queries))


class Episode(NamedTuple):
    """What an episode saw and did.

    Attributes:
        observations: An observation a step.
        masks: What was legal, of shape (steps, actions).
        actions: What was done, of shape (steps, dimensions of an action).
    """

    observations: list[Any]
    masks: npt.NDArray[np.bool_]
    actions: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Policy:
    """What was trained to act in an environment.

    Attributes:
        env: The environment: `cursor`, `transform` or `knob`.
        settings: What it was made with; see `environments.make_env`.
        meta: How it was trained, as JSON: workloads, steps, seconds, versions, seeds.
        net: The network.
    """

    env: str
    settings: dict[str, Any]
    meta: dict[str, Any]
    net: Actor

    def make_env(self, spaces: Spaces[Any], speed: Speed | None = None) -> TuningEnv[Any]:
        """The environment that it acts in.

        Args:
            spaces: The workloads, and the spaces of theirs that the environment is over.
            speed: What is paid for; nothing by default.
        """
        return make_env(self.env, self.settings, spaces, speed or no_speed)

    def rollouts(
        self, space: NamedSpace, n: int, rng: np.random.Generator, *, greedy: bool = False
    ) -> list[Candidate]:
        """Candidates that episodes end with, `n` distinct ones at most; see `episodes`."""
        return list(self.episodes(space, n, rng, greedy=greedy))

    def episodes(
        self, space: NamedSpace, n: int, rng: np.random.Generator, *, greedy: bool = False
    ) -> dict[Candidate, Episode]:
        """Episodes by the candidates that they end with, `n` distinct ones at most.

        The first is of the episode that takes the preferred action at every step; in the others
        actions are drawn. They are taken in a batch, and no speed is asked for.

        Args:
            space: The space of the workload.
            n: How many candidates.
            rng: Draws the actions, and where episodes begin in the environment of knobs.
            greedy: Whether to do without the others.

        Raises:
            PolicyFileError: the policy is for another space.
            WorkloadError: the workload has nothing to shape, or more loops than the policy knows.
        """
        if space.name != space_of(self.env):
            raise PolicyFileError(
                f"the policy acts in the `{self.env}` environment, over the {space_of(self.env)} "
                f"space, and is given the {space.name} space: tune with --space "
                f"{space_of(self.env)}, or train one for that space (`tensortune rl train`)"
            )
        if n < 1:
            return {}
        only = _Only(space)
        envs = [self.make_env(only) for _ in range(1 if greedy else n)]
        masks: dict[Any, Any] = {}  # episodes begin alike, and masks take half of their time
        for env in envs:
            env.known_masks = masks
        found: dict[Candidate, Episode] = {}
        with torch.inference_mode(), one_thread():
            for number in range(1 if greedy else _TRIES):
                missing = len(envs) - len(found)
                if missing == 0:
                    break
                heat = np.full(missing, _HOTTER**number)
                if number == 0:
                    heat[0] = 0.0
                for candidate, episode in self._play(envs[:missing], heat, rng):
                    found.setdefault(candidate, episode)
        return found

    def choose(
        self, observations: Sequence[Any], masks: Array, heat: Array, rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Actions of shape (batch, dimensions of an action).

        Args:
            observations: One for each environment.
            masks: Their masks, of shape (batch, actions).
            heat: For each how little preferences count; at 0 the preferred action is taken.
            rng: Draws the actions.
        """
        logits = self.net(batch(observations)).double().numpy()
        logits = np.where(masks.astype(bool), logits, -np.inf)
        # Adding Gumbel noise to logits and taking the highest is drawing from their softmax.
        logits += heat[:, None] * rng.gumbel(size=logits.shape)
        values = actions_of(self.env, self.settings).values
        chosen: npt.NDArray[np.int64] = logits.reshape(len(logits), -1, values).argmax(-1)
        return chosen

    def _play(
        self, envs: Sequence[TuningEnv[Any]], heat: Array, rng: np.random.Generator
    ) -> list[tuple[Candidate, Episode]]:
        """An episode in each environment, and the candidate that it ends with."""
        seeds = rng.integers(2**31, size=len(envs)).tolist()
        seen = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
        steps: list[list[tuple[Any, Any, Any]]] = [[] for _ in envs]
        going = list(range(len(envs)))
        while going:
            masks = np.array([envs[at].action_masks() for at in going])
            actions = self.choose([seen[at] for at in going], masks, heat[going], rng)
            left = []
            for at, mask, action in zip(going, masks, actions, strict=True):
                steps[at].append((seen[at], mask, action))
                taken = action if self.env == "knob" else int(action[0])
                seen[at], _, terminated, truncated, _ = envs[at].step(taken)
                if not (terminated or truncated):
                    left.append(at)
            going = left
        found = []
        for env, taken_steps in zip(envs, steps, strict=True):
            observations, legal, done = zip(*taken_steps, strict=True)
            episode = Episode(list(observations), np.array(legal), np.array(done))
            found.append((env.candidate, episode))
        return found

    def save(self, path: StrPath) -> None:
        """Write the policy to a file, without pickle; others see the old file or the whole new."""
        weights = {name: part.contiguous() for name, part in self.net.state_dict().items()}
        actions = actions_of(self.env, self.settings)
        header = {
            "version": VERSION,
            "env": self.env,
            "settings": self.settings,
            "actions": list(actions.names),
            "columns": list(columns_of(self.env, self.settings)),
            "meta": self.meta,
        }
        parts = {"weights": save_weights(weights)}
        ModelFile(KIND, self.net.arguments, parts=parts, state=header).write(path)

    @classmethod
    def load(cls, path: StrPath) -> Policy:
        """Read what `save` wrote.

        Raises:
            PolicyFileError: it is no policy's file or a damaged one, of environments of another
                version, or of other actions or observations; both are named.
            FileNotFoundError: there is no such file.
        """
        try:
            file = ModelFile.read(path, KIND)
            _check(path, file.state)
            net = file.build(lambda **arguments: Actor(**arguments))
            net.load_state_dict(load_weights(file.parts["weights"]))
        except ModelFileError as error:
            raise PolicyFileError(str(error)) from error
        except (KeyError, TypeError, SafetensorError, RuntimeError) as error:
            raise PolicyFileError(f"{path} is no whole policy: {error}") from error
        net.eval()
        state = file.state
        return cls(str(state["env"]), dict(state["settings"]), dict(state["meta"]), net)


def shipped() -> Policy:
    """The policy that comes with this package.

    Raises:
        PolicyFileError: this installation has none.
    """
    if not SHIPPED.is_file():
        raise PolicyFileError(
            f"this installation has no trained policy ({SHIPPED} is missing): install the package "
            "again, or name the file of one of your own, which `tensortune rl train` makes"
        )
    return Policy.load(SHIPPED)


class _Only(Spaces[Any]):
    """A space that is there already, in the place of a set of workloads."""

    def __init__(self, space: NamedSpace) -> None:
        super().__init__([space.workload], space.target, lambda workload, target: space)


def _check(path: StrPath, state: Mapping[str, Any]) -> None:
    """Refuse a policy that would misread what it sees, or be misread."""
    if state["version"] != VERSION:
        raise PolicyFileError(
            f"{path} was trained in environments of version {state['version']}, and this library's "
            f"are of version {VERSION}: train it again (`tensortune rl train`)"
        )
    env, settings = str(state["env"]), dict(state["settings"])
    try:
        ours = {
            "actions": list(actions_of(env, settings).names),
            "columns": list(columns_of(env, settings)),
        }
    except ValueError as error:
        raise PolicyFileError(f"{path}: {error}") from error
    for what, known in ours.items():
        given = list(state[what])
        if given != known:
            other = [name for name in given if name not in known] or given
            raise PolicyFileError(
                f"{path} has {len(given)} {what} ({', '.join(map(str, other[:4]))} ...), and the "
                f"`{env}` environment of this library {len(known)} "
                f"({', '.join(known[:4])} ...): train it again (`tensortune rl train`)"
            )


def batch(observations: Sequence[Any]) -> Any:
    """Observations as the network takes them: a tensor, or one for each part."""
    if isinstance(observations[0], dict):
        return {
            key: torch.from_numpy(np.stack([seen[key] for seen in observations]))
            for key in observations[0]
        }
    return torch.from_numpy(np.stack(observations))
