"""What the machine can do: arithmetic and memory traffic, as far as a compiler gets at them.

A kernel's arithmetic rate over the peak says how much there is left to find, whoever tuned it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import psutil
import tvm

from .build import Builder, time_built
from .host import usable_cpus
from .pool import WorkerServer
from .target import cpu_target, num_cores, target_string
from .worker import Program, Timing

# Independent chains of multiply-adds, and floats in each. A core that starts two a cycle and takes
# four cycles for one needs eight chains; more must not take more registers than there are. What is
# right depends on the CPU (16 or 32 registers of 4, 8 or 16 floats), so all are tried.
_SHAPES = ((12, 8), (12, 16), (24, 16), (24, 4))
_ROUNDS = 1 << 17
# The fastest run counts, for what disturbs one only makes it slower. It takes half a millisecond,
# which even a busy machine gives in one piece now and then, unlike several.
_TIMING = Timing(repeats=40, repeat_s=1e-4, budget_s=0.15)
_RUN_LIMIT_S = 5.0
_MEMORY_BYTES = 1 << 30

_COPIES = 20
_LEAST_BYTES, _MOST_BYTES = 32 << 20, 256 << 20

# Each chain begins with a number of its own, or the compiler would see that they are all the same.
# With the factors one half they run towards one: there is no overflow and no denormal.
_KERNEL = Template("""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(factors: T.Buffer((2,), "float32"), out: T.Buffer(($threads, $size), "float32")):
        T.func_attr({"tirx.noalias": True})
        for thread in T.$kind($threads):
            for round in range($rounds):
                for chain in T.unroll($chains):
                    for lane in T.vectorized($lanes):
                        out[thread, chain * $lanes + lane] = (
                            out[thread, chain * $lanes + lane] * factors[0] + factors[1]
                        )
""")


@dataclass(frozen=True, slots=True)
class Peak:
    """What was measured on a machine.

    Attributes:
        flops_core: Arithmetic of one core in FLOP/s, float32; a multiply-add is two.
        flops: That of all threads at once.
        bandwidth: Bytes a second that all threads read and write in copying an array far larger
            than the caches.
        threads: How many threads that was.
    """

    flops_core: float
    flops: float
    bandwidth: float
    threads: int

    def share(self, flops: float, seconds: float) -> float:
        """The part of the peak that a kernel reaches which takes `seconds` for `flops`."""
        return flops / seconds / self.flops


def measure_peak(target: Any = None) -> Peak:
    """Measure the peak of the threads that kernels for a target run on; takes some 3 seconds.

    Arithmetic: a kernel of multiply-adds that depend on nothing but their own last result, held in
    registers, compiled by TVM for the target. Memory: copies by NumPy, one thread a core.

    Args:
        target: The target; by default this machine.

    Raises:
        RuntimeError: none of the kernels compiles and runs.
    """
    chosen = cpu_target(target)
    threads = num_cores(chosen)
    flops = _measure_flops(chosen, sorted({1, threads}))
    return Peak(flops[1], flops[threads], measure_bandwidth(threads), threads)


def _measure_flops(target: Any, counts: Sequence[int]) -> dict[int, float]:
    """FLOP/s by number of threads: the most that any of the kernels reaches."""
    jobs = [(threads, *shape) for threads in counts for shape in _SHAPES]
    size = max(chains * lanes for chains, lanes in _SHAPES)
    text = target_string(target)
    best = dict.fromkeys(counts, 0.0)
    why = ""
    server = WorkerServer(num_cores(target), text)
    try:
        for threads in counts:
            factors = np.full(2, 0.5, np.float32)
            values = np.linspace(0.1, 0.9, threads * size, dtype=np.float32)
            server.send_inputs(f"peak:{threads}", [factors, values.reshape(threads, size)])
        programs = [
            Program(_kernel(*job, size), text, f"peak:{job[0]}", _MEMORY_BYTES) for job in jobs
        ]
        built = Builder(server, len(usable_cpus())).build(programs, patient=True)
        for (threads, chains, lanes), item in zip(jobs, built, strict=True):
            timed = time_built(item, _TIMING, _RUN_LIMIT_S)
            if timed is not None:
                flops = 2.0 * threads * _ROUNDS * chains * lanes
                best[threads] = max(best[threads], flops / min(timed.repeats))
            why = item.detail or why
            item.close()
    finally:
        server.close()
    if not all(best.values()):
        raise RuntimeError(f"the kernels that measure the peak do not run: {why}")
    return best


def _kernel(threads: int, chains: int, lanes: int, size: int) -> str:
    """The kernel as JSON."""
    source = _KERNEL.substitute(
        threads=threads,
        kind="parallel" if threads > 1 else "serial",
        rounds=_ROUNDS,
        chains=chains,
        lanes=lanes,
        size=size,
    )
    return str(tvm.ir.save_json(tvm.script.from_source(source)))


def measure_bandwidth(threads: int) -> float:
    """Bytes a second that threads read and write together in copying.

    The traffic of the STREAM benchmark's `Copy`: two arrays, together four times the last cache.
    """
    size = min(max(2 * last_cache_bytes(), _LEAST_BYTES), _MOST_BYTES)
    size = min(size, psutil.virtual_memory().available // 8) // (8 * threads) * 8 * threads
    source = np.ones((threads, size // (8 * threads)))
    target = np.zeros_like(source)
    with ThreadPoolExecutor(threads) as pool:

        def copy() -> float:
            start = time.perf_counter()
            list(pool.map(np.copyto, target, source))
            return time.perf_counter() - start

        copy()  # gives the target its pages
        fastest = min(copy() for _ in range(_COPIES))
    return 2 * source.nbytes / fastest


def last_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Size of the largest cache; 0 where the system does not tell."""
    sizes = [_bytes(path.read_text()) for path in folder.glob("index*/size")]
    return max(sizes, default=0)


def _bytes(text: str) -> int:
    """`32768K` as a number."""
    text = text.strip()
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    number = text.rstrip("KMG")
    return int(number) * unit if number.isdigit() else 0
