"""Transformations by sub-steps: what they make, and that the masks are the space's legality."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from tensortune.data.loops.legality import problem
from tensortune.data.loops.nest import Loop, Nest
from tensortune.data.loops.steps import apply_step, apply_steps, is_legal, steps_to
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload
from tensortune.search.rl.cursor_env import loop_spaces
from tensortune.search.rl.observe import LOOP_COLUMNS, GraphObserver
from tensortune.search.rl.speed import ToySpeed
from tensortune.search.rl.transform_env import SIZES, TRANSFORMATIONS, TransformEnv

TARGET = cpu_target("llvm -num-cores=1")
MATMUL = "matmul(m=48,n=64,k=40)"
PRIMES = "matmul(m=37,n=53,k=24)"
BATCH = "batch_matmul(b=3,m=17,n=24,k=16)"
CONV = "conv2d(n=1,h=7,w=9,ci=6,co=17,kernel=3,stride=1,padding=1)"


def env_of(key: str, **options: Any) -> TransformEnv:
    spaces = loop_spaces([Workload.from_key(key)], TARGET)
    env = TransformEnv(spaces, ToySpeed(), **options)
    env.reset(seed=0)
    return env


def take(env: TransformEnv, group: str, *values: int | str) -> None:
    """Take legal actions of a group, by name or by number."""
    for value in values:
        number = TRANSFORMATIONS.index(value) if isinstance(value, str) else value
        action = env.groups[group][number]
        assert env.action_masks()[action], (group, value)
        assert env.step(action)[4]["legal"]


def tile(env: TransformEnv, sizes: tuple[int, ...], name: str = "tile") -> None:
    take(env, "transformation", name)
    take(env, "size", *(SIZES.index(size) for size in sizes))


def loops(nest: Nest) -> str:
    names = [axis.name for axis in nest.frame.axes] + ["partial"]
    return " ".join(f"{loop.mark} {names[loop.axis]}{loop.extent}".strip() for loop in nest.loops)


def open_masks(env: TransformEnv) -> set[tuple[str, int]]:
    """The legal actions as (group, number)."""
    mask = env.action_masks()
    return {
        (group, action - actions.start)
        for group, actions in env.groups.items()
        for action in actions
        if mask[action]
    }


def chosen(env: TransformEnv) -> set[str]:
    return {TRANSFORMATIONS[number] for _, number in open_masks(env)}


def test_a_register_tile() -> None:
    env = env_of(MATMUL)
    tile(env, (8, 32, 0))
    assert loops(env.nest) == "i6 j2 i8 j32 k40"
    take(env, "transformation", "interchange")
    take(env, "pointer", 4, 2)  # k, then i; j goes to the last place by itself
    take(env, "transformation", "accumulate", "vectorize", "unroll")
    take(env, "pointer", 3)
    assert env.space.describe(env.candidate) == "i:6 j:2 | tile | k:40 unroll i:8 vectorize j:32"
    take(env, "transformation", "stop")


def test_a_tile_of_one_moves_a_whole_loop_outwards() -> None:
    env = env_of(MATMUL)
    tile(env, (0, 1, 4))
    assert loops(env.nest) == "j64 k10 i48 k4"
    tile(env, (1, 1))
    assert loops(env.nest) == "j64 k10 i48 k4"
    assert chosen(env) & {"tile", "interchange", "unroll", "vectorize"} == set()


def test_parallel_tiles_are_the_outermost_ones() -> None:
    env = env_of(MATMUL)
    tile(env, (8, 16, 0), "tile_parallel")
    assert loops(env.nest) == "parallel i6 parallel j4 i8 j16 k40"
    tile(env, (0, 0, 8))
    assert loops(env.nest) == "parallel i6 parallel j4 k5 i8 j16 k8"
    assert "tile_parallel" not in chosen(env)
    other = env_of(PRIMES)
    take(other, "transformation", "tile_parallel")
    take(other, "size", SIZES.index(8))  # ragged: no second loop beside it
    assert open_masks(other) == {("size", 0)}
    take(other, "size", 0)
    assert open_masks(other) == {("size", 0)}


@pytest.mark.parametrize("name", ["tile", "tile_parallel"])
@pytest.mark.parametrize("key", [MATMUL, PRIMES, BATCH])
def test_every_tile_that_is_legal_and_no_other_can_be_chosen(key: str, name: str) -> None:
    """Against the space's own legality, over all combinations of some sizes."""
    env = env_of(key)
    start = env.nest
    mark = "parallel" if name == "tile_parallel" else ""
    sizes = (0, 1, 2, 8)
    for choice in product(sizes, repeat=len(start.loops)):
        pairs = list(zip(start.loops, choice, strict=True))
        if all(size < loop.extent for loop, size in pairs):
            outer = [Loop(p.axis, -(-p.extent // s), mark) for p, s in pairs if s]
            inner = [Loop(p.axis, s or p.extent) for p, s in pairs if s != 1]
            made = Nest(start.frame, (*outer, *inner), None, start.stages, None)
            legal = problem(made) is None and any(choice)
        else:
            legal = False
        state, reached = env._state, True
        take(env, "transformation", name)
        for size in choice:
            action = env.groups["size"][SIZES.index(size)]
            reached = reached and bool(env.action_masks()[action])
            if not reached:
                break
            env.step(action)
        assert reached == legal, choice
        if legal:
            assert env.nest == made
            assert apply_steps(start, steps_to(made)) == made
        env._state, env._mask = state, None


@pytest.mark.parametrize("key", [MATMUL, BATCH])
def test_level_pointers_make_exactly_the_order_pointed_at(key: str) -> None:
    env = env_of(key)
    start, state = env.nest, env._state
    count = len(start.loops)
    for order in permutations(range(count)):
        take(env, "transformation", "interchange")
        if order == tuple(range(count)):
            take(env, "pointer", *order[: count - 2])
            assert ("pointer", order[count - 2]) not in open_masks(env)  # nothing would change
        else:
            for place, level in enumerate(order[: count - 1]):
                left = {("pointer", at) for at in order[place:]}
                assert open_masks(env) <= left
                take(env, "pointer", level)
            assert env.nest.loops == tuple(start.loops[level] for level in order)
            assert env._state.left == state.left - 1
        env._state, env._mask = state, None


def test_pointers_stay_among_the_open_loops() -> None:
    env = env_of(MATMUL)
    tile(env, (8, 0, 8))
    take(env, "transformation", "interchange")
    assert open_masks(env) == {("pointer", 2), ("pointer", 3), ("pointer", 4)}
    take(env, "pointer", 3)
    assert open_masks(env) == {("pointer", 2), ("pointer", 4)}
    take(env, "pointer", 4)
    assert loops(env.nest) == "i6 k5 j64 k8 i8"


@pytest.mark.parametrize("interchange", ["permutations", "swaps"])
def test_other_interchanges_reach_the_orders_in_one_step(interchange: str) -> None:
    env = env_of(BATCH, interchange=interchange)
    group = interchange.removesuffix("s")
    start, state = env.nest, env._state
    take(env, "transformation", "interchange")
    ready, found = env._state, set()
    for _, number in open_masks(env):
        take(env, group, number)
        assert sorted(env.nest.loops) == sorted(start.loops)
        assert env.nest != start
        assert env._state.left == state.left - 1
        found.add(env.nest.loops)
        env._state, env._mask = ready, None
    # Four loops: all orders but one; three swaps at a distance of 1, two of 2 and one of 3.
    assert len(found) == (23 if interchange == "permutations" else 6)


def test_long_nests_permute_their_innermost_loops() -> None:
    env = env_of(CONV, interchange="permutations", most_permuted=3)
    start = env.nest
    take(env, "transformation", "interchange")
    assert len(open_masks(env)) == 5
    take(env, "permutation", 5)
    assert env.nest.loops == (*start.loops[:-3], *start.loops[:-4:-1])


def test_marks_and_places_come_after_the_shape() -> None:
    env = env_of(CONV)
    assert "fuse" not in chosen(env)  # nothing to be within yet
    tile(env, tuple(1 if n == 0 else 0 for n in range(len(env.nest.loops))))
    assert {"tile", "interchange", "fuse", "inline", "accumulate"} <= chosen(env)
    take(env, "transformation", "fuse")
    assert env.nest.stages == (1,)
    assert (
        chosen(env) & {"tile", "tile_parallel", "interchange", "factor", "fuse", "inline"} == set()
    )
    assert "accumulate" in chosen(env)


def test_a_factored_reduction_becomes_a_vector() -> None:
    env = env_of("mean(m=7,n=96)")
    assert "factor" not in chosen(env)  # all of the axis would be partial results
    tile(env, (1, 16))
    take(env, "transformation", "factor")
    take(env, "pointer", 2)
    take(env, "transformation", "vectorize", "accumulate")
    assert loops(env.nest) == "i7 k6 vectorize partial16"
    assert env.space.schedule(env.candidate).mod is not None


@pytest.mark.parametrize("key", [MATMUL, PRIMES, BATCH, CONV])
def test_masks_of_the_last_transformations_are_the_legal_steps(key: str) -> None:
    env, rng = env_of(key, horizon=12), np.random.default_rng(0)
    compared = 0
    for _ in range(600):
        state, nest = env._state, env.nest
        levels = range(state.point, len(nest.loops))
        unrolled = {("pointer", n) for n in levels if is_legal(nest, ("unroll", n))}
        if state.phase == "unroll":
            assert open_masks(env) == unrolled
            compared += 1
        elif state.phase == "choose":
            names = chosen(env)
            assert ("vectorize" in names) == (bool(levels) and is_legal(nest, ("vectorize",)))
            assert ("unroll" in names) == bool(unrolled)
            tiles = [n for n in range(len(nest.loops) + 1) if is_legal(nest, ("accumulate", n))]
            if nest.tile is None:
                assert "accumulate" not in names or tiles
        if env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))[2]:
            env.reset()
        elif nest.tile is None and env.nest.tile is not None:
            assert env.nest == apply_step(nest, ("accumulate", tiles[-1]))  # the innermost place
    assert compared > 10


def test_what_a_transformation_has_settled_is_shown() -> None:
    env = env_of(MATMUL, observation="graph")
    assert isinstance(env.observer, GraphObserver)

    def column(name: str) -> list[float]:
        matrix = env.observer.shape.split(env._observe())["loops"]
        return [round(float(x), 3) for x in matrix[: len(env.nest.loops), LOOP_COLUMNS.index(name)]]

    take(env, "transformation", "tile")
    assert column("cursor") == [1.0, 0.0, 0.0]
    take(env, "size", SIZES.index(8))
    assert column("cursor") == [0.0, 1.0, 0.0]
    assert column("choice") == [0.625, 0.0, 0.0]
    take(env, "size", SIZES.index(32), SIZES.index(0))
    assert column("open") == [0.0, 0.0, 1.0, 1.0, 1.0]
    take(env, "transformation", "interchange")
    take(env, "pointer", 4)
    assert column("choice") == [0.0, 0.0, 0.0, 0.0, 0.333]
