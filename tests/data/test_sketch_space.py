"""MetaSchedule's space: what is drawn is legal, stays as it is, and is described alike."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.sketch import Category, Location, Sketch, Tile
from tensortune.data.sketch_space import SketchSpace, tune_context
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload

OPERATORS: dict[str, tuple[str, tuple[int, ...]]] = {
    "matmul": ("matmul", (512, 512, 512)),
    "primes": ("matmul", (127, 131, 67)),
    "large primes": ("matmul", (7919, 8198, 3)),
    "units": ("matmul", (64, 1, 1)),
    "conv2d": ("conv2d", (1, 14, 14, 256, 256, 3, 1, 1)),
    "conv2d of primes": ("conv2d", (1, 23, 29, 3, 65, 3, 2, 1)),
    "depthwise": ("depthwise_conv2d", (1, 14, 14, 512, 3, 2, 1)),
    "transposed": ("transposed_conv2d", (1, 8, 8, 256, 128, 4, 2, 1)),
    "pooling": ("avg_pool2d", (1, 13, 13, 67, 3, 1, 1)),
    "softmax": ("softmax", (512, 512)),
    "softmax of primes": ("softmax", (127, 263)),
    "norm": ("norm", (1, 256, 256)),
    "mean": ("mean", (512, 512)),
    "nothing to tune": ("add", (64, 64)),
}


@cache
def space_of(name: str) -> SketchSpace:
    operator, shape = OPERATORS[name]
    return SketchSpace(workload(operator, *shape), cpu_target(None))


@cache
def samples_of(name: str) -> tuple[Candidate, ...]:
    return tuple(space_of(name).sample(np.random.default_rng(0), 24))


@pytest.fixture(params=sorted(OPERATORS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def decisions(candidate: Candidate) -> tuple[Any, ...]:
    taken = candidate.point[1]
    assert isinstance(taken, tuple)
    return taken


def sketch_of(space: SketchSpace, candidate: Candidate) -> Sketch:
    index = candidate.point[0]
    assert isinstance(index, int)
    return space.sketches[index]


def test_samples_are_legal_and_stay_as_they_are(name: str) -> None:
    fresh = SketchSpace(workload(OPERATORS[name][0], *OPERATORS[name][1]), cpu_target(None))
    for candidate in samples_of(name):
        taken = zip(sketch_of(fresh, candidate).decisions, decisions(candidate), strict=True)
        assert all(decision.legal(value) for decision, value in taken)
        # Replayed by a space that never saw it, so nothing comes from a cache.
        assert fresh.schedule(candidate).candidate == candidate


def test_what_neighbours_snap_to_stays_as_it_is(name: str) -> None:
    space = space_of(name)
    moved = space.neighbours(samples_of(name), np.random.default_rng(1))
    refused = 0
    for candidate in moved:
        try:
            canonical = space.schedule(candidate).candidate
        except InvalidCandidate:
            refused += 1
            continue
        space._cache.clear()
        assert space.schedule(canonical).candidate == canonical
    # Post-processors refuse some, most of all of the transposed convolution (1 in 10).
    assert refused <= len(moved) / 3


def test_neighbours_stay_in_range(name: str) -> None:
    space = space_of(name)
    rng = np.random.default_rng(1)
    walkers: Sequence[Candidate] = samples_of(name)
    for _ in range(20):
        walkers = space.neighbours(walkers, rng)
        for candidate in walkers:
            taken = zip(sketch_of(space, candidate).decisions, decisions(candidate), strict=True)
            assert all(decision.legal(value) for decision, value in taken)


def test_size_is_no_less_than_what_is_drawn(name: str) -> None:
    space = space_of(name)
    assert len(set(samples_of(name))) <= space.size
    assert (space.size == 1) == (name == "nothing to tune")


def test_encode_is_the_decisions_column_by_column() -> None:
    space = space_of("conv2d")
    rows = space.encode(samples_of("conv2d"))
    for candidate, row in zip(samples_of("conv2d"), rows, strict=True):
        index = candidate.point[0]
        expected: list[float] = [float(i == index) for i in range(len(space.sketches))]
        sketch = sketch_of(space, candidate)
        for decision, value in zip(sketch.decisions, decisions(candidate), strict=True):
            if isinstance(decision, Tile):
                expected += [math.log2(size) for size in value]
            elif isinstance(decision, Category):
                expected.append(math.log2(1 + decision.values[value]))
            else:
                expected.append(value)
        applies = row[~np.isnan(row)]
        assert sorted(applies) == pytest.approx(sorted(expected), abs=1e-6)


def test_encode_shares_columns_between_sketches() -> None:
    """Sketches of softmax differ in their decisions; those they share have one column."""
    space = space_of("softmax")
    rows = space.encode(samples_of("softmax"))
    assert np.isnan(rows).any()
    decided = rows[:, len(space.sketches) :]
    assert np.isfinite(decided).all(axis=0).any()


@pytest.mark.parametrize(
    ("sizes", "innermost"), [((8, 1, 1, 2), 64), ((127, 1), 64), ((1, 1), 64), ((6, 35, 2), 4)]
)
def test_a_tile_moves_to_every_tiling_one_factor_away(
    sizes: tuple[int, ...], innermost: int
) -> None:
    tile = Tile("loop", math.prod(sizes), len(sizes), innermost)
    moves = tile.moves(sizes)
    assert len(set(moves)) == len(moves)
    assert all(tile.legal(moved) for moved in moves)
    for moved in moves:
        ups = sum(a < b for a, b in zip(sizes, moved, strict=True))
        downs = sum(a > b for a, b in zip(sizes, moved, strict=True))
        assert (ups, downs) == (1, 1)
        assert sizes in tile.moves(moved)  # and back


def test_tiles_reach_all_tilings() -> None:
    tile = Tile("loop", 24, 3, 8)
    reached, front = {(24, 1, 1)}, [(24, 1, 1)]
    while front:
        front = [m for sizes in front for m in tile.moves(sizes) if m not in reached]
        reached.update(front)
    assert len(reached) == tile.size


def test_others_move_anywhere_else() -> None:
    assert Category("unroll", (0, 16, 64)).moves(1) == (0, 2)
    assert Location("block", 1).moves(0) == (-2, -1, 1)
    # Above what moves lead to, but legal: TVM snaps it.
    assert Location("block", 1).legal(5)
    assert Location("block", 1).moves(5) == (-2, -1, 0, 1)
    assert not Location("block", 1).legal(10**6)


def test_a_space_of_given_sketches_is_the_same(name: str) -> None:
    space = space_of(name)
    context = tune_context(space.workload.mod, space.target)
    given = SketchSpace(
        space.workload,
        space.target,
        sketches=context.generate_design_space(),
        postprocs=context.space_generator.postprocs,
    )
    assert given.sketches == space.sketches
    assert given.sample(np.random.default_rng(0), 3) == space.sample(np.random.default_rng(0), 3)


def test_a_trace_leads_back_to_its_candidate(name: str) -> None:
    space = space_of(name)
    for candidate in samples_of(name):
        trace = space.schedule(candidate).trace
        assert space.find(trace) == candidate
        assert space.find(trace.simplified(True)) == candidate
    other = SketchSpace(workload("conv1d", 1, 32, 16, 16, 3, 1, 1), space.target)
    assert other.find(trace) is None


def test_the_intrinsics_of_gpus_are_never_loaded() -> None:
    """Their import takes 15 s."""
    code = (
        "import sys\n"
        "from tensortune.data.sketch_space import SketchSpace\n"
        "from tensortune.data.target import cpu_target\n"
        "from tensortune.data.workload import workload\n"
        "SketchSpace(workload('matmul', 64, 64, 64), cpu_target(None))\n"
        "sys.exit('tvm.s_tir.tensor_intrin.cuda' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0
