"""Reads the logs of AutoTVM, Ansor and TenSet, and turns them into records."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..store import Problem
from . import ansor, autotvm
from .entry import LogEntry, foreign, target_options

_NO_LOG = (
    "it is neither AutoTVM's (`input`, `config`, `result`) nor Ansor's (`i`, `r`, `v`): "
    "give a file that one of them wrote"
)
_NO_MORE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class LogRead:
    """What a log holds. Every line is in one of the two, blank ones and `#` comments aside.

    Attributes:
        entries: What was measured, failures too, in the file's order.
        problems: The lines that are damaged, of another kind, or for another target.
    """

    entries: list[LogEntry]
    problems: list[Problem]


def read_log(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    workloads: Mapping[str, str] = _NO_MORE,
) -> LogRead:
    """Read a log of AutoTVM's, Ansor's or TenSet's; the lines may also be mixed.

    Args:
        path: The file, of one JSON object a line.
        target: Keep only lines for this target's `mcpu` and architecture (as far as it names
            them); by default those for any CPU.
        workloads: Keys of our workloads by the task's name (or hash), or by that followed by its
            arguments as JSON without spaces, for tasks that are not recognised.

    Raises:
        OSError: the file can't be read.
        ValueError: `target` is no target.
    """
    if target is not None:
        target_options(target)
    read = LogRead([], [])
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip() or line.startswith(b"#"):
                continue
            try:
                entry = _entry(line, number, workloads)
                why = foreign(entry.target, target)
            except (ValueError, RecursionError) as error:
                why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            if why is None:
                read.entries.append(entry)
            else:
                torn = "" if line.endswith(b"\n") else "torn, the file ends inside it; "
                read.problems.append(Problem(number, f"{torn}{why}"))
    return read


def _entry(line: bytes, number: int, workloads: Mapping[str, str]) -> LogEntry:
    value = _value(line)
    if autotvm.is_autotvm(value):
        return autotvm.parse(value, number, workloads)
    if ansor.is_ansor(value):
        return ansor.parse(value, number, workloads)
    raise ValueError(_NO_LOG)


def _value(line: bytes) -> Any:
    """A line's JSON.

    Raises:
        ValueError: it is none.
    """
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        if line.count(b"\t") == 5:
            raise ValueError(
                "it is of AutoTVM's pickle protocol, and a pickle may run any code: "
                "write the log with protocol='json'"
            ) from None
        raise ValueError(f"not JSON at column {error.colno}: {error.msg}") from None
