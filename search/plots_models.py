"""Plots of how well models rank (matplotlib, in the `report` extra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("agg")
from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

_COLOURS = (
    *("#1f6feb", "#d1242f", "#2da44e", "#bf8700", "#8250df", "#57606a", "#0598bc"),
    *("#e85aad", "#000000", "#7cc61a", "#8c5a2b", "#ff9e64"),
)


def plot_models(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Every plot that a report has figures for, as PNGs in a folder that is there.

    Args:
        report: What `Report.to_json` gives.
        folder: Where they go: `calibration.png`, `operators.png`, `learning.png`.
    """
    made = [
        plot_calibration(report["calibration"], folder / "calibration.png"),
        plot_families(report["families"], folder / "operators.png"),
    ]
    if report["learning_curve"]:
        made.append(plot_learning(report["learning_curve"], folder / "learning.png"))
    return made


def plot_calibration(rows: Rows, path: Path) -> Path:
    """Speed of the programs, over the workload's best, by where the model ranks them."""
    splits, colours = _distinct(rows, "split"), _colours(rows)
    figure, panels = _panels(len(splits), 1)
    for axes, split in zip(panels[0], splits, strict=True):
        chosen = [row for row in rows if row["split"] == split]
        tenths = (np.arange(len(chosen[0]["speed"])) + 0.5) / len(chosen[0]["speed"])
        perfect = _numbers(chosen[0]["perfect"])
        axes.plot(tenths, perfect, "--", color="#666", label="measured order")
        for row in chosen:
            colour = colours[row["model"]]
            axes.plot(tenths, _numbers(row["speed"]), "o-", color=colour, label=row["model"])
        axes.set(title=f"by {split}", xlabel="predicted place (1 is fastest)", ylim=(0, 1))
    panels[0][0].set_ylabel("mean speed over the best")
    return _save(figure, path)


def plot_families(rows: Rows, path: Path) -> Path:
    """Pairwise accuracy and top-1 score of each model on each operator family."""
    splits, colours = _distinct(rows, "split"), _colours(rows)
    metrics = ("pairwise", "top1")
    families = len(_distinct(rows, "family"))
    figure, panels = _panels(len(splits), len(metrics), height=max(3.0, 0.28 * families))
    for line, metric in zip(panels, metrics, strict=True):
        for axes, split in zip(line, splits, strict=True):
            chosen = [row for row in rows if row["split"] == split]
            names = sorted(_distinct(chosen, "family"), reverse=True)
            models = _distinct(chosen, "model")
            for number, model in enumerate(models):
                own = {row["family"]: row[metric] for row in chosen if row["model"] == model}
                # Side by side around the family's line.
                aside = 0.5 * (number / max(len(models) - 1, 1) - 0.5)
                places = np.arange(len(names)) - aside
                values = _numbers([own.get(name) for name in names])
                axes.plot(values, places, "o", ms=4, color=colours[model], label=model)
            axes.set_yticks(range(len(names)), names, fontsize=8)
            axes.set(title=f"{metric}, by {split}", xlim=(None, 1.01))
            axes.grid(axis="y", color="#eee")
    return _save(figure, path)


def plot_learning(rows: Rows, path: Path) -> Path:
    """Pairwise accuracy and top-1 score against the number of programs to train on."""
    splits, colours = _distinct(rows, "split"), _colours(rows)
    metrics = ("pairwise", "top1")
    figure, panels = _panels(len(splits), len(metrics))
    for line, metric in zip(panels, metrics, strict=True):
        for axes, split in zip(line, splits, strict=True):
            chosen = [row for row in rows if row["split"] == split]
            for model in _distinct(chosen, "model"):
                own = [row for row in chosen if row["model"] == model]
                sizes = [row["train_programs"] for row in own]
                ends = _numbers([end for row in own for end in row[f"{metric}_ci95"]])
                low, high = ends.reshape(-1, 2).T
                values = _numbers([row[metric] for row in own])
                axes.plot(sizes, values, "o-", color=colours[model], label=model)
                axes.fill_between(sizes, low, high, color=colours[model], alpha=0.12, lw=0)
            axes.set(title=f"{metric}, by {split}", xlabel="programs trained on", xscale="log")
    return _save(figure, path)


def _panels(columns: int, lines: int, height: float = 3.6) -> tuple[Any, Any]:
    figure = Figure(figsize=(4.2 * columns, height * lines), layout="constrained")
    return figure, figure.subplots(lines, columns, squeeze=False)


def _distinct(rows: Rows, name: str) -> list[str]:
    return list(dict.fromkeys(str(row[name]) for row in rows))


def _colours(rows: Rows) -> dict[str, str]:
    """A model's colour, the same in every plot of a report whatever the order of its rows."""
    names = sorted(_distinct(rows, "model"))
    return {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}


def _numbers(values: Sequence[float | None]) -> Any:
    """An array, with NaN for what there is no figure of: nothing is drawn there."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _save(figure: Any, path: Path) -> Path:
    """Write a figure, with the first panel's legend beneath all panels."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=120)
    return path
