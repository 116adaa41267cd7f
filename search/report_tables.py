"""The tables of a report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from .report_curves import reached, steps
from .report_data import Comparison
from .report_parts import Cell, Table

# The parts of a run's wall-clock, in the order in which they are shown.
PARTS = ("setup", "compile", "time", "model", "search")
REST = "rest"
_KINDS = ("invalid", "compile", "runtime", "timeout", "wrong", "other")
# How far above the best found a kernel may be to count as near it.
_NEAR = (1.10, 1.02)
_NONE = Cell("-")
_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"))
_LONGEST = 240
_NAMES = re.compile(r"(?<=[(,])(?!dtype)[a-z]\w*=")


def ratio_cell(ratio: Sequence[float | None] | None) -> Cell:
    """A speed ratio with its interval; strong where the interval is above 1."""
    if ratio is None:
        return _NONE
    middle, low, high = ratio
    if middle is None:
        return _NONE
    if low is None or high is None or low == middle == high:
        return Cell(_short(middle))
    return Cell(_short(middle), f"{_short(low)}–{_short(high)}", strong=low > 1)


def _short(value: float) -> str:
    """Three digits behind the point near 1, where they matter."""
    return f"{value:.3f}" if 0.1 <= value < 2 else f"{value:.3g}"


def seconds_text(*values: float) -> str:
    """A latency in three digits, or a range of latencies in the unit of the largest."""
    factor, unit = next((pair for pair in _UNITS if max(values) * pair[0] >= 0.9995), _UNITS[-1])
    texts = []
    for value in values:
        scaled = value * factor
        digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
        texts.append(f"{scaled:.{digits}f}")
    return f"{'–'.join(texts)} {unit}"


def short_key(key: str) -> str:
    """A workload's key without the names of its parameters, as a command line takes it too."""
    return _NAMES.sub("", key)


def headline(data: Comparison) -> Table:
    """Geometric means of speed ratios: every entrant against all else."""
    others = [*data.peers, *(label for label in data.labels if label not in data.peers)]
    others += data.references
    strategies = data.result["strategies"]
    others = [
        other
        for other in others
        if any(other in strategies[label]["geomean_speed_vs"] for label in data.labels)
    ]
    walls = {label: mean_seconds(data, label).get("wall") for label in data.labels}
    timed = any(wall is not None for wall in walls.values())
    rows = []
    for label, wall in walls.items():
        ratios = strategies[label]["geomean_speed_vs"]
        bounds = strategies[label]["geomean_speed_vs_ci95"]
        row = [Cell(label)]
        for other in others:
            row.append(ratio_cell([ratios[other], *bounds[other]]) if other in ratios else _NONE)
        if timed:
            row.append(_NONE if wall is None else Cell(f"{wall:.1f}"))
        rows.append(row)
    return Table(("speed against", *others, *(("seconds a run",) if timed else ())), rows)


def overview(data: Comparison) -> Table:
    """The winners' latencies: a row an operator, the fastest entrant's in bold."""
    columns = [*data.labels, *data.references]
    rows = []
    for key, by_label in data.workloads.items():
        found = {label: by_label.get(label, {}).get("best_s") for label in columns}
        fastest = min((found[label] for label in data.labels if found[label]), default=None)
        row = [Cell(short_key(key))]
        for label, best_s in found.items():
            strong = label in data.labels and best_s == fastest
            row.append(Cell(seconds_text(best_s), strong=strong) if best_s else _NONE)
        rows.append(row)
    return Table(("operator", *columns), rows)


def operator(data: Comparison, key: str) -> Table:
    """One operator: latency with its range over the seeds, throughput, ratios."""
    by_label = data.workloads[key]
    bases = [base for base in data.baselines if by_label.get(base, {}).get("best_s") is not None]
    rows = []
    for label in (*data.labels, *data.references):
        found = by_label.get(label)
        if found is None:
            continue
        seeds = found["best_s_by_seed"]
        row = [Cell(label), *_speed(data, key, found["best_s"], seeds)]
        for base in bases:
            row.append(Cell("1") if base == label else ratio_cell(found["speed_vs"].get(base)))
        rows.append(row)
        if found.get("packed_s"):  # AutoTVM's kernel without what converts the layout
            packed = _speed(data, key, found["packed_s"], [])
            rows.append([Cell(f"{label}, packed"), *packed, *[_NONE] * len(bases)])
    columns = ["", "latency", "GFLOP/s", *(["of peak"] if data.peak_flops else [])]
    return Table((*columns, *(f"vs {base}" for base in bases)), rows)


def _speed(data: Comparison, key: str, best_s: float | None, seeds: Sequence[float]) -> list[Cell]:
    """Latency with its range, throughput and, where it was measured, share of the peak."""
    peak, flops = data.peak_flops, data.flops.get(key)
    cells = [_NONE] * (3 if peak else 2)
    if best_s is None:
        return cells
    spread = seconds_text(min(seeds), max(seeds)) if len(set(seeds)) > 1 else ""
    cells[0] = Cell(seconds_text(best_s), spread)
    if flops:
        cells[1] = Cell(f"{flops / best_s / 1e9:.4g}")
    if flops and peak:
        cells[2] = Cell(f"{flops / best_s / peak:.1%}")
    return cells


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


def _median(values: Sequence[float], digits: int) -> Cell:
    middle = float(np.median(values))
    return Cell(f"{middle:.{digits}f}") if np.isfinite(middle) else _NONE


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
                Cell(f"{n} of {trials}") if trials else _NONE
                for n, trials in zip(lost, of, strict=True)
            ]
            rows.append([Cell(short_key(key)), *cells])
    if not rows:
        return None
    return Table(("lost to time-outs", *data.labels), rows)


def mean_seconds(data: Comparison, label: str) -> dict[str, float]:
    """Mean seconds of a run by part, and `wall`; `rest` is what no part accounts for."""
    found = [by_label[label] for by_label in data.workloads.values() if label in by_label]
    found = [one for one in found if one["wall_s"] or one["seconds"]]
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
        row += [Cell(f"{mean[p]:.1f}") if p in mean else _NONE for p in ("wall", *parts)]
        if against:
            ratio = ratios[label]
            row.append(_NONE if ratio is None else Cell(f"{ratio:.3f}"))
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
    if not groups:
        return None
    rows = [
        [Cell(label), Cell(why), Cell(_where(where, len(data.workloads)))]
        for (label, why), where in groups.items()
    ]
    return Table(("what", "why", "where"), rows, words=True)


def _where(seeds: Mapping[str, Sequence[str]], operators: int) -> str:
    """Operators, each with the seeds in question; in one word where it is all of them."""
    texts = {key: f" (seed {', '.join(found)})" if found else "" for key, found in seeds.items()}
    if len(seeds) == operators > 1 and len(set(texts.values())) == 1:
        return "all operators" + next(iter(texts.values()))
    return "; ".join(short_key(key) + text for key, text in texts.items())
