"""What annealing and evolution share: an ask that follows a score, and what it remembers."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle, islice

import numpy as np
import numpy.typing as npt

from ..data.candidate import Candidate
from ..data.space import Space
from .base import Score, Trial

Scores = npt.NDArray[np.float64]

# A space is taken for exhausted when this many draws in a row bring nothing new.
_PATIENCE = 100
# A candidate that was proposed as often and never came back measured is left alone: it is illegal,
# or another candidate's schedule in other words. Fewer would lose the drafts that just missed their
# batch and that the next one may want.
_CHANCES = 3
# Random candidates whose scores tell what a large difference is.
_YARDSTICK = 32


class Memory:
    """Which candidates were told, and which proposed.

    What was told is never proposed again. What was proposed is not proposed again before the next
    `tell`, and after that a few times only.
    """

    def __init__(self) -> None:
        self._latencies: dict[Candidate, float] = {}
        self._pending: set[Candidate] = set()
        self._proposed: Counter[Candidate] = Counter()

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in what was measured."""
        self._pending.clear()
        for trial in trials:
            record = trial.record
            self._latencies[trial.candidate] = record.latency_s if record.valid else math.inf
            self._proposed.pop(trial.candidate, None)

    def propose(self, candidates: Sequence[Candidate]) -> None:
        """Note what is being proposed."""
        self._pending.update(candidates)
        self._proposed.update(candidates)

    def is_new(self, candidate: Candidate) -> bool:
        """Whether it was neither told nor proposed since the last `tell`."""
        return candidate not in self._latencies and candidate not in self._pending

    def is_welcome(self, candidate: Candidate) -> bool:
        """Whether it is new, and was not proposed in vain too often."""
        return self.is_new(candidate) and self._proposed[candidate] < _CHANCES

    def best(self, n: int) -> list[Candidate]:
        """The `n` fastest measured candidates, the fastest first."""
        valid = [(s, i, c) for i, (c, s) in enumerate(self._latencies.items()) if s < math.inf]
        return [candidate for _, _, candidate in heapq.nsmallest(n, valid)]


class Frontier:
    """The best distinct candidates among all that were offered.

    Args:
        capacity: How many are kept.
        admits: Which candidates may enter.
    """

    def __init__(self, capacity: int, admits: Callable[[Candidate], bool]) -> None:
        self.capacity = capacity
        self._admits = admits
        self._heap: list[tuple[float, int, Candidate]] = []
        self._held: set[Candidate] = set()
        self._offers = 0

    def offer(self, candidates: Sequence[Candidate], scores: Scores) -> bool:
        """Take in those that are better than the worst one kept; whether there were any."""
        entered = False
        if self.capacity < 1:
            return False
        floor = self._heap[0][0] if len(self._heap) == self.capacity else -math.inf
        for i in np.flatnonzero(scores > floor).tolist():
            candidate, score = candidates[i], float(scores[i])
            full = len(self._heap) == self.capacity
            if full and score <= self._heap[0][0]:
                continue
            if candidate in self._held or not self._admits(candidate):
                continue
            self._offers += 1
            entry = (score, -self._offers, candidate)  # among equals the earlier one is kept
            if full:
                self._held.discard(heapq.heapreplace(self._heap, entry)[2])
            else:
                heapq.heappush(self._heap, entry)
            self._held.add(candidate)
            entered = True
        return entered

    def ranked(self) -> list[tuple[float, Candidate]]:
        """What is kept, with its scores, the best first."""
        return [(score, candidate) for score, _, candidate in sorted(self._heap, reverse=True)]


def draw_new(
    space: Space,
    rng: np.random.Generator,
    n: int,
    is_new: Callable[[Candidate], bool],
) -> list[Candidate]:
    """Draw `n` distinct new candidates at random; fewer when the space seems to have no more."""
    drawn: dict[Candidate, None] = {}
    idle = 0
    while len(drawn) < n and idle < _PATIENCE:
        wanted = n - len(drawn)
        idle += wanted
        for candidate in space.sample(rng, wanted):
            if candidate not in drawn and is_new(candidate):
                drawn[candidate] = None
                idle = 0
    return list(drawn)


def finite_scores(score: Score, candidates: Sequence[Candidate]) -> Scores:
    """Score candidates; one without a finite score gets the lowest of the others."""
    scores = np.asarray(score(candidates), dtype=np.float64)
    finite = np.isfinite(scores)
    if finite.all():
        return scores
    return np.where(finite, scores, scores[finite].min() if finite.any() else 0.0)


def best_distinct(states: list[Candidate], scores: Scores, n: int) -> list[int]:
    """Indices of the `n` best states, each candidate once."""
    chosen: dict[Candidate, int] = {}
    for i in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) >= n:
            break
        chosen.setdefault(states[i], i)
    return list(chosen.values())


class GuidedSearch(ABC):
    """A strategy that walks the space by the model's scores, many candidates at a time.

    While all scores are equal (no model yet) there is nothing to follow, and candidates are drawn
    at random. Otherwise every ask looks wide and near. Wide: a share of the proposals are the best
    of many random candidates. Near: the others are the best of a walk, which starts from these,
    from where the walk before ended, and from the fastest measured candidates.

    A walk alone finds what a model of few trials overrates: far from all that was measured its
    errors add up. The best of a few thousand random candidates are overrated by less (see
    `docs/models.md`).

    Args:
        space: Where to search.
        seed: Seed of all draws.
        width: Candidates that walk side by side.
        measured: Share of them that starts from the fastest measured candidates.
        guesses: Random candidates that are scored in each ask.
        wide: Share of the proposals that are the best of these.
        start: Candidates from elsewhere: they are proposed before any at random, and the first walk
            starts from them as well.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        width: int,
        measured: float,
        guesses: int,
        wide: float,
        start: Sequence[Candidate] = (),
    ) -> None:
        if width < 1:
            raise ValueError(f"at least 1 candidate has to walk, not {width}")
        if not 0 <= measured <= 1:
            raise ValueError(f"measured is a share from 0 to 1, not {measured}")
        if guesses < 0:
            raise ValueError(f"guesses has to be 0 or more, not {guesses}")
        if not 0 <= wide <= 1:
            raise ValueError(f"wide is a share from 0 to 1, not {wide}")
        self.space = space
        self.seed = seed
        self.measured = measured
        self.guesses = guesses
        self.wide = wide
        self.start = tuple(start)
        self._width = width
        self._unwalked = self.start
        self._rng = np.random.default_rng(seed)
        self._memory = Memory()
        self._states: list[Candidate] = []
        self._yardstick: list[Candidate] = []

    def ask(self, n: int, score: Score) -> list[Candidate]:
        """The `n` best new candidates of a walk, and random ones where it finds too few."""
        found: list[Candidate] = []
        if n < 1:
            return found
        if not self._yardstick:
            found = self._draw(n, found)
            self._note_random(found)
        known = [*self._yardstick, *self._states]
        scores = finite_scores(score, known) if known else np.empty(0)
        if known and np.ptp(scores) > 0:
            spread = float(np.std(scores[: len(self._yardstick)])) or float(np.std(scores))
            found = self._guided(n, score, scores[len(self._yardstick) :], spread)
            found += self._draw(n - len(found), found)
        else:
            if not found:
                found = self._draw(n, found)
                self._note_random(found)
            welcome = filter(self._memory.is_welcome, self.start)
            found = list(dict.fromkeys([*welcome, *found]))[:n]
        self._memory.propose(found)
        return found

    def tell(self, trials: Sequence[Trial]) -> None:
        """Remember what was measured."""
        self._memory.tell(trials)

    @abstractmethod
    def _walk(
        self, states: list[Candidate], scores: Scores, score: Score, top: Frontier, spread: float
    ) -> list[Candidate]:
        """Walk from the states, offer what is met to `top`, and return where the walk ends.

        Args:
            states: Where to start; to be kept or changed.
            scores: Their scores.
            score: Scores candidates.
            top: Takes the best, the states themselves included.
            spread: What a large difference of scores is: their standard deviation over random
                candidates, above 0.
        """

    def _guided(self, n: int, score: Score, scores: Scores, spread: float) -> list[Candidate]:
        guesses = self.space.guess(self._rng, self.guesses)
        guessed = finite_scores(score, guesses) if guesses else np.empty(0)
        wide = Frontier(round(n * self.wide), self._memory.is_welcome)
        wide.offer(guesses, guessed)
        found = wide.ranked()
        taken = {candidate for _, candidate in found}
        top = Frontier(n - len(found), lambda c: c not in taken and self._memory.is_welcome(c))
        best = self._memory.best(round(self.measured * self._width))
        best = [*best, *self._unwalked][: self._width]
        self._unwalked = ()
        known = self._states + guesses
        ranked = np.argsort(-np.concatenate([scores, guessed]), kind="stable")
        starts = best + [known[i] for i in ranked[: self._width - len(best)]]
        states = list(islice(cycle(starts), self._width))
        at_start = finite_scores(score, states)
        top.offer(states, at_start)
        self._states = self._walk(states, at_start, score, top, spread)
        return [c for _, c in sorted(top.ranked() + found, key=lambda pair: -pair[0])]

    def _draw(self, n: int, found: Sequence[Candidate]) -> list[Candidate]:
        taken = set(found)
        memory = self._memory
        return draw_new(self.space, self._rng, n, lambda c: c not in taken and memory.is_new(c))

    def _note_random(self, drawn: Sequence[Candidate]) -> None:
        """Random candidates are the yardstick, and where walks start when there is a model."""
        self._yardstick = [*self._yardstick, *drawn][:_YARDSTICK]
        self._states = [*drawn, *self._states][: self._width]
