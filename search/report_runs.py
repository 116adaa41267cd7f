"""The tables of how the runs went: how soon they were near, what failed, where the time went."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .compare_seconds import NEAR
from .report_cells import NONE, short_key
from .report_curves import reached, steps
from .report_data import Comparison
from .report_parts import Cell, Table

# The parts of a run's wall-clock, in the order in which they are shown.
PARTS = ("setup", "compile", "time", "model", "search")
REST = "rest"
_KINDS = ("invalid", "compile", "runtime", "timeout", "wrong", "other")
# How far above the best found a kernel may be to count as near it.
_NEAR = (1.10, 1.02)
_LONGEST = 240
# What a reference's reason says of the operator, which stands beside it anyhow.
_OF_ONE = re.compile(r" for \w+ in \w+$")


def near_the_best(data: Comparison) -> Table:
    """How soon the runs came near the best that any of them found."""
    runs = {
        label: [(c, best) for key, best in data.best_s.items() for c in data.curves(key, label)]
        for label in data.labels
    }
    # What was played back has no seconds.
    timed = any(steps(curve, "seconds") for found in runs.values() for curve, _ in found)
    heads = ("trials", "s") if timed else ("trials",)
    rows = []
    for label, found in runs.items():
        if not found:
            continue
        row = [Cell(label)]
        for near in _NEAR:
            trials = [reached(curve, near * best, "trials") for curve, best in found]
            row += [Cell(f"{np.isfinite(trials).sum()}/{len(found)}"), _median(trials, 0)]
            if timed:
                row.append(_median([reached(c, near * best, "seconds") for c, best in found], 1))
        rows.append(row)
    columns = [head for near in _NEAR for head in (f"within {near - 1:.0%}", *heads)]
    return Table(("", *columns), rows)


def near_the_peers(data: Comparison) -> Table | None:
    """Wall-clock to what a peer ended with, over the peer's own; None where no peer tells."""
    found = {
        label: data.result["strategies"][label].get("wall_to_near", {}) for label in data.labels
    }
    peers = [peer for peer in data.peers if any(peer in ratios for ratios in found.values())]
    rows = [
        [Cell(label), *(_soon(ratios.get(peer)) for peer in peers)]
        for label, ratios in found.items()
        if any(peer in ratios for peer in peers)
    ]
    heads = (f"to within {NEAR - 1:.0%} of {peer}" for peer in peers)
    return Table(("wall-clock", *heads), rows) if rows else None


def _soon(found: Mapping[str, Any] | None) -> Cell:
    if found is None:
        return NONE
    where = f"{found['reached']} of {found['of']}"
    return Cell("-" if found["ratio"] is None else f"{found['ratio']:.3f}", where)


def _median(values: Sequence[float], digits: int) -> Cell:
    middle = float(np.median(values))
    return Cell(f"{middle:.{digits}f}") if np.isfinite(middle) else NONE


def failures(data: Comparison) -> Table:
    """Trials that failed, by entrant and kind."""
    counts = {label: _failures(data, label) for label in data.labels}
    kinds = [kind for kind in _KINDS if any(count[kind] for count in counts.values())]
    kinds += sorted(
        {kind for count in counts.values() for kind in count if count[kind]} - set(_KINDS)
    )
    rows = []
    for label in data.labels:
        trials = sum(sum(w.get(label, {}).get("trials", [])) for w in data.workloads.values())
        lost = sum(n for kind, n in counts[label].items() if kind != "invalid")
        share = f"{lost / trials:.1%}" if trials else "-"
        rows.append(
            [
                Cell(label),
                Cell(f"{trials:,}"),
                *(Cell(str(counts[label][kind])) for kind in kinds),
                Cell(share),
            ]
        )
    return Table(("", "trials", *kinds, "lost"), rows)


def _failures(data: Comparison, label: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for by_label in data.workloads.values():
        total.update(by_label.get(label, {}).get("failures", {}))
    return total


def timeouts(data: Comparison) -> Table | None:
    """Trials that each entrant lost to its own time limits, by operator; None without any."""
    rows = []
    for key, by_label in data.workloads.items():
        found = [by_label.get(label, {}) for label in data.labels]
        lost = [one.get("failures", {}).get("timeout", 0) for one in found]
        if any(lost):
            of = [sum(one.get("trials", [])) for one in found]
            cells = [
                Cell(f"{n} of {trials}") if trials else NONE
                for n, trials in zip(lost, of, strict=True)
            ]
            rows.append([Cell(short_key(key)), *cells])
    if not rows:
        return None
    return Table(("lost to time-outs", *data.labels), rows)


def mean_seconds(data: Comparison, label: str) -> dict[str, float]:
    """Mean seconds of a run by part, and `wall`; `rest` is what no part accounts for.

    Operators that the tuner can't run are left out.
    """
    found = [by_label[label] for by_label in data.workloads.values() if label in by_label]
    found = [one for one in found if (one["wall_s"] or one["seconds"]) and not one.get("unable")]
    if not found:
        return {}
    parts: Counter[str] = Counter()
    for one in found:
        parts.update(one["seconds"])
    mean = {part: total / len(found) for part, total in parts.items()}
    walls = [float(np.mean(one["wall_s"])) for one in found if one["wall_s"]]
    if walls:
        told = sum(mean.values())
        mean["wall"] = float(np.mean(walls))
        mean[REST] = max(0.0, mean["wall"] - told)
    return mean


def where_time_went(data: Comparison) -> Table:
    """Mean seconds of a run by part, and wall-clock over MetaSchedule's where it took part."""
    means = {label: mean_seconds(data, label) for label in data.labels}
    parts = shown_parts(means)
    ratios = {
        label: data.result["strategies"][label].get("wall_ratio_vs_metaschedule")
        for label in data.labels
    }
    against = any(ratio is not None for ratio in ratios.values())
    rows = []
    for label, mean in means.items():
        row = [Cell(label)]
        row += [Cell(f"{mean[p]:.1f}") if p in mean else NONE for p in ("wall", *parts)]
        if against:
            ratio = ratios[label]
            row.append(NONE if ratio is None else Cell(f"{ratio:.3f}"))
        rows.append(row)
    last = ("over metaschedule's",) if against else ()
    return Table(("seconds of a run", "wall-clock", *parts, *last), rows)


def shown_parts(means: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The parts that any entrant tells of, in order, and what is left."""
    told = {part for mean in means.values() for part in mean} - {"wall", REST}
    parts = [part for part in PARTS if part in told] + sorted(told - set(PARTS))
    return [*parts, REST] if any(REST in mean for mean in means.values()) else parts


def left_out(data: Comparison) -> Table | None:
    """What came to nothing, why and where, what has one reason together; None without any."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for cell in data.result.get("left_out", []):
        why = " ".join(str(cell.get("error") or "no reason was given").split())[:_LONGEST]
        where = groups.setdefault((str(cell["label"]), why), {})
        seeds = where.setdefault(str(cell["workload"]), [])
        seeds += [] if cell.get("seed") is None else [str(cell["seed"])]
    for key, references in data.result.get("missing", {}).items():
        for label, why in references.items():
            groups.setdefault((label, _OF_ONE.sub("", why)), {})[key] = []
    if not groups:
        return None
    rows = [
        [Cell(label), Cell(why), Cell(_where(where, list(data.workloads)))]
        for (label, why), where in groups.items()
    ]
    return Table(("what", "why", "where"), rows, words=True)


def _where(seeds: Mapping[str, Sequence[str]], operators: Sequence[str]) -> str:
    """Operators, each with the seeds in question; if it is most of them, which it is not."""
    texts = {key: f" (seed {', '.join(found)})" if found else "" for key, found in seeds.items()}
    others = [short_key(key) for key in operators if key not in seeds]
    if len(others) < len(seeds) > 1 and len(set(texts.values())) == 1:
        alike = next(iter(texts.values()))
        return "all operators" + alike + (f" but {'; '.join(others)}" if others else "")
    return "; ".join(short_key(key) + text for key, text in texts.items())
