"""The `tensortune collect` command."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from .common import console, errors, guard, load

# How many failures are printed; all of them go into the folder and into the file of --json.
_MOST_FAILED = 10


def collect(
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the records; what is in it is gone on with.")
    ],
    suite: Annotated[
        str | None, typer.Option(help="Suite of the workloads, e.g. train (see `list --suite`).")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Records that --out is to hold in the end.")
    ] = None,
    spaces: Annotated[str, typer.Option(help="Comma-separated: sketch, loop.")] = "sketch,loop",
    loop_share: Annotated[
        float, typer.Option(help="Share of the records that is of the loop space.")
    ] = 0.2,
    guided_share: Annotated[
        float, typer.Option(help="Share that models guide; the others are random.")
    ] = 0.5,
    again: Annotated[
        float | None,
        typer.Option(help="Measure this share of what --out holds a second time, e.g. 0.05."),
    ] = None,
    hours: Annotated[float | None, typer.Option(help="Stop after so many hours.")] = None,
    target: Annotated[str | None, typer.Option(help="TVM target; else this machine.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to a file.")
    ] = None,
) -> None:
    """Measure candidates of many workloads, to train models on.

    Nothing else should run meanwhile. It can be interrupted, and even killed, at any time: the same
    command goes on. More --samples goes on too.

    Examples:
    tensortune collect --suite train --samples 20000 --out collected

    tensortune collect --again 0.05 --out collected
    """

    def body() -> None:
        module = load(".search.collect")
        show = _Shown(console)

        def run() -> Any:
            if again is not None:
                return module.measure_again(
                    out, again, hours=hours, target=target, on_progress=show.update
                )
            if suite is None or samples is None:
                raise ValueError("name the suite with --suite, and how many records with --samples")
            settings = module.CollectSettings(
                suite, tuple(spaces.split(",")), loop_share, guided_share, seed
            )
            return module.collect(
                settings, samples, out, hours=hours, target=target, on_progress=show.update
            )

        try:
            with show:
                result = asdict(run())
        except KeyboardInterrupt:
            _say(f"interrupted; what was measured is in {out}, and the same command goes on")
            _finish(out, show.seen(), json_file)
            raise
        _finish(out, result, json_file)
        if result["late"]:
            _say(f"the hours are over; the same command goes on with {out}")
        elif result["held"] < result["wanted"]:
            _say(f"{result['wanted']} were wanted; there are no more to be had")

    guard(body)


class _Shown:
    """Shows how far a collection is: a live line on a terminal, a line a turn elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Bar | None = None
        self._last: Any = None

    def __enter__(self) -> _Shown:
        if self._console.is_terminal and not self._console.is_jupyter:
            self._bar = Bar(
                TextColumn("{task.completed}/{task.total} records"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("{task.fields[text]}"),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("collect", total=None, text="preparing")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, progress: Any) -> None:
        """Show the progress of a collection."""
        self._last = progress
        pace = f"{progress.rate:.1f}/s"
        if progress.left_s is not None:
            pace += f", about {_duration(progress.left_s)} left"
        if self._bar is not None:
            text = f"{pace}, {progress.workload}"
            self._bar.update(self._task, total=progress.wanted, completed=progress.held, text=text)
        elif progress.ended:
            parts = [f"{progress.turn} records"]
            parts += [f"{count} {kind}" for kind, count in sorted(progress.failures.items())]
            if progress.turn:
                parts[0] += f", best {progress.best_s * 1e6:.4g} us"
            _say(
                f"round {progress.round}, {progress.workload}: {', '.join(parts)}; "
                f"{progress.held}/{progress.wanted} records, {pace}"
            )

    def seen(self) -> dict[str, Any]:
        """What is known of a session that was interrupted."""
        last = self._last
        if last is None:
            return {}
        names = ("wanted", "held", "new", "elapsed_s")
        return {name: getattr(last, name) for name in names}


def _finish(out: Path, session: dict[str, Any], json_file: Path | None) -> None:
    """Show what the folder holds and what the session came to, and write the figures."""
    summary = load(".search.collect_session").summarise_folder(out)
    console.print(_table(summary["families"]), highlight=False)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(summary["failures"].items()))
    _say(
        f"{summary['records']} records of {summary['workloads']} workloads are in {out} "
        f"({kinds or 'no failures'}); {summary['again']} were measured a second time"
    )
    if session:
        rate = session["new"] / max(session["elapsed_s"], 1e-9)
        _say(
            f"this session: {session['new']} records in {_duration(session['elapsed_s'])}, "
            f"{rate:.2f} a second"
        )
    failed = session.get("failed", {})
    for what, why in list(failed.items())[:_MOST_FAILED]:
        errors.print(f"left out: {what}: {why}", highlight=False, markup=False, soft_wrap=True)
    if len(failed) > _MOST_FAILED:
        errors.print(f"left out: {len(failed) - _MOST_FAILED} more; {out}/failed.json has them all")
    for problem in session.get("problems", []):
        errors.print(f"{problem}; skipped", highlight=False, markup=False, soft_wrap=True)
    if json_file is not None:
        figures = {**summary, "session": session}
        load(".search.run_folder").write_json(json_file, figures)


def _table(families: dict[str, dict[str, int]]) -> Table:
    columns = ("workloads", "records", "sketch", "loop")
    kinds = sorted({kind for counts in families.values() for kind in counts} - {*columns})
    table = Table("family", box=None, pad_edge=False)
    for name in (*columns, *kinds):
        table.add_column(name, justify="right")
    for family, counts in families.items():
        table.add_row(family, *(str(counts.get(name, 0)) for name in (*columns, *kinds)))
    return table


def _duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min" if minutes > 1 else f"{seconds:.0f} s"


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
