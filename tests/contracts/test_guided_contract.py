"""What the strategies that follow scores keep to, and that it pays."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.record import Record
from tensortune.data.replay import ReplayMeasurer
from tensortune.search.random_search import RandomSearch

from .strategies import CASES, GUIDED, ORACLE, SPACE, Scores, flat, proposals, trials_of, tuned
from .synthetic import SyntheticSpace


@pytest.fixture(scope="module")
def replay() -> ReplayMeasurer:
    return ReplayMeasurer(SPACE.table())


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
