"""Knobs: what they move, and that a walk over them reaches every tile."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.sketch import Category, Location, Tile
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, WorkloadError
from tensortune.search.rl.knob_env import KnobEnv, knobs_of, moved, sketch_spaces
from tensortune.search.rl.speed import Query

TARGET = cpu_target("llvm -num-cores=1")
MATMUL = Workload.from_key("matmul(m=48,n=64,k=40)")


def flat(queries: list[Query]) -> np.ndarray:
    return np.zeros(len(queries))


def test_a_size_takes_factors_from_the_outermost_one() -> None:
    tile = Tile("i", 48, 3, 16)
    assert moved(tile, (48, 1, 1), 1, 1) == (24, 2, 1)
    assert moved(tile, (3, 4, 4), 2, 1) == (1, 4, 12)
    assert moved(tile, (3, 1, 16), 2, 1) is None  # over its bound
    assert moved(tile, (1, 12, 4), 1, 1) is None  # none left
    assert moved(tile, (3, 4, 4), 1, -1) == (6, 2, 4)
    assert moved(tile, (12, 1, 4), 1, -1) is None


def test_an_index_moves_by_one() -> None:
    category, location = Category("unroll", (0, 16, 64, 512)), Location("pad", 2)
    assert [moved(category, 0, 0, move) for move in (-1, 1)] == [None, 1]
    assert [moved(category, 3, 0, move) for move in (-1, 1)] == [2, None]
    assert [moved(location, -2, 0, move) for move in (-1, 1)] == [None, -1]
    assert [moved(location, 2, 0, move) for move in (-1, 1)] == [1, None]


def test_every_tile_is_reached() -> None:
    tile = Tile("i", 48, 3, 16)
    found, waiting = {(48, 1, 1)}, [(48, 1, 1)]
    while waiting:
        value = waiting.pop()
        for part in (1, 2):
            for move in (-1, 1):
                after = moved(tile, value, part, move)
                if after is not None and after not in found:
                    assert tile.legal(after)
                    found.add(after)
                    waiting.append(after)
    assert len(found) == tile.size


def test_knobs_are_the_decisions_with_a_choice() -> None:
    decisions = (Tile("i", 48, 4, 64), Tile("one", 1, 4, 64), Category("unroll", (0, 16)))
    assert knobs_of(decisions) == ((0, 1), (0, 2), (0, 3), (2, 0))


def test_all_knobs_move_in_one_step() -> None:
    env = KnobEnv(sketch_spaces([MATMUL], TARGET), flat)
    env.reset(seed=0)
    for _ in range(20):
        mask = env.action_masks().reshape(-1, 3)
        action = np.where(mask[:, 2], 2, np.where(mask[:, 0], 0, 1))
        before = env.candidate
        _, _, over, _, info = env.step(action)
        assert info["legal"]
        assert env.candidate != before
        if over:
            env.reset()


def test_moves_that_are_not_legal_are_left_out_and_the_others_made() -> None:
    env = KnobEnv(sketch_spaces([MATMUL], TARGET), flat)
    env.reset(seed=0)
    mask = env.action_masks().reshape(-1, 3)
    able = int(np.flatnonzero(mask[:, 0] | mask[:, 2])[0])
    action = np.ones(env.max_knobs, dtype=int)
    action[able] = 0 if mask[able, 0] else 2
    alone, before = env._next(action), env.candidate
    action[-1] = 2  # no knob of this sketch
    assert env._next(action) is None
    assert not env.step(action)[4]["legal"]
    assert env.candidate != before
    assert env._state == alone


def test_an_episode_can_begin_anywhere() -> None:
    spaces = sketch_spaces([MATMUL], TARGET)
    env = KnobEnv(spaces, flat)
    given = spaces.of(MATMUL).sample(np.random.default_rng(7), 1)[0]
    env.reset(options={"candidate": given})
    assert env.candidate == given
    with pytest.raises(InvalidCandidate, match="not a candidate of the sketch space"):
        env.reset(options={"candidate": Candidate("loop", ())})


def test_too_many_knobs_are_refused() -> None:
    env = KnobEnv(sketch_spaces([MATMUL], TARGET), flat, max_knobs=2)
    with pytest.raises(WorkloadError, match="max_knobs"):
        env.reset(seed=0)
