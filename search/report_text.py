"""The report as Markdown, and its figures as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np

from .report_data import Comparison
from .report_parts import Cell, Section, Table


def render_markdown(title: str, sections: list[Section]) -> str:
    """The report without its figures."""
    lines = [f"# {title}", ""]
    for section in sections:
        lines += _section(section, 2)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section, level: int) -> list[str]:
    lines = [f"{'#' * level} {section.title}", ""]
    for note in section.notes:
        lines += [note, ""]
    if section.code:
        lines += ["```console", f"$ {section.code}", "```", ""]
    for table in section.tables:
        lines += _table(table)
    for part in section.parts:
        lines += _section(part, level + 1)
    return lines


def _table(table: Table) -> list[str]:
    rule = ["---", *("---" if table.words else "---:" for _ in table.columns[1:])]
    rows = [list(table.columns), rule, *([_cell(cell) for cell in row] for row in table.rows)]
    return [*(f"| {' | '.join(row)} |" for row in rows), ""]


def _cell(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|")
    text = f"**{text}**" if cell.strong else text
    return f"{text} ({cell.note})" if cell.note else text


def render_csv(data: Comparison) -> str:
    """One row for each entrant or reference on each workload, in seconds and plain numbers."""
    others = [*data.labels, *data.references]
    rows = [_row(data, key, label, others) for key in data.workloads for label in others]
    found = [row for row in rows if row is not None]
    columns = list(dict.fromkeys(name for row in found for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()


def _row(data: Comparison, key: str, label: str, others: list[str]) -> dict[str, Any] | None:
    found = data.workloads[key].get(label)
    if found is None:
        return None
    seeds, best, flops = found["best_s_by_seed"], found["best_s"], data.flops.get(key)
    walls, packed, peak = found["wall_s"], found.get("packed_s"), data.peak_flops(key)
    row: dict[str, Any] = {
        "workload": key,
        "label": label,
        "kind": "entrant" if label in data.labels else "reference",
        "best_s": best,
        "best_s_min": min(seeds, default=None),
        "best_s_max": max(seeds, default=None),
        "packed_s": float(np.median(packed)) if packed else None,
        "runs": len(seeds),
        "gflops": flops / best / 1e9 if flops and best else None,
        "of_peak": flops / best / peak if flops and best and peak else None,
        "error": found.get("error"),
        "trials": sum(found["trials"]),
        "wall_s": sum(walls) / len(walls) if walls else None,
    }
    row |= {f"seconds_{part}": seconds for part, seconds in found["seconds"].items()}
    row |= {f"failures_{kind}": count for kind, count in found["failures"].items()}
    for other in others:
        ratio = found["speed_vs"].get(other)
        if ratio is not None:
            names = (f"speed_vs_{other}", f"speed_vs_{other}_low", f"speed_vs_{other}_high")
            row |= dict(zip(names, ratio, strict=True))
    return {name: "" if value is None else value for name, value in row.items()}
