"""Annealing: chains that climb, cool, stop and go on."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.record import Record
from tensortune.search.annealing import SimulatedAnnealing
from tensortune.search.base import Trial

SIDE = 1000


class Line:
    """The numbers below a thousand, each beside the next; samples lie in the lowest tenth."""

    name = "line"
    size = float(SIDE)

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        return [point(int(i)) for i in rng.integers(SIDE // 10, size=n)]

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        return self.sample(rng, n)

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        steps = rng.integers(0, 2, size=len(candidates)) * 2 - 1
        moved = zip(candidates, steps.tolist(), strict=True)
        return [point(min(max(at(c) + step, 0), SIDE - 1)) for c, step in moved]

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        return point((at(a) + at(b)) // 2)

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        return np.array([[at(c)] for c in candidates], dtype=np.float32)

    def schedule(self, candidate: Candidate) -> None:
        raise AssertionError("a strategy replays nothing")


def point(i: int) -> Candidate:
    return Candidate("line", (i,))


def at(candidate: Candidate) -> int:
    value = candidate.point[0]
    assert isinstance(value, int)
    return value


class Counter:
    """A score that counts its calls."""

    def __init__(self, slope: float = 1.0) -> None:
        self.slope = slope
        self.calls = 0
        self.last: list[int] = []

    def __call__(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
        self.calls += 1
        self.last = [at(c) for c in candidates]
        return self.slope * np.array(self.last, dtype=np.float64)


def told(i: int, latency_s: float | None) -> Trial:
    record = Record(
        workload="line",
        identity="line",
        target="line",
        host="line",
        candidate=point(i),
        repeats=() if latency_s is None else (latency_s,),
        failure="runtime" if latency_s is None else None,
    )
    return Trial(record.candidate, record)


def warm(strategy: SimulatedAnnealing) -> SimulatedAnnealing:
    """After a batch without a model."""
    asked = strategy.ask(16, lambda c: np.zeros(len(c)))
    strategy.tell([told(at(c), 1.0 / (1 + at(c))) for c in asked])
    return strategy


def anneal(**options: float | tuple[Candidate, ...]) -> SimulatedAnnealing:
    """With nothing but the walk."""
    options = {"guesses": 0, "wide": 0.0, **options}
    return SimulatedAnnealing(Line(), 0, **options)  # type: ignore[arg-type]


def test_chains_go_on_where_they_stopped() -> None:
    strategy = warm(anneal(steps=50, start_temperature=0.0, measured=0.0))
    reached = [max(map(at, strategy.ask(4, Counter()))) for _ in range(3)]
    # About half of the moves of a chain at the front go up.
    assert reached[0] + 15 < reached[1] < reached[2] - 15


def test_every_step_is_one_call_of_the_score() -> None:
    strategy = warm(anneal(steps=20, chains=8, patience=20))
    score = Counter()
    strategy.ask(4, score)
    assert score.calls == 22  # what is known already, where the chains start, the steps
    assert len(score.last) == 8


def test_a_walk_stops_when_nothing_new_is_found() -> None:
    strategy = warm(anneal(steps=500, chains=8, patience=10, start_temperature=0.0))
    plateau = Counter()

    def score(candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
        return np.minimum(plateau(candidates), 50.0)

    strategy.ask(4, score)
    assert plateau.calls < 100


def test_heat_makes_chains_go_down() -> None:
    def lowest_mean(start_temperature: float) -> float:
        strategy = warm(anneal(steps=100, start_temperature=start_temperature, patience=100))
        score = Counter()
        strategy.ask(4, score)
        return float(np.mean(score.last))

    assert lowest_mean(0.0) > lowest_mean(1.0) > lowest_mean(100.0)


def test_a_cold_chain_never_goes_down() -> None:
    strategy = warm(anneal(steps=30, start_temperature=0.0, chains=4, patience=30, measured=0.0))
    score = Counter()
    strategy.ask(2, score)
    fronts = score.last
    strategy.ask(2, score)
    assert min(score.last) > min(fronts)


def test_some_chains_start_from_the_fastest_measured() -> None:
    strategy = warm(anneal(steps=20, measured=0.25, chains=8))
    strategy.tell([told(700, 1e-9), told(900, None)])
    asked = [at(c) for c in strategy.ask(8, Counter())]
    assert asked[0] > 700
    assert 700 not in asked
    assert max(asked) < 900  # a failure is no place to start from


def test_none_need_start_there() -> None:
    strategy = warm(anneal(steps=20, measured=0.0, chains=8))
    strategy.tell([told(700, 1e-9)])
    assert max(at(c) for c in strategy.ask(8, Counter())) < 200


def test_candidates_from_elsewhere_come_first() -> None:
    strategy = anneal(steps=20, measured=0.0, chains=8, start=(point(600), point(500)))
    asked = [at(c) for c in strategy.ask(4, lambda c: np.zeros(len(c)))]
    assert asked[:2] == [600, 500]
    assert max(asked[2:]) < 100


def test_the_first_walk_starts_from_them_and_goes_on() -> None:
    strategy = warm(anneal(steps=20, measured=0.0, chains=8, start=(point(600),)))
    first, second = (max(map(at, strategy.ask(4, Counter()))) for _ in range(2))
    assert 600 < first < second < 650


def test_where_walks_begin_is_not_what_counts_as_random() -> None:
    """Differences of scores are measured by those of random candidates."""
    far = tuple(point(900 + i) for i in range(32))
    strategy = warm(anneal(start=far))
    assert max(at(c) for c in strategy._yardstick) < 100


def test_random_ones_fill_what_the_walk_does_not_find() -> None:
    strategy = warm(anneal(steps=1, chains=1))
    asked = strategy.ask(50, Counter())
    assert len(set(asked)) == 50


def test_a_share_of_the_proposals_is_the_best_of_many_random_ones() -> None:
    strategy = warm(anneal(guesses=1000, wide=0.5, steps=200, patience=200))
    asked = [at(c) for c in strategy.ask(8, Counter())]
    assert len(set(asked)) == 8
    assert sorted(asked)[:4] == sorted(asked[4:])
    assert min(asked[4:]) > 90  # samples lie below 100
    assert min(asked[:4]) > 100


def test_a_candidate_that_never_comes_back_is_given_up() -> None:
    """Illegal ones, and other words for a schedule that was measured, are never told."""
    strategy = warm(anneal(steps=30, measured=0.0))
    proposed = []
    for _ in range(8):
        proposed.append(strategy.ask(1, lambda c: np.array([float(at(x) == 50) for x in c]))[0])
        strategy.tell([])
    assert proposed.count(point(50)) <= 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"chains": 0},
        {"steps": 0},
        {"patience": 0},
        {"start_temperature": -1.0},
        {"start_temperature": float("nan")},
        {"measured": 1.5},
    ],
)
def test_options_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|or more|from 0 to 1"):
        anneal(**wrong)
