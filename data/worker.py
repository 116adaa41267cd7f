"""The process that compiles and times scheduled modules.

A *server* imports TVM once, warms LLVM up, and forks a *worker* for every program. A worker
compiles, times and runs one program on request and then goes away, so a crash, a hang or a leak
costs one candidate, and killing a worker costs nothing. The server never runs a kernel itself: it
has no threads, which is what makes forking it safe.

Messages are pickled tuples over local sockets: `(verb, argument)` one way, `(verdict, value)` back.
It knows modules, targets and arrays; it knows no space.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import time
from collections import OrderedDict
from functools import cache
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import psutil
import tvm
from tvm import te

from .worker_protocol import KEPT_INPUT_SETS, Artifact, NumpyProgram, Program, Timed, Timing
from .worker_timing import Called, Compiled, measure
from .workload import Workload

_NO_MEMORY = "out of memory: it needs more than its limit"
# How often a worker that has written an artifact looks whether it is still there.
_WATCH_S = 5.0


class _Worker:
    """The life of one forked worker."""

    def __init__(self, connection: Connection, inputs: dict[str, list[Any]]) -> None:
        self._connection = connection
        self._inputs = inputs
        self._kernel: Compiled | Called | None = None
        self._folder: Path | None = None

    def serve(self) -> NoReturn:
        """Answer requests until the other side hangs up; never returns."""
        self._connection.send(("started", os.getpid()))
        while True:
            try:
                self._watch()
                verb, argument = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            try:
                answer = ("done", getattr(self, f"do_{verb}")(argument))
            except MemoryError:
                answer = ("failed", _NO_MEMORY)
            # A kernel or a compiler can raise anything; what it was goes into the record.
            except Exception as error:
                answer = ("failed", _last_line(error))
            try:
                self._connection.send(answer)
            except MemoryError:  # the arrays did not fit beside their pickle
                self._connection.send(("failed", _NO_MEMORY))

    def _watch(self) -> None:
        """Wait for a request; end when the artifact's folder is gone, for nobody will ask then."""
        while self._folder is not None and not self._connection.poll(_WATCH_S):
            if not self._folder.is_dir():
                os._exit(0)

    def do_compile(self, program: Program) -> float:
        """Compile and load; seconds taken."""
        _limit_memory(program.memory_bytes)
        mod = tvm.ir.load_json(program.mod)
        target = _target(program.target)
        start = time.perf_counter()
        # The checks of the arguments' shapes and types run once a call, outside the kernel proper,
        # and take a tenth of the time to compile.
        with tvm.transform.PassContext(opt_level=3, config={"tirx.disable_assert": True}):
            executable = tvm.compile(mod, target=target)
        if program.artifact:
            self._folder = Path(program.artifact).parent
            _export(executable.mod, program.artifact)
        # Looking the function up is what makes LLVM emit machine code, half of all the work.
        self._kernel = Compiled(executable.jit(), self._inputs[program.inputs])
        return time.perf_counter() - start

    def do_load(self, artifact: Artifact) -> float:
        """Load what was compiled elsewhere; seconds taken."""
        _limit_memory(artifact.memory_bytes)
        start = time.perf_counter()
        library = tvm.runtime.load_module(artifact.path)
        self._kernel = Compiled(library, self._inputs[artifact.inputs])
        return time.perf_counter() - start

    def do_numpy(self, program: NumpyProgram) -> float:
        """Bind a workload's NumPy equivalent; seconds taken (none)."""
        _limit_memory(program.memory_bytes)
        workload = Workload.from_key(program.workload)
        module, _, function = program.maker.partition(":")
        if module:
            call = getattr(import_module(module), function)(workload)
        else:
            call = workload.numpy_call()
        if call is None:
            raise ValueError(f"{program.workload} has no NumPy equivalent")
        self._kernel = Called(call, self._inputs[program.inputs])
        return 0.0

    def do_time(self, timing: Timing) -> Timed:
        """Time what was compiled."""
        if self._kernel is None:
            raise RuntimeError("nothing is compiled")
        return measure(self._kernel, timing)

    def do_run(self, _: None) -> tuple[float, list[Any]]:
        """Run once on fresh arguments; seconds, and every argument as it is afterwards."""
        if self._kernel is None:
            raise RuntimeError("nothing is compiled")
        return self._kernel.run()


def _export(library: Any, path: str) -> None:
    """Write a compiled module as LLVM's bitcode: a millisecond, where machine code takes 30-90.

    TVM chooses its loader by the file's suffix. The one for `.ll` reads bitcode as well as text.
    """
    library.write_to_file(f"{path}.bc")
    os.rename(f"{path}.bc", path)


def _last_line(error: Exception) -> str:
    """The line of an error that says what is wrong (TVM's are long)."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:500]


def _limit_memory(limit: int) -> None:
    """Bound what this process may allocate beyond what it has inherited."""
    ceiling = psutil.Process().memory_info().vms + limit
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))


class _Server:
    """Forks workers on request, over a socket that also carries the workers' own sockets."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._connection = Connection(os.dup(control.fileno()))
        self._inputs: OrderedDict[str, list[Any]] = OrderedDict()

    def serve(self) -> None:
        """Answer requests until the other side hangs up."""
        self._connection.send(("ready", os.getpid()))
        while True:
            try:
                verb, argument = self._connection.recv()
            except (EOFError, OSError):
                return
            try:
                answer = ("done", getattr(self, f"do_{verb}")(argument))
            except OSError as error:  # no process or no memory left to fork with
                answer = ("failed", str(error))
            self._connection.send(answer)

    def do_inputs(self, argument: tuple[str, list[Any]]) -> None:
        """Keep a set of input arrays for the workers to inherit."""
        name, arrays = argument
        self._inputs[name] = arrays
        while len(self._inputs) > KEPT_INPUT_SETS:
            self._inputs.popitem(last=False)

    def do_fork(self, _: None) -> int:
        """Fork a worker; its socket and its standard error come as file descriptors."""
        descriptors = socket.recv_fds(self._control, 1, 2)[1]
        pid = os.fork()
        if pid == 0:
            self._connection.close()
            self._control.close()
            try:
                os.dup2(descriptors[1], 2)
                os.close(descriptors[1])
                _Worker(Connection(descriptors[0]), self._inputs).serve()
            finally:  # or what goes wrong here would go on as if it were the server
                os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)
        return pid

    def do_warm(self, target: str) -> None:
        """Get ready for programs of another target."""
        _warm_up(target)

    def do_reap(self, pid: int) -> int:
        """Wait for a worker that is gone or dying; the exit code, negative for a signal."""
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)


@cache
def _target(text: str) -> tvm.target.Target:
    """A target from its JSON; the server reads the run's own once, for the workers to inherit."""
    return tvm.target.Target(json.loads(text))


def _warm_up(target: str) -> None:
    """Compile and time a trivial kernel: workers inherit an LLVM and a timer that are set up.

    The first use of TVM's timer in a process takes 30 ms. The kernel has no parallel loop, so TVM
    starts no thread, which a fork would lose.
    """
    x = te.placeholder((16,), name="x")
    y = te.compute((16,), lambda i: x[i] + 1.0, name="y")
    mod = tvm.IRModule({"main": te.create_prim_func([x, y])})
    library = tvm.compile(mod, target=_target(target)).jit()
    arguments = [tvm.runtime.empty((16,), "float32") for _ in range(2)]
    library.time_evaluator("main", tvm.cpu(), number=1, repeat=1)(*arguments)
    gc.collect()
    gc.freeze()


def main(descriptor: int, target: str, cpus: tuple[int, ...]) -> None:
    """Run the server on an inherited socket. Called by `pool.WorkerServer`.

    Args:
        descriptor: The socket.
        target: The target of most programs to come, as JSON.
        cpus: The CPUs to run on. A kernel that ran in the parent has narrowed its affinity, which
            we have inherited.
    """
    # The parent's Ctrl-C is the parent's affair; it closes the socket when it wants us gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    os.sched_setaffinity(0, cpus)
    _warm_up(target)
    try:
        _Server(control).serve()
    finally:
        # Workers that hang would outlive us; they share our process group, which we lead.
        os.killpg(os.getpgrp(), signal.SIGKILL)


__all__ = ["Artifact", "NumpyProgram", "Program", "Timed", "Timing", "main", "measure"]
