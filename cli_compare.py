"""The `tensortune report` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .cli_common import console, guard, load


def report(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a comparison, or the file of its --json.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file; else report.html in the folder.")
    ] = None,
) -> None:
    """Write a comparison's report: an HTML page that needs nothing else, Markdown and CSV.

    Example: tensortune report comparison --out report.html
    """
    guard(lambda: say_report(folder, out))


def say_report(folder: Path, out: Path | None = None) -> None:
    """Write a comparison's report, and say where it is."""
    written = load(".search.report").write_report(folder, out)
    names = ", ".join(str(path) for path in written)
    console.print(f"the report is in {names}", highlight=False, markup=False, soft_wrap=True)
