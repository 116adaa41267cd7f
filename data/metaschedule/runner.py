"""A runner for MetaSchedule that times in our workers, one candidate at a time."""

from __future__ import annotations

import os
import weakref
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerFuture, RunnerResult

from ..build import time_built
from ..host import usable_cores
from ..measure import BRIEF_FACTOR, CUT_FACTOR
from ..record import Failure
from ..tir.analysis import Argument
from ..worker import Artifact, Timing
from .builder import Compiled, Task, Workers, failure_message, take, waves


@derived_object
class WorkerRunner(PyRunner):
    """Times candidates in the workers that compiled them. Made by `runner`."""

    def __init__(
        self,
        repeats: int,
        repeat_s: float,
        run_limit_s: float,
        threads: int | None,
        jobs: int | None,
        memory_bytes: int | None,
    ) -> None:
        super().__init__()
        if repeats < 1 or repeat_s <= 0 or run_limit_s <= 0 or (threads or 1) < 1:
            raise ValueError("`repeats`, `repeat_s`, `run_limit_s`, `threads` have to be above 0")
        self.repeats = repeats
        self.repeat_s = repeat_s
        self.run_limit_s = run_limit_s
        self.threads = threads or int(os.environ.get("TVM_NUM_THREADS") or usable_cores())
        self._workers = Workers(jobs, memory_bytes)
        # Also runs when Python ends.
        self._finalizer = weakref.finalize(self, self._workers.close)

    def close(self) -> None:
        """End the workers."""
        self._workers.close()

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        """Time; called by MetaSchedule. When it returns, all are timed.

        Args:
            runner_inputs: Artifacts and their arguments (`RunnerInput`), of one task.

        Returns:
            A future of a `RunnerResult` each, with the seconds of every repeat, or with a message
            that `failure_of` understands.

        Raises:
            WorkerError: no worker can be started at all.
        """
        results: list[Any] = []
        # Only within a batch: two tasks may take the same arguments and differ in everything else.
        best_s: dict[Task, float] = defaultdict(lambda: float("inf"))
        for wave in waves(runner_inputs):
            found = [self._find(item) for item in wave]
            try:
                self._load([item for item in found if isinstance(item, Compiled)])
                results += [self._time(item, best_s) for item in found]
            finally:
                for item in found:
                    if isinstance(item, Compiled) and item.built is not None:
                        item.built.close()
        return [_future(result) for result in results]

    def _find(self, item: Any) -> Compiled | Any:
        """The compiled program of a `RunnerInput`, or the `RunnerResult` of a failure."""
        path = str(item.artifact_path)
        if str(item.device_type) != "cpu":
            return _failed("runtime", f"this runner times on the CPU, not on {item.device_type}")
        program = take(path)
        if program is not None:
            return program
        try:
            arguments = _arguments(item.args_info)
            task = self._workers.task(self.threads, '{"kind": "llvm"}', arguments)
            return Compiled(task, Artifact(path, task.inputs, self._workers.memory_bytes))
        except ValueError as error:
            return _failed("runtime", str(error))

    def _load(self, programs: Sequence[Compiled]) -> None:
        """Load into workers what is only in its file."""
        groups: dict[Task, list[Compiled]] = defaultdict(list)
        for program in programs:
            if program.built is None:
                groups[program.task].append(program)
        for task, members in groups.items():
            task.send_inputs()
            built = task.builder.build([program.artifact for program in members])
            for program, item in zip(members, built, strict=True):
                program.built = item

    def _time(self, program: Compiled | Any, best_s: dict[Task, float]) -> Any:
        """Time one program; its `RunnerResult`."""
        if not isinstance(program, Compiled):
            return program
        task, built = program.task, program.built
        assert built is not None  # `_load` has seen to it
        timing = Timing(
            self.repeats,
            self.repeat_s,
            cut_s=CUT_FACTOR * best_s[task],
            brief_s=BRIEF_FACTOR * best_s[task],
        )
        # A hundred times the best is beyond hope.
        limit_s = task.limit_s if task.best_s == float("inf") else max(1.0, 100.0 * task.best_s)
        timed = time_built(built, timing, min(self.run_limit_s, limit_s))
        if built.worker is not None:
            built.worker.end()  # it holds a copy of the arguments, and threads
        if timed is None:
            if built.failure == "timeout":
                task.limit_s *= 2  # it was a guess
            return _failed(built.failure or "runtime", built.detail)
        seconds = sorted(timed.repeats)[len(timed.repeats) // 2]
        best_s[task] = min(best_s[task], seconds)
        task.best_s = min(task.best_s, seconds)
        return RunnerResult(list(timed.repeats), None)


def runner(
    *,
    repeats: int = 3,
    repeat_s: float = 0.006,
    run_limit_s: float = 10.0,
    threads: int | None = None,
    jobs: int | None = None,
    memory_bytes: int | None = None,
) -> Any:
    """A runner for `ms.tune_tir(..., runner=runner())` and its like.

    With our `builder`, candidates are timed in the very process that compiled them, on the threads
    that the target names, with inputs in the range that the program wants. Artifacts of another
    builder are loaded into a worker, so a crash costs one candidate there too; integer arguments
    are then 0 and 1, for an artifact does not say what they index.

    Args:
        repeats: Measurements of each candidate; a slow one gets fewer.
        repeat_s: The least that a measurement lasts, in seconds.
        run_limit_s: How long a run may take until a faster one is known.
        threads: Threads for artifacts of another builder, which don't tell their target; by default
            `TVM_NUM_THREADS`, or a usable core each.
        jobs: How many artifacts of another builder load at once; by default one a usable CPU.
        memory_bytes: What such an artifact may take; by default 4 GiB, or a third of what is free.

    Raises:
        ValueError: a number is not positive.
    """
    return WorkerRunner(repeats, repeat_s, run_limit_s, threads, jobs, memory_bytes)


def _arguments(args_info: Sequence[Any]) -> tuple[Argument, ...]:
    """Arguments of which nothing but shape and type is known: all are taken to be read."""
    arguments = []
    for number, info in enumerate(args_info):
        _, dtype, shape = info.as_json()
        extents = tuple(int(extent) for extent in shape)
        arguments.append(Argument(f"argument{number}", extents, str(dtype), "input", None, None))
    return tuple(arguments)


def _failed(failure: Failure, detail: str) -> Any:
    return RunnerResult(None, failure_message(failure, detail))


def _future(result: Any) -> Any:
    """A future that is done."""
    return RunnerFuture(lambda: True, lambda: result)


__all__ = ["runner"]
