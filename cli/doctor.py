"""The `tensortune doctor` command."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ..data.finding import Finding
from .common import console, load

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_AUTOTVM = "AutoTVM (optional)"


def doctor(
    peak: Annotated[
        bool,
        typer.Option("--peak", help="Measure what the cores and the memory can do: 3 s more."),
    ] = False,
    autotvm_python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            envvar="TENSORTUNE_AUTOTVM_PYTHON",
            help="Check this Python with AutoTVM and Ansor in it.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the findings to a file.")
    ] = None,
) -> None:
    """Check versions, threads and this machine's noise, and say what to do about each.

    Exits with 1 when something is found that keeps tensortune from working.

    Example: tensortune doctor --peak
    """
    module = import_module("..data.doctor", __package__)  # it has to run where TVM can't
    findings: list[Finding] = module.diagnose(peak=peak)
    broken = any(finding.status == "fail" for finding in findings)
    if not broken:
        findings.append(check_autotvm(autotvm_python))
    table = Table("", "check", "found", "what to do", box=None, pad_edge=False)
    for finding in findings:
        table.add_row(
            f"[{_COLOURS[finding.status]}]{finding.status}[/]",
            finding.name,
            escape(finding.found),
            escape(finding.advice),
        )
    console.print(table)
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(finding) for finding in findings], indent=2))
    if broken:
        raise typer.Exit(1)


def check_autotvm(named: str | None) -> Finding:
    """The interpreter that has AutoTVM; none is named on most machines, and that is fine."""
    if not named:
        advice = "docs/autotvm.md says how to make one, for comparisons with AutoTVM and Ansor"
        return Finding(_AUTOTVM, "ok", "no interpreter with it is named", advice)
    module = load(".search.peers.autotvm")
    try:
        versions = module.probe(module.find_python(named))
    except module.AutoTVMError as error:
        return Finding(_AUTOTVM, "warn", f"{named} does not do", str(error))
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Finding(_AUTOTVM, "ok", f"{named}: {found}")
