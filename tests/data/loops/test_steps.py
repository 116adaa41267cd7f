"""Steps: what is legal is exact, cheap, and leads everywhere."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tensortune.data.candidate import InvalidCandidate
from tensortune.data.loops.draw import draw
from tensortune.data.loops.legality import problem
from tensortune.data.loops.nest import Loop, initial
from tensortune.data.loops.steps import (
    apply_step,
    apply_steps,
    is_legal,
    legal_steps,
    steps_to,
)

from .frames import FRAMES, matmul, padded, random_walk


@pytest.fixture(params=sorted(FRAMES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_legal_steps_are_what_can_be_applied(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        nest, _ = random_walk(FRAMES[name], rng, int(rng.integers(0, 20)))
        legal = set(legal_steps(nest))
        for step in legal:
            assert problem(apply_step(nest, step)) is None
        for step in (("parallel", 0), ("vectorize",), ("unroll", 1), ("swap", 0), ("split", 0, 2)):
            assert (step in legal) == is_legal(nest, step)
            if step not in legal:
                with pytest.raises(InvalidCandidate, match=r"\S"):
                    apply_step(nest, step)


def test_thousands_of_random_steps_raise_nothing() -> None:
    rng = np.random.default_rng(1)
    taken = 0
    for number in range(100):
        frame = list(FRAMES.values())[number % len(FRAMES)]
        taken += len(random_walk(frame, rng, 25)[1])
    assert taken > 1000


def test_a_normal_form_of_steps_leads_to_the_nest(name: str) -> None:
    rng = np.random.default_rng(2)
    frame = FRAMES[name]
    for number in range(80):
        nest = draw(frame, rng) if number % 2 else random_walk(frame, rng, 20)[0]
        steps = steps_to(nest)
        assert apply_steps(initial(frame), steps) == nest
        assert json.loads(json.dumps(steps)) == [list(step) for step in steps]


def test_split_takes_any_factor_of_the_coarsest_loop_and_divisors_of_others() -> None:
    start = initial(matmul(48, 64, 32))
    ragged = apply_step(start, ("split", 0, 7))
    assert ragged.loops[:2] == (Loop(0, 7), Loop(0, 7))
    assert is_legal(ragged, ("split", 0, 3))
    assert not is_legal(ragged, ("split", 1, 3))
    assert not is_legal(start, ("split", 0, 48))
    assert not is_legal(start, ("split", 0, 1))


def test_loops_of_an_axis_keep_their_order() -> None:
    split = apply_step(initial(matmul(48, 64, 32)), ("split", 0, 8))
    assert not is_legal(split, ("swap", 0))
    assert not is_legal(split, ("move", 0, 3))
    assert is_legal(split, ("swap", 1))


def test_the_tile_is_outside_of_all_that_is_summed() -> None:
    start = initial(matmul(48, 64, 32))
    assert [level for level in range(4) if is_legal(start, ("accumulate", level))] == [0, 1, 2]
    outer = apply_step(start, ("move", 2, 0))
    assert [level for level in range(4) if is_legal(outer, ("accumulate", level))] == [0]


def test_reductions_are_neither_parallel_nor_vectors() -> None:
    start = initial(matmul(48, 64, 32))
    assert is_legal(start, ("parallel", 1))
    assert not is_legal(start, ("parallel", 2))
    assert not is_legal(start, ("vectorize",))
    factored = apply_steps(start, [("split", 2, 8), ("factor", 3)])
    assert is_legal(factored, ("vectorize",))


def test_producers_stay_clear_of_the_marks() -> None:
    start = apply_steps(initial(padded(13, 13, 24, 3)), [("parallel", 1), ("unroll", 3)])
    legal = [level for level in range(-1, 6) if is_legal(start, ("stage", 0, level))]
    assert legal == [-1, 2, 3]  # it is at 0 already


@pytest.mark.parametrize(
    "step", [(), ("fly", 1), ("split", 0), ("swap", -1), ("unroll", 9), ("stage", 0, 0), "swap"]
)
def test_what_is_no_step_is_not_legal(step: object) -> None:
    start = initial(matmul(48, 64, 32))
    assert not is_legal(start, step)  # type: ignore[arg-type]
    with pytest.raises(InvalidCandidate, match="step 0"):
        apply_steps(start, [step])  # type: ignore[list-item]
