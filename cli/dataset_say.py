"""What the `tensortune dataset` commands print as they put records together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .common import console, errors

_MOST_PROBLEMS = 10


def say(line: str) -> None:
    """Print a line of results."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def note(line: str) -> None:
    """Print a line beside the results."""
    errors.print(line, highlight=False, markup=False, soft_wrap=True)


def note_first(problems: Sequence[str]) -> None:
    """Say the first problems and how many more there are, beside the results."""
    for problem in problems[:_MOST_PROBLEMS]:
        note(problem)
    if len(problems) > _MOST_PROBLEMS:
        note(f"and {len(problems) - _MOST_PROBLEMS} more; --json lists them all")


def say_held_out(held_out: Mapping[str, int]) -> None:
    """Say what was left out since no model is to see it."""
    for key, count in held_out.items():
        note(f"left out: {count} records of {key}, which is held out for evaluation")


def say_added(added: Any, out: Path) -> None:
    """Say what a dataset got."""
    known = f"; {added.known} were there already" if added.known else ""
    say(f"{added.records} records were added to {added.part or out}{known}")


def problem_lines(path: Path, log: Any) -> list[str]:
    """The lines of a log that hold no record, each with its file and number."""
    return [f"{path}:{problem.line}: {problem.why}" for problem in log.problems]


def show_log(path: Path, log: Any, allow_unknown: bool) -> None:
    """Say what was found in a log."""
    failures = ", ".join(f"{count} {kind}" for kind, count in sorted(log.failures.items()))
    say(f"{path}: {log.lines} lines, {len(log.records)} records ({failures or 'no failures'})")
    for task, key in log.workloads.items():
        say(f"    {task} is {key}")
    for task, count in log.unknown.items():
        what = "kept" if allow_unknown else "left out; name it with --workload TASK=KEY"
        say(f"    {task} is not recognised: {count} records {what}")
    note_first(problem_lines(path, log))


def log_row(path: Path, log: Any) -> dict[str, Any]:
    """What was found in a log, as plain JSON."""
    names = ("lines", "failures", "workloads", "unknown", "held_out")
    row = {name: getattr(log, name) for name in names} | {"records": len(log.records)}
    row["problems"] = problem_lines(path, log)
    return {"file": str(path)} | row
