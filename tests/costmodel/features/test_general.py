"""General decision features: what they say of known nests, in both spaces; and their speed."""

from __future__ import annotations

import itertools
import time
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensortune.costmodel.features import general
from tensortune.costmodel.features.general_columns import AT
from tensortune.costmodel.features.general_dataset import cache_folder, samples_of_dataset
from tensortune.costmodel.features.general_shapes import read_shapes
from tensortune.costmodel.features.schemas import GENERAL, GENERAL_COLUMNS
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.dataset import Dataset
from tensortune.data.loop_space import LoopSpace
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.suites import suite
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload

TARGET = cpu_target()


@cache
def sketch_space(operator: str, *shape: int) -> SketchSpace:
    return SketchSpace(workload(operator, *shape), TARGET)


@cache
def loop_space(operator: str, *shape: int) -> LoopSpace:
    return LoopSpace(workload(operator, *shape), TARGET)


def told(space: Any, point: Any) -> dict[str, float]:
    (row,) = general.extract(space, [Candidate(space.name, point)])
    return dict(zip(GENERAL_COLUMNS, row.tolist(), strict=True))


def tiled(space: SketchSpace, level: int) -> int:
    """The sketch that gathers results within so many levels of spatial tiles; 0 for none."""
    found = [told(space, (n, POINT))["write cache elements"] for n in range(len(space.sketches))]
    return next(n for n, size in enumerate(found) if np.array_equal(size, WRITTEN[level], True))


# i, j and k of a product of 256 x 256 x 256, then the second of the limits of unrolling.
POINT = ((4, 4, 2, 8), (2, 2, 1, 64), (16, 16), 1)
WRITTEN = {0: np.nan, 1: 6 + 7, 2: 4 + 6}  # log2 of the elements


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_tiled_product(level: int) -> None:
    space = sketch_space("matmul", 256, 256, 256)
    found = told(space, (tiled(space, level), POINT))
    wanted = {
        "loop space": 0,
        "flops": 25,
        "spatial extent": 16,
        "reduction extent": 8,
        "outer spatial": 6,
        "outer reduction": 4,
        "middle spatial": 1,
        "inner reduction": 4,
        "register tile": 9,
        "largest factor": 6,
        "second factor": 3,
        "lanes": 6,
        "rows": 3,
        # Of A a column of 8, of B a row of 64, for 512 results.
        "loads a result": np.log2(72 / 512),
        # 8 elements that are broadcast, and one vector, for 8 vectors of results.
        "loads a vector": np.log2(9 / 8),
        "vector stride 1": 2 / 3,
        "vector stride 0": 1 / 3,
        # 16 rows of A, each 16 elements or one cache line; 16 rows of B; and of C.
        "inner bytes": np.log2(16 * 64 + 16 * 256 + 16 * 256),
        "unroll limit": np.log2(17),
        "write cache": float(level > 0),
        "waste": 0,
    }
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, abs=2e-3), name
    # Loops are fused until there are more than 32 tasks, if nothing is between them.
    if found["threads"] == 2:
        assert found["parallel"] == np.log2({0: 64, 1: 8, 2: 64}[level])


def test_levels_of_one_iteration_are_none() -> None:
    space = sketch_space("matmul", 256, 256, 256)
    found = told(space, (tiled(space, 0), ((4, 4, 2, 8), (2, 2, 1, 64), (256, 1), 0)))
    assert found["outer reduction"] == 0
    assert found["inner reduction"] == 8
    assert found["middle spatial"] == 0
    assert found["register tile"] == 10  # the level inside of the one reduction there is


def test_the_same_nest_is_the_same_in_both_spaces() -> None:
    shape = ("matmul", 256, 256, 256)
    sketches, loops = sketch_space(*shape), loop_space(*shape)
    # One loop a level but the last, so that there are as many boundaries that matter.
    nest = (
        *((0, 16, "parallel"), (1, 4, "parallel"), (2, 16, "")),
        *((0, 2, ""), (2, 16, ""), (0, 8, ""), (1, 64, "vectorize")),
    )
    one = told(sketches, (tiled(sketches, 0), ((16, 1, 2, 8), (1, 4, 1, 64), (16, 16), 0)))
    other = told(loops, (nest, (), (), ()))
    differ = {"loop space", "unroll limit", "unrolled", "body over limit"}
    for name in GENERAL_COLUMNS:
        if name not in differ:
            assert one[name] == pytest.approx(other[name], abs=1e-4, nan_ok=True), name


def test_what_a_tile_touches_is_counted_exactly() -> None:
    """Of a strided convolution, by enumeration."""
    shapes = read_shapes(workload("conv2d", 1, 14, 14, 8, 16, 3, 2, 1).mod)
    conv = shapes[-1]
    rng = np.random.default_rng(0)
    for _ in range(20):
        tile = [int(rng.integers(1, extent + 1)) for extent in conv.extents]
        tiles = np.array(tile, np.float32)[None, :, None]
        for tensor in conv.tensors:
            places = {
                tuple(int(sum(step * at[axis] for axis, step in dim.steps)) for dim in tensor.dims)
                for at in itertools.product(*map(range, tile))
            }
            spans = [max(p[d] for p in places) + 1 for d in range(len(tensor.dims))]
            elements, _, run = tensor.touched(tiles)
            assert elements.item() == pytest.approx(np.prod(spans))
            assert run.item() == spans[-1]


def test_where_other_blocks_are_computed() -> None:
    space = sketch_space("softmax", 64, 128)
    for index, sketch in enumerate(space.sketches):
        factored = sum(decision.key.endswith("loop 1") for decision in sketch.decisions)
        points = sketch.draw(20, np.random.default_rng(0))
        rows = general.extract(space, [Candidate("sketch", (index, p)) for p in points])
        assert (rows[:, AT["factored"]] == factored).all()
        assert (rows[:, AT["tiled"]] == 0).all()
        places = [n for n, d in enumerate(sketch.decisions) if type(d).__name__ == "Location"]
        for name, value in (("inlined", -2), ("at the root", -1)):
            counts = [sum(point[n] == value for n in places) for point in points]
            assert rows[:, AT[name]].tolist() == counts
        # `total` is the last block but one.
        last = next(n for n, d in enumerate(sketch.decisions) if d.key == "block total")
        assert rows[:, AT["block 0: place"]].tolist() == [point[last] for point in points]


def test_a_padding_that_is_computed_again() -> None:
    space = loop_space("depthwise_conv2d", 1, 14, 14, 32, 3, 1, 1)
    names = [axis.name for axis in space.frame.axes]
    nest = tuple((n, axis.extent, "") for n, axis in enumerate(space.frame.axes))
    ahead, inlined = (told(space, (nest, (), (stage,), ())) for stage in (0, -1))
    assert (ahead["block 0: place"], inlined["block 0: place"]) == (-1, -2)
    assert ahead["recomputed"] == 0
    # Each of its elements is read for 9 results, but for those at the edge.
    assert inlined["recomputed"] == pytest.approx(np.log2(9 * 14**2 / 16**2), abs=1e-4)
    outer = told(space, (nest, (), (1,), ()))
    assert names[0] == "h"
    assert outer["recomputed"] == pytest.approx(np.log2(14 * 3 / 16), abs=1e-4)


def test_an_inlined_transposition_is_read_across() -> None:
    shape = ("transpose_batch_matmul", 1, 32, 2, 16)
    space = loop_space(*shape)
    names = [producer.name for producer in space.frame.producers]
    heads, i, j, k = range(4)
    nest = ((heads, 2, ""), (i, 32, ""), (k, 16, ""), (j, 32, "vectorize"))
    for inlined in ([], ["Q_T"], ["K_T"], ["Q_T", "K_T"]):
        found = told(space, (nest, (), tuple(-(name in inlined) for name in names), ()))
        across = "K_T" in inlined  # j is its contiguous axis, and that of the result
        assert found["vector stride 1"] == pytest.approx((2 - across) / 3)
        assert found["vector other stride"] == pytest.approx(across / 3)
    sketches = sketch_space(*shape)
    rows = general.extract(sketches, sketches.guess(np.random.default_rng(0), 300))
    tiled = rows[rows[:, AT["lanes of the contiguous axis"]] > 0]
    assert len(np.unique(tiled[:, AT["vector stride 1"]])) > 1


def test_an_axis_of_groups_stays_where_it_is_within_one() -> None:
    """The output channels of a group read the same input channels."""
    (*_, conv) = read_shapes(workload("grouped_conv2d", 1, 8, 8, 16, 32, 3, 1, 1, 1, 4).mod)
    channels = conv.contiguous()
    assert channels is not None
    assert [tensor.stride(channels) for tensor in conv.tensors] == [0, 1, 1]


@pytest.mark.parametrize("make", [SketchSpace, LoopSpace])
def test_every_candidate_has_features_of_its_own(make: Any) -> None:
    """Not those of the batch: in any order and any company they are the same."""
    rng = np.random.default_rng(0)
    for item in (*suite("smoke"), workload("transpose_batch_matmul", 1, 32, 2, 16)):
        space = make(item, TARGET)
        candidates = space.guess(rng, 50)
        rows = general.extract(space, candidates)
        assert rows.shape == (50, GENERAL.width)
        assert not np.isinf(rows).any()
        assert equal(rows[::-1], general.extract(space, candidates[::-1]))
        assert equal(rows[7:8], general.extract(space, candidates[7:8]))


def equal(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    return np.array_equal(a, b, equal_nan=True)


def test_more_candidates_than_are_computed_at_once() -> None:
    space = sketch_space("matmul", 256, 256, 256)
    candidates = space.guess(np.random.default_rng(0), 2 * general._CHUNK + 10)
    parts = [general.extract(space, candidates[i : i + 1000]) for i in range(0, 5000, 1000)]
    assert equal(np.concatenate(parts), general.extract(space, candidates))


def test_no_candidates() -> None:
    for space in (sketch_space("matmul", 256, 256, 256), loop_space("matmul", 256, 256, 256)):
        samples = general.samples(space, [])
        assert len(samples) == 0
        assert samples.schema == GENERAL


def test_candidates_of_another_space_are_refused() -> None:
    sketches, loops = (f("matmul", 256, 256, 256) for f in (sketch_space, loop_space))
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidCandidate, match="loop"):
        general.extract(sketches, loops.guess(rng, 1))
    with pytest.raises(InvalidCandidate, match="sketch"):
        general.extract(loops, sketches.guess(rng, 1))
    with pytest.raises(InvalidCandidate, match="sketch space"):
        general.extract(sketches, [Candidate("sketch", (-1, POINT))])
    with pytest.raises(InvalidCandidate, match="sketch space"):
        general.extract(sketches, [Candidate("sketch", (0, ((1, 2),)))])
    with pytest.raises(InvalidCandidate, match="loop space"):
        general.extract(loops, [Candidate("loop", ((1, 2),))])
    with pytest.raises(TypeError, match="object"):
        general.extract(object(), [])  # type: ignore[arg-type]


def test_a_space_is_forgotten_with_its_features() -> None:
    before = len(general._KNOWN)
    space = SketchSpace(workload("relu", 8, 8), TARGET)
    general.extract(space, [])
    assert len(general._KNOWN) == before + 1
    del space
    assert len(general._KNOWN) <= before


def test_scoring_costs_a_fraction_of_a_replay() -> None:
    """A replay takes a millisecond, and both together are to take under ten microseconds."""
    space = sketch_space("conv2d", 1, 14, 14, 32, 32, 3, 1, 1)
    rng = np.random.default_rng(0)
    candidates = space.guess(rng, 2048)
    samples = general.samples(space, candidates, rng.random(2048) + 1)
    model = XGBModel(rounds=100, max_depth=6)
    model.fit(samples)
    start = time.process_time()
    model.predict(general.samples(space, candidates))
    each = (time.process_time() - start) / len(candidates)
    start = time.process_time()
    for candidate in space.sample(rng, 20):
        space.schedule(candidate)
    assert each < (time.process_time() - start) / 20 / 20


def test_of_a_dataset(measured_dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    found = samples_of_dataset(measured_dataset)
    assert not found.missing
    assert found.positions.tolist() == list(range(len(measured_dataset)))
    assert found.samples.schema == GENERAL
    assert np.array_equal(found.samples.groups, measured_dataset.groups)
    assert np.array_equal(found.samples.latency_s, measured_dataset.latency_s)
    assert cache_folder(measured_dataset).is_dir()
    # What is kept is not computed again.
    monkeypatch.setattr(general, "extract", None)
    again = samples_of_dataset(measured_dataset)
    assert equal(again.samples.rows, found.samples.rows)


def test_of_a_dataset_in_memory(measured_dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="folder"):
        samples_of_dataset(measured_dataset.take([0]))
