"""Times kernels, each in a process of its own, under a deadline."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import tvm

from .library import die_with_parent

_REPEATS = 3
_REPEAT_MS = 20
# `config_threadpool`'s mode for one thread on each CPU of a list.
_ONE_CPU_PER_THREAD = -2
_FORK = multiprocessing.get_context("fork")


class Timer:
    """A process that forks one for each kernel, and does nothing else.

    It is forked when this is made, which has to be before the tuner works: forks of a process that
    has fitted a model hang, for the threads that fitting leaves behind are not in them.

    Args:
        cpus: The CPUs that kernels run on, a thread on each.
        limit_s: Seconds that loading and timing a kernel may take.
    """

    def __init__(self, cpus: Sequence[int], limit_s: float) -> None:
        self._requests, theirs = _FORK.Pipe()
        self._process = _FORK.Process(target=_serve, args=(theirs, self._requests, cpus, limit_s))
        self._process.start()
        theirs.close()

    def time(self, library: str, arguments: Sequence[Any]) -> tuple[str, Any]:
        """Time a kernel.

        Args:
            library: Its shared library.
            arguments: Shape and element type of each argument.

        Returns:
            "seconds" and a mean for each repeat, or "timeout" or "error" and what happened.
        """
        self._requests.send((library, list(arguments)))
        found: tuple[str, Any] = self._requests.recv()
        return found

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        self._process.join()


def _serve(requests: Connection, other: Connection, cpus: Sequence[int], limit_s: float) -> None:
    die_with_parent()
    other.close()
    while True:
        try:
            library, arguments = requests.recv()
        except EOFError:
            return
        requests.send(_in_time(library, arguments, cpus, limit_s))


def _in_time(
    library: str, arguments: Sequence[Any], cpus: Sequence[int], limit_s: float
) -> tuple[str, Any]:
    receiver, sender = _FORK.Pipe(False)
    child = _FORK.Process(target=_time_kernel, args=(library, arguments, cpus, sender))
    child.start()
    sender.close()
    found: tuple[str, Any] = ("timeout", "it took too long")
    if receiver.poll(limit_s):
        try:
            found = receiver.recv()
        except EOFError:
            found = ("error", "the process died")
    child.kill()
    child.join()
    receiver.close()
    return found


def _time_kernel(
    library: str, arguments: Sequence[Any], cpus: Sequence[int], sender: Connection
) -> None:
    die_with_parent()
    try:
        configure = tvm.get_global_func("runtime.config_threadpool")
        configure(_ONE_CPU_PER_THREAD, len(cpus), [str(cpu) for cpu in cpus])
        module = tvm.runtime.load_module(library)
        rng = np.random.default_rng(0)
        arrays = [
            tvm.nd.array(rng.uniform(0.1, 1.0, shape).astype(dtype)) for shape, dtype in arguments
        ]
        timer = module.time_evaluator(
            module.entry_name, tvm.cpu(0), number=1, repeat=_REPEATS, min_repeat_ms=_REPEAT_MS
        )
        sender.send(("seconds", tuple(timer(*arrays).results)))
    except Exception as error:  # whatever the kernel did
        sender.send(("error", str(error)))
