"""How far a collection is, and what it came to."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..data.families import family_of
from ..data.record import Record
from ..data.spaces import SPACES
from ..data.store import Store
from ..data.workload import Workload
from .collect_folder import CollectFolder
from .collect_plan import AGAIN


@dataclass
class Progress:
    """How far a collection is, for whoever shows it.

    Attributes:
        wanted: Records it is to have.
        held: Records it has.
        new: Records measured in this session.
        elapsed_s: Seconds since the session began.
        workload: Key of the workload whose turn it is.
        round: Number of the round.
        turn: Records measured in this turn.
        failures: Failures of this turn, by kind.
        best_s: The fastest of this turn; infinity before there is one.
        ended: Whether the turn has ended.
    """

    wanted: int
    held: int = 0
    new: int = 0
    elapsed_s: float = 0.0
    workload: str = ""
    round: int = 0
    turn: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    best_s: float = float("inf")
    ended: bool = False

    @property
    def rate(self) -> float:
        """Records a second in this session."""
        return self.new / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds left at this rate; None before there is any."""
        return (self.wanted - self.held) / self.rate if self.new else None


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Collected:
    """What a session of collecting came to.

    Attributes:
        wanted: Records that were wanted: in all, or to be measured a second time.
        held: Of these, how many there are.
        new: Records measured in this session.
        late: Whether it stopped because its hours were over.
        elapsed_s: Seconds of this session.
        spent_s: Seconds of all sessions of this folder.
        seconds: Where this session's went: `setup`, `compile`, `time`, `model`, `search`.
        failed: What gave no records, or fewer than it should, and why.
        problems: Lines of the stores that hold no record.
    """

    wanted: int
    held: int
    new: int
    late: bool
    elapsed_s: float
    spent_s: float
    seconds: dict[str, float]
    failed: dict[str, str]
    problems: list[str]


class Session:
    """One run of a collector over a folder that it has claimed.

    Args:
        folder: The folder.
        target: The target.
        wanted: Records that are wanted.
        held: Records that are there already.
        hours: When to stop, in hours from now.
        on_progress: Called after every record, and when a turn begins and ends.
    """

    def __init__(
        self,
        folder: CollectFolder,
        target: Any,
        wanted: int,
        held: int = 0,
        hours: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        if hours is not None and not hours > 0:
            raise ValueError(f"hours must be above 0, not {hours}")
        self.folder = folder
        self.target = target
        self.seconds: dict[str, float] = {}
        self.progress = Progress(wanted, held)
        self._on_progress = on_progress
        self._hours = hours
        self._began = time.monotonic()
        self._saved_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self._began

    @property
    def left_s(self) -> float | None:
        """Seconds until it is to stop, or None when that is not set."""
        return None if self._hours is None else 3600 * self._hours - self.elapsed_s

    @property
    def late(self) -> bool:
        """Whether it is to stop."""
        left_s = self.left_s
        return left_s is not None and left_s <= 0

    def store(self, workload: Workload) -> Store:
        """The store of a workload; what is appended counts as progress."""
        return _NotingStore(self.folder.store(workload.key), self._note)

    def begin_turn(self, workload: Workload, number: int) -> None:
        """Show whose turn it is."""
        progress = self.progress
        progress.workload, progress.round, progress.turn = workload.key, number, 0
        progress.failures, progress.best_s, progress.ended = Counter(), float("inf"), False
        self._show()

    def end_turn(self) -> None:
        """Show what the turn came to, and save the seconds."""
        self.progress.ended = True
        self._show()
        self.save()

    def spend(self, part: str, seconds: float) -> None:
        """Count seconds as those of a part."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Count the seconds of a context as those of a part."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spend(part, time.monotonic() - began)

    def save(self) -> None:
        """Add the seconds since the last time to the folder's."""
        now_s = self.elapsed_s
        self.folder.spend(now_s - self._saved_s)
        self._saved_s = now_s

    def collected(self) -> Collected:
        """What it came to."""
        return Collected(
            wanted=self.progress.wanted,
            held=self.progress.held,
            new=self.progress.new,
            late=self.late and self.progress.held < self.progress.wanted,
            elapsed_s=self.elapsed_s,
            spent_s=self.folder.spent_s,
            seconds=dict(self.seconds),
            failed=dict(self.folder.failed),
            problems=list(dict.fromkeys(self.folder.problems)),
        )

    def _note(self, record: Record) -> None:
        progress = self.progress
        progress.held += 1
        progress.new += 1
        progress.turn += 1
        progress.best_s = min(progress.best_s, record.latency_s)
        if record.failure is not None:
            progress.failures[record.failure] += 1
        self._show()

    def _show(self) -> None:
        self.progress.elapsed_s = self.elapsed_s
        if self._on_progress is not None:
            self._on_progress(self.progress)


class _NotingStore(Store):
    """A store that tells of each record when it is on the disk."""

    def __init__(self, store: Store, on_record: Callable[[Record], None]) -> None:
        super().__init__(store.path)
        self._on_record = on_record

    def append(self, records: Iterable[Record]) -> None:
        """See `Store.append`."""
        records = list(records)
        super().append(records)
        for record in records:
            self._on_record(record)


def summarise_folder(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `summarise` says of all stores of a collection's folder."""
    return summarise(CollectFolder(path).every_record())


def summarise(records: Iterable[Record]) -> dict[str, Any]:
    """Counts of records: in all, by space, by strategy, by failure, and by family."""
    families: dict[str, Counter[str]] = {}
    workloads: dict[str, set[str]] = {}
    spaces, strategies, failures = Counter[str](), Counter[str](), Counter[str]()
    again = cut = 0
    for record in records:
        if record.strategy == AGAIN:
            again += 1
            continue
        family = family_of(record.workload)
        workloads.setdefault(family, set()).add(record.workload)
        kind = record.failure or "valid"
        families.setdefault(family, Counter()).update((record.candidate.space, kind))
        spaces[record.candidate.space] += 1
        strategies[record.strategy] += 1
        cut += record.cut
        if record.failure is not None:
            failures[record.failure] += 1
    return {
        "records": sum(spaces.values()),
        "again": again,
        "workloads": sum(map(len, workloads.values())),
        "cut": cut,
        "spaces": dict(spaces),
        "strategies": dict(strategies),
        "failures": dict(failures),
        "families": {
            family: {
                "workloads": len(workloads[family]),
                "records": sum(counts[space] for space in SPACES),
                **counts,
            }
            for family, counts in sorted(families.items())
        },
    }
