"""What every schedule space keeps to. A new space is a new entry in CASES."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tensortune.data.candidate import Candidate, InvalidCandidate, Point
from tensortune.data.loop_space import LoopSpace
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.space import Space
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload

from .synthetic import SyntheticSpace


@dataclass(frozen=True)
class SpaceCase:
    """A space under test.

    Attributes:
        make: Builds the space; called once a test module.
        decisions: A candidate's decisions, as a sequence that a neighbour differs from in one
            place; None where one move changes several parts of a point.
        illegal: Candidates that are well formed and yet no legal schedule.
    """

    make: Callable[[], Space]
    decisions: Callable[[Candidate], tuple[Any, ...]] | None
    illegal: tuple[Candidate, ...] = ()


def _sketch(operator: str, *shape: int) -> SpaceCase:
    """MetaSchedule's space of an operator, on this machine's CPU."""
    return SpaceCase(
        make=lambda: SketchSpace(workload(operator, *shape), cpu_target(None)),
        decisions=lambda candidate: (candidate.point[0], *_parts(candidate.point[1])),
        illegal=(
            Candidate("sketch", (0, ())),
            Candidate("sketch", (99, ((1, 1), (1, 1)))),
        ),
    )


def _loops(operator: str, *shape: int) -> SpaceCase:
    """The loop space of an operator: one move may resize two loops and drop a third."""
    return SpaceCase(
        make=lambda: LoopSpace(workload(operator, *shape), cpu_target(None)),
        decisions=None,
        illegal=(
            Candidate("loop", ((), (), (), ())),
            Candidate("loop", (((0, 7, ""), (1, 5, ""), (2, 3, "")), (), (), ())),
        ),
    )


def _parts(point: Point) -> tuple[Point, ...]:
    assert isinstance(point, tuple)
    return point


CASES = {
    "sketch-matmul": _sketch("matmul", 48, 64, 96),
    # Its padding is a block of its own, computed at a loop that is a decision.
    "sketch-conv2d": _sketch("conv2d", 1, 7, 7, 16, 32, 3, 1, 1),
    "loop-matmul": _loops("matmul", 48, 64, 96),
    "loop-conv2d": _loops("conv2d", 1, 7, 7, 16, 32, 3, 1, 1),
    "loop-mean": _loops("mean", 50, 96),
    "synthetic": SpaceCase(
        make=SyntheticSpace,
        decisions=lambda candidate: candidate.point,
        illegal=(Candidate("synthetic", (7, 7, 4, 0, 0, 0)),),
    ),
}


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> SpaceCase:
    return CASES[request.param]


@pytest.fixture(scope="module")
def space(case: SpaceCase) -> Space:
    return case.make()


@pytest.fixture(scope="module")
def sampled(space: Space) -> list[Candidate]:
    return space.sample(np.random.default_rng(0), 64)


@pytest.fixture(scope="module")
def canonical(space: Space, sampled: list[Candidate]) -> list[Candidate]:
    """The canonical forms of those samples that are legal."""
    return [c for c in (_canonical(space, candidate) for candidate in sampled) if c is not None]


def _canonical(space: Space, candidate: Candidate) -> Candidate | None:
    try:
        return space.schedule(candidate).candidate
    except InvalidCandidate:
        return None


def test_most_samples_are_legal(sampled: list[Candidate], canonical: list[Candidate]) -> None:
    # A search that draws illegal candidates half of the time works still; beyond, it stalls.
    assert len(canonical) >= len(sampled) / 2


def test_samples_follow_the_seed(space: Space) -> None:
    first = space.sample(np.random.default_rng(7), 16)
    assert space.sample(np.random.default_rng(7), 16) == first
    assert space.sample(np.random.default_rng(8), 16) != first


def test_drawing_leaves_alone_the_global_generator(space: Space) -> None:
    def state() -> list[int]:
        keys: list[int] = np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
        return keys

    before, rng = state(), np.random.default_rng(7)
    first = space.sample(rng, 4)
    space.neighbours(first, rng)
    space.crossover(first[0], first[1], rng)
    assert state() == before


@pytest.mark.parametrize("n", [0, 1, 5])
def test_sample_gives_as_many_as_asked(space: Space, n: int) -> None:
    assert len(space.sample(np.random.default_rng(0), n)) == n


def test_samples_differ_and_fit_the_size(space: Space, sampled: list[Candidate]) -> None:
    assert 1 < len(set(sampled)) <= space.size


def test_candidates_carry_the_spaces_name(space: Space, sampled: list[Candidate]) -> None:
    assert {candidate.space for candidate in sampled} == {space.name}


def test_candidates_survive_json(sampled: list[Candidate], canonical: list[Candidate]) -> None:
    for candidate in sampled + canonical:
        read = Candidate.from_json(json.loads(json.dumps(candidate.to_json())))
        assert read == candidate
        assert hash(read) == hash(candidate)


def test_canonical_is_a_fixpoint(space: Space, canonical: list[Candidate]) -> None:
    for candidate in canonical:
        assert space.schedule(candidate).candidate == candidate


def test_scheduling_is_deterministic(space: Space, sampled: list[Candidate]) -> None:
    for candidate in sampled[:16]:
        assert _canonical(space, candidate) == _canonical(space, candidate)


def test_neighbours_move_one_decision(
    space: Space, case: SpaceCase, canonical: list[Candidate]
) -> None:
    moved = space.neighbours(canonical, np.random.default_rng(0))
    assert len(moved) == len(canonical)
    for before, after in zip(canonical, moved, strict=True):
        assert after.space == space.name
        if case.decisions is None:
            assert after != before
            continue
        pairs = zip(case.decisions(before), case.decisions(after), strict=True)
        assert sum(a != b for a, b in pairs) == 1


def test_neighbours_follow_the_seed(space: Space, canonical: list[Candidate]) -> None:
    first = space.neighbours(canonical, np.random.default_rng(3))
    assert space.neighbours(canonical, np.random.default_rng(3)) == first
    assert space.neighbours(canonical, np.random.default_rng(4)) != first


def test_neighbours_reach_legal_schedules(space: Space, canonical: list[Candidate]) -> None:
    moved = space.neighbours(canonical, np.random.default_rng(0))
    assert any(_canonical(space, candidate) not in (None, *canonical) for candidate in moved)


def test_crossover_takes_from_its_parents(
    space: Space, case: SpaceCase, canonical: list[Candidate]
) -> None:
    rng = np.random.default_rng(0)
    for a, b in pairwise(canonical):
        child = space.crossover(a, b, rng)
        assert child.space == space.name
        assert space.crossover(a, a, rng) == a
        if case.decisions is not None and len(case.decisions(a)) == len(case.decisions(b)):
            of_child, of_a, of_b = map(case.decisions, (child, a, b))
            assert all(c in (x, y) for c, x, y in zip(of_child, of_a, of_b, strict=True))


def test_crossover_follows_the_seed(space: Space, canonical: list[Candidate]) -> None:
    def children(seed: int) -> list[Candidate]:
        rng = np.random.default_rng(seed)
        pairs = zip(canonical, reversed(canonical), strict=True)
        return [space.crossover(a, b, rng) for a, b in pairs]

    assert children(0) == children(0)
    assert children(0) != children(1)


def test_encode_is_a_row_a_candidate(space: Space, canonical: list[Candidate]) -> None:
    rows = space.encode(canonical)
    assert rows.dtype == np.float32
    assert rows.ndim == 2
    assert len(rows) == len(canonical)
    assert not np.isinf(rows).any()
    np.testing.assert_array_equal(space.encode(canonical), rows)
    # A candidate's row does not depend on its company.
    np.testing.assert_array_equal(space.encode(canonical[3:5]), rows[3:5])


def test_encode_of_nothing_has_the_same_width(space: Space, canonical: list[Candidate]) -> None:
    assert space.encode([]).shape == (0, space.encode(canonical).shape[1])


def test_encode_tells_candidates_apart(space: Space, canonical: list[Candidate]) -> None:
    distinct = list(dict.fromkeys(canonical))
    assert len(np.unique(space.encode(distinct), axis=0)) == len(distinct)


def test_inputs_are_left_alone(space: Space, canonical: list[Candidate]) -> None:
    given = list(canonical)
    before = copy.deepcopy(given)
    rng = np.random.default_rng(0)
    space.neighbours(given, rng)
    space.crossover(given[0], given[1], rng)
    space.encode(given)
    space.schedule(given[0])
    assert given == before


def test_illegal_candidates_raise_invalid_candidate(space: Space, case: SpaceCase) -> None:
    for candidate in case.illegal:
        with pytest.raises(InvalidCandidate, match=r"\S"):
            space.schedule(candidate)


def test_another_spaces_candidate_is_invalid(space: Space, canonical: list[Candidate]) -> None:
    with pytest.raises(InvalidCandidate, match=r"\S"):
        space.schedule(Candidate("no-such-space", canonical[0].point))


def _damaged(point: Point) -> Iterator[Point]:
    """The point with each of its parts in turn replaced by what may not belong there."""
    yield from (-1, 0, 2**70, "", "no-such-name", ())
    if isinstance(point, tuple):
        yield (*point, 1)
        for index, part in enumerate(point):
            yield point[:index] + point[index + 1 :]
            for other in _damaged(part):
                yield (*point[:index], other, *point[index + 1 :])


def test_damaged_candidates_raise_nothing_else(space: Space, canonical: list[Candidate]) -> None:
    """Whatever a point holds, it is scheduled or refused as an `InvalidCandidate`."""
    refused = 0
    for point in _damaged(canonical[0].point):
        if isinstance(point, tuple):
            refused += _canonical(space, Candidate(space.name, point)) is None
    assert refused > 0
