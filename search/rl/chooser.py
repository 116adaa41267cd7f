"""Choosing a program by a policy: nothing is measured, at most a model is asked."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm

from ...costmodel.base import ModelFileError
from ...costmodel.features.schemas import STATEMENTS
from ...costmodel.files import load_model
from ...data.candidate import Candidate
from ...data.space import Scheduled
from ...data.spaces import NamedSpace, make_space
from ...data.target import num_cores
from ...data.workload import Workload
from .environments import space_of
from .nest_features import SCHEMA as NESTS
from .policy import SHIPPED, Policy
from .speed import ModelSpeed, NestSpeed, Speed

NO_MODEL = "none"
"""What a model is called where the policy is to choose alone."""

_MODEL_SUFFIX = ".ttm"


@dataclass(frozen=True)
class Choice:
    """What was chosen for a workload.

    Attributes:
        space: Its space.
        candidates: What the policy made, the best first.
        scheduled: The first of them, as a program.
        seconds: How long it took, by part: `space`, `rollouts`, `rank`, `schedule`.
    """

    space: NamedSpace
    candidates: list[Candidate]
    scheduled: Scheduled
    seconds: dict[str, float]


class Chooser:
    """Chooses programs by a policy.

    Without a model the one that the policy prefers is chosen; with one the best of several, by
    what the model says.

    Args:
        policy: The policy.
        target: The target that programs are chosen for.
        speed: What ranks the episodes' ends; None leaves them in the policy's own order.
        rollouts: Episodes that a model chooses from.
        seed: Seed of the episodes.
    """

    def __init__(
        self,
        policy: Policy,
        target: tvm.target.Target,
        *,
        speed: Speed | None = None,
        rollouts: int = 12,
        seed: int = 0,
    ) -> None:
        if rollouts < 1:
            raise ValueError(f"there is 1 rollout at least, not {rollouts}")
        self.policy = policy
        self.target = target
        self.speed = speed
        self.rollouts = rollouts
        self.seed = seed

    def choose(self, workload: Workload, at_least: int = 1) -> Choice:
        """Choose a program for a workload.

        Args:
            workload: The workload.
            at_least: How many candidates are wanted at least, as far as there are so many.

        Raises:
            WorkloadError: the policy can't act on it.
        """
        clock = _Clock()
        space = make_space(space_of(self.policy.env), workload, self.target)
        clock.stop("space")
        wanted = at_least if self.speed is None else max(at_least, self.rollouts)
        rng = np.random.default_rng(self.seed)
        found = self.policy.rollouts(space, wanted, rng, greedy=wanted == 1)
        clock.stop("rollouts")
        if self.speed is not None:
            values = self.speed([(space, candidate) for candidate in found])
            found = [found[i] for i in np.argsort(-values, kind="stable").tolist()]
        clock.stop("rank")
        scheduled = space.schedule(found[0])
        clock.stop("schedule")
        return Choice(space, found, scheduled, clock.seconds)


class _Clock:
    """Seconds by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def stop(self, part: str) -> None:
        now = time.monotonic()
        self.seconds[part], self._last = now - self._last, now


def find_model(
    model: str | os.PathLike[str] | None, policy: str | os.PathLike[str] | None
) -> Path | None:
    """The file of the model that ranks what a policy makes, or None.

    Args:
        model: The file; `none` for none; None for the one that lies beside the policy, by the same
            name with the suffix `.ttm`, if there is one.
        policy: The policy's file; None for the one that comes with this package.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if model == NO_MODEL:
        return None
    if model is None:
        beside = Path(SHIPPED if policy is None else policy).with_suffix(_MODEL_SUFFIX)
        return beside if beside.is_file() else None
    if not Path(model).is_file():
        raise FileNotFoundError(f"there is no model {model}; name a file, or `{NO_MODEL}`")
    return Path(model)


def load_speed(path: Path, target: tvm.target.Target) -> Speed:
    """A saved cost model as what ranks candidates.

    Raises:
        ModelFileError: it is no model's file, or of a model on other features than those of loop
            nests or of statements.
    """
    model = load_model(path)
    schema = getattr(model, "schema", None)
    name = None if schema is None else schema.name
    if name == NESTS.name:
        return NestSpeed(load_model(path, NESTS), num_cores(target))
    if name == STATEMENTS.name:
        return ModelSpeed(load_model(path, STATEMENTS), target)
    raise ModelFileError(
        f"{path} holds a model on the features `{name}`; what a policy makes is ranked by one on "
        f"`{NESTS.name}` or `{STATEMENTS.name}`"
    )
