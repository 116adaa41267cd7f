from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.record import Record
from tensortune.data.replay import ReplayMeasurer, ReplaySpace, UnknownCandidate

from ..contracts.synthetic import SyntheticSpace

A = Candidate("synthetic", (3, 5, 3, 3, 1, 2))
B = Candidate("synthetic", (2, 5, 3, 3, 1, 2))
C = Candidate("synthetic", (1, 5, 3, 3, 1, 2))


@pytest.fixture
def synthetic_space() -> SyntheticSpace:
    return SyntheticSpace()


@pytest.fixture
def record(synthetic_space: SyntheticSpace) -> Record:
    return synthetic_space.record(A, (1.0, 2.0))


def _one(space: SyntheticSpace, *records: Record) -> Record:
    return ReplayMeasurer(records).measure(space, [records[0].candidate])[0]


def test_gives_the_records_as_they_are(synthetic_space: SyntheticSpace) -> None:
    table = [synthetic_space.record(candidate) for candidate in (A, B, C)]
    replay = ReplayMeasurer(table)
    assert replay.candidates() == [A, B, C]
    assert replay.measure(synthetic_space, [C, A, C]) == [table[2], table[0], table[2]]


def test_pools_the_repeats(synthetic_space: SyntheticSpace, record: Record) -> None:
    later = replace(record, repeats=(4.0,), seed=9)
    assert _one(synthetic_space, record, later) == replace(record, repeats=(1.0, 2.0, 4.0))


def test_a_cut_timing_counts_only_alone(synthetic_space: SyntheticSpace, record: Record) -> None:
    cut = replace(record, repeats=(9.0,), cut=True)
    assert _one(synthetic_space, cut, record) == record
    assert _one(synthetic_space, cut) == cut


def test_a_timing_outweighs_a_failure(synthetic_space: SyntheticSpace, record: Record) -> None:
    timeout = replace(record, repeats=(), failure="timeout", detail="2 s")
    assert _one(synthetic_space, timeout, record) == record
    assert _one(synthetic_space, timeout, timeout) == timeout


def test_wrong_outweighs_a_timing(synthetic_space: SyntheticSpace, record: Record) -> None:
    wrong = replace(record, failure="wrong", detail="off by 3")
    assert _one(synthetic_space, record, wrong) == wrong


def test_an_unknown_candidate_is_invalid(synthetic_space: SyntheticSpace, record: Record) -> None:
    answer = ReplayMeasurer([record]).measure(synthetic_space, [B])[0]
    assert (answer.candidate, answer.failure) == (B, "invalid")
    assert "do not hold" in answer.detail
    assert (answer.workload, answer.identity) == (record.workload, record.identity)
    assert (answer.target, answer.host) == (record.target, record.host)


def test_an_unknown_candidate_is_an_error_on_request(
    synthetic_space: SyntheticSpace, record: Record
) -> None:
    with pytest.raises(UnknownCandidate, match="do not hold"):
        ReplayMeasurer([record], missing="error").measure(synthetic_space, [A, B])


def test_an_unknown_policy_is_refused(record: Record) -> None:
    with pytest.raises(ValueError, match="'invalid' or 'error'"):
        ReplayMeasurer([record], missing="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["workload", "identity", "target", "host"])
def test_records_of_two_origins_are_refused(record: Record, field: str) -> None:
    other = replace(record, **{field: "another"})
    with pytest.raises(ValueError, match="these are of 2"):
        ReplayMeasurer([record, other])


def test_no_records_are_refused() -> None:
    with pytest.raises(ValueError, match="these are of 0"):
        ReplayMeasurer([])


def test_the_table_knows_every_legal_sample(synthetic_space: SyntheticSpace) -> None:
    replay = ReplayMeasurer(synthetic_space.table(noise=0.02), missing="error")
    drawn = synthetic_space.sample(np.random.default_rng(0), 300)
    canonical = []
    for candidate in drawn:
        with suppress(InvalidCandidate):
            canonical.append(synthetic_space.schedule(candidate).candidate)
    assert len(canonical) > 100
    records = replay.measure(synthetic_space, canonical)
    best = min(records, key=lambda record: record.latency_s)
    # 2 % of noise a repeat: its median of three stays within 10 %, five deviations.
    assert best.latency_s == pytest.approx(synthetic_space.latency(best.candidate), rel=0.1)


def test_a_replayed_space_holds_the_stored_candidates_alone() -> None:
    space = SyntheticSpace()
    records = space.table()[::50]
    stored = ReplaySpace(space, records)
    known = {record.candidate for record in records}
    rng = np.random.default_rng(0)
    drawn = stored.sample(rng, 100)
    assert set(drawn) <= known
    moved = stored.neighbours(drawn, rng)
    assert set(moved) <= known
    assert all(a != b for a, b in zip(drawn, moved, strict=True))
    assert stored.crossover(drawn[0], drawn[1], rng) in known
    assert stored.schedule(drawn[0]).candidate == drawn[0]
    assert stored.size == len(known)
    stranger = next(r.candidate for r in space.table() if r.candidate not in known)
    with pytest.raises(InvalidCandidate):
        stored.schedule(stranger)


def test_neighbours_in_a_replayed_space_are_near() -> None:
    space = SyntheticSpace()
    stored = ReplaySpace(space, space.table()[::10])
    rng = np.random.default_rng(0)
    drawn = stored.sample(rng, 200)

    def distance(others: list[Candidate]) -> float:
        apart = stored.encode(drawn) - stored.encode(others)
        return float(np.abs(np.nan_to_num(apart)).mean())

    assert distance(stored.neighbours(drawn, rng)) < 0.7 * distance(stored.sample(rng, 200))
