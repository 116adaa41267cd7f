"""Measuring candidates on this machine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import psutil
import tvm

from .build import Builder, Built, time_built
from .candidate import Candidate, InvalidCandidate
from .host import this_host, usable_cpus
from .install import versions
from .pool import WorkerServer
from .record import OnRecord, Record
from .space import Space
from .target import num_cores, target_string
from .worker import Program, Timing
from .workload import Workload

# As many programs are compiled and held before they are timed. Each holds some 30 MB; its copy of
# the arguments comes only when it is timed, and goes right after.
_WAVE = 64
# A candidate this many times slower than the best so far is run twice, and one that is less slow
# has a single repeat: they can't win, and a model needs no more to know that.
CUT_FACTOR = 4.0
BRIEF_FACTOR = 1.5
# What the untuned program may take, in seconds a run.
UNTUNED_LIMIT_S = 120.0

UNTUNED = Candidate("untuned", ())
"""The workload's program as it stands, without a schedule."""


class Measurer(Protocol):
    """Turns candidates into records."""

    def measure(
        self, space: Space, candidates: Sequence[Candidate], on_record: OnRecord | None = None
    ) -> list[Record]:
        """One record a candidate, in their order.

        Never raises for a bad candidate: its record says what went wrong.

        Args:
            space: The space that the candidates are of.
            candidates: What to measure.
            on_record: Called with each record as soon as it is there, in the order of completion.
        """


class LocalMeasurer:
    """Compiles in parallel and times one candidate at a time, on this machine.

    Args:
        workload: What is tuned.
        target: The target; its `num-cores` is the number of threads that kernels run with.
        repeats: Measurements of each candidate.
        repeat_s: The least that a measurement lasts, in seconds.
        jobs: How many candidates compile at once; by default one a usable CPU.
        memory_bytes: What compiling and running a candidate may take; by default 4 GiB, or a third
            of what is free.
        input_seed: Seed of the random inputs.
    """

    def __init__(
        self,
        workload: Workload,
        target: tvm.target.Target,
        *,
        repeats: int = 3,
        repeat_s: float = 0.006,
        jobs: int | None = None,
        memory_bytes: int | None = None,
        input_seed: int = 0,
    ) -> None:
        self.workload = workload
        self.target = target
        self.repeats = repeats
        self.repeat_s = repeat_s
        self.jobs = jobs or len(usable_cpus())
        self.memory_bytes = memory_bytes or min(4 << 30, psutil.virtual_memory().available // 3)
        self.input_seed = input_seed
        self.best_s = float("inf")
        self.run_limit_s = 20.0
        self.seconds = {"compile": 0.0, "time": 0.0}
        self._target_json = target_string(target)
        self._provenance: dict[str, Any] = {
            "workload": workload.key,
            "identity": workload.identity,
            "target": target_string(target),
            "host": this_host().key,
            "versions": versions(),
        }
        self._server = WorkerServer(num_cores(target), self._target_json)
        self.builder = Builder(self._server, self.jobs)

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._server.close()

    def send_inputs(self, name: str, arrays: list[Any]) -> None:
        """Give the workers a set of arguments under a name of the caller's."""
        self._server.send_inputs(name, arrays)

    @cached_property
    def inputs(self) -> str:
        """Name of the workload's own input set, which is sent on first use."""
        digest = hashlib.sha256(self.workload.key.encode()).hexdigest()[:16]
        name = f"{digest}:{self.input_seed}"
        self._server.send_inputs(name, self.workload.make_inputs(self.input_seed))
        return name

    def program(self, mod: tvm.IRModule) -> Program:
        """A scheduled module, ready to be sent to a worker with the workload's inputs."""
        return Program(tvm.ir.save_json(mod), self._target_json, self.inputs, self.memory_bytes)

    def measure(
        self, space: Space, candidates: Sequence[Candidate], on_record: OnRecord | None = None
    ) -> list[Record]:
        """See `Measurer.measure`."""
        records: dict[int, Record] = {}
        legal: dict[int, tuple[Candidate, tvm.IRModule]] = {}
        for index, candidate in enumerate(candidates):
            try:
                scheduled = space.schedule(candidate)
            except InvalidCandidate as error:
                records[index] = self._record(candidate, failure="invalid", detail=str(error))
                if on_record is not None:
                    on_record(records[index])
            else:
                legal[index] = (scheduled.candidate, scheduled.mod)
        measured = self.measure_modules(list(legal.values()), on_record)
        records.update(zip(legal, measured, strict=True))
        return [records[index] for index in range(len(candidates))]

    def measure_modules(
        self,
        named: Sequence[tuple[Candidate, tvm.IRModule]],
        on_record: OnRecord | None = None,
    ) -> list[Record]:
        """Measure scheduled modules, each under a candidate's name; otherwise as `measure`."""
        found: dict[int, Record] = {}

        def done(index: int, record: Record) -> None:
            found[index] = record
            if record.valid:
                self.best_s = min(self.best_s, record.latency_s)
            if on_record is not None:
                on_record(record)

        entries = [(index, candidate, mod) for index, (candidate, mod) in enumerate(named)]
        for start in range(0, len(entries), _WAVE):
            self._measure_wave(entries[start : start + _WAVE], done)
        return [found[index] for index in range(len(named))]

    def limit_runs(self, untuned_s: float) -> None:
        """Set how long a candidate may run, from how long the untuned program takes."""
        self.run_limit_s = min(UNTUNED_LIMIT_S, max(1.0, 3.0 * untuned_s))

    def _measure_wave(
        self,
        wave: Sequence[tuple[int, Candidate, tvm.IRModule]],
        done: Callable[[int, Record], None],
    ) -> None:
        begun = time.monotonic()
        wave_built = self.builder.build([self.program(mod) for _, _, mod in wave])
        compiled = time.monotonic()
        self.seconds["compile"] += compiled - begun
        try:
            for (index, candidate, _), built in zip(wave, wave_built, strict=True):
                done(index, self._time(candidate, built))
        finally:
            for built in wave_built:
                built.close()
            self.seconds["time"] += time.monotonic() - compiled

    def _time(self, candidate: Candidate, built: Built) -> Record:
        timing = Timing(
            self.repeats,
            self.repeat_s,
            cut_s=CUT_FACTOR * self.best_s,
            brief_s=BRIEF_FACTOR * self.best_s,
        )
        timed = time_built(built, timing, self._run_limit_s())
        if built.worker is not None:
            built.worker.end()  # it holds a copy of the arguments, and threads
        if timed is None:
            return self._record(
                candidate,
                failure=built.failure,
                detail=built.detail,
                compile_s=built.compile_s,
            )
        return self._record(
            candidate, repeats=timed.repeats, cut=timed.cut, compile_s=built.compile_s
        )

    def _run_limit_s(self) -> float:
        """How long a run may take now: a hundred times the best is beyond hope."""
        return min(self.run_limit_s, max(1.0, 100.0 * self.best_s))

    def _record(self, candidate: Candidate, **outcome: Any) -> Record:
        return Record(candidate=candidate, time=time.time(), **self._provenance, **outcome)
