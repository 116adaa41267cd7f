"""Records as a table: a Parquet file, or a folder of them that grows by parts. Loads no TVM."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import numpy.typing as npt
import pandas as pd

from .families import family_of, operator_of
from .parquet import DatasetError, encode, read_file
from .record import Record
from .record_set import explained, write_lines
from .store_ops import found_wrong, program_of

__all__ = [
    "Added",
    "Dataset",
    "DatasetError",
    "append_records",
    "parts",
    "read_dataset",
    "write_dataset",
]

Positions = npt.NDArray[np.int64]

_LOCK_TIMEOUT_S = 60.0  # a part takes well under a second to write


@dataclass(frozen=True)
class Dataset:
    """Records of any workloads, targets, hosts and spaces.

    Attributes:
        records: The records, in the order of the files.
        definitions: By key what `Workload.to_json` gave, for workloads that no key brings back.
        path: The file or folder that it was read from; None where it was made in memory.
    """

    records: Sequence[Record]
    definitions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    path: Path | None = None

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def group_keys(self) -> tuple[tuple[str, str, str], ...]:
        """Identity, target and host of each group of `groups`."""
        return tuple(dict.fromkeys((r.identity, r.target, r.host) for r in self.records))

    @cached_property
    def groups(self) -> Positions:
        """One number for all records that may be compared: of one computation, target and host."""
        numbers = {key: number for number, key in enumerate(self.group_keys)}
        found = [numbers[r.identity, r.target, r.host] for r in self.records]
        return np.array(found, dtype=np.int64)

    @cached_property
    def latency_s(self) -> npt.NDArray[np.float64]:
        """Median of each record's repeats in seconds.

        Infinity for failures, and for what another record found to be wrong after it was timed.
        """
        wrong = found_wrong(self.records)
        found = [np.inf if program_of(r) in wrong else r.latency_s for r in self.records]
        return np.array(found, dtype=np.float64)

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row a record: its fields, and what follows from them.

        Beside the record's own: `operator`, `family`, `space`, `group` (see `groups`), `latency_s`,
        `valid`, and `speed`, the group's best latency over the record's (0 for a failure).
        `repeats` is how many there are, `failure` an empty text where there is none.
        """
        names = ("workload", "identity", "target", "host", "strategy", "detail", "cut")
        columns: dict[str, Any] = {n: [getattr(r, n) for r in self.records] for n in names}
        for name in ("compile_s", "seed", "batch", "time"):
            columns[name] = [getattr(r, name) for r in self.records]
        columns["failure"] = [record.failure or "" for record in self.records]
        columns["repeats"] = np.array([len(r.repeats) for r in self.records], dtype=np.int64)
        columns["space"] = [record.candidate.space for record in self.records]
        columns["operator"] = [operator_of(record.workload) for record in self.records]
        columns["family"] = [family_of(record.workload) for record in self.records]
        columns["group"] = self.groups
        columns["latency_s"] = self.latency_s
        columns["valid"] = np.isfinite(self.latency_s)
        table = pd.DataFrame(columns)
        best = table.groupby("group")["latency_s"].transform("min")
        table["speed"] = (best / table["latency_s"]).where(table["valid"], 0.0)
        return table

    def take(self, positions: npt.ArrayLike) -> Dataset:
        """The records at some positions, or where a mask is true, in that order."""
        asked = np.asarray(positions)
        # An empty list comes as an array of floats.
        chosen = np.arange(len(self))[asked if asked.size else asked.astype(np.int64)]
        return Dataset([self.records[i] for i in chosen], self.definitions)


def parts(path: str | os.PathLike[str]) -> list[Path]:
    """The Parquet files of a dataset: itself, or those of the folder, by name.

    Raises:
        DatasetError: there are none.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    found = sorted(path.glob("*.parquet")) if path.is_dir() else []
    if not found:
        what = "holds no .parquet file" if path.is_dir() else "does not exist"
        raise DatasetError(f"{path} {what}; `tensortune dataset build` makes a dataset of records")
    return found


def read_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Read a dataset: a Parquet file, or all of a folder's in the order of their names.

    Raises:
        DatasetError: there is none, or a file is damaged, no dataset, or of another version of the
            schema; the message names both versions.
        StoreError: a file can't be read.
    """
    records: list[Record] = []
    definitions: dict[str, Mapping[str, Any]] = {}
    for part in parts(path):
        found = read_file(part)
        records += found.records
        definitions |= found.definitions
    return Dataset(records, definitions, Path(path))


def write_dataset(
    path: str | os.PathLike[str],
    records: Sequence[Record],
    definitions: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    replace: bool = False,
) -> Path:
    """Write records to one Parquet file, whole or not at all.

    Args:
        path: The file; its folder is made if it does not exist.
        records: The rows.
        definitions: The workloads' definitions, by key (see `RecordSet`).
        replace: Take the place of a file that is there.

    Raises:
        DatasetError: it exists already, or a record does not fit the table.
        StoreError: it can't be written. Nothing was changed then.
    """
    path = Path(path)
    if path.is_dir():
        raise DatasetError(f"{path} is a folder; name a file in it, such as {path}/all.parquet")
    if path.exists() and not replace:
        raise DatasetError(f"{path} exists; choose another name, or say that it is to be replaced")
    data = encode(records, definitions or {})
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    with explained(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_lines(draft, [data])
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    return path


@dataclass(frozen=True, slots=True)
class Added:
    """What an append did.

    Attributes:
        records: How many records are new.
        known: How many were there already, the same in every field.
        part: The file that holds the new ones; None where there are none.
    """

    records: int
    known: int
    part: Path | None


def append_records(
    folder: str | os.PathLike[str],
    records: Iterable[Record],
    definitions: Mapping[str, Mapping[str, Any]] | None = None,
) -> Added:
    """Add records to a folder as a part of its own; those that are there already are left out.

    Processes that append at once wait for each other.

    Raises:
        DatasetError: the path is a file, or what is there can't be read as a dataset.
        StoreError: it can't be written. Nothing was changed then.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is a file; name the folder of a dataset")
    with explained(folder, "write"), _lock(folder):
        there = sorted(folder.glob("*.parquet"))
        seen = {_key(record) for part in there for record in read_file(part).records}
        known, new = 0, []
        for record in records:
            key = _key(record)
            known += key in seen
            new += [] if key in seen else [record]
            seen.add(key)
        if not new:
            return Added(0, known, None)
        part = folder / f"part-{_next_number(there):04d}.parquet"
        return Added(len(new), known, write_dataset(part, new, definitions))


def _key(record: Record) -> tuple[Record, tuple[tuple[str, str], ...]]:
    """Equal for records that are the same; versions are no part of a record's own hash."""
    return record, tuple(sorted(record.versions.items()))


def _next_number(there: Sequence[Path]) -> int:
    names = (path.stem.removeprefix("part-") for path in there)
    return max((int(name) for name in names if name.isdecimal()), default=0) + 1


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / ".lock", timeout=_LOCK_TIMEOUT_S, poll_interval=0.01):
        yield
