"""What goes into a dataset from stores and from other tuners' logs, and what is left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .dataset_checks import recompute
from .logs.reader import read_log
from .logs.records import to_records
from .record import Record
from .record_set import RecordSet
from .store import Problem


@dataclass(frozen=True)
class Sifted:
    """Records that may go into a dataset.

    Attributes:
        records: Those.
        held_out: How many of each held-out workload were left out, by key.
    """

    records: list[Record]
    held_out: Mapping[str, int]


def sift(found: RecordSet) -> Sifted:
    """Leave out what is of a held-out workload, by the record's identity or by its computation."""
    again = recompute(found.records, found.definitions)
    held = [again.held_out(record) for record in found.records]
    pairs = list(zip(found.records, held, strict=True))
    return Sifted(
        [record for record, is_held in pairs if not is_held],
        _counts(record.workload for record, is_held in pairs if is_held),
    )


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(values))


@dataclass(frozen=True)
class ImportedLog:
    """What was found in a log.

    Attributes:
        lines: Its lines, blank ones and comments aside.
        records: What may go into a dataset.
        failures: How many of these failed, by kind.
        workloads: The tasks that were recognised: name of the task, key of our workload.
        unknown: Records of each task that was not recognised, by task; left out unless asked for.
        held_out: Records of each held-out workload, which were left out, by key.
        problems: Lines that are no record of a CPU's trial.
    """

    lines: int
    records: list[Record]
    failures: Mapping[str, int]
    workloads: Mapping[str, str]
    unknown: Mapping[str, int]
    held_out: Mapping[str, int]
    problems: Sequence[Problem]


def import_log(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    host: str = "",
    workloads: Mapping[str, str] | None = None,
    allow_unknown: bool = False,
) -> ImportedLog:
    """Read a log of AutoTVM's or Ansor's for a dataset.

    Args:
        path: The log.
        target: Keep only lines for this target's CPU.
        host: Key of the machine that it was measured on, which no log tells.
        workloads: Keys of our workloads by task, for tasks that are not recognised.
        allow_unknown: Keep the records of tasks that are not recognised. Whether one of them is
            held out can't be told.

    Raises:
        OSError: the file can't be read.
        ValueError: the target is none.
    """
    read = read_log(path, target=target, workloads=workloads or {})
    kept = [entry for entry in read.entries if entry.workload or allow_unknown]
    sifted = sift(RecordSet(to_records(kept, host)))
    return ImportedLog(
        lines=len(read.entries) + len(read.problems),
        records=sifted.records,
        failures=_counts(r.failure for r in sifted.records if r.failure),
        workloads={f"{e.task}{e.args}": e.workload for e in read.entries if e.workload},
        unknown=_counts(f"{e.task}{e.args}" for e in read.entries if not e.workload),
        held_out=sifted.held_out,
        problems=read.problems,
    )
