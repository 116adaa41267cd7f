"""Compiling programs in parallel, and timing them one at a time, under deadlines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from .pool import Worker, WorkerGone, WorkerServer
from .record import Failure
from .worker import Artifact, NumpyProgram, Program, Timed, Timing

# A compile deadline is this many times the median so far, within these bounds. Of 1,500 random
# candidates of conv2d and of matmul, the 4 and 8 in 100 that take longer take three tenths of all
# time, and 1 of the 60 fastest is among them.
COMPILE_FACTOR = 6.0
COMPILE_FLOOR_S = 0.75
COMPILE_CEILING_S = 20.0

# What a worker is asked to do with a program.
_VERBS = {Program: "compile", NumpyProgram: "numpy", Artifact: "load"}


@dataclass
class Built:
    """What became of a program: a worker that holds it, or a failure."""

    worker: Worker | None
    compile_s: float
    failure: Failure | None = None
    detail: str = ""

    def fail(self, failure: Failure, detail: str) -> None:
        """Turn into a failure, and end the worker."""
        self.failure, self.detail = failure, detail
        self.close()

    def close(self) -> None:
        """End the worker; harmless the second time."""
        if self.worker is not None:
            self.worker.kill()
            self.worker = None


class Builder:
    """Compiles on every core, each program in a worker of its own.

    Args:
        server: Where workers come from.
        jobs: How many compile at once.
    """

    def __init__(self, server: WorkerServer, jobs: int) -> None:
        self.server = server
        self.jobs = jobs
        self._seen_s: list[float] = []

    @property
    def deadline_s(self) -> float:
        """How long a compilation may take now, judged by those before it."""
        if len(self._seen_s) < 2:
            return COMPILE_CEILING_S
        typical = statistics.median(self._seen_s[-200:])
        return min(COMPILE_CEILING_S, max(COMPILE_FLOOR_S, COMPILE_FACTOR * typical))

    def build(
        self, programs: Sequence[Program | NumpyProgram | Artifact], *, patient: bool = False
    ) -> list[Built]:
        """Compile all of them; the caller closes what is built.

        Args:
            programs: What to compile.
            patient: For programs that are no candidates of a search: they get the longest deadline,
                and say nothing of how long a candidate takes.
        """
        built: dict[int, Built] = {}
        running: dict[Any, tuple[int, Worker, float]] = {}
        queue = list(enumerate(programs))[::-1]
        try:
            while queue or running:
                while queue and len(running) < self.jobs:
                    index, program = queue.pop()
                    worker = self.server.fork()
                    worker.ask(_VERBS[type(program)], program)
                    running[worker.connection] = (index, worker, time.monotonic())
                for connection in wait(list(running), timeout=0.02):
                    index, worker, start = running.pop(connection)
                    built[index] = _collect(worker, time.monotonic() - start)
                    if built[index].failure is None and not patient:
                        self._seen_s.append(time.monotonic() - start)
                limit_s = COMPILE_CEILING_S if patient else self.deadline_s
                for index, late in _kill_late(running, limit_s).items():
                    built[index] = late
                    if not patient:  # so that a deadline that is too short grows
                        self._seen_s.append(limit_s)
        except BaseException:
            for _, worker, _ in running.values():
                worker.kill()
            for item in built.values():
                item.close()
            raise
        return [built[index] for index in range(len(programs))]


def _collect(worker: Worker, elapsed_s: float) -> Built:
    """What a worker has to say when it is done."""
    built = Built(worker, elapsed_s)
    try:
        verdict, value = worker.answer()
    except WorkerGone as gone:
        built.fail("compile", str(gone))
        return built
    if verdict == "failed":
        built.fail("compile", value)
    else:
        built.compile_s = value
    return built


def _kill_late(running: dict[Any, tuple[int, Worker, float]], limit_s: float) -> dict[int, Built]:
    """Kill what compiles for longer than the limit."""
    late: dict[int, Built] = {}
    for connection, (index, worker, start) in list(running.items()):
        elapsed_s = time.monotonic() - start
        if elapsed_s > limit_s:
            del running[connection]
            late[index] = Built(worker, elapsed_s)
            late[index].fail("timeout", f"compiling took longer than {limit_s:.1f} s")
    return late


def time_built(built: Built, timing: Timing, run_limit_s: float) -> Timed | None:
    """Time what was built, alone; None and a failure in `built` when that goes wrong.

    The worker runs only meanwhile: afterwards it is paused, until it is asked to time again.

    Args:
        built: A program that compiled.
        timing: How.
        run_limit_s: How long a single run may take.
    """
    deadline_s = 3 * run_limit_s + 4 * timing.repeats * timing.repeat_s + timing.budget_s + 1.0
    if built.worker is None:
        return None
    built.worker.resume()
    built.worker.ask("time", timing)
    value = _answer(built, deadline_s)
    if built.worker is not None:
        built.worker.pause()
    return value if isinstance(value, Timed) else None


@dataclass(frozen=True)
class Ran:
    """One run: its seconds, and every argument as it is afterwards."""

    seconds: float
    outputs: list[Any]


def run_built(built: Sequence[Built], limit_s: float) -> list[Ran | None]:
    """Run each program once, all at the same time; None and a failure in `built` for a bad one.

    Args:
        built: Programs that compiled.
        limit_s: How long they may take.
    """
    for item in built:
        if item.worker is not None:
            item.worker.resume()
            item.worker.ask("run")
    answers = [_answer(item, limit_s) for item in built]
    return [Ran(*answer) if isinstance(answer, tuple) else None for answer in answers]


def _answer(built: Built, deadline_s: float) -> Any:
    """The answer to what was asked, or None and a failure in `built`."""
    if built.worker is None:
        return None
    try:
        verdict, value = built.worker.wait(deadline_s)
    except WorkerGone as gone:
        built.fail("runtime", str(gone))
    except TimeoutError:
        built.fail("timeout", f"running took longer than {deadline_s:.1f} s")
    else:
        if verdict == "done":
            return value
        built.fail("runtime", value)
    return None
