"""The figures of an evaluation: means and intervals over workloads, and against the peer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from .metrics import NAMES, Metrics

Array = npt.NDArray[np.float64]

METRICS = tuple("recall10" if name == "recall" else name for name in NAMES)
"""The metrics as they are named in reports."""

# Of a top score the mean is that of the workloads' summed latencies, each in its best one.
_HARMONIC = np.array([name in ("top1", "top5") for name in NAMES])
_RESAMPLES = 2000
_BINS = 10


@dataclass(frozen=True)
class Cell:
    """How well a model ranks the programs of one workload after one training.

    Attributes:
        model: The model.
        split: What of the workload was unseen.
        size: Programs that were drawn to train on; None for all there are.
        seed: Seed of the split.
        group: The workload, on one target and host.
        identity: Its computation.
        family: Its operator family.
        programs: How many were ranked.
        metrics: How well.
        deciles: By tenths of the predicted order, slowest first: the sum of the programs' speed
            over the workload's best, and how many there are; of shape (10, 2).
        perfect: The same for the order that was measured.
    """

    model: str
    split: str
    size: int | None
    seed: int
    group: int
    identity: str
    family: str
    programs: int
    metrics: Metrics
    deciles: Array
    perfect: Array


def deciles(scores: Array, latency_s: Array) -> Array:
    """See `Cell.deciles`; programs that tie share their mean place."""
    place = (stats.rankdata(scores) - 0.5) / len(scores)
    tenth = np.minimum((place * _BINS).astype(np.int64), _BINS - 1)
    speed = latency_s.min() / latency_s
    return np.stack([np.bincount(tenth, speed, _BINS), np.bincount(tenth, minlength=_BINS)], axis=1)


def row(
    cells: Sequence[Cell], peer: Sequence[Cell] = (), ceiling: float = np.nan
) -> dict[str, Any]:
    """The figures of one model on one split, over all seeds.

    Each workload of each seed counts once. The intervals are 95% bootstrap intervals over the
    computations, of which one that several seeds test is drawn with all of its results.

    Args:
        cells: The model's.
        peer: Those of the model to compare with, of the same workloads and seeds.
        ceiling: The pairwise accuracy of measurements against measurements made again.
    """
    draws = _draws(cells)
    out: dict[str, Any] = {}
    for column, name in enumerate(METRICS):
        out[name], out[f"{name}_ci95"] = _figure(draws[:, column])
    known = ceiling if np.isfinite(ceiling) else None
    out["noise_ceiling"] = known
    out["pairwise_over_ceiling"], out["pairwise_over_ceiling_ci95"] = _figure(draws[:, 0] / ceiling)
    out["workloads"] = len({cell.identity for cell in cells})
    out["programs"] = sum(cell.programs for cell in cells)
    out["seeds"] = len({cell.seed for cell in cells})
    out["vs_metaschedule"] = _difference(cells, peer, draws) if peer else None
    return out


def _difference(cells: Sequence[Cell], peer: Sequence[Cell], ours: Array) -> dict[str, Any]:
    """Each metric less the peer's, on the same draws of workloads."""
    if [(c.seed, c.group) for c in cells] != [(c.seed, c.group) for c in peer]:
        raise ValueError("models are compared on other workloads")
    draws = ours - _draws(peer)
    out: dict[str, Any] = {}
    for column, name in enumerate(METRICS):
        out[name], out[f"{name}_ci95"] = _figure(draws[:, column])
    return out


def _figure(draws: Array) -> tuple[float | None, list[float | None]]:
    """The first of the draws, which is the figure itself, and the interval of the others."""
    if not np.isfinite(draws[0]):
        return None, [None, None]
    return float(draws[0]), [float(end) for end in np.nanquantile(draws[1:], (0.025, 0.975))]


def _draws(cells: Sequence[Cell]) -> Array:
    """Means of the metrics, of shape (1 + resamples, metrics); the first is of all the cells."""
    names, index = np.unique([cell.identity for cell in cells], return_inverse=True)
    table = np.array([[getattr(cell.metrics, name) for name in NAMES] for cell in cells])
    table[:, _HARMONIC] = 1.0 / table[:, _HARMONIC]
    known = ~np.isnan(table)
    sums, counts = np.zeros((2, len(names), table.shape[1]))
    np.add.at(sums, index, np.where(known, table, 0.0))
    np.add.at(counts, index, known)
    n = len(names)
    # A seed of its own each time: equal workloads are drawn alike for every model.
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=_RESAMPLES)
    weights = np.concatenate([np.ones((1, n)), drawn])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (weights @ sums) / (weights @ counts)
        means[:, _HARMONIC] = 1.0 / means[:, _HARMONIC]
    return np.asarray(means, dtype=np.float64)


def family_rows(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Each model's error on each operator family, by split."""
    grouped: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.model, cell.split, cell.family), []).append(cell)
    rows = []
    for (model, split, family), members in sorted(grouped.items()):
        figures = dict(zip(METRICS, _draws(members)[0].tolist(), strict=True))
        rows.append(
            {
                "model": model,
                "split": split,
                "family": family,
                "pairwise": figures["pairwise"] if np.isfinite(figures["pairwise"]) else None,
                "top1": figures["top1"],
                "workloads": len({cell.identity for cell in members}),
            }
        )
    return rows


def calibration_rows(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Mean speed over the workload's best by tenths of each model's order, slowest first.

    `perfect` is that of the measured order.
    """
    tables: dict[tuple[str, str], Array] = {}
    best: dict[tuple[str, str], Array] = {}
    for cell in cells:
        key = cell.model, cell.split
        tables[key] = tables.get(key, np.zeros((_BINS, 2))) + cell.deciles
        best[key] = best.get(key, np.zeros((_BINS, 2))) + cell.perfect
    return [
        {"model": key[0], "split": key[1], "speed": _ratio(table), "perfect": _ratio(best[key])}
        for key, table in tables.items()
    ]


def _ratio(table: Array) -> list[float | None]:
    return [float(total / count) if count else None for total, count in table]


def by_model(cells: Iterable[Cell]) -> Mapping[str, list[Cell]]:
    """The cells of each model, in their order."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.model, []).append(cell)
    return found
