"""Plots of runs (matplotlib, in the `report` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import matplotlib

matplotlib.use("agg")
from matplotlib.figure import Figure

from ..data.record import Record
from ..data.workload import Workload
from .winner import Winner


def plot_best_so_far(
    records: Sequence[Record], best: Winner, path: Path, workload: Workload
) -> None:
    """Throughput of every trial and of the best so far, against trials, as a PNG."""
    scale = workload.flops / 1e9 if workload.flops else 1.0
    unit = "GFLOP/s" if workload.flops else "runs per ns"
    speeds = [scale / record.latency_s for record in records]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    trials = range(1, len(speeds) + 1)
    axes.plot(trials, speeds, ".", color="#9aa5b1", label="trial")
    axes.plot(trials, list(accumulate(speeds, max)), color="#1f6feb", label="best so far")
    axes.axhline(scale / best.untuned_s, color="#666", linestyle=":", label="untuned")
    if best.numpy_s is not None:
        axes.axhline(scale / best.numpy_s, color="#d1242f", linestyle="--", label="NumPy")
    axes.set(xlabel="trials", ylabel=unit, title=workload.key, ylim=(0, None))
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
