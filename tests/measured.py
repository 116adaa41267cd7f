"""Real records for tests of training: 20 programs of each of ten workloads, timed on one machine.

They are the first of a `tensortune collect --suite train`, with the times rounded: 4 of each ten
are of the loop space, and 6 failed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tensortune.data.dataset import Dataset, append_records, read_dataset
from tensortune.data.record import Record
from tensortune.data.store import Store

STORE = Path(__file__).parent / "costmodel" / "measured.jsonl"


def measured() -> list[Record]:
    """The records, in the order of the collection."""
    return list(Store(STORE).read().records)


def twice(records: list[Record]) -> list[Record]:
    """Records whose repeats are told apart as of two occasions, which gives a noise ceiling."""
    again = [
        replace(record, repeats=record.repeats[-1:], time=record.time + 1e5)
        for record in records
        if len(record.repeats) > 2
    ]
    first = [
        replace(r, repeats=r.repeats[:-1] if len(r.repeats) > 2 else r.repeats) for r in records
    ]
    return [*first, *again]


def dataset_in(folder: Path) -> Dataset:
    """The records, every third of them measured again, as a dataset in a folder."""
    records = measured()
    append_records(folder, [*twice(records[::3]), *(r for i, r in enumerate(records) if i % 3)])
    return read_dataset(folder)
