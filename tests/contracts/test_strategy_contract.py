"""What every search strategy keeps to. A new strategy is a new entry in `strategies.CASES`."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.replay import ReplayMeasurer
from tensortune.search.base import Score
from tensortune.search.tuner import Budget, Tuner

from .strategies import (
    CASES,
    ORACLE,
    SCORES,
    SPACE,
    Oracle,
    Scores,
    StrategyCase,
    TinySpace,
    flat,
    proposals,
    trials_of,
    tuned,
)


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
from contracts.strategies import CASES, ORACLE, SPACE, proposals
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
