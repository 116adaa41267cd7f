"""The parent's side of the worker server: start it, fork workers, talk to them, kill them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from multiprocessing.connection import Connection
from typing import Any

from .pool_start import ANY_TARGET, Started, taken, worker_environment
from .worker_protocol import KEPT_INPUT_SETS

START_TIMEOUT_S = 120.0
_END_S = 1.0


class WorkerError(RuntimeError):
    """The worker server can't be started, or is gone for good."""


class WorkerGone(Exception):
    """A worker ended without an answer; the message says how."""


class Worker:
    """One forked process with one program in it."""

    def __init__(self, server: WorkerServer, connection: Connection, pid: int, log: Any) -> None:
        self.connection = connection
        self.pid = pid
        self._server = server
        self._log = log

    def ask(self, verb: str, argument: Any = None) -> None:
        """Send a request; the answer comes later, when `connection` is readable."""
        with contextlib.suppress(OSError):  # a dead worker shows as an end of file on reading
            self.connection.send((verb, argument))

    def answer(self) -> tuple[str, Any]:
        """Read `("done", value)` or `("failed", why)`.

        Raises:
            WorkerGone: the process died instead of answering.
        """
        try:
            verdict, value = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerGone(self._epitaph()) from None
        return verdict, value

    def wait(self, timeout_s: float) -> tuple[str, Any]:
        """Wait for the answer to what was asked.

        Raises:
            WorkerGone: the process died instead of answering.
            TimeoutError: no answer in time; the worker should be killed.
        """
        if not self.connection.poll(timeout_s):
            raise TimeoutError
        return self.answer()

    def pause(self) -> None:
        """Stop the process where it is.

        TVM's and OpenBLAS's threads go on spinning for a long time after a kernel has returned, and
        would take a core from the next program that is timed.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def strike(self) -> None:
        """Send the signal that ends the process, and don't wait; `kill` still has to follow."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """End the process and wait until its memory is freed, which takes a core; as `strike`."""
        self.strike()
        if not self.connection.closed:
            self.connection.poll(_END_S)  # its end of the socket closes after that

    def kill(self) -> None:
        """End the process, whatever it is doing; harmless when it has gone already."""
        if self.connection.closed:
            return
        self.strike()
        self.connection.close()
        self._log.close()
        with contextlib.suppress(WorkerError):
            self._server.request("reap", self.pid)

    def _epitaph(self) -> str:
        """How the process ended: its signal or exit code, and its last words."""
        with contextlib.suppress(WorkerError):
            code = self._server.request("reap", self.pid)
            self.connection.close()
            how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
            self._log.seek(0)
            words = self._log.read()[-2000:].decode(errors="replace").strip().splitlines()
            self._log.close()
            return f"the worker died of {how}" + (f": {words[-1][:300]}" if words else "")
        return "the worker died with its server"


class WorkerServer:
    """A process that has TVM loaded and forks workers.

    Args:
        threads: Threads that kernels run with (the target's `num-cores`).
        target: The target that programs are compiled for, as JSON.
    """

    def __init__(self, threads: int, target: str = ANY_TARGET) -> None:
        self.threads = threads
        self.target = target
        self._inputs: dict[str, list[Any]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._start(taken(threads))

    def _start(self, early: Started | None = None) -> None:
        """Start the process; it loads TVM while we go on (see `_wait_ready`)."""
        self._started = early or Started.now(self.threads, self.target)
        self._process = self._started.process
        self._control = self._started.control
        self._connection = Connection(os.dup(self._control.fileno()))
        self._ready = False

    def _wait_ready(self) -> None:
        if self._ready:
            return
        try:
            if not self._connection.poll(START_TIMEOUT_S):
                raise EOFError
            self._connection.recv()
        except (EOFError, OSError):
            self.close()
            raise WorkerError(
                "the worker process did not start; its message is above, "
                "and `tensortune doctor` checks the installation"
            ) from None
        self._ready = True
        if self._started.target != self.target:
            self.request("warm", self.target)

    def request(self, verb: str, argument: Any = None) -> Any:
        """Ask the server itself.

        Raises:
            WorkerError: it is gone, or can't do it.
        """
        self._wait_ready()
        verdict, value = self._exchange((verb, argument))
        if verdict == "failed":
            raise WorkerError(f"the worker server can't {verb}: {value}")
        return value

    def send_inputs(self, name: str, arrays: list[Any]) -> None:
        """Give the workers to come a set of arguments; kept over a restart."""
        if name not in self._inputs:
            while len(self._inputs) >= KEPT_INPUT_SETS:
                self._inputs.pop(next(iter(self._inputs)))
            self._inputs[name] = arrays
            self.request("inputs", (name, arrays))

    def fork(self) -> Worker:
        """A new worker. A server that has died is started again, once.

        Raises:
            WorkerError: that did not help.
        """
        try:
            return self._fork()
        except WorkerError:
            self.close()
            self._start()
            for name, arrays in self._inputs.items():
                self.request("inputs", (name, arrays))
            return self._fork()

    def _fork(self) -> Worker:
        self._wait_ready()
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - the worker's handle closes it
        try:
            verdict, value = self._exchange(("fork", None), (theirs.fileno(), log.fileno()))
        finally:
            theirs.close()
        if verdict == "failed":
            raise WorkerError(f"the worker server can't fork: {value}")
        worker = Worker(self, Connection(ours.detach()), value, log)
        try:
            worker.answer()  # "started"
        except WorkerGone as gone:
            raise WorkerError(f"a new worker did not start: {gone}") from None
        return worker

    def _exchange(
        self, message: tuple[str, Any], descriptors: tuple[int, ...] = ()
    ) -> tuple[str, Any]:
        """Send a request, with file descriptors behind it, and read the answer.

        An interrupt between the two would leave the answer to be taken for the next request's, so
        it ends the server.
        """
        try:
            self._connection.send(message)
            if descriptors:
                socket.send_fds(self._control, [b"."], list(descriptors))
            verdict, value = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerError("the worker server died") from None
        except BaseException:
            self.close()
            raise
        return verdict, value

    def close(self) -> None:
        """End the server and every worker it has."""
        self._connection.close()
        if self._process is not None:
            self._started.end()
        self._process = None
        self._ready = False


__all__ = ["Worker", "WorkerError", "WorkerGone", "WorkerServer", "worker_environment"]
