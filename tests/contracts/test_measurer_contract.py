"""What every measurer keeps to. A new measurer is a new entry in CASES."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pytest

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.record import FAILURES, Record
from tensortune.data.replay import ReplayMeasurer
from tensortune.data.space import Space

from .synthetic import SyntheticSpace


class Measures(Protocol):
    def measure(self, space: Space, candidates: Sequence[Candidate]) -> list[Record]: ...


@dataclass(frozen=True)
class Setup:
    """A measurer, a space it measures, and candidates that are no legal schedule of it."""

    measurer: Measures
    space: Space
    bad: tuple[Candidate, ...] = ()

    def canonical(self, n: int) -> list[Candidate]:
        """Some distinct canonical candidates."""
        found: dict[Candidate, None] = {}
        rng = np.random.default_rng(0)
        while len(found) < n:
            try:
                found[self.space.schedule(self.space.sample(rng, 1)[0]).candidate] = None
            except InvalidCandidate:
                continue
        return list(found)


def _replay() -> Setup:
    space = SyntheticSpace()
    bad = (Candidate("synthetic", (7, 7, 4, 0, 0, 0)), Candidate("synthetic", (0, 0, 99, 0, 0, 0)))
    return Setup(ReplayMeasurer(space.table()), space, bad)


CASES: dict[str, Callable[[], Setup]] = {"replay": _replay}


@pytest.fixture(scope="module", params=sorted(CASES))
def setup(request: pytest.FixtureRequest) -> Setup:
    return CASES[request.param]()


def _malformed(setup: Setup) -> list[Candidate]:
    name = setup.space.name
    good = setup.canonical(1)[0]
    return [
        Candidate(name, ()),
        Candidate(name, ("no", ("such",), "decision")),
        Candidate(name, (-(2**70),)),
        Candidate("no-such-space", good.point),
    ]


def test_one_record_a_candidate_in_order(setup: Setup) -> None:
    candidates = setup.canonical(4)
    records = setup.measurer.measure(setup.space, candidates)
    assert [record.candidate for record in records] == candidates
    back = setup.measurer.measure(setup.space, tuple(reversed(candidates)))
    assert [record.candidate for record in back] == candidates[::-1]


def test_nothing_to_measure(setup: Setup) -> None:
    assert setup.measurer.measure(setup.space, []) == []


def test_a_candidate_twice_has_two_records(setup: Setup) -> None:
    candidate = setup.canonical(1)[0]
    records = setup.measurer.measure(setup.space, [candidate, candidate])
    assert [record.candidate for record in records] == [candidate, candidate]


def test_a_bad_candidate_spoils_only_its_own_record(setup: Setup) -> None:
    good = setup.canonical(2)
    bad = [*setup.bad, *_malformed(setup)]
    records = setup.measurer.measure(setup.space, [good[0], *bad, good[1]])
    assert [record.candidate for record in records] == [good[0], *bad, good[1]]
    alone = setup.measurer.measure(setup.space, good)
    assert [records[0].failure, records[-1].failure] == [record.failure for record in alone]
    for record in records[1:-1]:
        assert record.failure == "invalid"
        assert not record.valid
        assert record.detail.strip(), "the record says why"


def test_records_are_whole(setup: Setup) -> None:
    records = setup.measurer.measure(setup.space, [*setup.canonical(4), *_malformed(setup)])
    assert any(record.valid for record in records)
    for record in records:
        assert record.workload
        assert record.identity
        assert record.target
        assert record.host
        assert record.valid != (record.failure in FAILURES)
        assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert len({(r.workload, r.identity, r.target, r.host) for r in records}) == 1


def test_the_list_of_candidates_is_left_alone(setup: Setup) -> None:
    candidates = setup.canonical(3)
    given = list(candidates)
    setup.measurer.measure(setup.space, given)
    assert given == candidates
