"""Numbers of loop nests: the register tile, the caches, what is cut short."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from tensortune.data.candidate import Candidate
from tensortune.data.loop_space import LoopSpace
from tensortune.data.loops.nest import Nest
from tensortune.data.loops.steps import Step, apply_steps
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload
from tensortune.search.rl.nest_features import COLUMNS, SCHEMA, features, nest_of

TARGET = cpu_target("llvm -num-cores=1")
# i6 j2 | tile | k40, unrolled i8, vectorised j32
TILE: list[Step] = [
    *(("split", 0, 8), ("split", 2, 32), ("move", 2, 1), ("move", 4, 2)),
    *(("accumulate", 2), ("vectorize",), ("unroll", 3)),
]


def space_of(key: str) -> LoopSpace:
    return LoopSpace(Workload.from_key(key), TARGET)


def told(nest: Nest, threads: int = 1) -> dict[str, float]:
    return dict(zip(COLUMNS, features(nest, threads), strict=True))


def test_the_register_tile_is_told_of() -> None:
    space = space_of("matmul(m=48,n=64,k=40)")
    nest = apply_steps(space.start, TILE)
    row = told(nest)
    vectors = -(-32 // nest.frame.native)
    assert row["iterations"] == pytest.approx(np.log2(48 * 64 * 40))
    assert (row["lanes"], row["vectors"], row["rows"]) == (5, vectors, 3)
    assert row["accumulators"] == np.log2(8 * vectors)
    assert row["vector loads"] == pytest.approx(1 / 8)  # of B, for eight rows
    assert row["other loads"] == pytest.approx(1 / vectors)  # of A, for each row
    assert row["inner reduction"] == pytest.approx(np.log2(40))
    assert row["tile size"] == np.log2(8 * 32)
    assert row["write-backs"] == 0
    assert row["stride"] == pytest.approx(np.log2(1 + 64 * 4))
    assert row["twos of the stride"] == 8
    assert row["waste"] == row["ragged axes"] == 0


def test_the_caches_tell_loop_orders_apart() -> None:
    """With k innermost B is read anew for every row; with all of it in the cache it is not."""
    space = space_of("matmul(m=256,n=256,k=256)")
    plain, swapped = told(space.start), told(apply_steps(space.start, [("swap", 1)]))
    assert plain["cache 2^13: moved"] > swapped["cache 2^13: moved"]
    small = told(space_of("matmul(m=32,n=32,k=32)").start)
    assert small["cache 2^15: inside"] == 15
    assert small["cache 2^15: moved"] == pytest.approx(np.log2(3 * 32 * 32 * 4) - 15)


def test_what_is_cut_short_is_told_of() -> None:
    row = told(apply_steps(space_of("matmul(m=50,n=72,k=40)").start, TILE[:4] + TILE[5:6]))
    assert row["ragged axes"] == 2
    assert row["vector tail"] == pytest.approx(8 / 32)
    assert row["waste"] == pytest.approx(np.log2(56 / 50 * 96 / 72))


def test_threads_are_told_of() -> None:
    nest = apply_steps(space_of("matmul(m=48,n=64,k=40)").start, [("parallel", 0)])
    assert told(nest, 5)["balance"] == pytest.approx(48 / 50)
    assert told(nest, 1)["parallel"] == pytest.approx(np.log2(48))


@pytest.mark.parametrize(
    "key",
    [
        "matmul(m=37,n=53,k=29)",
        "matmul(m=1,n=97,k=64)",
        "conv2d_bn_relu(n=1,h=7,w=7,ci=8,co=16,kernel=3,stride=1,padding=1)",
        "softmax(m=37,n=64)",
        "mean(m=7,n=101)",
        "add(m=37,n=64)",
    ],
)
def test_every_nest_has_finite_numbers(key: str) -> None:
    space = space_of(key)
    for candidate in space.sample(np.random.default_rng(0), 30):
        row = features(space.nest(candidate), 2)
        assert len(row) == SCHEMA.width
        assert np.isfinite(row).all()


def test_a_candidate_is_read_as_its_space_reads_it() -> None:
    space = space_of("conv2d_bn_relu(n=1,h=7,w=7,ci=8,co=16,kernel=3,stride=1,padding=1)")
    for candidate in space.sample(np.random.default_rng(1), 20):
        assert nest_of(space.frame, candidate) == space.nest(candidate)
    candidate = Candidate.from_json(space.sample(np.random.default_rng(2), 1)[0].to_json())
    assert nest_of(space.frame, candidate) == space.nest(candidate)
