"""Draws, neighbours and crossovers are legal, canonical, and unlike one another."""

from __future__ import annotations

import numpy as np
import pytest

from tensortune.data.loops.crossing import cross
from tensortune.data.loops.defaults import default_nest
from tensortune.data.loops.draw import draw
from tensortune.data.loops.features import names, numbers
from tensortune.data.loops.legality import problem
from tensortune.data.loops.moves import neighbour
from tensortune.data.loops.nest import Nest, canonical, initial

from .frames import FRAMES, matmul


@pytest.fixture(params=sorted(FRAMES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sound(nest: Nest) -> bool:
    return problem(nest) is None and canonical(nest) == nest


def test_draws_are_legal_and_of_the_kind_that_is_fast(name: str) -> None:
    rng = np.random.default_rng(0)
    drawn = [draw(FRAMES[name], rng) for _ in range(100)]
    assert all(sound(nest) for nest in drawn)
    assert len(set(drawn)) > 10
    # By design nine in ten are; half leaves room for those whose parts did not fit together.
    assert sum(nest.vector is not None for nest in drawn) > 50


def test_most_draws_of_a_matmul_have_all_parts() -> None:
    rng = np.random.default_rng(1)
    drawn = [draw(FRAMES["matmul"], rng) for _ in range(100)]
    for part in ("band", "tile"):
        assert sum(bool(getattr(nest, part)) for nest in drawn) > 50
    assert sum(any(loop.mark == "unroll" for loop in nest.loops) for nest in drawn) > 50


def test_neighbours_are_legal_and_different(name: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(30):
        nest = draw(FRAMES[name], rng)
        for _ in range(8):
            moved = neighbour(nest, rng)
            assert sound(moved)
            assert moved != nest
            nest = moved


def test_neighbours_reach_every_kind_of_decision() -> None:
    rng = np.random.default_rng(3)
    nest = initial(FRAMES["padded"])
    seen: set[str] = set()
    for _ in range(600):
        nest = neighbour(nest, rng)
        seen |= {loop.mark for loop in nest.loops}
        seen |= {"tile"} if nest.tile is not None else set()
        seen |= {"factored"} if nest.factored is not None else set()
        seen |= {f"stage {min(nest.stages[0], 1)}"}
        seen |= {"ragged"} if nest.ragged() else set()
    marks = {"", "parallel", "vectorize", "unroll"}
    assert seen == marks | {"tile", "factored", "ragged", "stage -1", "stage 0", "stage 1"}


def test_crossovers_are_legal_and_between(name: str) -> None:
    rng = np.random.default_rng(4)
    new = 0
    for _ in range(60):
        a, b = draw(FRAMES[name], rng), draw(FRAMES[name], rng)
        child = cross(a, b, rng)
        assert sound(child)
        assert cross(a, a, rng) == a
        new += child not in (a, b)
    assert new > 0


def test_nothing_to_shape_stays_as_it_is() -> None:
    rng = np.random.default_rng(5)
    nest = initial(matmul(1, 1, 1))
    assert problem(neighbour(nest, rng)) is None
    assert cross(nest, nest, rng) == nest
    assert default_nest(nest.frame) == nest


def test_the_default_is_parallel_and_vectorised() -> None:
    nest = default_nest(matmul(128, 128, 128))
    assert nest.band > 0
    assert nest.vector is not None
    assert not nest.ragged()


def test_features_tell_nests_apart(name: str) -> None:
    frame, rng = FRAMES[name], np.random.default_rng(6)
    nests = list({canonical(neighbour(draw(frame, rng), rng)) for _ in range(150)})
    rows = np.array([numbers(nest) for nest in nests])
    assert rows.shape == (len(nests), len(names(frame)))
    assert not np.isinf(rows).any()
    assert len(np.unique(rows, axis=0)) == len(nests)


def test_features_have_names_of_their_own(name: str) -> None:
    found = names(FRAMES[name])
    assert len(set(found)) == len(found)
