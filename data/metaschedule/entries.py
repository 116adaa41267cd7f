"""The two files of a MetaSchedule database, and what their lines say.

They are read and written here rather than by TVM: its reader takes the process down over a damaged
line, and its writer leaves half a database behind when the disk is full.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from ..record_set import DATABASE_RECORDS, DATABASE_WORKLOADS, explained, write_lines
from ..store import StoreError
from ..workload import Workload
from .traces import as_json

FAILED_S = 1e10
"""How MetaSchedule writes down that a candidate failed."""


@dataclass(frozen=True)
class Entry:
    """What one line of a database says.

    Attributes:
        workload: Position of the workload.
        trace: Its trace as JSON, post-processors included.
        seconds: Its run times; None or empty for a failure.
        target: The target's configuration.
    """

    workload: int
    trace: Any
    seconds: Sequence[float] | None
    target: Mapping[str, Any]


def write_entries(
    folder: str | os.PathLike[str],
    workloads: Sequence[Workload],
    entries: Iterable[Entry],
    *,
    replace: bool = False,
) -> None:
    """Write a MetaSchedule database. The folder appears as a whole or not at all.

    Args:
        folder: The database's folder; there must be nothing at the path but an empty folder.
        workloads: What the entries are of.
        entries: Its lines.
        replace: Take the place of a database that is there.

    Raises:
        StoreError: the folder is taken, or can't be written; nothing was changed then.
    """
    folder = Path(folder)
    _check_free(folder, replace)
    infos = [_argument_info(workload) for workload in workloads]
    lines = [_entry_line(entry, infos[entry.workload]) for entry in entries]
    with explained(folder, "write"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
            made, before = Path(scratch) / "made", Path(scratch) / "before"
            made.mkdir()
            write_lines(made / DATABASE_WORKLOADS, map(_workload_line, workloads))
            write_lines(made / DATABASE_RECORDS, lines)
            _check_free(folder, replace)
            try:
                if folder.exists():
                    os.rename(folder, before)
                os.rename(made, folder)
            except BaseException:  # an interrupt too: `before` goes with the scratch folder
                if before.exists() and not folder.exists():
                    os.rename(before, folder)
                _check_free(folder, replace)  # another process may have been faster
                raise


def _check_free(folder: Path, replace: bool) -> None:
    """Raise unless there is nothing at the path, or a database that may be replaced."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StoreError(f"{folder} is a file: choose another name for the database's folder")
    names = {path.name for path in folder.iterdir()}
    others = names - {DATABASE_WORKLOADS, DATABASE_RECORDS}
    if others:
        raise StoreError(
            f"{folder} holds {min(others)}, which is no part of a MetaSchedule database: "
            "choose another folder"
        )
    if names and not replace:
        raise StoreError(
            f"{folder} holds a database: choose another folder, add --force to replace it, or put "
            "the two together with `tensortune store merge`"
        )


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers."""
    with explained(path, "read"):
        content = path.read_bytes()
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            yield number, line


def parse_line(line: bytes) -> Any:
    """The JSON of a line; raises ValueError, whatever the bytes are."""
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not JSON at column {error.colno}: {error.msg}; damaged or torn"
        ) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_module(value: Any) -> Any:
    """The module of a line `[hash, JSON in base64, behind 8 bytes of length]`.

    Raises:
        ValueError: the line holds none.
    """
    try:
        _, text = value
        mod = tvm.ir.load_json(base64.b64decode(text, validate=True)[8:].decode())
    # Besides Python's errors, TVM's reader raises what it likes.
    except Exception as error:
        raise ValueError(f"not a workload: {_brief(error)}") from error
    if not isinstance(mod, tvm.IRModule):
        raise ValueError("not a workload: it holds no module")
    return mod


def _argument_info(workload: Workload) -> Any:
    infos = ms.arg_info.ArgInfo.from_entry_func(workload.mod, remove_preproc=True)
    return [as_json(info.as_json()) for info in infos]


def _workload_line(workload: Workload) -> bytes:
    return _json_line(as_json(ms.database.Workload(workload.mod).as_json()))


def _entry_line(entry: Entry, info: Any) -> bytes:
    times = [float(second) for second in entry.seconds or ()] or [FAILED_S]
    target = {"tag": "", **as_json(entry.target)}
    return _json_line([entry.workload, [entry.trace, times, target, info]])


def _json_line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def _brief(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1][:200]
