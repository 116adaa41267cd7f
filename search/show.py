"""A run's result as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ..data.measure import UNTUNED
from .progress import format_seconds

if TYPE_CHECKING:
    from .explain import Explanation
    from .tune import TuneResult


def show_result(result: TuneResult, folder: Path, notes: Sequence[str], console: Console) -> None:
    """Print what won, beside the untuned program and NumPy, and where the files are."""
    best, flops = result.best, result.workload.flops
    table = Table("", "time", "GFLOP/s", "speed-up", box=None, pad_edge=False, title_justify="left")
    rows: list[tuple[str, float | None]] = [
        ("untuned", best.untuned_s),
        ("NumPy", best.numpy_s),
        ("tuned", best.latency_s),
    ]
    for name, latency_s in rows:
        if latency_s is not None:
            speed = f"{flops / latency_s / 1e9:.4g}" if flops else "-"
            gain = f"{best.untuned_s / latency_s:.3g}x"
            table.add_row(name, format_seconds(latency_s), speed, gain)
    console.print(f"\n[bold]{result.workload.key}[/]", highlight=False)
    console.print(table, highlight=False)
    if not result.tunable:
        console.print("there is nothing to tune in this workload; its kernel was checked")
    elif best.candidate == UNTUNED:
        console.print("no schedule beat the untuned program, which is the result")
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(result.failures.items())) or "no failures"
    parts = ", ".join(f"{part} {s:.1f}" for part, s in result.seconds.items())
    console.print(
        f"output checked against {best.checked_against}; {result.trials} trials ({kinds}) "
        f"in {result.wall_s:.1f} s ({parts})",
        highlight=False,
        soft_wrap=True,
    )
    for note in notes:
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"results are in {folder}", highlight=False, soft_wrap=True)


def show_explanation(found: Explanation, console: Console) -> None:
    """Print an explanation: the schedule in words and as a trace, importances, the time."""
    summary = found.summary
    gain = summary["untuned_s"] / summary["best_s"]
    console.print(f"[bold]{summary['workload']}[/]", highlight=False)
    console.print(
        f"{format_seconds(summary['best_s'])}, {gain:.3g} times as fast as untuned\n",
        highlight=False,
    )
    console.print("[bold]what the winner does[/]")
    for step in found.steps:
        console.print(f"  {step}", highlight=False, markup=False, soft_wrap=True)
    for name, features in found.importance.items():
        console.print(f"\n[bold]what the model of {name} gains from[/]")
        for feature, share in features:
            console.print(f"  {share:5.1%}  {feature}", highlight=False, markup=False)
    console.print("\n[bold]where the time went[/]")
    for part, seconds in summary["seconds"].items():
        console.print(f"  {seconds:6.1f} s  {part}", highlight=False)
    if found.trace:
        console.print("\n[bold]the trace[/]")
        console.print(found.trace, highlight=False, markup=False, soft_wrap=True)
