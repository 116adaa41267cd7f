"""How `tensortune dataset describe` shows a dataset's figures."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from ..costmodel.ceiling import dataset_ceiling
from ..data.dataset import Dataset
from ..data.dataset_stats import describe

_BEGIN = "<!-- figures: tensortune dataset describe PATH --datasheet FILE -->"
_END = "<!-- end of figures -->"

Figures = Mapping[str, Any]


def figures(dataset: Dataset) -> dict[str, Any]:
    """What `describe` says, and the noise ceiling: None where nothing was measured twice."""
    ceiling = dataset_ceiling(dataset).pairwise
    known = None if math.isnan(ceiling) else ceiling
    return {**describe(dataset), "noise_ceiling": known}


def rows(found: Figures) -> list[tuple[str, str]]:
    """The figures of the whole dataset: what, and how much."""
    if not found["records"]:
        return [("records", "none")]
    share = 100 / found["records"]
    shares = {name: f"{n} ({n * share:.1f}%)" for name, n in found["failures"].items()}
    lines = [
        ("records", f"{found['records']}"),
        ("workloads", f"{found['workloads']} keys, {found['identities']} computations"),
        ("families", f"{len(found['families'])}, {found['ansor_families']} of Ansor's 13"),
        ("spaces", _listed({n: f"{c} ({c * share:.1f}%)" for n, c in found["spaces"].items()})),
        ("hosts", _listed(found["hosts"])),
        ("targets", _listed(found["targets"])),
        ("strategies", _listed(found["strategies"])),
        ("versions", "; ".join(found["versions"])),
        ("collected", f"{found['first'] or 'unknown'} to {found['last'] or 'unknown'}"),
        ("timed", f"{found['valid']}, of which {found['cut']} were cut short"),
        ("failures", _listed(shares) or "none"),
        ("best over median throughput", _range(found["spread"], "x")),
        ("noise of repeats", _range(found["repeat_noise"], "%")),
        (
            "measured again on another occasion",
            f"{found['measured_again']} of {found['measured_programs']} programs",
        ),
        ("difference between occasions", _range(found["again"], "%")),
        ("noise ceiling, pairwise", _number(found["noise_ceiling"])),
    ]
    if found["bytes"] is not None:
        lines.append(("size", f"{found['bytes'] / 1e6:.2f} MB"))
    return lines


def summary(found: Figures) -> list[str]:
    """The figures of the whole dataset, a line each."""
    return [f"{name}: {value}" for name, value in rows(found)]


def _listed(counts: Mapping[str, Any]) -> str:
    return "; ".join(f"{name or 'unknown'}: {count}" for name, count in counts.items())


def _range(found: Mapping[str, float] | None, unit: str) -> str:
    """A median with the 10% and 90% quantiles."""
    if found is None:
        return "unknown"
    scale = 100 if unit == "%" else 1
    low, middle, high = (f"{found[n] * scale:.3g}{unit}" for n in ("p10", "median", "p90"))
    return f"median {middle} (10%: {low}, 90%: {high})"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


_FAMILY_COLUMNS = ("family", "workloads", "records", "timed", "loop", "best/median")


def families(found: Figures) -> Table:
    """A row a family."""
    table = Table(*_FAMILY_COLUMNS, box=None, pad_edge=False)
    for cells in _family_rows(found):
        table.add_row(*map(escape, cells))
    return table


def _family_rows(found: Figures) -> list[Sequence[str]]:
    return [
        (
            row["family"],
            str(row["workloads"]),
            str(row["records"]),
            str(row["valid"]),
            str(row["loop"]),
            _times(row["spread"]),
        )
        for row in found.get("families", ())
    ]


def workloads(found: Figures) -> Table:
    """A row a workload on a target and host."""
    columns = ("workload", "host", "records", "timed", "loop", "best, us", "best/median")
    table = Table(*columns, box=None, pad_edge=False)
    for row in found.get("per_workload", ()):
        best = "" if row["best_s"] is None else f"{row['best_s'] * 1e6:.4g}"
        counts = (str(row[name]) for name in ("records", "valid", "loop"))
        table.add_row(
            escape(row["workload"]), escape(row["host"]), *counts, best, _times(row["spread"])
        )
    return table


def _times(spread: float | None) -> str:
    return "" if spread is None else f"{spread:.3g}x"


def fill_datasheet(path: Path, found: Figures) -> None:
    """Write the figures between a Markdown file's marks; what stood there is replaced.

    Raises:
        ValueError: the file has no such marks.
        OSError: it can't be read or written.
    """
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(
            f"{path} has no place for the figures: put these lines in it:\n{_BEGIN}\n{_END}"
        )
    whole = _markdown(("", "figure"), rows(found))
    each = _markdown(_FAMILY_COLUMNS, _family_rows(found))
    filled = "\n".join([before + begin, "", *whole, "", *each, "", end + after])
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_text(filled, encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _markdown(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *cells]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
