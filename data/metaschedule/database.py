"""MetaSchedule databases into records, and records into MetaSchedule databases."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm_ffi import structural_equal

from ..candidate import InvalidCandidate
from ..record import Record
from ..record_set import (
    DATABASE_RECORDS,
    DATABASE_WORKLOADS,
    Choose,
    RecordSet,
    Rewritten,
    explained,
    is_database,
    replace_file,
)
from ..store import StoreError
from ..store_ops import found_wrong, program_of
from ..tir.modules import structural_hash
from ..workload import CUSTOM, Workload
from .entries import Entry, parse_line, read_lines, read_module, write_entries
from .traces import TraceReader

# Times above it stand for a failure.
_LONGEST_S = 1e9

UNKNOWN = "unknown"
"""Host and strategy of a record from a database, which names neither."""


def read_database(folder: str | os.PathLike[str], known: Iterable[Workload] = ()) -> RecordSet:
    """Read a MetaSchedule database into records.

    A record keeps the trace: see `TraceReader.candidate`. A time of 1e10 s is a failure, of the
    kind `runtime` for want of a better one. What a database does not hold is not made up: the host
    and the strategy are `unknown`, the time of storing is 0.

    Args:
        folder: The database's folder.
        known: Workloads that go by their own keys where the database holds them. Others are named
            after their function, `custom:main@...`.

    Returns:
        The records in the order of the file; damaged lines are among the problems.

    Raises:
        StoreError: it is no database, or it can't be read.
    """
    folder = Path(folder)
    workloads = _Workloads(folder, known)
    pairs, problems = _read_records(folder, workloads)
    definitions = {each.key: each.to_json() for each in workloads.found.values()}
    return RecordSet([r for _, r in pairs], definitions, workloads.problems + problems)


def rewrite_database(folder: str | os.PathLike[str], choose: Choose) -> Rewritten:
    """Drop lines from a database in its place, and keep the file as it was as a backup.

    The lines that stay are not touched. MetaSchedule takes no lock: nothing should be tuning with
    the database meanwhile.

    Raises:
        StoreError: it is no database, or it can't be written; it is as it was then.
    """
    folder = Path(folder)
    workloads = _Workloads(folder, ())
    pairs, problems = _read_records(folder, workloads)
    kept = choose([record for _, record in pairs])
    path = folder / DATABASE_RECORDS
    backup = None
    with explained(path, "rewrite"):
        if problems or len(kept) < len(pairs):
            lines = path.read_bytes().splitlines()
            backup = replace_file(path, [lines[pairs[i][0] - 1] + b"\n" for i in kept])
    return Rewritten(len(kept), len(pairs) - len(kept), workloads.problems + problems, backup)


def export_records(
    folder: str | os.PathLike[str], records: RecordSet, *, replace: bool = False
) -> list[str]:
    """Write records as a MetaSchedule database.

    `ms.database.JSONDatabase(work_dir=folder)`, `ms.tir_integration.compile_tir` and
    `relax.transform.MetaScheduleApplyDatabase` find, for each workload, the entry with the least
    mean of its times. Failures, and programs found wrong after they were timed, are written as
    MetaSchedule writes failures, so they are never found.

    Args:
        folder: The database's folder; there must be nothing at the path.
        records: Records of one target, since MetaSchedule looks at no entry's target.
        replace: Take the place of a database that is there.

    Returns:
        What could not be written, and why.

    Raises:
        StoreError: nothing could be written, records of several targets, the folder is taken or
            can't be written; nothing was changed then.
    """
    targets = sorted({record.target for record in records.records})
    if len(targets) > 1:
        raise StoreError(
            f"the records are of {len(targets)} targets, and MetaSchedule takes an entry whatever "
            "its target is: filter them first, by --target with a part of one of "
            f"{'; '.join(targets)}"
        )
    for target in targets:
        if not target.startswith("{"):
            raise StoreError(f"the records' target {target!r} is no JSON, which MetaSchedule needs")
    writer = _Writer(records)
    entries = list(writer.entries())
    if not entries:
        raise StoreError(
            "there is nothing to write: " + ("; ".join(writer.left_out()) or "no records")
        )
    write_entries(folder, writer.workloads, entries, replace=replace)
    return writer.left_out()


class _Workloads:
    """The workloads of a database: by position, or why there is none."""

    def __init__(self, folder: Path, known: Iterable[Workload]) -> None:
        if not is_database(folder):
            raise StoreError(
                f"{folder} is no MetaSchedule database: a folder with {DATABASE_WORKLOADS} and "
                f"{DATABASE_RECORDS}"
            )
        path = folder / DATABASE_WORKLOADS
        known = list(known)
        self.found: dict[int, Workload] = {}
        self.problems: list[str] = []
        for number, line in read_lines(path):
            try:
                self.found[number - 1] = _named(read_module(parse_line(line)), known)
            except ValueError as error:
                self.problems.append(f"{path}, line {number}: {error}")

    def at(self, position: Any) -> Workload:
        if type(position) is not int or position not in self.found:
            raise ValueError(f"there is no workload {position!r:.20}")
        return self.found[position]


def _named(mod: Any, known: Sequence[Workload]) -> Workload:
    """The workload whose module is this one, to the letter: MetaSchedule finds it by that."""
    for workload in known:
        if structural_equal(workload.mod, mod):
            return workload
    workload = Workload.from_module(mod)
    if structural_equal(workload.mod, mod):
        return workload
    # Its function has a symbol of its own, or lacks an attribute that ours have.
    label = workload.key.partition("@")[0]
    return Workload(f"{label}@{structural_hash(mod)}", CUSTOM, (), workload.dtype, mod)


def _read_records(
    folder: Path, workloads: _Workloads
) -> tuple[list[tuple[int, Record]], list[str]]:
    """The records with the numbers of their lines, and what is wrong with the other lines."""
    path = folder / DATABASE_RECORDS
    readers: dict[tuple[str, str], TraceReader] = {}
    pairs, problems = [], []
    for number, line in read_lines(path):
        try:
            pairs.append((number, _record(parse_line(line), workloads, readers)))
        except ValueError as error:
            problems.append(f"{path}, line {number}: {error}")
    return pairs, problems


def _record(
    value: Any, workloads: _Workloads, readers: dict[tuple[str, str], TraceReader]
) -> Record:
    """The record of a line `[workload, [trace, run times, target, arguments]]`."""
    try:
        position, (trace, seconds, config, _) = value
    except (TypeError, ValueError):
        raise ValueError("not [workload, [trace, times, target, arguments]]") from None
    workload = workloads.at(position)
    target = _target_text(config)
    if (workload.key, target) not in readers:
        readers[workload.key, target] = TraceReader(workload, target)
    candidate = readers[workload.key, target].candidate(trace)
    if not isinstance(seconds, list) or not seconds:
        raise ValueError("it was never timed")
    if not all(type(each) in (int, float) for each in seconds):
        raise ValueError("its times are no numbers")
    failed = max(seconds) > _LONGEST_S
    return Record(
        workload=workload.key,
        identity=workload.identity,
        target=target,
        candidate=candidate,
        repeats=() if failed else tuple(map(float, seconds)),
        failure="runtime" if failed else None,
        detail="unknown: MetaSchedule notes that a candidate failed, not why" if failed else "",
        host=UNKNOWN,
        strategy=UNKNOWN,
    )


def _target_text(config: Any) -> str:
    """What `target_string` gives, of a target that need not be one TVM can make here."""
    if not isinstance(config, dict) or not isinstance(config.get("kind"), str):
        raise ValueError("it names no target")
    kept = {
        name: value
        for name, value in config.items()
        if not name.startswith("feature.") and not (name == "tag" and not value)
    }
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


class _Writer:
    """Turns records into entries, and counts what can't be turned into any."""

    def __init__(self, records: RecordSet) -> None:
        self._records = records
        self._wrong = found_wrong(records.records)
        self._positions: dict[str, int | None] = {}
        self._readers: list[TraceReader] = []
        self._left_out: Counter[str] = Counter()
        self.workloads: list[Workload] = []

    def left_out(self) -> list[str]:
        """What is left out and why, a line for each reason."""
        return [f"{count} records: {why}" for why, count in self._left_out.items()]

    def entries(self) -> Iterator[Entry]:
        """The entries, in the order of the records."""
        for record in self._records.records:
            position = self._position(record)
            if position is None:
                continue
            if record.failure == "invalid":
                self._left_out["`invalid`, so there is no trace of them"] += 1
                continue
            try:
                trace = self._readers[position].trace(record.candidate)
            except InvalidCandidate as error:
                self._left_out[f"{record.workload}: {error}"] += 1
                continue
            sound = record.valid and program_of(record) not in self._wrong
            seconds = record.repeats if sound else None
            yield Entry(position, trace, seconds, json.loads(record.target))

    def _position(self, record: Record) -> int | None:
        """The position of a record's workload, or None when there is no knowing its program."""
        key = record.workload
        if key not in self._positions:
            self._positions[key] = None
            workload = _defined(key, self._records.definitions)
            if workload is not None:
                self._positions[key] = len(self.workloads)
                self.workloads.append(workload)
                self._readers.append(TraceReader(workload, record.target))
        position = self._positions[key]
        if position is None:
            self._left_out[f"nothing says what program {key} is (`*.workloads.jsonl`)"] += 1
        elif self.workloads[position].identity != record.identity:
            self._left_out[f"{key} is another computation now than when it was tuned"] += 1
            return None
        return position


def _defined(key: str, definitions: Mapping[str, Mapping[str, Any]]) -> Workload | None:
    try:
        workload = Workload.from_json(definitions.get(key, {"key": key}))
        return workload if workload.mod is not None else None
    # A key that names nothing, a user's module that is not there, or a damaged definition.
    except Exception:
        return None
