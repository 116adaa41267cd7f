"""`tensortune bench measure`: the same candidates through our workers and MetaSchedule's."""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr
from tvm.s_tir import meta_schedule as ms

from ..data.candidate import Candidate
from ..data.host import set_threads, this_host
from ..data.install import versions
from ..data.measure import LocalMeasurer
from ..data.sketch_space import SketchSpace
from ..data.suites import ansor
from ..data.target import cpu_target, num_cores, target_string
from ..data.workload import Workload, workload

# Has MetaSchedule's build workers take the GPU intrinsics for loaded, to tell what that import
# costs. `exec` with a string is a function that its process pool can pickle without our package.
_SKIP_IMPORT = functools.partial(
    exec,
    "import sys, types, tvm.s_tir; "
    "sys.modules['tvm.s_tir.tensor_intrin'] = types.ModuleType('tvm.s_tir.tensor_intrin')",
)


@dataclass(frozen=True)
class _Batch:
    """Seconds for a batch, and the kernels' times (infinity for a failure, NaN if cut short)."""

    seconds: float
    latency_s: list[float]


def bench_measure(sizes: Sequence[int], seed: int, console: Console) -> dict[str, Any]:
    """Measure batches of random candidates of matmul 512 and conv2d (Ansor's C2D 2).

    Every batch goes through our workers, MetaSchedule's `LocalBuilder` and `LocalRunner` as they
    are, and the same with the import of GPU intrinsics taken out, one after the other.

    Args:
        sizes: Candidates in each batch.
        seed: Seed of the candidates.
        console: Where progress and the table go.

    Returns:
        `trial_rate_ratio`, `trial_rate_ratio_without_import` (geometric means over the batches),
        `kernel_time_ratio_median`, `rank_agreement` (Spearman), and the batches.
    """
    if not sizes or min(sizes) < 2:
        raise ValueError("a batch holds at least 2 candidates, e.g. --batches 32,64")
    target = cpu_target()
    set_threads(num_cores(target))  # MetaSchedule's runner inherits it
    rows = []
    for task in (workload("matmul", 512, 512, 512), ansor("C2D", 2)):
        space = SketchSpace(task, target)
        rng = np.random.default_rng(seed)
        with LocalMeasurer(task, target) as measurer:
            measurer.measure(space, space.sample(rng, 2))  # the pool is up, as it is in a run
            for size in sizes:
                console.print(f"{task.key}: a batch of {size}", highlight=False)
                measurer.best_s = float("inf")
                batch = space.sample(rng, size)
                rows.append(_compare(task, space, measurer, batch, console))
    return _summarise(rows, target_string(target), seed, console)


def _compare(
    task: Workload,
    space: SketchSpace,
    measurer: LocalMeasurer,
    batch: Sequence[Candidate],
    console: Console,
) -> dict[str, Any]:
    runs: dict[str, Callable[[], _Batch]] = {
        "tensortune": lambda: _ours(space, measurer, batch),
        "metaschedule": lambda: _theirs(task, space, batch, None),
        "metaschedule_without_import": lambda: _theirs(task, space, batch, _SKIP_IMPORT),
    }
    found: dict[str, _Batch] = {}
    for name, run in runs.items():
        found[name] = run()
        failed = sum(np.isinf(found[name].latency_s))
        console.print(f"  {name}: {found[name].seconds:.1f} s, {failed} failed", highlight=False)
    ours = np.array(found["tensortune"].latency_s)
    theirs = np.array(found["metaschedule"].latency_s)
    both = np.isfinite(ours) & np.isfinite(theirs)
    return {
        "workload": task.key,
        "batch": len(batch),
        "seconds": {name: item.seconds for name, item in found.items()},
        "failed": {name: int(sum(np.isinf(item.latency_s))) for name, item in found.items()},
        "kernel_time_ratios": (ours[both] / theirs[both]).tolist(),
        "rank_agreement": float(spearmanr(ours[both], theirs[both]).statistic),
    }


def _ours(space: SketchSpace, measurer: LocalMeasurer, batch: Sequence[Candidate]) -> _Batch:
    start = time.monotonic()
    records = measurer.measure(space, batch)
    seconds = time.monotonic() - start
    return _Batch(seconds, [np.nan if r.cut else r.latency_s for r in records])


def _theirs(
    task: Workload, space: SketchSpace, batch: Sequence[Candidate], initializer: Any
) -> _Batch:
    modules = [space.schedule(candidate).mod for candidate in batch]
    arguments = ms.arg_info.ArgInfo.from_prim_func(task.mod["main"])
    # Made before the clock starts, as a tuning run makes them once.
    builder = ms.builder.LocalBuilder(initializer=initializer)
    runner = ms.runner.LocalRunner()
    start = time.monotonic()
    built = builder.build([ms.builder.BuilderInput(mod, space.target) for mod in modules])
    latency_s: list[float] = []
    for result in built:
        if result.artifact_path is None:
            latency_s.append(float("inf"))
            continue
        wanted = ms.runner.RunnerInput(result.artifact_path, "cpu", arguments)
        (future,) = runner.run([wanted])
        times = future.result().run_secs
        latency_s.append(float(np.mean([float(t) for t in times])) if times else float("inf"))
        shutil.rmtree(os.path.dirname(result.artifact_path), ignore_errors=True)
    return _Batch(time.monotonic() - start, latency_s)


def _summarise(
    rows: Sequence[dict[str, Any]], target: str, seed: int, console: Console
) -> dict[str, Any]:
    def rate_ratio(peer: str) -> float:
        logs = [np.log(row["seconds"][peer] / row["seconds"]["tensortune"]) for row in rows]
        return float(np.exp(np.mean(logs)))

    ratios = [ratio for row in rows for ratio in row["kernel_time_ratios"]]
    result = {
        "trial_rate_ratio": rate_ratio("metaschedule"),
        "trial_rate_ratio_without_import": rate_ratio("metaschedule_without_import"),
        "kernel_time_ratio_median": float(np.median(ratios)),
        "rank_agreement": float(np.mean([row["rank_agreement"] for row in rows])),
        "batches": list(rows),
        "host": this_host().key,
        "target": target,
        "versions": versions(),
        "seed": seed,
    }
    table = Table("figure", "value", box=None, pad_edge=False)
    for name, value in result.items():
        if isinstance(value, float):
            table.add_row(name, f"{value:.3g}")
    console.print(table)
    return result
