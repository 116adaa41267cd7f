"""Figures of a comparison: geometric means of speed ratios, with bootstrap intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from .compare_seconds import NEAR, Logs, at_equal_seconds, wall_to_near
from .progress import format_seconds

REFERENCES = ("untuned", "numpy", "torch")
LIBRARIES = "numpy/torch"
"""The faster of the two on each workload, where both took part in the comparison."""

_RESAMPLES = 4000

# A ratio, and the ends of its interval, or None where there is none.
Ratio = tuple[float, float | None, float | None]


def summarise(cells: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> dict[str, Any]:
    """Compare labels with each other and with the references.

    A ratio above 1 says that the strategy's kernels are faster than the reference's. Intervals are
    bootstrapped over the seeds of each workload, both sides resampled on their own; the workloads
    stay as they are, so an interval speaks of these workloads and not of operators at large. With
    few seeds the bootstrap's variance is too small by (n - 1) / n, which is made up for; with one
    seed of a strategy there is no interval. A
    workload on which either side has no right kernel is left out of their ratio and listed.

    Args:
        cells: One a run: `workload`, `label`, `seed`, `best_s` (seconds of the winner in the
            interleaved timing), and `trials`, `failures`, `seconds`, `wall_s`, `curve`, `error`.
            A tuner that can't run the workload at all has an error and no trials.
        labels: The strategies' labels, in order.

    Returns:
        `strategies` (by label: `geomean_speed_vs` and `geomean_speed_vs_ci95` by reference,
        `geomean_speed_vs_at_equal_seconds` likewise (see `at_equal_seconds`), with
        `workloads_at_equal_seconds`, on how many it was,
        `wall_to_near` by strategy (see `compare_seconds.wall_to_near`),
        `wall_ratio_vs_metaschedule`), `workloads` (by key and label), `left_out`.
    """
    good = [cell for cell in cells if not cell.get("error") and np.isfinite(cell["best_s"])]
    logs: Logs = {}
    for cell in good:
        by_label = logs.setdefault(cell["workload"], {})
        known = by_label.get(cell["label"], np.empty(0))
        by_label[cell["label"]] = np.append(known, np.log(cell["best_s"]))
    keys = list(dict.fromkeys(cell["workload"] for cell in cells))
    references = [*REFERENCES, *([LIBRARIES] if _add_libraries(logs) else [])]
    strategies = {}
    for label in labels:
        others = [other for other in (*labels, *references) if other != label]
        found = {other: speed_ratio(logs, keys, label, other) for other in others}
        by_then = {o: at_equal_seconds(cells, label, o) for o in labels if o != label}
        timely = {other: speed_ratio(had, keys, label, other) for other, had in by_then.items()}
        strategies[label] = {
            **_by_other("geomean_speed_vs", found),
            **_by_other("geomean_speed_vs_at_equal_seconds", timely),
            "workloads_at_equal_seconds": {o: len(had) for o, had in by_then.items() if had},
            "wall_to_near": {
                other: found
                for other in labels
                if other != label and (found := wall_to_near(cells, label, other)) is not None
            },
            "wall_ratio_vs_metaschedule": _wall_ratio(cells, label, "metaschedule"),
        }
    workloads = {
        key: {
            label: _describe([c for c in cells if c["workload"] == key and c["label"] == label])
            | {
                "speed_vs": {
                    o: list(r)
                    for o in (*labels, *references)
                    if o != label and (r := speed_ratio(logs, [key], label, o)) is not None
                }
            }
            for label in (*labels, *REFERENCES)
            if any(c["workload"] == key and c["label"] == label for c in cells)
        }
        for key in keys
    }
    left_out = [
        {name: cell.get(name) for name in ("workload", "label", "seed", "error")}
        for cell in cells
        if cell.get("error")
    ]
    return {"strategies": strategies, "workloads": workloads, "left_out": left_out}


def _by_other(name: str, ratios: Mapping[str, Ratio | None]) -> dict[str, Any]:
    """Ratios by what they are against, and their intervals likewise."""
    found = {other: ratio for other, ratio in ratios.items() if ratio is not None}
    return {
        name: {other: ratio[0] for other, ratio in found.items()},
        f"{name}_ci95": {other: list(ratio[1:]) for other, ratio in found.items()},
    }


def _add_libraries(logs: Logs) -> bool:
    """Add the faster of NumPy and torch to each workload that has one; whether both took part."""
    names = ("numpy", "torch")
    if not all(any(name in by_label for by_label in logs.values()) for name in names):
        return False
    for by_label in logs.values():
        found = [by_label[name] for name in names if name in by_label]
        if found:
            by_label[LIBRARIES] = min(found, key=lambda log_s: float(log_s.mean()))
    return True


def speed_ratio(logs: Logs, keys: Sequence[str], label: str, other: str) -> Ratio | None:
    """Geometric mean over workloads of `other`'s latency over `label`'s, and its 95% interval.

    None when they share no workload; an interval of None where a strategy has a single seed.
    """
    pairs = [
        (logs[key][other], logs[key][label])
        for key in keys
        if label in logs.get(key, {}) and other in logs[key]
    ]
    if not pairs:
        return None
    sizes = [
        len(logs[key][name])
        for key in keys
        if label in logs.get(key, {})
        for name in (label, other)
        if name not in (*REFERENCES, LIBRARIES) and name in logs[key]
    ]
    rng = np.random.default_rng(0)
    point = float(np.mean([theirs.mean() - ours.mean() for theirs, ours in pairs]))
    draws = np.mean([_means(theirs, rng) - _means(ours, rng) for theirs, ours in pairs], axis=0)
    if min(sizes, default=2) < 2:
        return float(np.exp(point)), None, None
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(np.exp(point)), float(np.exp(low)), float(np.exp(high))


def _means(values: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    n = len(values)
    picks = rng.integers(n, size=(_RESAMPLES, n))
    mean = values.mean()
    widen = np.sqrt(n / (n - 1)) if n > 1 else 1.0
    return np.asarray(mean + widen * (values[picks].mean(axis=1) - mean))


def _wall_ratio(cells: Sequence[Mapping[str, Any]], label: str, other: str) -> float | None:
    """Geometric mean over workloads of the strategy's wall-clock over the other's."""

    def walls(name: str) -> dict[str, float]:
        by_key: dict[str, list[float]] = {}
        for cell in cells:
            if cell["label"] == name and "wall_s" in cell and not cell.get("error"):
                by_key.setdefault(cell["workload"], []).append(np.log(cell["wall_s"]))
        return {key: float(np.mean(values)) for key, values in by_key.items()}

    ours, theirs = walls(label), walls(other)
    shared = ours.keys() & theirs.keys()
    if not shared:
        return None
    return float(np.exp(np.mean([ours[key] - theirs[key] for key in shared])))


def _describe(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One strategy on one workload: the median over seeds, and what each seed came to."""
    right = [cell for cell in cells if not cell.get("error")]
    errors = [cell["error"] for cell in cells if cell.get("error")]
    best = [cell["best_s"] for cell in right if np.isfinite(cell.get("best_s", np.inf))]
    failures: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for cell in cells:
        failures.update(cell.get("failures", {}))
        seconds.update(cell.get("seconds", {}))
    return {
        "best_s": float(np.median(best)) if best else None,
        "best_s_by_seed": best,
        "trials": [cell["trials"] for cell in cells if "trials" in cell],
        "failures": dict(failures),
        "seconds": {part: total / len(cells) for part, total in seconds.items()},
        "wall_s": [cell["wall_s"] for cell in cells if "wall_s" in cell],
        "packed_s": [cell["packed_s"] for cell in cells if "packed_s" in cell],
        "error": errors[0] if errors else None,
        "unable": bool(errors) and all(cell.get("trials") == 0 for cell in cells),
        "about": next((cell["about"] for cell in cells if cell.get("about")), {}),
        "curves": [cell["curve"] for cell in cells if "curve" in cell],
    }


def tables(result: Mapping[str, Any]) -> list[Table]:
    """The result as tables: latencies by workload, and the ratios."""
    labels = list(result["strategies"])
    columns = [*labels, *REFERENCES]
    latencies = Table("best latency, median of seeds", *columns, box=None, pad_edge=False)
    for key, by_label in result["workloads"].items():
        best = [by_label.get(label, {}).get("best_s") for label in columns]
        latencies.add_row(key, *(format_seconds(b) if b else "-" for b in best))
    heads = ("speed of", "vs", "ratio", "95% interval", "at equal seconds", "95% interval", "on")
    ratios = Table(*heads, box=None, pad_edge=False)
    for label, figures in result["strategies"].items():
        for other in figures["geomean_speed_vs"]:
            ratios.add_row(
                label,
                other,
                *_ratio_texts(figures, "geomean_speed_vs", other),
                *_ratio_texts(figures, "geomean_speed_vs_at_equal_seconds", other),
                str(figures["workloads_at_equal_seconds"].get(other, "-")),
            )
    near = f"to within {NEAR - 1:.0%} of its best"
    names = ("strategy", "wall-clock, s", "over metaschedule's", near, "operators")
    walls = Table(*names, box=None, pad_edge=False)
    for label, figures in result["strategies"].items():
        own = [s for w in result["workloads"].values() for s in w.get(label, {}).get("wall_s", [])]
        ratio = figures["wall_ratio_vs_metaschedule"]
        mean = f"{np.mean(own):.1f}" if own else "-"
        soon = figures["wall_to_near"].get("metaschedule", {})
        walls.add_row(
            label,
            mean,
            "-" if ratio is None else f"{ratio:.3f}",
            "-" if soon.get("ratio") is None else f"{soon['ratio']:.3f}",
            f"{soon['reached']} of {soon['of']}" if soon else "-",
        )
    return [latencies, ratios, walls]


def _ratio_texts(figures: Mapping[str, Any], name: str, other: str) -> tuple[str, str]:
    """A ratio and its interval."""
    if other not in figures[name]:
        return "-", "-"
    low, high = figures[f"{name}_ci95"][other]
    return f"{figures[name][other]:.3f}", "-" if low is None else f"{low:.3f} .. {high:.3f}"
