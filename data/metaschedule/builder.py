"""A builder for MetaSchedule that compiles on our workers.

Every artifact has a folder of its own, since MetaSchedule removes the folder after the trial. In it
is the compiled program as LLVM bitcode, which TVM loads in any process; that costs a millisecond.
The worker that compiled it waits with the machine code in its memory, found by the artifact's path,
until our runner times it or the folder is gone.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.utils import shash2hex
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from ..build import Builder, Built
from ..host import usable_cpus
from ..pool import WorkerServer
from ..pool_start import end_early, start_early
from ..record import FAILURES, Failure
from ..target import TargetError, cpu_target, num_cores, target_string
from ..tir.analysis import Argument, analyse, total_bytes
from ..tir.inputs import make_input
from ..worker import Artifact, Program

# Seconds that compiling took, by the program's hash: MetaSchedule's results have no room for it.
_COMPILE_S: OrderedDict[str, float] = OrderedDict()
_REMEMBERED = 1024

# As many compiled programs wait in a worker each, some 30 MB; further ones wait in their file.
MOST_HELD = 64
_INPUT_SEED = 0
# Operations and bytes a second, of a program whose loops nobody has touched.
_LEAST_WORK_PER_S = 2e7


class Task:
    """What programs have in common that take the same arguments on the same target.

    Args:
        server: Where their workers come from.
        jobs: How many compile at once.
        arguments: What they take.

    Attributes:
        inputs: Name of their input set.
        best_s: The fastest so far, in seconds.
        limit_s: How long a run may take as long as none has come back.
    """

    def __init__(self, server: WorkerServer, jobs: int, arguments: tuple[Argument, ...]) -> None:
        self.server = server
        self.builder = Builder(server, jobs)
        self.arguments = arguments
        self.inputs = hashlib.sha256(repr(arguments).encode()).hexdigest()[:16]
        self.best_s = float("inf")
        self.limit_s = float("inf")

    def send_inputs(self) -> None:
        """Give the workers to come their arguments; again if others have replaced them."""
        rng = np.random.default_rng(_INPUT_SEED)
        arrays = [make_input(argument, rng) for argument in self.arguments]
        self.server.send_inputs(self.inputs, arrays)


class Workers:
    """The worker servers of a builder or a runner: one for each number of threads, on first use.

    Args:
        jobs: How many programs compile at once; by default one a usable CPU.
        memory_bytes: What compiling and running a program may take; by default 4 GiB, or a third of
            what is free.

    Raises:
        ValueError: one of them is not positive.
    """

    def __init__(self, jobs: int | None, memory_bytes: int | None) -> None:
        self.jobs = len(usable_cpus()) if jobs is None else jobs
        if memory_bytes is None:
            memory_bytes = min(4 << 30, psutil.virtual_memory().available // 3)
        self.memory_bytes = memory_bytes
        if self.jobs < 1 or self.memory_bytes < 1:
            raise ValueError("`jobs` and `memory_bytes` have to be at least 1")
        self._servers: dict[int, WorkerServer] = {}
        self._tasks: dict[tuple[int, str, tuple[Argument, ...]], Task] = {}

    def task(self, threads: int, target: str, arguments: tuple[Argument, ...]) -> Task:
        """The task of some arguments on a target; the same one every time.

        Args:
            threads: Threads that its programs run with.
            target: The target as JSON.
            arguments: What its programs take.
        """
        if threads not in self._servers:
            self._servers[threads] = WorkerServer(threads, target)
        key = (threads, target, arguments)
        if key not in self._tasks:
            self._tasks[key] = Task(self._servers[threads], self.jobs, arguments)
        return self._tasks[key]

    def close(self) -> None:
        """End every server and its workers; the next use starts anew."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        self._tasks.clear()


@dataclass
class Compiled:
    """A compiled program: its file, and, if there is one, the worker that has it loaded."""

    task: Task
    artifact: Artifact
    built: Built | None = None


class Shelf:
    """Compiled programs by their artifact's path, until somebody takes them.

    Args:
        workers: Who compiles; closed with the shelf.
    """

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.programs: dict[str, Compiled] = {}
        self._root: Path | None = None
        _SHELVES.add(self)

    def new_path(self) -> str:
        """Where the next artifact goes: in a new folder of its own."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="tensortune-artifacts-"))
        return str(Path(tempfile.mkdtemp(dir=self._root)) / "module.ll")

    def put(self, task: Task, artifact: Artifact, built: Built) -> None:
        """Keep a program, and its worker if there are not too many already."""
        held = sum(program.built is not None for program in self.programs.values())
        if held >= MOST_HELD:
            built.close()
        kept = built if held < MOST_HELD else None
        self.programs[artifact.path] = Compiled(task, artifact, kept)

    def sweep(self) -> None:
        """Let go of programs whose folder is gone."""
        for path in [path for path in self.programs if not Path(path).parent.is_dir()]:
            program = self.programs.pop(path)
            if program.built is not None:
                program.built.close()

    def close(self) -> None:
        """End every worker and remove every artifact; harmless the second time."""
        for program in self.programs.values():
            if program.built is not None:
                program.built.close()
        self.programs.clear()
        self.workers.close()
        end_early()
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


_SHELVES: weakref.WeakSet[Shelf] = weakref.WeakSet()


def take(path: str) -> Compiled | None:
    """Take the program of an artifact off its shelf; the caller closes its worker.

    Returns:
        None for what no builder of this process has compiled, or was taken before.
    """
    for shelf in list(_SHELVES):
        if path in shelf.programs:
            return shelf.programs.pop(path)
    return None


@derived_object
class WorkerBuilder(PyBuilder):
    """Compiles candidates in parallel, each in a worker of its own. Made by `builder`."""

    def __init__(self, jobs: int | None, memory_bytes: int | None, prepacked: bool) -> None:
        super().__init__()
        self.prepacked = prepacked
        self._shelf = Shelf(Workers(jobs, memory_bytes))
        start_early()  # it loads TVM while MetaSchedule makes the design space
        # Also runs when Python ends.
        self._finalizer = weakref.finalize(self, self._shelf.close)

    def close(self) -> None:
        """End the workers and remove the artifacts."""
        self._shelf.close()

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        """Compile; called by MetaSchedule.

        Args:
            build_inputs: Scheduled modules and their targets (`BuilderInput`).

        Returns:
            A `BuilderResult` each, with the artifact's path, or with a message that `failure_of`
            understands.

        Raises:
            ValueError: code for a target can't be compiled or run on this machine.
            WorkerError: no worker can be started at all.
        """
        self._shelf.sweep()
        results: dict[int, Any] = {}
        groups: dict[Task, dict[int, Program]] = {}
        tasks: dict[tuple[str, str], Task] = {}
        for index, item in enumerate(build_inputs):
            try:
                task, program = self._prepare(item, tasks)
            except TargetError as error:
                # On its way through TVM only the type of a built-in error survives.
                raise ValueError(str(error)) from None
            # TVM raises whatever its C++ side threw; all of it says that the module is no good.
            except Exception as error:
                results[index] = failed("compile", _last_line(error))
            else:
                groups.setdefault(task, {})[index] = program
        for task, programs in groups.items():
            for wave in waves(list(programs)):
                for index, result, compile_s in self._build(task, programs, wave):
                    results[index] = result
                    _remember(shash2hex(build_inputs[index].mod), compile_s)
        return [results[index] for index in range(len(build_inputs))]

    def _prepare(self, item: Any, tasks: dict[tuple[str, str], Task]) -> tuple[Task, Program]:
        """The task and the program of a `BuilderInput`."""
        target = cpu_target(item.target)
        mod = item.mod
        if self.prepacked:
            mod = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
        # A batch is of one task, so the first of it that can be analysed speaks for the others.
        text = target_string(target)
        takes = str([info.as_json() for info in ArgInfo.from_entry_func(mod, False)])
        if (text, takes) not in tasks:
            analysis = analyse(mod)
            task = self._shelf.workers.task(num_cores(target), text, analysis.arguments)
            work = analysis.flops + total_bytes(analysis.arguments)
            if task.limit_s == float("inf"):
                task.limit_s = max(1.0, work / _LEAST_WORK_PER_S)
            tasks[text, takes] = task
        task = tasks[text, takes]
        memory = self._shelf.workers.memory_bytes
        saved = tvm.ir.save_json(mod)
        return task, Program(saved, text, task.inputs, memory, self._shelf.new_path())

    def _build(
        self, task: Task, programs: dict[int, Program], wave: Sequence[int]
    ) -> Iterator[tuple[int, Any, float]]:
        """Compile programs of one task: their numbers, results and seconds."""
        task.send_inputs()
        built = task.builder.build([programs[index] for index in wave])
        for index, item in zip(wave, built, strict=True):
            program = programs[index]
            if item.failure is None:
                artifact = Artifact(program.artifact, program.inputs, program.memory_bytes)
                self._shelf.put(task, artifact, item)
                yield index, BuilderResult(program.artifact, None), item.compile_s
            else:
                shutil.rmtree(Path(program.artifact).parent, ignore_errors=True)
                yield index, failed(item.failure, item.detail), item.compile_s


def builder(
    *, jobs: int | None = None, memory_bytes: int | None = None, prepacked: bool = False
) -> Any:
    """A builder for `ms.tune_tir(..., builder=builder())` and its like.

    With our `runner`, candidates are timed in the very process that compiled them. Its artifacts
    also load in other processes of this machine, so MetaSchedule's `LocalRunner` works too.

    Args:
        jobs: How many candidates compile at once; by default one a usable CPU.
        memory_bytes: What compiling and running a candidate may take; by default 4 GiB, or a third
            of what is free.
        prepacked: For functions with `layout_free_buffers`, whose schedules repack the weights:
            take the packing out of what is timed, as MetaSchedule's builder does. Right where
            weights are packed ahead of time; wrong for a kernel that is deployed as it was tuned.

    Raises:
        ValueError: a number is not positive.
    """
    return WorkerBuilder(jobs, memory_bytes, prepacked)


def compile_seconds(program: str) -> float:
    """How long a builder of this process took for a program, or 0 if that is not known.

    Args:
        program: The hash of its scheduled module (MetaSchedule's `shash2hex`).
    """
    return _COMPILE_S.get(program, 0.0)


def _remember(program: str, compile_s: float) -> None:
    _COMPILE_S[program] = compile_s
    while len(_COMPILE_S) > _REMEMBERED:
        _COMPILE_S.popitem(last=False)


def waves(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Split into parts of as many as are held at a time."""
    for start in range(0, len(items), MOST_HELD):
        yield items[start : start + MOST_HELD]


def failure_message(failure: Failure, detail: str) -> str:
    """The error message of a failure: its kind, a colon, and what is known of it."""
    return f"{failure}: {detail}"


def failed(failure: Failure, detail: str) -> Any:
    """The `BuilderResult` of a failure."""
    return BuilderResult(None, failure_message(failure, detail))


def failure_of(message: str) -> Failure:
    """The kind of failure that an error message tells, ours or MetaSchedule's own.

    MetaSchedule's task scheduler hands a builder's message on as a `RunnerResult`'s, unchanged.
    """
    kind = message.partition(":")[0]
    if kind in FAILURES:
        return cast("Failure", kind)
    if "Timeout, killed after" in message:
        return "timeout"
    return "compile" if kind == "LocalBuilder" else "runtime"


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:500]


__all__ = ["builder", "compile_seconds", "failure_of"]
