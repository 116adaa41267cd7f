"""Writes a MetaSchedule database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..metaschedule.entries import Entry, write_entries
from ..metaschedule.traces import trace_json
from ..store import StoreError
from ..workload import Workload
from .library import ExportError


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
        ExportError: the folder holds something else, or can't be written.
    """
    config = dict(target.export())
    lines = [Entry(0, trace_json(trace), seconds, config) for trace, seconds in entries]
    try:
        write_entries(folder, [workload], lines, replace=True)
    except StoreError as error:
        raise ExportError(str(error)) from error
