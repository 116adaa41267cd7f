"""The strategies under test, spaces to search and scores to follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.record import Record
from tensortune.data.replay import ReplayMeasurer
from tensortune.data.space import Scheduled
from tensortune.search.annealing import SimulatedAnnealing
from tensortune.search.base import Score, Strategy, Trial
from tensortune.search.beam import BeamSearch
from tensortune.search.evolution import Evolution
from tensortune.search.random_search import RandomSearch
from tensortune.search.tuner import Budget, Tuner

from .synthetic import SyntheticSpace

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StrategyCase:
    """A strategy under test.

    Attributes:
        make: Builds it from a space, a seed and options.
        guided: Whether it follows the scores.
        options: Each option with a value that is not its default.
    """

    make: Callable[..., Strategy]
    guided: bool = True
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "random": StrategyCase(RandomSearch, guided=False),
    "annealing": StrategyCase(
        SimulatedAnnealing,
        options={
            "chains": 7,
            "steps": 5,
            "start_temperature": 0.01,
            "patience": 1,
            "measured": 0.0,
            "guesses": 100,
            "wide": 0.0,
            "start": (Candidate(SyntheticSpace.name, (4, 5, 3, 3, 1, 2)),),
        },
    ),
    "beam": StrategyCase(
        BeamSearch,
        options={
            "width": 5,
            "branching": 2,
            "depth": 2,
            "measured": 0.0,
            "guesses": 100,
            "wide": 0.0,
        },
    ),
    "evolution": StrategyCase(
        Evolution,
        options={
            "population": 11,
            "generations": 2,
            "mutation": 0.2,
            "elite": 0.0,
            "measured": 0.0,
            "guesses": 100,
            "wide": 0.0,
        },
    ),
}
GUIDED = [name for name, case in CASES.items() if case.guided]


class TinySpace:
    """A handful of candidates, each a neighbour of each."""

    name = "tiny"

    def __init__(self, size: int) -> None:
        self.size = float(size)
        self._count = size

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        return [_tiny(int(i)) for i in rng.integers(self._count, size=n)]

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        return self.sample(rng, n)

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        return self.sample(rng, len(candidates))

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        return a if rng.random() < 0.5 else b

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        return np.array([c.point for c in candidates], dtype=np.float32).reshape(-1, 1)

    def schedule(self, candidate: Candidate) -> Scheduled:
        return Scheduled(candidate, None, None)

    def table(self) -> list[Record]:
        return [
            Record(
                workload="tiny",
                identity="tiny",
                target="tiny",
                host="host",
                candidate=_tiny(i),
                repeats=(1.0 + i,),
            )
            for i in range(self._count)
        ]


def _tiny(i: int) -> Candidate:
    return Candidate("tiny", (i,))


class Oracle:
    """A scorer that knows the latencies; for an illegal candidate it has no idea."""

    informed = True
    misled = False

    def __init__(self, space: SyntheticSpace | TinySpace) -> None:
        self.space = space
        self._known: dict[Candidate, float] = {}

    def draft(self, candidates: Sequence[Candidate]) -> Scores:
        for candidate in candidates:
            if candidate not in self._known:
                self._known[candidate] = self._score(candidate)
        return np.array([self._known[candidate] for candidate in candidates])

    def verify(self, scheduled: Sequence[Scheduled]) -> Scores:
        return self.draft([item.candidate for item in scheduled])

    def learn(self, trials: Sequence[Trial]) -> None:
        pass

    def _score(self, candidate: Candidate) -> float:
        if not isinstance(self.space, SyntheticSpace):
            return -float(candidate.point[0])  # type: ignore[arg-type]
        try:
            latency_s = self.space.latency(candidate)
        except InvalidCandidate:
            return 0.0  # far below all others: -log of 1 second
        return -math.log(min(latency_s, 1.0))


def flat(candidates: Sequence[Candidate]) -> Scores:
    return np.zeros(len(candidates))


SPACE = SyntheticSpace()
ORACLE = Oracle(SPACE)
SCORES: dict[str, Score] = {"flat": flat, "oracle": ORACLE.draft}


def trials_of(candidates: Sequence[Candidate]) -> list[Trial]:
    """What a measurer would say of the legal ones."""
    found: dict[Candidate, Trial] = {}
    for candidate in candidates:
        try:
            record = SPACE.record(candidate)
        except InvalidCandidate:
            continue
        found[record.candidate] = Trial(record.candidate, record)
    return list(found.values())


def proposals(strategy: Strategy, score: Score, batches: int = 3, n: int = 16) -> list[Candidate]:
    """Some batches, the first one without a score, as in a run."""
    found: list[Candidate] = []
    for batch in range(batches):
        asked = strategy.ask(n, score if batch else flat)
        strategy.tell(trials_of(asked))
        found += asked
    return found


def tuned(
    strategy: Strategy, measurer: ReplayMeasurer, trials: int, *, seed: int = 0, **options: Any
) -> list[Record]:
    return Tuner(
        SPACE, strategy, measurer, None, Budget(trials), batch=8, seed=seed, **options
    ).run()
