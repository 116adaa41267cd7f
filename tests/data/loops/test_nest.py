"""Nests are values: merging, rounding up, and what their loops come to."""

from __future__ import annotations

import numpy as np
import pytest

from tensortune.data.candidate import InvalidCandidate
from tensortune.data.loops.legality import problem
from tensortune.data.loops.nest import Loop, Nest, canonical, initial
from tensortune.data.loops.points import describe, from_point, to_point
from tensortune.data.loops.steps import apply_steps

from .frames import FRAMES, iterations, matmul, random_walk


@pytest.fixture(params=sorted(FRAMES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_ones_have_no_loop() -> None:
    assert initial(matmul(1, 64, 1)).loops == (Loop(0, 64),)
    assert initial(matmul(1, 1, 1)).loops == ()
    assert problem(initial(matmul(1, 1, 1))) is None


def test_neighbouring_loops_of_an_axis_are_one() -> None:
    frame = matmul(48, 64, 32)
    start = initial(frame)
    split = apply_steps(start, [("split", 0, 8)])
    assert len(split.loops) == 4
    assert canonical(split) == start
    # A loop between them, a mark or a tile keeps them apart.
    for last in (("move", 1, 2), ("unroll", 1), ("accumulate", 1)):
        apart = apply_steps(split, [last])
        assert canonical(apart) == apart


def test_merged_loops_are_as_long_as_needed() -> None:
    start = initial(matmul(37, 64, 32))
    split = apply_steps(start, [("split", 0, 4), ("split", 0, 3)])
    assert [loop.extent for loop in split.loops[:3]] == [4, 3, 4]
    assert split.ragged() == {0}
    assert canonical(split) == start
    assert canonical(split).ragged() == set()


def test_canonical_nests_are_legal_and_stay_as_they_are(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        nest, _ = random_walk(FRAMES[name], rng, int(rng.integers(1, 25)))
        merged = canonical(nest)
        assert problem(merged) is None
        assert canonical(merged) == merged
        assert iterations(merged) <= iterations(nest)


def test_points_give_back_the_nest(name: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        nest, _ = random_walk(FRAMES[name], rng, 12)
        assert from_point(FRAMES[name], to_point(nest)) == nest


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ((), "not a loop nest"),
        (((), (), (), ()), "cover"),
        ((((0, 48, ""), (1, 64, ""), (2, 32, "fast")), (), (), ()), "not a loop nest"),
        ((((0, 48, ""), (1, 64, ""), (2, 32, "parallel")), (), (), ()), "parallel"),
        ((((0, 48, ""), (1, 64, ""), (2, 32, "vectorize")), (), (), ()), "vector"),
        ((((2, 32, ""), (0, 48, ""), (1, 64, "")), (1,), (), ()), "tile"),
        ((((0, 48, ""), (1, 64, ""), (2, 32, "")), (), (0,), ()), "producer"),
        ((((0, 48, "unroll"), (1, 64, "unroll"), (2, 32, "")), (), (), ()), "code"),
        ((((0, 48, ""), (1, 64, ""), (2, 4, ""), (3, 4, "")), (), (), (2,)), "partial"),
    ],
)
def test_illegal_points_say_why(point: object, why: str) -> None:
    with pytest.raises(InvalidCandidate, match=why):
        from_point(matmul(48, 64, 32), point)


def test_a_ragged_axis_is_parallel_alone() -> None:
    start = initial(matmul(37, 64, 32))
    split = apply_steps(start, [("split", 0, 8)])
    apply_steps(split, [("parallel", 0)])
    with pytest.raises(InvalidCandidate, match="ragged"):
        apply_steps(split, [("move", 2, 1), ("parallel", 1)])


def test_positions_follow_the_loops() -> None:
    nest = Nest(
        matmul(48, 64, 32),
        (Loop(0, 48, "parallel"), Loop(2, 32), Loop(1, 2, "unroll"), Loop(1, 32, "vectorize")),
        1,
    )
    assert (nest.band, nest.first_reduction, nest.tile_size()) == (1, 1, 64)
    assert nest.vector == Loop(1, 32, "vectorize")
    assert describe(nest) == "parallel i:48 | tile | k:32 unroll j:2 vectorize j:32"
