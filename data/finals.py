"""The last round: a few programs timed side by side, and their outputs checked."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .build import Ran, run_built, time_built
from .measure import UNTUNED_LIMIT_S, LocalMeasurer
from .verify import Reference, is_floating
from .worker import Artifact, NumpyProgram, Program, Timing

# Rounds of the interleaved timing: enough for a median to shrug off a disturbed one.
_ROUNDS = 9
# A program whose runs took this long in all, in seconds, sits out. At least one is timed.
_SHARE_S = 0.2


@dataclass(frozen=True)
class Contestant:
    """How a program did in the interleaved timing.

    Attributes:
        times_s: Seconds per run, one entry a round; empty where it failed.
        failure: Why it failed, or None.
        outputs: Every argument as it is after a run, where that was asked for.
    """

    times_s: tuple[float, ...]
    failure: str | None = None
    outputs: list[Any] | None = None

    @property
    def latency_s(self) -> float:
        """Median over the rounds; infinity for a failure."""
        return statistics.median(self.times_s) if self.times_s else float("inf")


def time_interleaved(
    measurer: LocalMeasurer,
    programs: Sequence[Program | NumpyProgram | Artifact],
    rounds: int = _ROUNDS,
    repeat_s: float = 0.01,
    run: int = 0,
) -> list[Contestant]:
    """Time programs in turn, round after round, so that drift of the machine hits all alike.

    A program that has taken up more than its share of time (the untuned one, often) sits out
    the rest of the rounds.

    Args:
        measurer: Runs the programs.
        programs: What to time.
        rounds: How often.
        repeat_s: The least that each of them runs in a round, in seconds.
        run: How many of the programs, from the first on, are also run on arguments of their own,
            for their outputs.
    """
    # A first run as long as the share is taken for the kernel's time, cold or not.
    timing = Timing(1, repeat_s, budget_s=_SHARE_S / 2)
    # Winners have run before, and a library may set itself up in its first call: no hurry.
    limit_s = measurer.run_limit_s + 10.0
    built = measurer.builder.build(programs, patient=True)
    times: list[list[float]] = [[] for _ in programs]
    try:
        for _ in range(rounds):
            for own, item in zip(times, built, strict=True):
                if sum(own) > _SHARE_S:
                    continue
                timed = time_built(item, timing, limit_s)
                if timed is not None:
                    own.extend(timed.repeats)
        runs: list[Ran | None] = [None] * len(built)
        runs[:run] = run_built(built[:run], limit_s)
    finally:
        for item in built:
            item.close()
    return [
        Contestant(
            tuple(own) if item.failure is None else (),
            item.detail or item.failure,
            None if ran is None else ran.outputs,
        )
        for own, item, ran in zip(times, built, runs, strict=True)
    ]


def make_reference(measurer: LocalMeasurer) -> Reference:
    """Run the untuned program and its float64 twin on the measurer's inputs.

    The untuned program's time then limits how long a candidate of the measurer's may run.

    Raises:
        RuntimeError: the untuned program does not compile or run.
    """
    workload = measurer.workload
    programs = [measurer.program(workload.mod)]
    twin = workload.float64_mod()
    if twin is not None:
        inputs = [
            array.astype(np.float64) if is_floating(array.dtype) else array
            for array in workload.make_inputs(measurer.input_seed)
        ]
        name = f"{measurer.inputs}:float64"
        measurer.send_inputs(name, inputs)
        programs.append(replace(measurer.program(twin), inputs=name))
    built = measurer.builder.build(programs, patient=True)
    try:
        untuned, *exact = run_built(built, UNTUNED_LIMIT_S)
    finally:
        for item in built:
            item.close()
    if untuned is None:
        why = built[0].detail or built[0].failure
        raise RuntimeError(f"{workload.key} does not run even untuned: {why}")
    measurer.limit_runs(untuned.seconds)
    found = exact[0].outputs if exact and exact[0] is not None else None
    return Reference(workload.arguments, untuned.outputs, found)


@dataclass(frozen=True)
class Verdict:
    """What the check of a program's outputs came to.

    Attributes:
        right: Whether they are right.
        wrong: Whether they are wrong; a program that did not run is neither.
        detail: What is wrong.
    """

    right: bool
    wrong: bool = False
    detail: str = ""


def judge(reference: Reference, contestant: Contestant) -> Verdict:
    """What the reference says of a program's outputs."""
    if contestant.outputs is None:
        return Verdict(False, detail=contestant.failure or "it was not run")
    problem = reference.judge(contestant.outputs)
    return Verdict(problem is None, problem is not None, problem or "")


def check_outputs(
    measurer: LocalMeasurer, reference: Reference, mods: Sequence[Any]
) -> list[Verdict]:
    """Run scheduled modules and judge their outputs."""
    programs = [measurer.program(mod) for mod in mods]
    ran = time_interleaved(measurer, programs, rounds=0, run=len(programs))
    return [judge(reference, contestant) for contestant in ran]
