"""How a worker runs and times a program."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, Protocol

import psutil
import tvm

from .worker_protocol import Timed, Timing

# Up to as many runs are timed by a loop of ours. TVM's own loop costs nothing a run, ours half a
# microsecond, but TVM's begins with a run that is thrown away each time.
_FEW_RUNS = 20
# A cold run that is shorter, in seconds, says nothing about a warm one.
_COLD_S = 10e-3
# How long warming up lasts, in seconds: at least so many runs, or the longer time.
_WARM_S = 3e-3
_WARM_RUNS = 3
_LONG_WARM_S = 10e-3


class Kernel(Protocol):
    """A program bound to its arguments."""

    estimate_s: float | None
    """How long a warm run takes, once that is known."""

    def once(self) -> float:
        """Run once; seconds, with the call's own overhead of some microseconds."""

    def many(self, number: int) -> float:
        """Run `number` times; seconds per run."""


def measure(kernel: Kernel, timing: Timing) -> Timed:
    """Time a kernel: the first time a cold run and a warm-up to size the repeats, then these."""
    start = time.perf_counter()
    if kernel.estimate_s is not None:
        if kernel.estimate_s < timing.budget_s:
            kernel.once()  # the caches are another program's, and the threads asleep
    else:
        cold = kernel.once()
        # A cold run pays for page faults and threads: some milliseconds, or a third.
        if cold > min(max(1.3 * timing.cut_s, _COLD_S), timing.budget_s):
            return Timed((cold,), cut=cold > timing.cut_s)
        warm = _settle(kernel)
        if warm > timing.cut_s:
            return Timed((warm,), cut=True)
        kernel.estimate_s = warm
    number = max(1, round(timing.repeat_s / kernel.estimate_s))
    repeats: list[float] = []
    while len(repeats) < timing.repeats:
        repeats.append(kernel.once() if number == 1 else kernel.many(number))
        late = time.perf_counter() - start > timing.budget_s
        slow = len(repeats) > 1 and min(repeats) > timing.brief_s
        if late or slow:
            break
    return Timed(tuple(repeats), cut=False)


def _settle(kernel: Kernel) -> float:
    """Run until runs take as long as they will: seconds of the fastest run.

    A kernel of 0.1 ms is at full speed after some ten runs. The second, and any other single one,
    can take several times as long.
    """
    fastest, spent_s, runs = float("inf"), 0.0, 0
    while spent_s < (_WARM_S if runs >= _WARM_RUNS else _LONG_WARM_S):
        took_s = kernel.once()
        fastest, spent_s, runs = min(fastest, took_s), spent_s + took_s, runs + 1
    return fastest


def _leave_pinned_cpus() -> None:
    """Keep this thread off the CPUs that others of this process are pinned to.

    TVM pins the threads of its pool, one a CPU, and lets the calling thread run on any. Linux may
    leave it for tens of milliseconds on a CPU of the pool's, where a kernel takes twice as long and
    more.
    """
    own = os.sched_getaffinity(0)
    pinned: set[int] = set()
    for thread in psutil.Process().threads():
        cpus = os.sched_getaffinity(thread.id) if thread.id != os.getpid() else own
        pinned |= cpus if len(cpus) < len(own) else set()
    if pinned < own:
        os.sched_setaffinity(0, own - pinned)


class Compiled:
    """A compiled program, timed by TVM's own loop."""

    def __init__(self, library: Any, arrays: Sequence[Any]) -> None:
        self.estimate_s: float | None = None
        self._library = library
        self._entry = library["main"]
        self._arrays = arrays
        self._arguments: list[Any] = []
        self._cold = True

    def once(self) -> float:
        """See `Kernel.once`."""
        seconds = self._loop(1)
        if self._cold:  # the pool's threads are there now
            _leave_pinned_cpus()
            self._cold = False
        return seconds

    def many(self, number: int) -> float:
        """See `Kernel.many`."""
        if number <= _FEW_RUNS:
            return self._loop(number)
        timer = self._library.time_evaluator("main", tvm.cpu(), number=number, repeat=1)
        return float(timer(*self._bound()).mean)

    def _loop(self, number: int) -> float:
        arguments = self._bound()
        start = time.perf_counter()
        for _ in range(number):
            self._entry(*arguments)
        return (time.perf_counter() - start) / number

    def run(self) -> tuple[float, list[Any]]:
        """Run once on arguments of its own: seconds, and every argument as it is afterwards."""
        arguments = [tvm.runtime.tensor(array) for array in self._arrays]
        start = time.perf_counter()
        self._entry(*arguments)
        return time.perf_counter() - start, [argument.numpy() for argument in arguments]

    def _bound(self) -> list[Any]:
        if not self._arguments:
            self._arguments = [tvm.runtime.tensor(array) for array in self._arrays]
        return self._arguments


class Called:
    """A NumPy equivalent."""

    def __init__(self, call: Any, arrays: Sequence[Any]) -> None:
        self.estimate_s: float | None = None
        self._call = call
        self._arrays = [array.copy() for array in arrays]

    def once(self) -> float:
        """See `Kernel.once`."""
        return self.many(1)

    def many(self, number: int) -> float:
        """See `Kernel.many`."""
        start = time.perf_counter()
        for _ in range(number):
            self._call(self._arrays)
        return (time.perf_counter() - start) / number

    def run(self) -> tuple[float, list[Any]]:
        """Run once on arguments of its own: seconds, and every argument as it is afterwards."""
        return self.once(), self._arrays
