"""From the records of a run to a kernel that is fastest side by side, and right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..data.candidate import Candidate
from ..data.finals import Contestant, judge, time_interleaved
from ..data.measure import UNTUNED, LocalMeasurer
from ..data.record import Record
from ..data.space import Scheduled, Space
from ..data.verify import Reference
from ..data.worker import NumpyProgram

# How many of the fastest are timed again; the first timing's noise can hide the best behind them.
_FINALISTS = 4


@dataclass(frozen=True)
class Winner:
    """The kernel that a run ends with.

    Attributes:
        candidate: Its candidate; `UNTUNED` when no schedule is both right and faster.
        latency_s: Median seconds per run, interleaved with the others.
        untuned_s: The untuned program's, in the same minute.
        numpy_s: NumPy's, or None where it has no equivalent.
        checked: Whether its output was found right.
        checked_against: `float64`, or `untuned` where the program can't be computed in float64.
        wrong: Records of faster candidates whose output was wrong.
    """

    candidate: Candidate
    latency_s: float
    untuned_s: float
    numpy_s: float | None
    checked: bool
    checked_against: str
    wrong: tuple[Record, ...]


def choose_winner(
    measurer: LocalMeasurer, space: Space, reference: Reference, records: Sequence[Record]
) -> Winner:
    """Time the fastest records against each other, the untuned program and NumPy; check outputs.

    The fastest whose output is right wins. Candidates that are wrong come back as records.

    Args:
        measurer: Runs the programs.
        space: The space that the records are of.
        reference: What the outputs should be.
        records: The run's records.

    Raises:
        RuntimeError: the untuned program fails its own check.
    """
    wrong: list[Record] = []
    for group in _groups(records):
        finals = _time_finals(measurer, space, group)
        # All of them, not down to the first that is right: stored records are used again, by their
        # own times, so the fastest ones must not stay unchecked.
        verdicts = [judge(reference, contestant) for _, contestant in finals.ranking]
        known = {record.candidate: record for record in group}
        wrong += [
            replace(known[candidate], failure="wrong", detail=verdict.detail)
            for (candidate, _), verdict in zip(finals.ranking, verdicts, strict=True)
            if verdict.wrong and candidate in known
        ]
        for (candidate, contestant), verdict in zip(finals.ranking, verdicts, strict=True):
            if candidate == UNTUNED and group and any(v.wrong for v in verdicts):
                break  # the next group may hold a right one that beats it
            if verdict.right and contestant.times_s:
                return Winner(
                    candidate,
                    contestant.latency_s,
                    finals.untuned_s,
                    finals.numpy_s,
                    True,
                    reference.kind,
                    tuple(wrong),
                )
            if candidate == UNTUNED:
                raise RuntimeError(
                    f"the untuned program fails its own check: "
                    f"{contestant.failure or verdict.detail}"
                )
    raise RuntimeError("no program was right")  # unreachable: the untuned one is in the last group


@dataclass(frozen=True)
class _Finals:
    ranking: list[tuple[Candidate, Contestant]]
    untuned_s: float
    numpy_s: float | None


def _groups(records: Sequence[Record]) -> Iterator[list[Record]]:
    """The distinct valid records, fastest first, a few at a time; an empty group ends it."""
    best: dict[Candidate, Record] = {}
    for record in records:
        if record.valid:
            best[record.candidate] = record
        else:
            best.pop(record.candidate, None)
    ranked = sorted(best.values(), key=lambda record: record.latency_s)
    for start in range(0, len(ranked), _FINALISTS):
        yield ranked[start : start + _FINALISTS]
    yield []


def _time_finals(measurer: LocalMeasurer, space: Space, group: Sequence[Record]) -> _Finals:
    scheduled: list[Scheduled] = [space.schedule(record.candidate) for record in group]
    mods: dict[Candidate, Any] = {item.candidate: item.mod for item in scheduled}
    mods[UNTUNED] = measurer.workload.mod
    programs: list[Any] = [measurer.program(mod) for mod in mods.values()]
    workload = measurer.workload
    if workload.operator != "custom" and workload.numpy_call() is not None:
        programs.append(NumpyProgram(workload.key, measurer.inputs, measurer.memory_bytes))
    times = time_interleaved(measurer, programs, run=len(mods))
    entries = list(zip(mods, times[: len(mods)], strict=True))
    # Where the untuned program is slower than all of a group, it is not that group's to win: when
    # the others are wrong, the next group may hold a right one that beats it.
    ranking = sorted(entries, key=lambda entry: entry[1].latency_s)
    if group:
        while ranking and ranking[-1][0] == UNTUNED:
            ranking.pop()
    numpy_s = times[len(mods)].latency_s if len(times) > len(mods) else None
    return _Finals(ranking, dict(entries)[UNTUNED].latency_s, numpy_s)
