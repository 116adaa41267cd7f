"""Choosing among records: which are the same, which are sound, which are fastest."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from .candidate import Candidate
from .record import Record
from .record_set import RecordSet

Program = tuple[str, str, Candidate]
"""A candidate of one computation on one target."""


@dataclass(frozen=True)
class Ranked:
    """A candidate that is among the fastest of its workload on its target.

    Attributes:
        rank: Its place, from 1.
        record: The last of its records that counts; the workload, target and strategy are its.
        latency_s: Median of all its repeats on that host, in seconds.
        repeats: How many there are.
    """

    rank: int
    record: Record
    latency_s: float
    repeats: int


def program_of(record: Record) -> Program:
    """What was measured, wherever and however often."""
    return record.identity, record.target, record.candidate


def found_wrong(records: Iterable[Record]) -> set[Program]:
    """The programs whose output was wrong. That check comes after timing: they have times too."""
    return {program_of(record) for record in records if record.failure == "wrong"}


def merge(sets: Sequence[RecordSet]) -> RecordSet:
    """All records in the order of the sets; one that is the same in every field is there once."""
    records: dict[str, Record] = {}
    definitions: dict[str, Mapping[str, Any]] = {}
    for each in sets:
        for record in each.records:
            records.setdefault(json.dumps(record.to_json(), sort_keys=True), record)
        for key, value in each.definitions.items():
            # Of two, the one that holds the program.
            if key not in definitions or "module" not in definitions[key]:
                definitions[key] = value
    problems = [problem for each in sets for problem in each.problems]
    return RecordSet(list(records.values()), definitions, problems)


def matching(
    records: Sequence[Record],
    *,
    workload: str | None = None,
    target: str | None = None,
    host: str | None = None,
    strategy: str | None = None,
    valid: bool = False,
) -> list[Record]:
    """The records that fit.

    Args:
        records: What to choose from.
        workload: A part of the workload's key, a pattern with `*` and `?` for all of it, or its
            identity.
        target: A part of the target's text, or a pattern for all of it.
        host: The same for the machine.
        strategy: The same for the strategy.
        valid: Whether to leave out failures, and programs that were found wrong after timing.
    """
    wrong = found_wrong(records)
    return [
        record
        for record in records
        if (_fits(workload, record.workload) or workload == record.identity)
        and _fits(target, record.target)
        and _fits(host, record.host)
        and _fits(strategy, record.strategy)
        and not (valid and (not record.valid or program_of(record) in wrong))
    ]


def _fits(wanted: str | None, text: str) -> bool:
    if wanted is None:
        return True
    return fnmatchcase(text, wanted) if set("*?") & set(wanted) else wanted in text


def rank(records: Sequence[Record], count: int) -> list[Ranked]:
    """The fastest sound candidates of each workload on each target, best first.

    Workloads are told apart by their computation, whatever they are called. A candidate measured
    several times counts once for each host, with its repeats pooled; timings that were cut short
    count only where there are no others.

    Args:
        records: Records of any workloads, targets and hosts.
        count: How many of each.

    Raises:
        ValueError: fewer than one is asked for.
    """
    if count < 1:
        raise ValueError(f"at least 1 candidate has to be asked for, not {count}")
    pooled: dict[tuple[str, str], dict[tuple[str, Candidate], list[Record]]] = {}
    for record in matching(records, valid=True):
        group = pooled.setdefault((record.identity, record.target), {})
        group.setdefault((record.host, record.candidate), []).append(record)
    found = []
    for group in pooled.values():
        fastest = sorted(map(_pool, group.values()), key=lambda each: each[1])[:count]
        found += [Ranked(i, *each) for i, each in enumerate(fastest, start=1)]
    return found


def _pool(records: Sequence[Record]) -> tuple[Record, float, int]:
    """The last record, the median of all repeats and their number."""
    timed = [record for record in records if not record.cut] or records
    repeats = [seconds for record in timed for seconds in record.repeats]
    return timed[-1], statistics.median(repeats), len(repeats)


def prune(
    records: Sequence[Record],
    *,
    failures: bool = False,
    duplicates: bool = False,
    best: int | None = None,
) -> list[int]:
    """Which records to keep, as positions in their order.

    Args:
        records: All records of a store: what was found wrong in one is not kept in another.
        failures: Drop failures, and the timings of what was found wrong later.
        duplicates: Keep one record for each candidate on each host: the verdict `wrong` if there is
            one, else the last timing that was not cut short, else the last timing, else the last.
        best: Keep the records of the so many fastest candidates of each workload and target only.

    Raises:
        ValueError: nothing is asked for, or fewer than one is to be kept.
    """
    if not (failures or duplicates or best is not None):
        raise ValueError("say what to drop: --failures, --duplicates or --best N")
    kept = list(range(len(records)))
    if best is not None:
        winners = {(program_of(r.record), r.record.host) for r in rank(records, best)}
        kept = [i for i in kept if (program_of(records[i]), records[i].host) in winners]
    if failures or best is not None:
        wrong = found_wrong(records)
        kept = [i for i in kept if records[i].valid and program_of(records[i]) not in wrong]
    if duplicates:
        chosen: dict[tuple[Program, str], int] = {}
        for i in kept:
            key = (program_of(records[i]), records[i].host)
            if key not in chosen or _worth(records[i]) >= _worth(records[chosen[key]]):
                chosen[key] = i
        kept = sorted(chosen.values())
    return kept


def _worth(record: Record) -> int:
    if record.failure == "wrong":
        return 3
    return 2 - record.cut if record.valid else 0
