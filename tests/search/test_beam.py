"""Beam search: how far it gets, what it costs, and when it ends."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.record import Record
from tensortune.search.base import Trial
from tensortune.search.beam import BeamSearch

SIDE = 1000
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))


class Grid:
    """Pairs of numbers below a thousand, each beside four; samples lie in the lowest tenth."""

    name = "grid"
    size = float(SIDE * SIDE)

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        return [point(x, y) for x, y in rng.integers(SIDE // 10, size=(n, 2)).tolist()]

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        return self.sample(rng, n)

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        steps = rng.integers(len(MOVES), size=len(candidates)).tolist()
        return [moved(c, *MOVES[step]) for c, step in zip(candidates, steps, strict=True)]

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        return a

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        return np.array([c.point for c in candidates], dtype=np.float32)

    def schedule(self, candidate: Candidate) -> None:
        raise AssertionError("a strategy replays nothing")


def point(x: int, y: int) -> Candidate:
    return Candidate("grid", (x, y))


def moved(candidate: Candidate, dx: int, dy: int) -> Candidate:
    x, y = candidate.point
    assert isinstance(x, int)
    assert isinstance(y, int)
    return point(min(max(x + dx, 0), SIDE - 1), min(max(y + dy, 0), SIDE - 1))


def height(candidate: Candidate) -> float:
    x, y = candidate.point
    assert isinstance(x, int)
    assert isinstance(y, int)
    return float(x + y)


class Score:
    """The height, up to a bound; counts its calls."""

    def __init__(self, bound: float = np.inf) -> None:
        self.bound = bound
        self.sizes: list[int] = []

    def __call__(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
        self.sizes.append(len(candidates))
        return np.minimum([height(c) for c in candidates], self.bound)


def told(candidate: Candidate, latency_s: float) -> Trial:
    record = Record(
        workload="grid",
        identity="grid",
        target="grid",
        host="grid",
        candidate=candidate,
        repeats=(latency_s,),
    )
    return Trial(record.candidate, record)


def warm(**options: float) -> BeamSearch:
    """After a batch without a model, and with nothing but the beam."""
    options = {"guesses": 0, "wide": 0.0} | options
    strategy = BeamSearch(Grid(), 0, **options)  # type: ignore[arg-type]
    asked = strategy.ask(16, lambda c: np.zeros(len(c)))
    strategy.tell([told(c, 1.0 / (1 + height(c))) for c in asked])
    return strategy


def test_every_depth_is_one_call_and_one_step_up() -> None:
    strategy = warm(width=4, branching=8, depth=10, measured=0.0)
    known = max(map(height, strategy._states))
    score = Score()
    best = max(map(height, strategy.ask(4, score)))
    assert score.sizes[-9:] == [32] * 9  # the beam is full after the first depth
    # Some neighbour of the highest goes up, but with a chance of 1 in 256 at each depth.
    assert best >= known + 9


def test_a_beam_goes_on_where_it_ended() -> None:
    strategy = warm(width=4, branching=8, depth=10, measured=0.0)
    first, second = (max(map(height, strategy.ask(4, Score()))) for _ in range(2))
    assert second >= first + 9


def test_it_ends_where_nothing_is_better() -> None:
    strategy = warm(width=4, branching=8, depth=500, measured=0.0)
    score = Score(bound=200.0)
    strategy.ask(4, score)
    assert len(score.sizes) < 250


def test_the_best_of_the_beam_is_never_lost() -> None:
    strategy = warm(width=2, branching=1, depth=1, measured=0.0)
    best = 0.0
    for _ in range(20):
        strategy.ask(2, Score())
        top = max(map(height, strategy._states))
        assert top >= best
        best = top


def test_a_share_starts_from_the_fastest_measured() -> None:
    strategy = warm(width=8, branching=16, depth=5, measured=0.25)
    strategy.tell([told(point(700, 700), 1e-9)])
    asked = [height(c) for c in strategy.ask(8, Score())]
    assert asked[0] == 1405
    assert 1400 not in asked


@pytest.mark.parametrize("wrong", [{"width": 0}, {"branching": 0}, {"depth": 0}, {"wide": 2.0}])
def test_options_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|from 0 to 1"):
        warm(**wrong)
