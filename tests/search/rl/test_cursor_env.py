"""The cursor's moves, and what `finish` makes of the nests."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from tensortune.data.loop_space import LoopSpace
from tensortune.data.loops.legality import problem
from tensortune.data.loops.nest import Loop, Nest, canonical, initial
from tensortune.data.loops.steps import apply_step, apply_steps, is_legal, legal_steps
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload
from tensortune.search.rl.cursor_env import ACTIONS, CursorEnv, finish, loop_spaces
from tensortune.search.rl.speed import ToySpeed

TARGET = cpu_target("llvm -num-cores=1")
# Ten steps from i j k to a register tile, i and j on the outside.
REGISTER_TILE = (
    *("split_8", "down", "down", "split_32", "swap_up", "down", "down", "down"),
    *("swap_up", "swap_up"),
)


def env_of(m: int, n: int, k: int, horizon: int = 10) -> CursorEnv:
    spaces = loop_spaces([workload("matmul", m, n, k)], TARGET)
    return CursorEnv(spaces, ToySpeed(), horizon=horizon)


def loops(nest: Nest) -> list[tuple[str, int]]:
    return [(nest.frame.axes[loop.axis].name, loop.extent) for loop in nest.loops]


def test_the_best_nest_is_within_the_horizon() -> None:
    env = env_of(48, 64, 40)
    env.reset(seed=0)
    rewards = []
    for name in REGISTER_TILE:
        _, reward, over, _, info = env.step(ACTIONS.index(name))
        assert info["legal"], name
        rewards.append(reward)
    assert over
    assert loops(env.nest) == [("i", 6), ("j", 2), ("k", 40), ("i", 8), ("j", 32)]
    assert sum(rewards) == pytest.approx(ToySpeed().best)
    assert env.space.describe(env.candidate) == "i:6 j:2 | tile | k:40 unroll i:8 vectorize j:32"


def test_masks_are_the_legal_steps_of_the_space() -> None:
    env, rng = env_of(37, 53, 24, horizon=1000), np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(200):
        legal, cursor = set(legal_steps(env.nest)), env._state.cursor
        last = len(env.nest.loops) - 1
        expected = {
            "up": cursor > 0,
            "down": cursor < last,
            "swap_up": ("swap", cursor - 1) in legal,
            "swap_down": ("swap", cursor) in legal,
            "stop": True,
        } | {f"split_{f}": ("split", cursor, f) in legal for f in (2, 4, 8, 16, 32, 64)}
        mask = dict(zip(ACTIONS, env.action_masks().tolist(), strict=True))
        assert mask == expected
        chosen = [name for name in ACTIONS if mask[name] and name != "stop"]
        env.step(ACTIONS.index(str(rng.choice(chosen))))


def test_stop_ends_the_episode_at_once() -> None:
    env = env_of(48, 64, 40)
    env.reset(seed=0)
    env.step(ACTIONS.index("down"))
    assert env.step(ACTIONS.index("stop"))[2]
    assert env.space.describe(env.candidate) == "i:48 j:64 | tile | k:40"


def test_finished_nests_are_legal_and_keep_their_loops_order() -> None:
    rng = np.random.default_rng(1)
    for shape in ((48, 64, 40), (37, 53, 29), (1, 97, 64), (300, 500, 7)):
        space = LoopSpace(workload("matmul", *shape), TARGET)
        for threads in (1, 4):
            for _ in range(15):
                nest = initial(space.frame)
                for _ in range(int(rng.integers(12))):
                    steps = [s for s in legal_steps(nest) if s[0] in ("split", "swap", "move")]
                    nest = apply_step(nest, steps[int(rng.integers(len(steps)))])
                made = finish(nest, threads)
                assert problem(made) is None
                assert problem(canonical(made)) is None
                kept = [loop.axis for loop in made.loops][: len(nest.loops)]
                assert kept == [loop.axis for loop in nest.loops]
                assert (made.band > 0) <= (threads > 1)


def test_a_long_innermost_loop_is_split_into_vectors() -> None:
    space = LoopSpace(workload("matmul", 96, 480, 40), TARGET)
    nest = finish(apply_step(space.start, ("swap", 1)))
    vector = nest.vector
    assert vector is not None
    assert nest.contiguous(vector.axis)
    assert 480 % vector.extent == 0
    assert vector.extent % nest.frame.native == 0
    prime = LoopSpace(workload("matmul", 96, 479, 40), TARGET)
    ragged = finish(apply_step(prime.start, ("swap", 1)))
    assert ragged.vector == Loop(1, prime.frame.native, "vectorize")


def test_what_cannot_be_a_vector_is_none() -> None:
    space = LoopSpace(workload("matmul", 48, 64, 40), TARGET)
    assert finish(space.start).vector is None  # k is summed up
    columns = apply_steps(space.start, [("swap", 0), ("swap", 1)])
    assert columns.loops[-1].axis == 0
    assert is_legal(columns, ("vectorize",))
    assert finish(columns).vector is None  # along i every access would jump


def test_outer_loops_run_in_parallel_where_it_pays() -> None:
    large = LoopSpace(workload("matmul", 128, 128, 128), TARGET)
    assert finish(large.start, threads=4).band == 1
    assert finish(large.start, threads=1).band == 0
    small = LoopSpace(workload("matmul", 8, 8, 8), TARGET)
    assert finish(small.start, threads=4).band == 0
