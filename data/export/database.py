"""Writes a MetaSchedule database."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms

from ..workload import Workload
from .library import ExportError

WORKLOADS_FILE = "database_workload.json"
RECORDS_FILE = "database_tuning_record.json"

# How MetaSchedule says that a candidate failed.
_FAILED_S = 1e10


def write_database(
    folder: str | Path,
    workload: Workload,
    target: Any,
    entries: Iterable[tuple[Any, Sequence[float] | None]],
) -> None:
    """Write a MetaSchedule database: what `ms.database.JSONDatabase(work_dir=folder)` reads.

    MetaSchedule finds the entry with the least mean under the workload's own module
    (`query_schedule`, `tir_integration.compile_tir`). The folder appears as a whole, and takes the
    place of a database that was there.

    Args:
        folder: The database's folder.
        workload: What was tuned.
        target: The `tvm.target.Target` it was tuned for.
        entries: For each candidate the trace that leads from the workload's module to the scheduled
            one, post-processors included, and its run times in seconds, or None for a failure.

    Raises:
        ExportError: the folder holds something else.
    """
    folder = Path(folder)
    _check_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        database = ms.database.JSONDatabase(str(made / WORKLOADS_FILE), str(made / RECORDS_FILE))
        entry = database.commit_workload(workload.mod)
        info = ms.arg_info.ArgInfo.from_entry_func(workload.mod, remove_preproc=True)
        for trace, seconds in entries:
            times = [float(second) for second in seconds] if seconds else [_FAILED_S]
            record = ms.database.TuningRecord(trace, entry, times, target, info)
            database.commit_tuning_record(record)
        if folder.exists():
            os.replace(folder, Path(scratch) / "before")
        os.replace(made, folder)


def _check_replaceable(folder: Path) -> None:
    """Raise unless there is nothing at the path but a database."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ExportError(f"{folder} is a file: choose another name for the database's folder")
    others = {path.name for path in folder.iterdir()} - {WORKLOADS_FILE, RECORDS_FILE}
    if others:
        raise ExportError(
            f"{folder} holds {min(others)}, which is no part of a MetaSchedule database: "
            "choose another folder"
        )
