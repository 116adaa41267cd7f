"""Strategies by the clock: who leads at equal seconds, how soon one is as good as another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Log latencies by workload and label, one for each seed.
Logs = dict[str, dict[str, npt.NDArray[np.float64]]]

NEAR = 1.02
"""Up to how many times another strategy's latency counts as near it."""


def at_equal_seconds(cells: Sequence[Mapping[str, Any]], label: str, other: str) -> Logs:
    """What two strategies had found when the first run of either was through.

    The seconds are a run's own, of searching and measuring, and the latencies those that the run
    itself measured, not the interleaved ones. A workload on which a run had nothing by then is
    left out, and so is one on which a tuner does not tell when its trials were done.
    """
    found: Logs = {}
    for key in dict.fromkeys(cell["workload"] for cell in cells):
        curves: dict[str, list[Any]] = {
            name: [
                [point for point in cell["curve"] if point[1] is not None]
                for cell in cells
                if (cell["workload"], cell["label"]) == (key, name)
                and not cell.get("error")
                and "curve" in cell
            ]
            for name in (label, other)
        }
        every = [curve for own in curves.values() for curve in own]
        if not (all(curves.values()) and all(every)):
            continue
        end_s = min(curve[-1][1] for curve in every)
        best = {
            name: [[b for _, at, b in curve if at <= end_s and b is not None][-1:] for curve in own]
            for name, own in curves.items()
        }
        if all(last for own in best.values() for last in own):
            found[key] = {name: np.log(np.ravel(own)) for name, own in best.items()}
    return found


def wall_to_near(cells: Sequence[Mapping[str, Any]], label: str, other: str) -> Any:
    """Wall-clock until a strategy's best was within 2% of what another ended with.

    What a run had at some time is what it measured then, times what its winner came to in the
    interleaved timing over what the run measured of it; the other's goal is the geometric mean of
    its winners in that timing. The start of Python and its imports count. A run that does not tell
    how long they took counts all that was not searching and measuring as spent ahead of it, its
    end too.

    Returns:
        `seconds` (by workload, the median over the seeds, None where fewer than half of the runs
        came that near), `reached` and `of` (on how many workloads it was reached, of how many),
        `ratio` (geometric mean, over those where it was reached, of these seconds over the other's
        mean wall-clock of a whole run; None without one). None where nothing can be said.
    """
    seconds: dict[str, float | None] = {}
    ratios = []
    for key in dict.fromkeys(cell["workload"] for cell in cells):
        ours, theirs = (
            [
                cell
                for cell in cells
                if (cell["workload"], cell["label"]) == (key, name)
                and not cell.get("error")
                and np.isfinite(cell["best_s"])
                and "wall_s" in cell
            ]
            for name in (label, other)
        )
        times = [_reached(cell, _mean(theirs, "best_s") * NEAR) for cell in ours if theirs]
        if not times or any(time is None for time in times):
            continue
        middle = float(np.median(np.array(times, dtype=np.float64)))
        seconds[key] = middle if np.isfinite(middle) else None
        if np.isfinite(middle):
            ratios.append(np.log(middle / np.mean([cell["wall_s"] for cell in theirs])))
    if not seconds:
        return None
    return {
        "seconds": seconds,
        "reached": len(ratios),
        "of": len(seconds),
        "ratio": float(np.exp(np.mean(ratios))) if ratios else None,
    }


def _mean(cells: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.exp(np.mean(np.log([cell[name] for cell in cells]))))


def _reached(cell: Mapping[str, Any], goal_s: float) -> float | None:
    """Wall-clock at which a run had a kernel of that latency; None if it does not tell times."""
    points = [point for point in cell.get("curve", []) if point[2] is not None]
    if not points or any(point[1] is None for point in points):
        return None
    told_s = cell.get("start_s")
    ahead_s = cell["wall_s"] - points[-1][1] if told_s is None else told_s
    goal_s *= points[-1][2] / cell["best_s"]
    return min((ahead_s + at for _, at, best in points if best <= goal_s), default=float("inf"))
