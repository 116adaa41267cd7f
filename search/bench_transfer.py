"""`tensortune bench transfer`: what pretrained models save, and what a misleading prior costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from ..costmodel import pretrained
from ..data.suites import suite
from ..data.workload import Workload
from .compare import Entrant, compare
from .run_folder import write_json

Array = npt.NDArray[np.float64]
Curve = Sequence[tuple[int, float | None, float | None]]
"""Best so far of a run: trials, seconds since it began, best latency; see `Outcome.curve`."""

COLD, WARM, MISLED = "cold", "warm", "misled"
ENTRANTS = (
    Entrant(COLD, "annealing", model="xgb"),
    Entrant(WARM, "annealing", model=pretrained.NAME),
    Entrant(MISLED, "annealing", model=pretrained.MISLEADING),
)

# One of each family of Ansor's suite, of those that take a tenth of a millisecond or so.
_USUAL = "C1D:2 C2D:2 C3D:1 GMM:2 GRP:0 DIL:2 DEP:0 T2D:1 CAP:1 NRM:1 SFM:1 CBR:2 TBG:0".split()

# Two times that differ by less are no different.
NOISE = 0.01
_RESAMPLES = 4000
_FIGURES = ("trials_ratio", "seconds_ratio", "quality_ratio", "misleading_quality_ratio")


def usual_workloads() -> list[Workload]:
    """One held-out workload of each family."""
    return [item for name in _USUAL for item in suite(name)]


def bench_transfer(
    workloads: Sequence[Workload] | None = None,
    *,
    seeds: int = 3,
    trials: int = 64,
    target: Any = None,
    out: Path,
    say: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Tune with and without the pretrained models, and with the opposite of what these say.

    The runs alternate, each in a process of its own, and are alike in all else. What is finished in
    `out` is not run again. In the end all winners of a workload are timed side by side.

    Args:
        workloads: What is tuned; by default `usual_workloads`.
        seeds: Runs of each kind on each workload.
        trials: Budget of a run.
        target: The target; by default this machine.
        out: Folder for the runs and the results.
        say: Called with a line of progress now and then.

    Returns:
        See `figures`; also `settings`, `versions`, and as `left_out` what failed.

    Raises:
        ModelFileError: this installation has no pretrained models.
        ValueError: they were trained on one of the workloads, or see `compare`.
    """
    models = pretrained.load()
    chosen = usual_workloads() if workloads is None else list(workloads)
    for item in chosen:
        if item.identity in models.workloads:
            raise ValueError(
                f"the pretrained models were trained on {item.key}, so it tells nothing about "
                "transfer; the suites ansor, looptune-test and held-out-extra are held out"
            )
    found = compare(chosen, ENTRANTS, seeds=seeds, trials=trials, target=target, out=out, say=say)
    result = {
        **figures(found["workloads"]),
        **{name: found[name] for name in ("left_out", "settings", "versions")},
    }
    write_json(out / "transfer.json", result)
    return result


def figures(by_workload: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """What a comparison's runs come to.

    A run's *quality* is the latency of its best trial. A cold run's final quality counts as reached
    with the first trial that is at most 1% slower. Every cold run is taken with every warm run of
    its workload: `trials_ratio` is the trials that the warm one needed for it over those that the
    cold one needed, and `seconds_ratio` the same in seconds since the run began. A warm run that
    never got there is *censored*: all of its trials and seconds count, so that its ratio is too
    low. `quality_ratio` is the cold runs' latency over the warm ones', of winners timed side by
    side, and `misleading_quality_ratio` that over the misled ones'; above 1 is better than cold.

    All are geometric means. The intervals are bootstrapped: over the workloads, and for a
    workload over the runs of either side.

    Args:
        by_workload: By workload and label what `compare_stats` says of the runs.

    Returns:
        The ratios, `<ratio>_ci95`, `pairs`, `censored` and by workload the same as `workloads`.
        None for what no run tells.
    """
    logs = {key: _logs(labels) for key, labels in by_workload.items()}
    rng = np.random.default_rng(0)
    result: dict[str, Any] = {}
    for name in _FIGURES:
        means = np.array([[found[name].mean()] for found in logs.values() if name in found])
        result |= _figure(name, means, rng)
    rows: dict[str, dict[str, Any]] = {}
    for key, labels in by_workload.items():
        rows[key] = _censored(labels)
        for name in _FIGURES:
            rows[key] |= _figure(name, logs[key].get(name, np.empty((0, 0))), rng)
    result["pairs"] = sum(row["pairs"] for row in rows.values())
    result["censored"] = sum(row["censored"] for row in rows.values())
    return {**result, "workloads": rows}


def reached(curve: Curve, goal_s: float) -> tuple[int, float] | None:
    """Trials and seconds to the first trial that is no slower than a goal."""
    for trial, seconds, best_s in curve:
        if best_s is not None and best_s <= goal_s:
            return trial, float("nan") if seconds is None else seconds
    return None


def _pairs(labels: Mapping[str, Mapping[str, Any]]) -> list[list[tuple[Any, Any, Any]]]:
    """For every cold run that found something and every warm run: what either needed, and all."""
    rows = []
    for cold in labels.get(COLD, {}).get("curves", []):
        if not cold or cold[-1][2] is None:
            continue
        goal_s = cold[-1][2] * (1 + NOISE)
        warm = [curve for curve in labels.get(WARM, {}).get("curves", []) if curve]
        rows.append([(reached(cold, goal_s), reached(w, goal_s), w[-1][:2]) for w in warm])
    return [row for row in rows if row]


def _censored(labels: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    pairs = [pair for row in _pairs(labels) for pair in row]
    return {"pairs": len(pairs), "censored": sum(pair[1] is None for pair in pairs)}


def _logs(labels: Mapping[str, Mapping[str, Any]]) -> dict[str, Array]:
    """Logarithms of one workload's ratios, of shape (cold runs, other runs)."""
    found = {}
    pairs = _pairs(labels)
    if pairs:
        needed = np.array([[[*(w or whole), *c] for c, w, whole in row] for row in pairs], float)
        found["trials_ratio"] = np.log(needed[..., 0] / needed[..., 2])
        found["seconds_ratio"] = np.log(needed[..., 1] / needed[..., 3])
    for name, label in (("quality_ratio", WARM), ("misleading_quality_ratio", MISLED)):
        cold, other = (labels.get(n, {}).get("best_s_by_seed", []) for n in (COLD, label))
        if cold and other:
            found[name] = np.log(np.array(cold)[:, None] / np.array(other)[None, :])
    return found


def _figure(name: str, logs: Array, rng: np.random.Generator) -> dict[str, Any]:
    """A geometric mean and its interval, rows and columns resampled each on their own."""
    if not logs.size:
        return {name: None, f"{name}_ci95": None}
    rows = rng.integers(len(logs), size=(_RESAMPLES, len(logs), 1))
    columns = rng.integers(logs.shape[1], size=(_RESAMPLES, 1, logs.shape[1]))
    low, high = np.quantile(logs[rows, columns].mean(axis=(1, 2)), [0.025, 0.975])
    return {
        name: float(np.exp(logs.mean())),
        f"{name}_ci95": [float(np.exp(low)), float(np.exp(high))],
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result as a table."""
    shown = Table("workload", *_FIGURES, "censored", box=None, pad_edge=False)
    for key, row in {**result["workloads"], "all": result}.items():
        shown.add_row(key, *(_words(row, n) for n in _FIGURES), f"{row['censored']}/{row['pairs']}")
    return shown


def _words(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "-"
    low, high = row[f"{name}_ci95"]
    return f"{row[name]:.3f} ({low:.3f} .. {high:.3f})"
