"""Relation features: exact on a program by hand, one row whatever the number of loops."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from tvm import te
from tvm.s_tir import Schedule

from tensortune.costmodel.base import Floats, Samples
from tensortune.costmodel.features import loops, relations
from tensortune.costmodel.features.schemas import (
    LOOPS,
    RELATION_CURVES,
    RELATIONS,
    STATEMENTS,
    VERSIONS,
    loop_names,
    relation_names,
)
from tensortune.data.candidate import Candidate
from tensortune.data.space import Scheduled
from tensortune.data.spaces import make_space
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload

TARGET = cpu_target("llvm -num-cores=2")
AT = {name: i for i, name in enumerate(loop_names())}


def rows_of(mod: Any) -> Floats:
    return loops.extract([Scheduled(Candidate("by hand", ()), mod, None)], TARGET)[0]


def named(rows: Floats) -> dict[str, float]:
    made = relations.of(Samples.of(LOOPS, [rows])).rows
    return dict(zip(relation_names(), made[0].tolist(), strict=True))


def tiled() -> Any:
    """Loops: io > jo > (ii > ji > C = 0; k > ii > ji > C += A * B), as in `test_loops`."""
    a = te.placeholder((32, 16), name="A")
    b = te.placeholder((16, 64), name="B")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((32, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    schedule = Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("C")
    i, j, axis = schedule.get_loops(block)
    io, ii = schedule.split(i, [8, 4])
    jo, ji = schedule.split(j, [4, 16])
    schedule.reorder(io, jo, axis, ii, ji)
    schedule.parallel(io)
    schedule.vectorize(ji)
    schedule.unroll(ii)
    schedule.decompose_reduction(block, axis)
    return schedule.mod


def chain(depth: int, seed: int) -> Floats:
    """A statement within so many loops, some beside it, with made-up columns."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0, 9, (depth + 2, LOOPS.width)).astype(np.float32)
    rows[:, AT["rows up to the parent"]] = 1
    rows[0, 0] = 0
    # The last statement stands beside the one before it, within the innermost loop.
    rows[-1, 0] = 2
    rows[:, AT["statement"]] = [0] * depth + [1, 1]
    rows[:, AT["length"]] = [2.0] * depth + [0, 0]
    rows[:, AT["top-down"]] = np.cumsum(rows[:, AT["length"]])
    return rows


@pytest.fixture(scope="module")
def programs() -> list[Floats]:
    found = []
    for operator, shape in (("matmul", (32, 48, 24)), ("softmax", (32, 48)), ("sum", (48, 64))):
        for name in ("sketch", "loop"):
            space = make_space(name, workload(operator, *shape), TARGET)
            drawn = space.sample(np.random.default_rng(0), 10)
            found += loops.extract([space.schedule(c) for c in drawn], TARGET)
    return found


def test_the_names_are_one_a_column() -> None:
    assert len(relation_names()) == RELATIONS.width == len(set(relation_names()))
    assert 60 <= RELATIONS.width <= 300
    assert VERSIONS["relations"] == RELATIONS.version


def test_the_totals_of_a_tiled_product() -> None:
    found = named(rows_of(tiled()))
    log = math.log2
    products, results = 32 * 64 * 16, 32 * 64
    for name, expected in {
        "statements": log(3),
        "loops": log(8),
        "roots": 1,
        "runs": log(1 + products + results),
        "float mad": log(1 + products),
        "loads": log(1 + 3 * products),
        "stores": log(1 + products + results),
        "float add": 0,
        "guards": 0,
        "threads: log": 3,
        "threads: share": 1,
        "threads: most": 3,
        "lanes: most": 4,
        "unrolled: most": 2,
        "item bytes": 2,
        "unroll limit": 0,
        "partitioned": 0,
        "local bytes": 0,
    }.items():
        assert found[name] == pytest.approx(expected, rel=1e-5), name


def test_the_caches_of_a_tiled_product() -> None:
    found = named(rows_of(tiled()))
    # 2 KiB of A, 4 KiB of B and 8 KiB of C fit 32 KiB, and are moved once: 14 KiB in lines.
    assert found["cache 2^15: moved"] == pytest.approx(math.log2(1 + 14 * 1024), rel=1e-5)
    assert found["cache 2^15: fits"] == pytest.approx(math.log2(32 * 64 * 17), rel=1e-5)
    work = math.log2(1 + 32 * 64 * 16)
    assert found["cache 2^15: work"] == pytest.approx(work - math.log2(1 + 14 * 1024), rel=1e-4)
    # 1 KiB takes in one iteration of `k`: the rows of A, of B and of C that it goes through. A loop
    # `k` comes to 1.5 KiB, so `ii` runs 16 times in each of the 32 tiles, and touches 4 lines of C,
    # 1 of B and 4 of A (a column of 4); the tile of zeros is 4 lines.
    lines = 32 * (16 * (4 + 1 + 4) + 4)
    assert found["cache 2^10: moved"] == pytest.approx(math.log2(1 + 64 * lines), rel=1e-5)
    assert found["cache 2^25: moved"] <= found["cache 2^15: moved"] <= found["cache 2^10: moved"]


def test_the_curves_are_the_paper_s_definition(programs: list[Floats]) -> None:
    names = loop_names()
    for rows in (*programs[::7], rows_of(tiled())):
        found = named(rows)
        loop = rows[rows[:, AT["statement"]] == 0]
        for i in range(5):
            there = loop[loop[:, AT[f"buffer {i}: read"]] + loop[:, AT[f"buffer {i}: written"]] > 0]
            for of, by, thresholds in RELATION_CURVES:
                key = f"buffer {i}: {by}"
                below = there[:, AT[key if key in names else by]]
                value = there[:, AT[f"buffer {i}: {of}"]]
                for threshold in thresholds:
                    expected = value[below < threshold].max(initial=0)
                    assert found[f"buffer {i}: {of} where {by} < 2^{threshold}"] == expected


def test_one_row_however_many_loops(programs: list[Floats]) -> None:
    deep = [chain(depth, depth) for depth in range(1, 31)]
    made = relations.of(Samples.of(LOOPS, [*deep, *programs]))
    assert made.schema == RELATIONS
    assert made.rows.shape == (len(deep) + len(programs), RELATIONS.width)
    assert made.rows.dtype == np.float32 and made.counts.tolist() == [1] * len(made)
    assert np.isfinite(made.rows).all()
    assert len(np.unique(made.rows, axis=0)) > len(made) / 2


def test_together_as_one_by_one(programs: list[Floats]) -> None:
    together = relations.of(Samples.of(LOOPS, programs)).rows
    for rows, row in zip(programs, together, strict=True):
        np.testing.assert_array_equal(relations.of(Samples.of(LOOPS, [rows])).rows[0], row)


def test_many_programs_at_once_cost_little_each(programs: list[Floats]) -> None:
    many = Samples.of(LOOPS, programs * 20)
    start = time.perf_counter()
    relations.of(many)
    batch = (time.perf_counter() - start) / len(many)
    start = time.perf_counter()
    for rows in programs:
        relations.of(Samples.of(LOOPS, [rows]))
    single = (time.perf_counter() - start) / len(programs)
    assert batch < single / 3


def test_a_program_without_loop_features_has_none(programs: list[Floats]) -> None:
    nothing = np.full((1, LOOPS.width), np.nan, dtype=np.float32)
    made = relations.of(Samples.of(LOOPS, [programs[0], nothing, programs[1]])).rows
    assert np.isnan(made[1]).all()
    np.testing.assert_array_equal(made[[0, 2]], relations.of(Samples.of(LOOPS, programs[:2])).rows)


def test_measurements_stay_with_their_programs(programs: list[Floats]) -> None:
    made = relations.of(Samples.of(LOOPS, programs[:3], [3.0, np.inf, 1.0], [0, 1, 0]))
    assert made.latency_s.tolist() == [3.0, np.inf, 1.0] and made.groups.tolist() == [0, 1, 0]
    assert len(relations.of(Samples.of(LOOPS, []))) == 0
    with pytest.raises(ValueError, match="relations are of loops v1, not of statements"):
        relations.of(Samples.of(STATEMENTS, []))
