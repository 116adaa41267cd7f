"""Starting the process of a worker server. Imports no TVM: it can run before that is loaded."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from .host import usable_cores, usable_cpus

ANY_TARGET = '{"kind": "llvm"}'


@dataclass(frozen=True)
class Started:
    """A process that becomes a server.

    Attributes:
        settings: What it was started with: threads, CPUs and module path.
        target: The target that it gets ready for.
        process: The process.
        control: Our end of its socket.
    """

    settings: tuple[Any, ...]
    target: str
    process: subprocess.Popen[bytes]
    control: socket.socket

    @classmethod
    def now(cls, threads: int, target: str) -> Started:
        """Start one; it loads TVM while we go on."""
        settings = _settings(threads)
        _, cpus, path = settings
        ours, theirs = socket.socketpair()
        command = (
            "import sys; fd, target, cpus = sys.argv[1:4]; sys.path[:] = sys.argv[4:]; "
            "from tensortune.data.install import without\n"
            "with without('torch'): import tvm\n"
            "from tensortune.data.worker import main; "
            "main(int(fd), target, tuple(map(int, cpus.split(','))))"
        )
        numbers = ",".join(map(str, cpus))
        process = subprocess.Popen(
            [sys.executable, "-c", command, str(theirs.fileno()), target, numbers, *path],
            pass_fds=[theirs.fileno()],
            env=worker_environment(threads),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None,
            start_new_session=True,
        )
        theirs.close()
        return cls(settings, target, process, ours)

    def end(self) -> None:
        """End the process and every worker it has."""
        self.control.close()
        try:
            self.process.wait(2.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # it leads a group: its workers too
            self.process.wait()


# Started before anybody asked for a server; see `start_early`.
_early: list[Started] = []


def start_early(threads: int | None = None) -> None:
    """Start a server before TVM is imported here, so that both processes load it at once.

    The next `WorkerServer` of as many threads takes it over. It ends with this process.

    Args:
        threads: Threads that kernels will run with; by default a usable core each, as those of the
            target of this machine.
    """
    if not _early:
        _early.append(Started.now(threads or usable_cores(), ANY_TARGET))


def end_early() -> None:
    """End what was started early and never taken over."""
    while _early:
        unused = _early.pop()
        unused.process.kill()  # it may be loading TVM, and would notice later that nobody wants it
        unused.end()


def _settings(threads: int) -> tuple[Any, ...]:
    return threads, usable_cpus(), tuple(sys.path)


def taken(threads: int) -> Started | None:
    """The server that was started early, if it is one of these threads."""
    for found in _early:
        if found.settings == _settings(threads) and found.process.poll() is None:
            _early.remove(found)
            return found
    end_early()
    return None


def worker_environment(threads: int) -> dict[str, str]:
    """The environment of a worker: kernels and NumPy alike get `threads` threads.

    `OPENBLAS_CORETYPE` is left out, since it can halve the speed of the NumPy reference.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    }
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = str(threads)
    return environment
