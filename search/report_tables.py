"""The tables of speeds and latencies in a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .compare_stats import LIBRARIES
from .report_cells import NONE, ratio_cell, seconds_text, short_key
from .report_data import PEAK, Comparison
from .report_parts import Cell, Table
from .report_runs import mean_seconds


def headline(data: Comparison) -> Table:
    """Geometric means of speed ratios: every entrant against all else."""
    others = [*data.peers, *(label for label in data.labels if label not in data.peers)]
    others += [*data.references, LIBRARIES]
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
        row = [Cell(label, _share(data, label))]
        for other in others:
            row.append(ratio_cell([ratios[other], *bounds[other]]) if other in ratios else NONE)
        if timed:
            row.append(NONE if wall is None else Cell(f"{wall:.1f}"))
        rows.append(row)
    shares = {other: _share(data, other) for other in others}
    heads = [f"{other} ({share})" if share else other for other, share in shares.items()]
    return Table(("speed against", *heads, *(("seconds a run",) if timed else ())), rows)


def equal_seconds(data: Comparison) -> Table | None:
    """Speeds when the first of two runs was through; None where nobody tells times."""
    name = "geomean_speed_vs_at_equal_seconds"
    strategies = data.result["strategies"]
    found = {label: strategies[label].get(name, {}) for label in data.labels}
    others = [other for other in data.labels if any(other in of for of in found.values())]
    rows = []
    for label, ratios in found.items():
        bounds = strategies[label].get(f"{name}_ci95", {})
        counts = strategies[label].get("workloads_at_equal_seconds", {})
        row = [Cell(label)]
        for other in others:
            cell = ratio_cell([ratios[other], *bounds[other]]) if other in ratios else NONE
            if counts.get(other, len(data.workloads)) < len(data.workloads):
                some = f"{counts[other]} of {len(data.workloads)}"
                cell = replace(cell, note="; ".join(filter(None, (cell.note, some))))
            row.append(cell)
        rows.append(row)
    return Table(("at equal seconds, against", *others), rows) if others else None


def _share(data: Comparison, label: str) -> str:
    """On how many operators there is something to compare with; empty where it is all of them."""
    names = ("numpy", "torch") if label == LIBRARIES else (label,)
    count = sum(
        any(by_label.get(name, {}).get("best_s") for name in names)
        for by_label in data.workloads.values()
    )
    return "" if count == len(data.workloads) else f"{count} of {len(data.workloads)}"


def overview(data: Comparison) -> Table:
    """The winners' latencies: a row an operator, the fastest entrant's in bold."""
    columns = [*data.labels, *data.references]
    packed = [
        label
        for label in data.labels
        if any(by_label.get(label, {}).get("packed_s") for by_label in data.workloads.values())
    ]
    shares = any(data.peak_flops(key) for key in data.workloads)
    rows = []
    for key, by_label in data.workloads.items():
        found = {label: by_label.get(label, {}) for label in columns}
        best = {label: one["best_s"] for label, one in found.items() if one.get("best_s")}
        fastest = min((best[label] for label in data.labels if label in best), default=None)
        row = [Cell(short_key(key))]
        for label, one in found.items():
            strong = label in data.labels and best.get(label) == fastest
            text = seconds_text(best[label]) if label in best else _lacks(one)
            row.append(Cell(text, strong=strong and label in best))
        for label in packed:
            packed_s = found[label].get("packed_s")
            row.append(Cell(seconds_text(float(np.median(packed_s)))) if packed_s else NONE)
        if shares:
            row.append(_speed(data, key, fastest, [])[-1] if data.peak_flops(key) else NONE)
        rows.append(row)
    heads = [*(without_conversion(label) for label in packed), *(["of peak"] if shares else [])]
    return Table(("operator", *columns, *heads), rows)


def without_conversion(label: str) -> str:
    """What a tuner's kernel is called where nothing converts arguments to its layout."""
    return f"{label}, without layout conversion"


def _lacks(found: Mapping[str, Any]) -> str:
    """What stands where there is no latency."""
    if not found.get("error"):
        return NONE.text
    return "can't run" if found.get("unable") else "failed"


def operator(data: Comparison, key: str) -> Table:
    """One operator: latency with its range over the seeds, throughput, ratios."""
    by_label = data.workloads[key]
    bases = [base for base in data.baselines if by_label.get(base, {}).get("best_s") is not None]
    peak = data.peak_flops(key)
    rows = []
    for label in (*data.labels, *data.references):
        found = by_label.get(label)
        if found is None:
            continue
        seeds = found["best_s_by_seed"]
        row = [Cell(label), *_speed(data, key, found["best_s"], seeds)]
        if not found["best_s"]:
            row[1] = Cell(_lacks(found))
        for base in bases:
            row.append(Cell("1") if base == label else ratio_cell(found["speed_vs"].get(base)))
        rows.append(row)
        if found.get("packed_s"):
            packed = _speed(data, key, float(np.median(found["packed_s"])), found["packed_s"])
            rows.append([Cell(without_conversion(label)), *packed, *[NONE] * len(bases)])
    if peak:
        limit = _speed(data, key, data.flops[key] / peak, [])
        rows.append([Cell(PEAK), *limit, *[NONE] * len(bases)])
    columns = ["", "latency", "GFLOP/s", *(["of peak"] if peak else [])]
    return Table((*columns, *(f"vs {base}" for base in bases)), rows)


def _speed(data: Comparison, key: str, best_s: float | None, seeds: Sequence[float]) -> list[Cell]:
    """Latency with its range, throughput and, where it was measured, share of the peak."""
    peak, flops = data.peak_flops(key), data.flops.get(key)
    cells = [NONE] * (3 if peak else 2)
    if best_s is None:
        return cells
    spread = seconds_text(min(seeds), max(seeds)) if len(set(seeds)) > 1 else ""
    cells[0] = Cell(seconds_text(best_s), spread)
    if flops:
        cells[1] = Cell(f"{flops / best_s / 1e9:.4g}")
    if flops and peak:
        cells[2] = Cell(f"{flops / best_s / peak:.1%}")
    return cells
