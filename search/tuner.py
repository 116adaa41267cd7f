"""The one loop: ask, check, measure, store, tell. The only place that spends budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..data.candidate import Candidate
from ..data.measure import Measurer
from ..data.record import Record
from ..data.space import Space
from ..data.store import Store
from .base import Strategy, Trial
from .proposer import Proposer
from .scoring import Scorer


@dataclass(frozen=True)
class Budget:
    """When to stop: whichever ends first.

    Attributes:
        trials: Candidates handed to the measurer, failures included.
        seconds: Wall-clock since tuning began (earlier sessions of a resumed run included). It is
            looked at between batches.
    """

    trials: int
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, not {self.trials}")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"seconds must be above 0, not {self.seconds}")


@dataclass
class Status:
    """How far a run is, for whoever shows it.

    Attributes:
        budget: What it may spend.
        trials: Trials so far.
        best: The fastest valid record so far.
        failures: Failures by kind.
        elapsed_s: Wall-clock so far.
        seconds: Where it went: `search` and `model` here, the rest by the measurer.
    """

    budget: Budget
    trials: int = 0
    best: Record | None = None
    failures: Counter[str] = field(default_factory=Counter)
    elapsed_s: float = 0.0
    seconds: dict[str, float] = field(default_factory=lambda: {"search": 0.0, "model": 0.0})

    def count(self, record: Record) -> None:
        """Take a record in."""
        if record.failure is not None:
            self.failures[record.failure] += 1
        if record.failure != "invalid":
            self.trials += 1
        if record.valid and (self.best is None or record.latency_s < self.best.latency_s):
            self.best = record


OnStatus = Callable[[Status], None]


class Tuner:
    """Runs a strategy over a space until the budget is spent.

    A resumed run repeats the run from its start with the stored records in place of measurements,
    so the strategy ends up in the very state it was killed in, and goes on from there.

    Args:
        space: Where to search.
        strategy: What proposes.
        measurer: What measures.
        store: Where every record goes before the next batch starts; None keeps them in memory.
        budget: When to stop.
        scorer: What scores candidates; by default nothing does.
        informed: Whether the scorer may know something before the first trial.
        batch: Trials between two calls of the strategy.
        drafts: Candidates that the strategy is asked for, for each one that is measured: these are
            replayed, scored as programs, and the batch is picked from them.
        epsilon: Share of a batch that is drawn at random from the drafts.
        diversity: Weight of decision values that the batch does not have yet, against scores.
        seed: The run's seed, for the records.
        stored: Records of this run from before it was interrupted.
        spent_s: Seconds that they took.
        on_status: Called after every trial.
        ready: Called before anything is measured; it may wait.
    """

    def __init__(
        self,
        space: Space,
        strategy: Strategy,
        measurer: Measurer,
        store: Store | None,
        budget: Budget,
        *,
        scorer: Scorer | None = None,
        informed: bool = False,
        batch: int = 16,
        drafts: int = 3,
        epsilon: float = 0.05,
        diversity: float = 0.1,
        seed: int = 0,
        stored: Sequence[Record] = (),
        spent_s: float = 0.0,
        on_status: OnStatus | None = None,
        ready: Callable[[], object] | None = None,
    ) -> None:
        self.space = space
        self.strategy = strategy
        self.measurer = measurer
        self.store = store
        self.batch = batch
        self.seed = seed
        self.proposer = Proposer(
            space,
            strategy,
            scorer=scorer,
            informed=informed,
            drafts=drafts,
            epsilon=epsilon,
            diversity=diversity,
            seed=seed,
        )
        self.records: list[Record] = []
        self.status = Status(budget)
        self._left = {record.candidate: record for record in stored}
        self._spent_s = spent_s
        self._on_status = on_status
        self._ready = ready
        self._batches = 0
        self._illegal = 0

    def run(self) -> list[Record]:
        """Tune; every record of the run, stored ones included, in the order they were told."""
        began = time.monotonic() - self._spent_s
        while not self._spent(began):
            wanted = min(self.batch, self.status.budget.trials - self.status.trials)
            batch = self._propose(wanted)
            if not batch:
                break
            fresh = any(candidate not in self._left for candidate in batch)
            if fresh and not self._left.keys() <= set(batch):
                # The settings have changed: what is left of the old run won't be proposed again.
                self._take_in(list(self._left.values()))
                continue
            self._run_batch(batch, began)
        if self._left:
            self._take_in(list(self._left.values()))
        return self.records

    def _spent(self, began: float) -> bool:
        self.status.elapsed_s = time.monotonic() - began
        budget = self.status.budget
        late = budget.seconds is not None and self.status.elapsed_s >= budget.seconds
        return self.status.trials >= budget.trials or (late and not self._left)

    def _propose(self, n: int) -> list[Candidate]:
        """Up to `n` canonical, legal candidates that were never tried."""
        batch = [scheduled.candidate for scheduled in self.proposer.propose(n)]
        illegal = self.proposer.invalid - self._illegal
        if illegal:
            self.status.failures["invalid"] += illegal
        self._illegal += illegal
        self.status.seconds.update(self.proposer.seconds)
        return batch

    def _run_batch(self, batch: Sequence[Candidate], began: float) -> None:
        known = [self._left[c] for c in batch if c in self._left]
        for record in known:
            self._note(record, began)
        fresh = [candidate for candidate in batch if candidate not in self._left]

        def keep(record: Record) -> None:
            record = self._sign(record)
            if self.store is not None and record.failure != "invalid":
                self.store.append([record])
            measured[record.candidate] = record
            self._note(record, began)

        measured: dict[Candidate, Record] = {}
        if self._ready is not None:
            self._ready()
        self.measurer.measure(self.space, fresh, keep)
        self._take_in([self._left.get(c) or measured[c] for c in batch], noted=True)
        self._batches += 1

    def _sign(self, record: Record) -> Record:
        return replace(record, seed=self.seed, batch=self._batches, strategy=self.strategy.name)

    def _note(self, record: Record, began: float) -> None:
        self.status.count(record)
        self.status.elapsed_s = time.monotonic() - began
        if self._on_status is not None:
            self._on_status(self.status)

    def _take_in(self, records: Sequence[Record], noted: bool = False) -> None:
        """Tell the strategy, and count what was not counted yet."""
        for record in records:
            if not noted:
                self.status.count(record)
            self._left.pop(record.candidate, None)
            self.records.append(record)
        self.proposer.tell([Trial(record.candidate, record) for record in records])
        self.status.seconds.update(self.proposer.seconds)
