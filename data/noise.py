"""How much this machine's timings vary, and who else is at work on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import psutil

# Long enough that the clock and a thread's start do not show, short enough for hundreds of runs.
_RUN_S = 3e-3
_FEWEST_RUNS = 20


@dataclass(frozen=True, slots=True)
class Noise:
    """How the timings of the same work vary.

    Attributes:
        median_s: Median time of a run in seconds.
        spread: Ninth decile less the first, over the median.
        drift: Median of the second half over that of the first, less one.
        runs: How many runs it was taken from.
    """

    median_s: float
    spread: float
    drift: float
    runs: int


def summarise(times: Sequence[float]) -> Noise:
    """The noise in a series of timings, in the order they were taken.

    Raises:
        ValueError: there are fewer than two.
    """
    if len(times) < 2:
        raise ValueError(f"noise needs at least two timings, not {len(times)}")
    low, median, high = (float(value) for value in np.quantile(times, (0.1, 0.5, 0.9)))
    half = len(times) // 2
    drift = float(np.median(times[half:]) / np.median(times[:half])) - 1
    return Noise(median, (high - low) / median, drift, len(times))


def measure_noise(seconds: float = 1.0, threads: int = 1) -> Noise:
    """Time a fixed piece of work again and again.

    The work is a NumPy function on an array that stays in a core's own cache, so neither another
    program's use of memory nor a linear algebra library's threads decide the result.

    Args:
        seconds: About how long to go on.
        threads: Threads that do the work at the same time; a run ends with the slowest.
    """
    source = np.linspace(0.1, 1.0, 1 << 14)
    targets = [np.empty_like(source) for _ in range(threads)]
    np.sin(source, out=targets[0])
    once = _time(lambda: np.sin(source, out=targets[0]))
    repeats = max(1, round(_RUN_S / once))

    def work(target: npt.NDArray[np.float64]) -> None:
        for _ in range(repeats):
            np.sin(source, out=target)

    with ThreadPoolExecutor(threads) as pool:
        # The plain call for one thread: handing work over costs more time than it varies by.
        run = (lambda: list(pool.map(work, targets))) if threads > 1 else lambda: work(targets[0])
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < _FEWEST_RUNS:
            times.append(_time(run))
    return summarise(times)


@dataclass(frozen=True, slots=True)
class Busy:
    """A process and the share of one core it takes (above 1: several cores)."""

    share: float
    pid: int
    name: str


def measure_load(seconds: float = 0.5) -> tuple[list[Busy], float]:
    """Watch the other processes for a while.

    Returns:
        The processes, the busiest first; and the share of all cores' time that the hypervisor
        gave to other virtual machines (0 where it does not say).
    """
    processes = [p for p in psutil.process_iter(["name"]) if p.pid != os.getpid()]
    before = {process.pid: _cpu_time(process) for process in processes}
    stolen, start = _stolen(), time.perf_counter()
    time.sleep(seconds)
    wall = time.perf_counter() - start
    busy = [
        Busy((_cpu_time(p) - before[p.pid]) / wall, p.pid, str(p.info["name"])) for p in processes
    ]
    busy.sort(key=lambda process: -process.share)
    return busy, (_stolen() - stolen) / wall / (psutil.cpu_count() or 1)


def _stolen() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def _cpu_time(process: psutil.Process) -> float:
    """Seconds of CPU time a process has used; 0 once it has ended or is hidden from us."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _time(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
