"""Entries of other tuners' logs as records, for the store and the dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

from ..record import Record
from ..workload import Workload
from .entry import LogEntry, canonical_json


def identity(entry: LogEntry) -> str:
    """16 hexadecimal digits for what is computed.

    The canonical identity of the named operator that the entry is recognised as. Of any other
    task a hash of the tuner's own name for it, which is equal for the same task only: whether it
    is one of the held-out workloads can't be told.
    """
    if entry.workload:
        return _canonical(entry.workload)
    name = canonical_json([entry.tuner, entry.task, entry.args])
    return hashlib.sha256(name.encode()).hexdigest()[:16]


@cache
def _canonical(key: str) -> str:
    return Workload.from_key(key).identity


def to_records(entries: Sequence[LogEntry], host: str = "") -> list[Record]:
    """Records of the entries, in their order.

    A record's candidate is a point of a space of the tuner's, which no `Space` of ours reads.
    The logs keep what a whole trial took, not what compiling did, and no seed: these stay 0.

    Args:
        entries: What `read_log` found.
        host: Key of the machine that they were measured on, which no log tells.
    """
    return [
        Record(
            workload=entry.name,
            identity=identity(entry),
            target=entry.target,
            candidate=entry.candidate,
            repeats=entry.outcome.repeats,
            failure=entry.outcome.failure,
            detail=entry.outcome.detail,
            host=host,
            versions=dict(entry.versions),
            time=entry.outcome.time,
            strategy=entry.tuner,
        )
        for entry in entries
    ]
