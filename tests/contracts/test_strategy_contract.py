"""What every search strategy keeps to. A new strategy is a new entry in CASES."""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.record import Record
from tensortune.data.replay import ReplayMeasurer
from tensortune.data.space import Scheduled
from tensortune.search.annealing import SimulatedAnnealing
from tensortune.search.base import Score, Strategy, Trial
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
        },
    ),
    "evolution": StrategyCase(
        Evolution,
        options={
            "population": 11,
            "generations": 2,
            "mutation": 0.2,
            "elite": 0.0,
            "pressure": 5.0,
            "measured": 0.0,
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


@pytest.fixture(scope="module")
def replay() -> ReplayMeasurer:
    return ReplayMeasurer(SPACE.table())


@pytest.fixture(params=sorted(CASES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def case(name: str) -> StrategyCase:
    return CASES[name]


@pytest.fixture(params=sorted(SCORES))
def score(request: pytest.FixtureRequest) -> Score:
    return SCORES[request.param]


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


def test_name(name: str, case: StrategyCase) -> None:
    assert case.make(SPACE, 0).name == name


@pytest.mark.parametrize("n", [0, 1, 5, 1000])
def test_as_many_as_asked_and_all_distinct(case: StrategyCase, score: Score, n: int) -> None:
    strategy = case.make(SPACE, 0)
    strategy.tell(trials_of(strategy.ask(8, flat)))
    asked = strategy.ask(n, score)
    assert len(asked) == len(set(asked)) == n
    for candidate in asked:
        assert candidate.space == SPACE.name
        SPACE.encode([candidate])


def test_what_was_told_does_not_come_again(case: StrategyCase, score: Score) -> None:
    strategy = case.make(SPACE, 0)
    told: set[Candidate] = set()
    for _ in range(6):
        asked = strategy.ask(16, score)
        assert told.isdisjoint(asked)
        trials = trials_of(asked)
        told.update(trial.candidate for trial in trials)
        strategy.tell(trials)


def test_what_others_measured_is_not_proposed(case: StrategyCase, score: Score) -> None:
    """A resumed run tells trials that this strategy did not propose."""
    fastest = sorted(SPACE.canonical(), key=SPACE.latency)[:500]
    strategy = case.make(SPACE, 0)
    strategy.tell(trials_of(fastest))
    assert set(fastest).isdisjoint(proposals(strategy, score))


def test_asked_again_before_it_is_told(case: StrategyCase, score: Score) -> None:
    strategy = case.make(SPACE, 0)
    strategy.tell(trials_of(strategy.ask(8, flat)))
    first, second = strategy.ask(16, score), strategy.ask(16, score)
    assert len(second) == 16
    assert set(first).isdisjoint(second)


def test_seed_makes_the_proposals(case: StrategyCase, score: Score) -> None:
    first = proposals(case.make(SPACE, 3), score)
    assert proposals(case.make(SPACE, 3), score) == first
    assert proposals(case.make(SPACE, 4), score) != first


def test_the_global_generator_is_left_alone(case: StrategyCase, score: Score) -> None:
    def state() -> list[int]:
        keys: list[int] = np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
        return keys

    before = state()
    proposals(case.make(SPACE, 3), score)
    assert state() == before


def test_inputs_are_left_alone(case: StrategyCase) -> None:
    given: list[tuple[Candidate, ...]] = []

    def watching(candidates: Sequence[Candidate]) -> Scores:
        assert len(candidates) > 0
        given.append(tuple(candidates))
        scores = ORACLE.draft(candidates)
        scores.flags.writeable = False
        return scores

    strategy = case.make(SPACE, 0)
    trials = trials_of(strategy.ask(16, flat))
    before = list(trials)
    strategy.tell(trials)
    assert trials == before
    strategy.ask(16, watching)
    assert bool(given) == case.guided


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_scores_that_are_no_numbers_are_survived(case: StrategyCase, strange: float) -> None:
    def score(candidates: Sequence[Candidate]) -> Scores:
        scores = ORACLE.draft(candidates)
        return np.where(SPACE.encode(candidates)[:, 0] == 3, strange, scores)

    def nothing(candidates: Sequence[Candidate]) -> Scores:
        return np.full(len(candidates), strange)

    for scored in (score, nothing):
        assert len(set(proposals(case.make(SPACE, 0), scored))) == 48


@pytest.mark.parametrize("trials", [1, 7, 40])
@pytest.mark.parametrize("scored", [False, True])
def test_a_tuners_budget_is_kept(
    case: StrategyCase, replay: ReplayMeasurer, trials: int, scored: bool
) -> None:
    """As many trials as paid for; all of them legal, canonical, and each one once."""
    records = tuned(case.make(SPACE, 0), replay, trials, scorer=ORACLE if scored else None)
    assert len(records) == trials
    tried = [record.candidate for record in records]
    assert len(set(tried)) == trials
    assert all(SPACE.schedule(candidate).candidate == candidate for candidate in tried)
    assert not any(record.failure == "invalid" for record in records)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_failed_measurements_are_survived(case: StrategyCase, share: float) -> None:
    rng = np.random.default_rng(0)
    table = [
        replace(record, repeats=(), failure="timeout") if rng.random() < share else record
        for record in SPACE.table()
    ]
    records = tuned(case.make(SPACE, 0), ReplayMeasurer(table), 40, scorer=ORACLE)
    assert len(records) == 40
    assert any(not record.valid for record in records)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("scored", [False, True])
def test_a_tiny_space_is_exhausted(case: StrategyCase, size: int, scored: bool) -> None:
    space = TinySpace(size)
    scorer = Oracle(space) if scored else None
    measurer = ReplayMeasurer(space.table())
    strategy = case.make(space, 0)
    records = Tuner(space, strategy, measurer, None, Budget(20), scorer=scorer, batch=2).run()
    assert sorted(record.candidate.point for record in records) == [(i,) for i in range(size)]
    assert strategy.ask(5, flat) == []


_RUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
from contracts.test_strategy_contract import CASES, ORACLE, SPACE, proposals
made = {name: proposals(case.make(SPACE, 5), ORACLE.draft) for name, case in CASES.items()}
print(json.dumps({name: [c.to_json() for c in found] for name, found in made.items()}))
"""


def test_seed_makes_the_proposals_in_another_process() -> None:
    tests = Path(__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", _RUN, str(tests)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for name, found in json.loads(run.stdout).items():
        mine = proposals(CASES[name].make(SPACE, 5), ORACLE.draft)
        assert [Candidate.from_json(item) for item in found] == mine


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name in CASES for option in CASES[name].options]
)
def test_every_option_takes_effect(name: str, option: str) -> None:
    case = CASES[name]
    value = case.options[option]
    default = proposals(case.make(SPACE, 0), ORACLE.draft)
    strategy = case.make(SPACE, 0, **{option: value})
    assert getattr(strategy, option) == value
    assert proposals(strategy, ORACLE.draft) != default


@pytest.mark.parametrize("name", GUIDED)
def test_every_option_is_under_test(name: str) -> None:
    arguments = set(inspect.signature(CASES[name].make).parameters)
    assert arguments - {"space", "seed"} == set(CASES[name].options)


@pytest.mark.parametrize("name", GUIDED)
def test_the_best_come_first(name: str) -> None:
    strategy = CASES[name].make(SPACE, 0)
    strategy.tell(trials_of(strategy.ask(16, flat)))
    scores = ORACLE.draft(strategy.ask(16, ORACLE.draft))
    assert np.all(np.diff(scores) <= 0)
    assert scores[0] > scores[-1]


@pytest.mark.parametrize("name", GUIDED)
def test_the_scale_of_scores_does_not_matter(name: str) -> None:
    # Powers of two, so that rounding is the same and equality exact.
    first = proposals(CASES[name].make(SPACE, 0), ORACLE.draft)
    for factor in (2.0**-20, 2.0**20):
        scaled = partial(_scaled, factor)
        assert proposals(CASES[name].make(SPACE, 0), scaled) == first


def _scaled(factor: float, candidates: Sequence[Candidate]) -> Scores:
    return factor * ORACLE.draft(candidates)


@pytest.mark.parametrize("name", GUIDED)
def test_equal_scores_make_it_a_random_search(name: str) -> None:
    """Fresh samples, and no walk: nothing is scored but what is known."""
    drawn = 0
    scored = 0

    class Counting(SyntheticSpace):
        def neighbours(
            self, candidates: Sequence[Candidate], rng: np.random.Generator
        ) -> list[Candidate]:
            raise AssertionError("there is nothing to follow")

        def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
            nonlocal drawn
            drawn += n
            return super().sample(rng, n)

    def counting(candidates: Sequence[Candidate]) -> Scores:
        nonlocal scored
        scored += len(candidates)
        return np.zeros(len(candidates))

    found = proposals(CASES[name].make(Counting(), 0), counting, batches=4)
    assert len(set(found)) == 64
    assert drawn < 80  # a few are drawn twice
    assert scored < 1000


def trials_to_top(records: Sequence[Record], latency_s: float) -> int:
    reached = (i for i, record in enumerate(records, 1) if record.latency_s <= latency_s)
    return next(reached, len(records) + 1)


@pytest.mark.parametrize("name", GUIDED)
def test_a_perfect_score_finds_the_top_sooner_than_chance(
    name: str, replay: ReplayMeasurer
) -> None:
    latencies = sorted(record.latency_s for record in SPACE.table() if record.valid)
    top = latencies[len(latencies) // 100]
    wins = 0
    for seed in range(10):
        chance = tuned(RandomSearch(SPACE, seed), replay, 96, seed=seed)
        guided = tuned(CASES[name].make(SPACE, seed), replay, 24, seed=seed, scorer=ORACLE)
        # A random search needs 69 trials for an even chance of the top 1%, and has one of 1 in 13
        # within 8: each seed is lost with that chance at most, so 9 of 10 are won in 83% of all
        # sets of seeds; these seeds are fixed.
        wins += trials_to_top(guided, top) * 3 <= max(trials_to_top(chance, top), 24)
    assert wins >= 9
