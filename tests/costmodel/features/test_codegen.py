"""What a compiler makes of innermost loops: programs by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te
from tvm.s_tir import Schedule

from tensortune.costmodel.base import Samples
from tensortune.costmodel.features import loops, relations
from tensortune.costmodel.features.schemas import CODEGEN_COLUMNS, LOOPS, relation_names
from tensortune.data.candidate import Candidate
from tensortune.data.space import Scheduled
from tensortune.data.target import cpu_target

TARGET = cpu_target("llvm -num-cores=2")


def compiled(schedule: Any) -> dict[str, float]:
    """The columns of a program, without their common first word."""
    scheduled = Scheduled(Candidate("by hand", ()), schedule.mod, None)
    rows = loops.extract([scheduled], TARGET)[0]
    made = relations.of(Samples.of(LOOPS, [rows])).rows[0].tolist()
    named = dict(zip(relation_names(), made, strict=True))
    return {name.removeprefix("compiled: "): named[name] for name in CODEGEN_COLUMNS}


def product(m: int, n: int, k: int) -> tuple[Any, Any, list[Any]]:
    """A product, its block and its loops i, j, k."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    schedule = Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("C")
    return schedule, block, schedule.get_loops(block)


def reordered(m: int, n: int, k: int, order: str) -> dict[str, float]:
    schedule, _, found = product(m, n, k)
    schedule.reorder(*(found["ijk".index(name)] for name in order))
    return compiled(schedule)


def test_a_vectorised_loop_gives_its_lanes_up_to_a_register() -> None:
    schedule, block, (i, j, k) = product(32, 64, 512)
    _, inner = schedule.split(j, [2, 32])
    schedule.reorder(i, k, inner)
    schedule.vectorize(inner)
    schedule.decompose_reduction(block, k)
    found = compiled(schedule)
    assert found["lanes"] == pytest.approx(4, abs=0.1), "16 floats, however many are asked for"
    assert found["registers"] == pytest.approx(1, abs=0.1), "two registers"
    assert found["machine loop"] == pytest.approx(9, abs=0.3), "the reduction"
    # Two sums at a time where eight would be in flight.
    assert found["waiting"] == pytest.approx(2, abs=0.1)
    assert found["scalar"] < 0.1 and found["gathered"] < 0.1


def test_a_short_reduction_inside_of_a_row_is_no_obstacle_to_vectors() -> None:
    found = reordered(32, 512, 8, "ijk")
    assert found["lanes"] == pytest.approx(4, abs=0.1)
    assert found["short reductions"] == pytest.approx(3, abs=0.1)
    assert found["along rows"] == pytest.approx(1, abs=0.01)


def test_a_long_reduction_in_one_register_waits_for_every_sum() -> None:
    found = reordered(32, 64, 512, "ijk")
    assert found["scalar"] > 0.9 and found["machine loop sums"] > 0.9
    assert found["waiting"] == pytest.approx(3, abs=0.1)
    better = reordered(32, 64, 512, "ikj")
    assert better["scalar"] < 0.1 and better["estimate"] < found["estimate"] - 2


def test_unrolled_copies_count_whoever_unrolls_them() -> None:
    schedule, block, (i, lanes, k) = product(32, 16, 512)
    _, inner = schedule.split(i, [8, 4])
    schedule.reorder(k, inner, lanes)
    schedule.vectorize(lanes)
    schedule.decompose_reduction(block, k)
    found = compiled(schedule)
    assert found["results"] == pytest.approx(2, abs=0.1) and found["short loops"] > 1.9
    schedule.unroll(inner)
    unrolled = compiled(schedule)
    assert unrolled["results"] == pytest.approx(2, abs=0.1) and unrolled["short loops"] < 0.1
    assert unrolled["cycles"] == pytest.approx(found["cycles"], abs=0.1)


def test_a_vector_across_rows_gathers() -> None:
    schedule, block, (i, j, k) = product(64, 32, 512)
    _, inner = schedule.split(i, [4, 16])
    schedule.reorder(j, k, inner)
    schedule.vectorize(inner)
    schedule.decompose_reduction(block, k)
    found = compiled(schedule)
    assert found["gathered"] > 0.9 and found["scattered"] > 0.9


def test_parallel_loops_are_launched_as_often_as_they_run() -> None:
    schedule, _, (i, *_) = product(32, 64, 512)
    schedule.parallel(i)
    assert compiled(schedule)["launches"] == pytest.approx(1), "once"
    schedule, _, (_, j, _) = product(32, 64, 512)
    schedule.parallel(j)
    assert compiled(schedule)["launches"] == pytest.approx(np.log2(33))
