"""Training a policy, in a folder that a training can be resumed from.

See `folder` for what that holds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...data.host import this_host
from ...data.install import versions
from ...data.store import Store
from ...data.suites import is_held_out, suite
from ...data.target import cpu_target, target_string
from ...data.workload import Workload, WorkloadError, workload
from ..run_folder import write_json
from .callbacks import OnPoint
from .config import ConfigError, TrainConfig
from .environments import make_env, make_spaces
from .folder import CHECKPOINT, MODEL, POLICY, RECORDS, RESULTS, claim
from .learner import Learner
from .policy import Policy, no_speed
from .program_model import fit, judge, samples_of, to_json
from .rounds import Programs
from .speed import MeasuredSpeed, NestSpeed, Speed, ToySpeed
from .tuning_env import Spaces

OnMeasured = Callable[[int, int, int], None]
"""Called with the number of a round, how many of its programs are measured, and of how many."""

# Products of random sides that are trained on besides a suite's.
_SIDES = (16, 512)
_LARGEST = 1 << 25


@dataclass(frozen=True)
class Trained:
    """What a training came to.

    Attributes:
        policy: The policy.
        path: Its file.
        results: The learning curve, the rounds, and how long what took.
    """

    policy: Policy
    path: Path
    results: dict[str, Any]


def workloads_of(config: TrainConfig) -> list[Workload]:
    """The workloads that a run trains on: none of them is held out.

    Raises:
        ConfigError: there is none left, or a key or a suite is unknown.
    """
    rng = np.random.default_rng([config.seed, 0])
    try:
        found = list(suite(config.suite)) if config.suite else []
        given = [Workload.from_key(key) for key in config.workloads]
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    if len(found) > config.most:
        at = rng.choice(len(found), config.most, replace=False)
        found = [found[int(number)] for number in at]
    found += given
    low, high = np.log2(_SIDES)
    for _ in range(config.random_products):
        m, n, k = (int(side) for side in np.round(2 ** rng.uniform(low, high, 3)))
        k = max(1, min(k, _LARGEST // (m * n)))
        found.append(workload("matmul", m, n, k))
    unique = {item.key: item for item in found if not is_held_out(item)}
    if not unique:
        raise ConfigError(
            "there is no workload to train on: name a `suite` or `workloads` that are not held out "
            "for evaluation"
        )
    return list(unique.values())


def train(
    config: TrainConfig,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    on_point: OnPoint | None = None,
    on_measured: OnMeasured | None = None,
) -> Trained:
    """Train a policy, or go on with a training that was interrupted.

    Args:
        config: What to train, and how.
        out: The folder.
        resume: Whether to go on with what the folder holds.
        on_point: Called with each point of the learning curve.
        on_measured: Told how far the measuring of a round is.

    Raises:
        TrainingError: the folder holds a training already and is not to be resumed, or holds none
            and is, or another process trains in it.
        CheckpointError: its checkpoint can't be gone on from.
        ConfigError: the configuration can't be used; see `workloads_of`.
        WorkloadError: a workload has no loop nest to shape.
        KeyboardInterrupt: interrupted; what was learnt until the last checkpoint is kept.
    """
    folder, spaces = Path(out), _spaces_of(config)
    with ExitStack() as stack:
        stack.callback(claim(folder, config, resume).release)
        return _Run(config, spaces, folder, stack, on_point, on_measured).finish(resume)


def _spaces_of(config: TrainConfig) -> Spaces[Any]:
    """The spaces of a run's workloads, each of which was looked at.

    A workload without a nest is to be met now, and not after an hour.
    """
    target = cpu_target({"kind": "llvm", "num-cores": config.cores})
    spaces = make_spaces(config.environment, workloads_of(config), target)
    env = make_env(config.environment, config.settings, spaces, no_speed)
    for item in spaces.workloads:
        env.reset(seed=0, options={"workload": item})
    return spaces


class _Run:
    """A training in its folder."""

    def __init__(
        self,
        config: TrainConfig,
        spaces: Spaces[Any],
        folder: Path,
        stack: ExitStack,
        on_point: OnPoint | None,
        on_measured: OnMeasured | None,
    ) -> None:
        self.config = config
        self.folder = folder
        self.on_measured = on_measured
        self.spaces = spaces
        self.seconds = {"measure": 0.0, "fit": 0.0, "train": 0.0}
        self.notes: list[dict[str, Any]] = []
        speed: Speed = ToySpeed()
        if config.reward == "measured":
            speed = stack.enter_context(MeasuredSpeed(spaces.target))
        self.learner = Learner(
            config, spaces, speed, on_point=on_point, tensorboard=folder / "tensorboard"
        )
        stack.callback(self.learner.env.close)

    def finish(self, resume: bool) -> Trained:
        """Do what is left to do."""
        if resume and (self.folder / CHECKPOINT).exists():
            state = self.learner.restore(self.folder / CHECKPOINT)
            self.seconds, self.notes = dict(state["seconds"]), list(state["notes"])
        if self.config.reward == "model":
            self._rounds()
        else:
            self._learn(self.config.steps)
        policy = self.learner.policy(self._meta())
        path = self.folder / POLICY
        policy.save(path)
        results = self._results()
        write_json(self.folder / RESULTS, results)
        return Trained(policy, path, results)

    def _rounds(self) -> None:
        """Measure programs, fit the model, train the policy, and again."""
        config, learner = self.config, self.learner
        settings = config.rounds
        store = Store(self.folder / RECORDS)
        programs = Programs(settings, self.spaces, store, config.seed)
        speed: NestSpeed | None = None
        for number in range(settings.rounds):
            until = self._until(number)
            if learner.steps >= until:
                continue
            resumed = len(self.notes) > number
            if not resumed:
                if number and speed is None:  # stopped between two rounds
                    before = programs.until(number - 1)
                    speed = fit(before, self.spaces, settings, config.seed).speed
                self.notes.append(self._measure(programs, number, speed))
            begun = time.monotonic()
            fitted = fit(programs.until(number), self.spaces, settings, config.seed)
            speed = fitted.speed
            self._save_model(programs, speed)
            self.seconds["fit"] += time.monotonic() - begun
            if resumed:
                learner.pay_by(speed)
            else:
                self.notes[number] |= {
                    "programs": fitted.programs,
                    "held_out_shapes": to_json(fitted.held_out),
                }
                learner.begin_anew(speed, until)
            learner.curve.stage = number
            self._learn(until)

    def _until(self, number: int) -> int:
        """How many steps there are at the end of a round."""
        settings, steps = self.config.rounds, self.config.steps
        if number == settings.rounds - 1:
            return steps
        return round(steps * (1.0 - settings.last) * (number + 1) / (settings.rounds - 1))

    def _save_model(self, programs: Programs, speed: NestSpeed) -> None:
        """Keep the model beside the policy: it also ranks what the policy makes."""
        model: Any = speed.model
        model.save(self.folder / MODEL, [item.identity for item in programs.workloads])

    def _measure(self, programs: Programs, number: int, speed: NestSpeed | None) -> dict[str, Any]:
        """Measure a round's programs; how the policy and the model before them fared by these."""
        begun = time.monotonic()
        env = make_env(self.config.environment, self.config.settings, self.spaces, no_speed)

        def told(done: int, total: int) -> None:
            if self.on_measured is not None:
                self.on_measured(number, done, total)

        measured = programs.measure(number, self.learner.policy({}), speed, env, told)
        self.seconds["measure"] += time.monotonic() - begun
        unseen = None
        if speed is not None:
            samples, owners = samples_of(programs.of(number), self.spaces)
            unseen = judge(speed.model, samples, owners) if len(samples) else None
        return {
            "round": number,
            "steps": self.learner.steps,
            "measured": measured,
            "of_best": programs.fared(number),
            "unseen": to_json(unseen),
        }

    def _learn(self, until: int) -> None:
        """Train up to so many steps, with a checkpoint now and then."""
        learner, every = self.learner, self.config.checkpoint_every
        while learner.steps < until:
            begun = time.monotonic()
            learner.learn(min(until, learner.steps + every))
            self.seconds["train"] += time.monotonic() - begun
            self._checkpoint()

    def _checkpoint(self) -> None:
        state = {"seconds": self.seconds, "notes": self.notes}
        self.learner.policy(self._meta()).save(self.folder / POLICY)
        write_json(self.folder / RESULTS, self._results())
        self.learner.save(self.folder / CHECKPOINT, state)

    def _meta(self) -> dict[str, Any]:
        """What a policy's file says of its training."""
        return {
            "config": self.config.to_json(),
            "workloads": [item.key for item in self.spaces.workloads],
            "target": target_string(self.spaces.target),
            "host": this_host().key,
            "steps": self.learner.steps,
            "seconds": {part: round(s, 1) for part, s in self.seconds.items()},
            "rounds": self.notes,
            "versions": versions(),
            "seed": self.config.seed,
        }

    def _results(self) -> dict[str, Any]:
        curve = self.learner.curve
        return self._meta() | {"curve": [point.to_json() for point in curve.points]}
