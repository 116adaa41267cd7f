"""Which vectors are good to sum up in, and that draws and neighbours have them."""

from __future__ import annotations

import numpy as np
import pytest

from tensortune.data.loops.crossing import cross
from tensortune.data.loops.draw import draw
from tensortune.data.loops.legality import problem
from tensortune.data.loops.moves import neighbour
from tensortune.data.loops.nest import Frame, Loop, Nest, canonical
from tensortune.data.loops.vectors import is_good, lanes_of, longest

from .frames import FRAMES, matmul, padded

ODD = {"hundred": matmul(96, 100, 128), "padded": padded(13, 13, 60, 3), **FRAMES}


@pytest.mark.parametrize(
    ("extent", "lanes"),
    [
        *((8, 8), (12, 12), (16, 16), (32, 32), (64, 64), (96, 32), (128, 32)),
        *((48, 16), (240, 16), (17, 16), (60, 16), (97, 16)),
    ],
)
def test_vectors_are_whole_native_ones_or_shorter(extent: int, lanes: int) -> None:
    assert lanes_of(extent, 16) == lanes


@pytest.mark.parametrize(("most", "lanes"), [(7, 7), (16, 16), (31, 16), (50, 32), (100, 64)])
def test_the_longest_good_vector(most: int, lanes: int) -> None:
    assert longest(min(most, 64), 16) == lanes
    assert is_good(lanes, 16)


def good(frame: Frame, nest: Nest) -> bool:
    vector = nest.vector
    if vector is None or vector.axis == frame.partial_axis or not nest.contiguous(vector.axis):
        return True
    return is_good(vector.extent, frame.native)


@pytest.mark.parametrize("name", sorted(ODD))
def test_what_is_drawn_moved_and_crossed_sums_up_in_good_vectors(name: str) -> None:
    frame, rng = ODD[name], np.random.default_rng(0)
    before = draw(frame, rng)
    for _ in range(60):
        nest = draw(frame, rng)
        assert good(frame, nest)
        assert good(frame, cross(before, nest, rng))
        for _ in range(8):
            nest = neighbour(nest, rng)
            assert problem(nest) is None
            assert good(frame, nest)
        before = nest


def test_a_neighbour_of_a_bad_vector_has_a_good_one() -> None:
    """Bad ones are legal all the same: they may be given, or stored."""
    frame, rng = matmul(96, 100, 128), np.random.default_rng(1)
    loops = (Loop(0, 96), Loop(1, 2), Loop(2, 128), Loop(1, 50, "vectorize"))
    nest = Nest(frame, loops, 2)
    assert problem(nest) is None
    assert canonical(nest) == nest
    for _ in range(50):
        assert good(frame, neighbour(nest, rng))


def test_partial_results_are_as_long_as_they_were() -> None:
    frame, rng = matmul(8, 4, 96), np.random.default_rng(2)
    loops = (Loop(0, 8), Loop(1, 4), Loop(2, 2), Loop(frame.partial_axis, 48, "vectorize"))
    nest = Nest(frame, loops, None, (), 2)
    assert problem(nest) is None
    moved = [neighbour(nest, rng).vector for _ in range(200)]
    assert Loop(frame.partial_axis, 48, "vectorize") in moved
