"""Best-so-far curves of several runs as one, and how soon runs came near the best."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from .report_parts import Band, Floats

# A run's curve as `compare.json` holds it: trials, seconds (or None), best latency (or None).
Curve = Sequence[Sequence[float | None]]
Axis = Literal["trials", "seconds"]

# Points of a curve at most; more would not be seen.
_POINTS = 160


def steps(curve: Curve, axis: Axis) -> tuple[Floats, Floats] | None:
    """Where a run's best improved, and to what: `(x, latency_s)`, from the first success on.

    The last entry is where the run ended. None for a run without a success, or without times where
    seconds are asked for.
    """
    column = 0 if axis == "trials" else 1
    pairs = [(point[column], point[2]) for point in curve if point[2] is not None]
    found = [(float(x), float(y)) for x, y in pairs if x is not None and y is not None]
    if not found or len(found) < len(pairs):
        return None
    kept = [found[0], *(new for old, new in pairwise(found) if new[1] < old[1]), found[-1]]
    x, y = np.array(kept, dtype=np.float64).T
    return x, y


def mean_band(workloads: Sequence[Sequence[tuple[Curve, float]]], axis: Axis) -> Band | None:
    """The speed of the best so far, as a geometric mean over workloads and seeds.

    A run that ended before the others keeps what it had. The curve begins where every run has
    found something.

    Args:
        workloads: For each workload its runs' curves, each with what a latency of one second is
            worth: the speed is that over the latency. Where one workload has fewer runs than
            another, the others' last ones are left out.
        axis: What the curve runs along.

    Returns:
        None where a run has nothing to show.
    """
    seeds = min((len(runs) for runs in workloads), default=0)
    taken = [
        (seed, scale, found)
        for runs in workloads
        for seed, (curve, scale) in enumerate(runs[:seeds])
        if (found := steps(curve, axis)) is not None
    ]
    if not seeds or len(taken) < seeds * len(workloads):
        return None
    grid = _grid([x for _, _, (x, _) in taken])
    logs = np.zeros((seeds, len(grid)))
    for seed, scale, (x, y) in taken:
        logs[seed] += np.log(scale / y[np.searchsorted(x, grid, side="right") - 1])
    logs /= len(workloads)
    return Band(grid, np.exp(logs.mean(axis=0)), np.exp(logs.min(axis=0)), np.exp(logs.max(axis=0)))


def _grid(places: Sequence[Floats]) -> Floats:
    """Where the curves step, from where all have begun; thinned out where there are many."""
    start = max(float(x[0]) for x in places)
    grid = np.unique(np.concatenate([np.array([start]), *(x[x >= start] for x in places)]))
    if len(grid) > _POINTS:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, _POINTS).round().astype(np.int64))]
    return grid


def reached(curve: Curve, goal_s: float, axis: Axis) -> float:
    """Trials or seconds until the best was at most the goal; infinity for a run that never was."""
    found = steps(curve, axis)
    if found is None:
        return float("inf")
    x, y = found
    there = np.flatnonzero(y <= goal_s)
    return float(x[there[0]]) if len(there) else float("inf")


def final(curve: Curve) -> float:
    """What a run ended with, in seconds a run of the kernel; infinity where it found nothing."""
    found = steps(curve, "trials")
    return float("inf") if found is None else float(found[1][-1])
