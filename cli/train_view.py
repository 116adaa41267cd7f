"""What the `train` and `evaluate` commands show and write."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..data.install import version_of
from .common import console, errors

METRICS = ("pairwise", "kendall", "spearman", "recall10", "top1", "top5", "rmse")
# What a table has room for; the others are in the files.
_SHOWN = ("pairwise", "kendall", "recall10", "top1", "top5")
_COMPARED = ("pairwise", "top1", "top5")


def show_report(report: Mapping[str, Any]) -> None:
    """Show an evaluation's figures, a table a split."""
    for why, count in report["missing"].items():
        note(f"{count} records have no features: {why}")
    for kind in report["splits"]:
        _split(kind, [row for row in report["rows"] if row["split"] == kind])
    if report["learning_curve"]:
        console.print(_learning(report["learning_curve"]), highlight=False)


def _split(kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    title = f"split by {kind}: {rows[0]['workloads']} workloads tested, seeds {rows[0]['seeds']}"
    table = Table("model", title=title, title_justify="left", box=None, pad_edge=False)
    for name in (*_SHOWN, "fit s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [_cell(row, name) for name in _SHOWN]
        table.add_row(row["model"], *cells, f"{row['fit_seconds']:.1f}")
    console.print(table, highlight=False)
    say(f"noise ceiling of pairwise: {number(rows[0]['noise_ceiling'])}")
    for row in rows:
        ahead = row["vs_metaschedule"]
        if ahead is not None:
            parts = [
                f"{name} {number(ahead[name], '+')} "
                f"[{', '.join(number(end, '+') for end in ahead[f'{name}_ci95'])}]"
                for name in _COMPARED
            ]
            say(f"{row['model']} less metaschedule-xgb: {', '.join(parts)}")
    say("")


def _learning(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("split", "model", title="learning curve", box=None, pad_edge=False)
    for name in ("programs", *_COMPARED):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(rows, key=lambda r: (r["split"], r["model"], r["train_programs"])):
        cells = [_cell(row, name) for name in _COMPARED]
        table.add_row(row["split"], row["model"], str(row["train_programs"]), *cells)
    return table


def write_folder(out: Path, report: Mapping[str, Any]) -> None:
    """Write an evaluation's figures as JSON and CSV, and its plots."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "evaluate.json", report)
    with (out / "rows.csv").open("w", newline="") as file:
        names = ("model", "split", "size", *METRICS, "noise_ceiling", "fit_seconds")
        counts = ("train_programs", "workloads", "programs", "seeds")
        ends = [f"{name}_{end}" for name in METRICS for end in ("low", "high")]
        writer = csv.writer(file)
        writer.writerow([*names, *counts, *ends])
        rows = [row for row in report["learning_curve"] if row["size"]]
        for row in (*rows, *report["rows"]):
            values = [row[name] for name in (*names, *counts)]
            writer.writerow([*values, *(end for n in METRICS for end in row[f"{n}_ci95"])])
    say(f"the figures are in {out}/evaluate.json and {out}/rows.csv")
    if version_of("matplotlib") is None:
        note("no plots: pip install 'tensortune[report]'")
    else:
        # Loaded on use: matplotlib is optional.
        plots = import_module("..search.plots_models", __package__)
        say(f"plots: {', '.join(str(path) for path in plots.plot_models(report, out))}")


def _cell(row: Mapping[str, Any], name: str) -> str:
    """A figure, and its interval on a line below."""
    low, high = row[f"{name}_ci95"]
    return f"{number(row[name])}\n" + ("" if low is None else f"{low:.2f}..{high:.2f}")


def number(value: float | None, sign: str = "") -> str:
    """Three digits; a dash for what there is no figure of."""
    return "-" if value is None else f"{value:{sign}.3f}"


class Shown:
    """Shows how far the features and the trainings are."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=errors,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Shown:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def features(self, kind: str, done: int, total: int) -> None:
        """Told how many programs have features of a kind."""
        self._update("features", f"features `{kind}`", done, total)

    def trainings(self, done: int, total: int, what: str) -> None:
        """Told how many trainings are done, and which is next."""
        self._update("trainings", what, done, total)

    def _update(self, task: str, text: str, done: int, total: int) -> None:
        if task not in self._tasks:
            self._tasks[task] = self._bar.add_task(text)
        self._bar.update(self._tasks[task], description=text, completed=done, total=total)


def write_json(json_file: Path | None, value: Mapping[str, Any]) -> None:
    """Write figures to a file, if one is asked for."""
    if json_file is not None:
        json_file.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")


def say(line: str) -> None:
    """Print a line as it is."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def note(line: str) -> None:
    """Print a line beside the output, on the other stream."""
    errors.print(line, highlight=False, markup=False, soft_wrap=True)
