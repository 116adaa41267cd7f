"""Draft, verify, pick: from a strategy's proposals to the next batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from ..data.candidate import Candidate, InvalidCandidate
from ..data.host import usable_cpus
from ..data.space import Scheduled, Space
from .base import Strategy, Trial
from .batch import select
from .scoring import NoScorer, Scorer

_T = TypeVar("_T")
_R = TypeVar("_R")

# A strategy is asked again for what was illegal or tried before, so often at most, and not after
# as many rounds in a row that brought nothing.
_PATIENCE = 5
_IDLE = 2
# And then the space is taken for used up when so many draws in a row bring nothing.
_DRAWS = 50
# Where something is known before the first trial: how much of a usual batch the first one is, how
# much of it is drawn at random, and from how many times as many drafts the rest is picked. Were
# what is known misleading, what it picks would be lost, and there would be nothing to judge it by.
_FIRST = 0.5
_UNPICKED = 0.5
_WIDER = 2
# Not worth threads.
_FEW = 4


class Proposer:
    """Proposes batches, and learns what came of them. Never measures.

    Args:
        space: Where to search.
        strategy: What proposes drafts.
        scorer: What scores candidates; by default nothing does.
        drafts: Candidates that the strategy is asked for, for each one of a batch: these are
            replayed, scored as programs, and the batch is picked from them.
        epsilon: Share of a batch that is drawn at random.
        diversity: Weight of decision values that the batch does not have yet, against scores.
        seed: Seed of these draws; the strategy has its own.
        informed: Whether the scorer knows something before the first trial. Then the first batch is
            half as large as the others, one half of it is picked by the scores, from twice as many
            drafts, and the other, drawn at random, shows whether they are any good. Where they turn
            out to be misleading the second batch is drawn at random, as the first one is of a run
            that knows nothing: of half a batch, with what misled in it, too little was learnt.
        program: What tells programs apart; by default their candidates do. Some decisions change
            nothing, so that several candidates are one program, which is tried once then.
    """

    def __init__(
        self,
        space: Space,
        strategy: Strategy,
        *,
        scorer: Scorer | None = None,
        drafts: int = 3,
        epsilon: float = 0.05,
        diversity: float = 0.1,
        seed: int = 0,
        informed: bool = False,
        program: Callable[[Scheduled], Hashable] | None = None,
    ) -> None:
        self.space = space
        self.strategy = strategy
        self.scorer = scorer or NoScorer()
        self.drafts = drafts if scorer is not None else 1
        self.epsilon = epsilon
        self.diversity = diversity
        self.invalid = 0
        self.seconds = {"search": 0.0, "model": 0.0}
        self._rng = np.random.default_rng([seed, 1])  # the strategy's own starts from the seed
        self._program = program
        self._tried: set[Hashable] = set()
        self._informed = informed and scorer is not None

    def propose(self, n: int) -> list[Scheduled]:
        """Up to `n` legal candidates that were never tried, canonical, the best first."""
        start = time.monotonic()
        before = self.seconds["model"]
        batch = self._batch(n)
        self.seconds["search"] += time.monotonic() - start - (self.seconds["model"] - before)
        return batch

    def _batch(self, n: int) -> list[Scheduled]:
        # Before anything was learnt one draft is as good as another, and replaying is not free.
        drafts, epsilon = self.drafts, self.epsilon
        if not self._tried:
            drafts = 1
            if self._informed:
                n = max(1, round(_FIRST * n))
                drafts, epsilon = self.drafts * _WIDER, max(epsilon, _UNPICKED)
        elif self._informed:
            self._informed = False
            if self.scorer.misled:
                drawn: dict[Hashable, Scheduled] = {}
                self._fill(drawn, n)
                return list(drawn.values())
        drafted = self._draft(n * drafts, at_least=n)
        return drafted[:n] if drafts == 1 else self._pick(drafted, n, epsilon)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn what came of candidates, failures included; they are not proposed again."""
        if self._program is None:
            self._tried.update(trial.candidate for trial in trials)
        else:
            replayed = [self.space.schedule(trial.candidate) for trial in trials]
            self._tried.update(map(self._program, replayed))
        start = time.monotonic()
        self.strategy.tell(trials)
        self.seconds["search"] += time.monotonic() - start
        self._timed(self.scorer.learn, trials)

    def _pick(self, drafted: list[Scheduled], n: int, epsilon: float) -> list[Scheduled]:
        """The batch: the drafts that verify best, unlike one another, and a few random ones."""
        found = len(drafted)
        fresh = self.space.sample(self._rng, 1 + int(epsilon * n))
        drafted = list(self._add(fresh, {self._key(one): one for one in drafted}).values())
        if not drafted:
            return []
        candidates = [one.candidate for one in drafted]
        picked = select(
            candidates,
            self._timed(self.scorer.verify, drafted),
            self.space.encode(candidates),
            n,
            self._rng,
            epsilon=epsilon,
            diversity=self.diversity,
            fresh=range(found, len(candidates)),
        )
        return [drafted[i] for i in picked]

    def _draft(self, n: int, at_least: int) -> list[Scheduled]:
        """Ask the strategy, and replay what it proposes."""
        drafted: dict[Hashable, Scheduled] = {}
        idle = 0
        for _ in range(_PATIENCE):
            before = len(drafted)
            asked = self.strategy.ask(
                n - len(drafted), lambda found: self._timed(self.scorer.draft, found)
            )
            self._add(asked, drafted)
            idle = 0 if len(drafted) > before else idle + 1
            if len(drafted) >= at_least or not asked or idle == _IDLE:
                break
        self._fill(drafted, at_least)
        return list(drafted.values())

    def _fill(self, drafted: dict[Hashable, Scheduled], n: int) -> None:
        """Draw at random what the strategy did not find: in a small space little is left."""
        idle = 0
        n = int(min(n, max(0.0, self.space.size - len(self._tried))))
        while len(drafted) < n and idle < _DRAWS:
            before = len(drafted)
            self._add(self.space.sample(self._rng, 1), drafted)
            idle = 0 if len(drafted) > before else idle + 1

    def _add(
        self, candidates: Sequence[Candidate], drafted: dict[Hashable, Scheduled]
    ) -> dict[Hashable, Scheduled]:
        """Replay candidates, and add those that are legal and new."""
        for scheduled in self._replayed(candidates):
            if scheduled is None:
                self.invalid += 1
                continue
            key = self._key(scheduled)
            if key not in self._tried:
                drafted.setdefault(key, scheduled)
        return drafted

    def _replayed(self, candidates: Sequence[Candidate]) -> Iterator[Scheduled | None]:
        """Replay candidates, in their order; None for an illegal one.

        A replay is nearly all TVM's own code, which other threads of Python can run beside.
        """
        if len(candidates) < _FEW or not getattr(self.space, "concurrent", False):
            yield from map(self._replay, candidates)
            return
        with ThreadPoolExecutor(len(usable_cpus())) as threads:
            yield from threads.map(self._replay, candidates)

    def _replay(self, candidate: Candidate) -> Scheduled | None:
        try:
            return self.space.schedule(candidate)
        except InvalidCandidate:
            return None

    def _key(self, scheduled: Scheduled) -> Hashable:
        return scheduled.candidate if self._program is None else self._program(scheduled)

    def _timed(self, work: Callable[[_T], _R], argument: _T) -> _R:
        """Call the model, and count the seconds as its own."""
        start = time.monotonic()
        try:
            return work(argument)
        finally:
            self.seconds["model"] += time.monotonic() - start
