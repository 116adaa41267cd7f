"""The last round: a few programs timed side by side, and their outputs checked."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .build import run_built, time_built
from .measure import LocalMeasurer
from .verify import Reference
from .worker import NumpyProgram, Program, Timing

# Rounds of the interleaved timing: enough for a median to shrug off a disturbed one.
_ROUNDS = 9
# A program whose runs took this long in all, in seconds, sits out. At least one is timed.
_SHARE_S = 0.5


@dataclass(frozen=True)
class Contestant:
    """How a program did in the interleaved timing.

    Attributes:
        times_s: Seconds per run, one entry a round; empty where it failed.
        failure: Why it failed, or None.
    """

    times_s: tuple[float, ...]
    failure: str | None = None

    @property
    def latency_s(self) -> float:
        """Median over the rounds; infinity for a failure."""
        return statistics.median(self.times_s) if self.times_s else float("inf")


def time_interleaved(
    measurer: LocalMeasurer,
    programs: Sequence[Program | NumpyProgram],
    rounds: int = _ROUNDS,
    repeat_s: float = 0.02,
) -> list[Contestant]:
    """Time programs in turn, round after round, so that drift of the machine hits all alike.

    A program that has taken up more than its share of time (the untuned one, often) sits out
    the rest of the rounds.
    """
    built = measurer.builder.build(programs)
    times: list[list[float]] = [[] for _ in programs]
    try:
        for _ in range(rounds):
            for own, item in zip(times, built, strict=True):
                if sum(own) > _SHARE_S:
                    continue
                timed = time_built(item, Timing(1, repeat_s), measurer.run_limit_s)
                if timed is not None:
                    own.extend(timed.repeats)
    finally:
        for item in built:
            item.close()
    return [
        Contestant(tuple(own) if item.failure is None else (), item.detail or item.failure)
        for own, item in zip(times, built, strict=True)
    ]


def make_reference(measurer: LocalMeasurer) -> Reference:
    """Run the untuned program and its float64 twin on the measurer's inputs.

    Raises:
        RuntimeError: the untuned program itself does not run.
    """
    workload = measurer.workload
    programs = [measurer.program(workload.mod)]
    twin = workload.float64_mod()
    if twin is not None:
        inputs = [
            array.astype(np.float64) if argument.dtype.startswith(("float", "bfloat")) else array
            for array, argument in zip(
                workload.make_inputs(measurer.input_seed), workload.arguments, strict=True
            )
        ]
        name = f"{measurer.inputs}:float64"
        measurer.send_inputs(name, inputs)
        wide = measurer.program(twin)
        programs.append(Program(wide.mod, wide.target, name, wide.memory_bytes))
    built = measurer.builder.build(programs)
    try:
        outputs = [run_built(item, max(60.0, measurer.run_limit_s)) for item in built]
    finally:
        for item in built:
            item.close()
    if outputs[0] is None:
        raise RuntimeError(f"the untuned program does not run: {built[0].detail}")
    return Reference(workload.arguments, outputs[0], outputs[1] if twin is not None else None)


def check_output(measurer: LocalMeasurer, reference: Reference, mod: Any) -> str | None:
    """Run a scheduled module and judge its outputs: None when they are right, else why not."""
    (built,) = measurer.builder.build([measurer.program(mod)])
    try:
        outputs = run_built(built, measurer.run_limit_s)
    finally:
        built.close()
    if outputs is None:
        return built.detail or str(built.failure)
    return reference.judge(outputs)
