"""Loop features: exact on programs scheduled by hand, sane on whatever the spaces hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from tensortune.costmodel.base import Floats
from tensortune.costmodel.features import loops
from tensortune.costmodel.features.schemas import LOOP_BUFFERS, LOOPS, VERSIONS, loop_names
from tensortune.data.candidate import Candidate
from tensortune.data.space import Scheduled
from tensortune.data.spaces import make_space
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload

TARGET = cpu_target("llvm -num-cores=2")
AT = {name: i for i, name in enumerate(loop_names())}
OPERATORS = (
    ("matmul", (32, 48, 24)),
    ("conv2d", (1, 8, 8, 8, 16, 3, 1, 1)),
    ("depthwise_conv2d", (1, 14, 14, 16, 3, 1, 1)),
    ("transposed_conv2d", (1, 4, 4, 8, 8, 4, 2, 1)),
    ("softmax", (32, 48)),
    ("norm", (2, 24, 32)),
    ("sum", (48, 64)),
    ("conv2d_bn_relu", (1, 8, 8, 8, 16, 3, 2, 1)),
    ("transpose", (24, 40)),
)


def rows_of(mod: Any) -> Floats:
    return loops.extract([Scheduled(Candidate("by hand", ()), mod, None)], TARGET)[0]


def column(rows: Floats, name: str) -> list[float]:
    found: list[float] = rows[:, AT[name]].tolist()
    return found


def matmul(names: str = "ABC") -> Any:
    a = te.placeholder((32, 16), name=names[0])
    b = te.placeholder((16, 64), name=names[1])
    k = te.reduce_axis((0, 16), name=f"{names}_k")
    c = te.compute((32, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=names[2])
    return te.create_prim_func([a, b, c])


def tiled(names: str = "ABC") -> Any:
    """Loops: io > jo > (ii > ji > C = 0; k > ii > ji > C += A * B)."""
    schedule = Schedule(matmul(names))
    block = schedule.get_sblock(names[2])
    i, j, k = schedule.get_loops(block)
    io, ii = schedule.split(i, [8, 4])
    jo, ji = schedule.split(j, [4, 16])
    schedule.reorder(io, jo, k, ii, ji)
    schedule.parallel(io)
    schedule.vectorize(ji)
    schedule.unroll(ii)
    schedule.annotate(io, "pragma_auto_unroll_max_step", 64)
    schedule.annotate(io, "pragma_unroll_explicit", 1)
    schedule.decompose_reduction(block, k)
    return schedule.mod


@pytest.fixture(scope="module")
def rows() -> Floats:
    return rows_of(tiled())


def test_the_names_are_one_a_column() -> None:
    assert len(loop_names()) == LOOPS.width == len(set(loop_names()))
    assert VERSIONS["loops"] == LOOPS.version


def test_the_tree_of_a_tiled_product(rows: Floats) -> None:
    assert column(rows, "rows up to the parent") == [0, 1, 1, 1, 1, 4, 1, 1, 1]
    assert column(rows, "statement") == [0, 0, 0, 0, 1, 0, 0, 0, 1]
    assert column(rows, "length") == [3, 2, 2, 4, 0, 4, 2, 4, 0]
    np.testing.assert_allclose(
        column(rows, "level"), np.log2([1, 2, 3, 4, 5, 3, 4, 5, 6]), rtol=1e-6
    )
    assert column(rows, "top-down") == [3, 5, 7, 11, 11, 9, 11, 15, 15]
    # One iteration of `io` initialises 256 elements and adds 4096 products.
    inner = [math.log2(n) for n in (256 + 4096, 64 + 1024, 16, 1, 1, 64, 16, 1, 1)]
    np.testing.assert_allclose(column(rows, "bottom-up"), inner, rtol=1e-6)
    assert column(rows, "statements") == pytest.approx(
        np.log2([3, 3, 2, 2, 2, 2, 2, 2, 2]).tolist()
    )


def test_the_annotations_of_a_tiled_product(rows: Floats) -> None:
    assert column(rows, "parallel") == [1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert column(rows, "vectorised")[7] == 1
    assert column(rows, "unrolled")[6] == 1
    assert column(rows, "serial")[1] == column(rows, "serial")[5] == 1
    assert column(rows, "other kind") == [0] * 9
    assert column(rows, "reduction") == [0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert column(rows, "spatial") == [1, 1, 1, 1, 0, 0, 1, 1, 0]
    assert column(rows, "unroll limit") == pytest.approx([math.log2(65)] * 9)
    assert column(rows, "unroll explicit") == [1] * 9
    # 4 vectors in each of 16 iterations are 64 steps; the four tiles around would be 256 and more.
    assert column(rows, "unrolled by the limit")[5] == 1
    assert column(rows, "unrolled by the limit")[:2] == [0, 0]
    assert column(rows, "threads") == [3] * 9
    assert column(rows, "lanes")[5:] == [0, 0, 4, 4]
    assert column(rows, "unrolled around")[5:] == [4, 6, 6, 6]


def test_the_work_of_a_tiled_product(rows: Floats) -> None:
    products, results = 32 * 64 * 16, 32 * 64
    for name, count in (
        ("float mad", products),
        ("loads", 3 * products),
        ("stores", products + results),
        *((name, 0) for name in ("float add", "float mul", "int add", "select", "guards")),
    ):
        assert column(rows, name)[0] == pytest.approx(math.log2(1 + count), rel=1e-6), name
    assert column(rows, "float mad")[8] == column(rows, "stores")[8] == 1
    assert column(rows, "float mad")[4] == 0
    assert column(rows, "item bytes") == [2] * 9


def test_the_buffers_of_a_tiled_product(rows: Floats) -> None:
    def at(node: int, buffer: int, *names: str) -> list[float]:
        return [float(rows[node, AT[f"buffer {buffer}: {name}"]]) for name in names]

    # Within `k` a tile of 4 x 16 of C is read and written 16 times; B is larger than A.
    k = ("read", "written", "touches", "unique", "reuse", "bytes", "lines")
    assert at(5, 0, *k) == [1, 1, 11, 6, 5, 8, 2]
    assert at(5, 1, *k) == [1, 0, 10, 8, 2, 10, 4]
    # All 16 columns of 4 rows of A lie in one piece of four cache lines.
    assert at(5, 2, *k) == [1, 0, 10, 6, 4, 8, 2]
    assert at(5, 3, *k) == [0] * 7
    strides = ("stride", "stride 0", "stride 1")
    log = math.log2
    assert at(5, 0, *strides) == [0, 1, 0]
    assert at(5, 1, *strides) == pytest.approx([log(1 + 64), 0, 0])
    assert at(5, 2, *strides) == [1, 0, 1]
    assert at(7, 0, *strides) == at(7, 1, *strides) == [1, 0, 1]
    assert at(7, 2, *strides) == [0, 1, 0]
    assert at(0, 0, *strides) == pytest.approx([log(1 + 4 * 64), 0, 0])
    assert at(0, 1, *strides) == [0, 1, 0]
    assert at(0, 2, *strides) == pytest.approx([log(1 + 4 * 16), 0, 0])
    assert at(8, 0, *strides) == [0, 0, 0]
    assert at(5, 0, "allocated bytes", "local") == pytest.approx([log(1 + 4 * 32 * 64), 0])
    assert column(rows, "bytes")[5] == pytest.approx(log(4 * (64 + 256 + 64)))
    assert column(rows, "lines")[5] == pytest.approx(log(4 + 16 + 4))
    # The whole of each buffer.
    assert [at(0, i, "unique")[0] for i in range(3)] == [11, 10, 9]


def test_a_fused_loop() -> None:
    a = te.placeholder((24, 40), name="a")
    schedule = Schedule(te.create_prim_func([a, te.compute((24, 40), lambda i, j: a[i, j] + 1)]))
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    fused = schedule.fuse(*schedule.get_loops(block))
    schedule.split(fused, [None, 20])
    rows = rows_of(schedule.mod)
    assert len(rows) == 3
    for buffer in range(2):
        unique = rows[:, AT[f"buffer {buffer}: unique"]]
        np.testing.assert_allclose(unique, np.log2([24 * 40, 20, 1]), rtol=1e-6)
        strides = rows[:, AT[f"buffer {buffer}: stride"]]
        np.testing.assert_allclose(strides, np.log2([21, 2, 1]), rtol=1e-6)
        assert rows[:, AT[f"buffer {buffer}: stride 1"]].tolist() == [0, 1, 0]


def test_padding_is_a_choice_and_stays_within_its_buffer() -> None:
    a = te.placeholder((16,), name="a")

    def padded(i: Any) -> Any:
        inside = tvm.tirx.all(i >= 1, i < 17)
        return tvm.tirx.if_then_else(inside, a[i - 1], tvm.tirx.const(0, "float32"))

    rows = rows_of(te.create_prim_func([a, te.compute((18,), padded, name="padded")]))
    assert column(rows, "select") == pytest.approx(np.log2([19, 2]).tolist())
    assert column(rows, "compare")[1] > 1
    assert column(rows, "buffer 0: unique")[0] == pytest.approx(math.log2(18))
    assert column(rows, "buffer 1: unique")[0] == 4


def test_values_that_index_are_loaded_anywhere() -> None:
    table = te.placeholder((100, 8), name="table")
    index = te.placeholder((5,), name="index", dtype="int32")
    out = te.compute((5, 8), lambda i, j: table[index[i], j], name="out")
    rows = rows_of(te.create_prim_func([table, index, out]))
    assert column(rows, "loads")[-1] == pytest.approx(math.log2(3))
    # Not more rows of the table than there are indices.
    assert column(rows, "buffer 1: unique")[0] == pytest.approx(math.log2(40))
    assert column(rows, "buffer 1: stride 0")[0] == 0
    assert column(rows, "buffer 1: stride 1")[1] == 1


@T.prim_func(s_tir=True)
def viewed(a: T.Buffer((8, 16), "float32"), b: T.Buffer((8, 16), "float32")) -> None:
    for i in range(8):
        with T.sblock("row"):
            row = T.axis.spatial(8, i)
            T.reads(a[row, 0:16])
            T.writes(b[row, 0:16])
            source = T.match_buffer(a[row, 0:16], (16,), offset_factor=1)
            result = T.match_buffer(b[row, 0:16], (16,), offset_factor=1)
            result[T.ramp(0, 1, 16)] = source[T.ramp(0, 1, 16)] * T.broadcast(T.float32(2), 16)


@T.prim_func(s_tir=True)
def opaque(a: T.Buffer((8, 16), "float32"), b: T.Buffer((8, 16), "float32")) -> None:
    for i in range(8):
        with T.sblock("row"):
            row = T.axis.spatial(8, i)
            T.reads(a[row, 0:16])
            T.writes(b[row, 0:16])
            T.evaluate(T.call_extern("int32", "copy", row))


@pytest.mark.parametrize("function", [viewed, opaque], ids=["viewed", "opaque"])
def test_vectors_views_and_calls_are_seen_through(function: Any) -> None:
    rows = rows_of(tvm.IRModule({"main": function}))
    assert len(rows) == 2 and column(rows, "statement") == [0, 1]
    for buffer, written in ((0, 1), (1, 0)):
        assert column(rows, f"buffer {buffer}: written") == [written] * 2
        assert column(rows, f"buffer {buffer}: touches") == [7, 4]
        assert column(rows, f"buffer {buffer}: unique") == [7, 4]
        assert column(rows, f"buffer {buffer}: lines") == [3, 0]
        assert rows[0, AT[f"buffer {buffer}: stride"]] == pytest.approx(math.log2(17))
    if function is viewed:
        assert column(rows, "float mul")[1] == pytest.approx(math.log2(17))


def test_guards_are_seen() -> None:
    schedule = Schedule(matmul())
    block = schedule.get_sblock("C")
    schedule.split(schedule.get_loops(block)[0], [None, 5])
    plain, guarded = rows_of(matmul()), rows_of(schedule.mod)
    # The initial value is under a condition already.
    assert guarded[-1, AT["guards"]] == 1 and plain[-1, AT["guards"]] == 0
    assert column(guarded, "buffer 0: unique")[0] == 11


def test_loops_of_one_iteration_are_left_out() -> None:
    schedule = Schedule(matmul())
    i, _, _ = schedule.get_loops(schedule.get_sblock("C"))
    schedule.split(i, [1, 32])
    schedule.split(schedule.get_loops(schedule.get_sblock("C"))[-1], [16, 1])
    np.testing.assert_array_equal(rows_of(schedule.mod), rows_of(matmul()))


def test_names_do_not_matter() -> None:
    np.testing.assert_array_equal(rows_of(tiled("ABC")), rows_of(tiled("ZYX")))


@pytest.fixture(scope="module", params=OPERATORS, ids=lambda item: item[0])
def candidates(request: Any) -> tuple[str, list[Scheduled]]:
    operator, shape = request.param
    item = workload(operator, *shape)
    found = []
    for name in ("sketch", "loop"):
        space = make_space(name, item, TARGET)
        found += [space.schedule(c) for c in space.sample(np.random.default_rng(0), 8)]
    return operator, found


def test_what_the_spaces_hold(candidates: tuple[str, list[Scheduled]]) -> None:
    operator, programs = candidates
    for rows in loops.extract(programs, TARGET):
        assert rows.dtype == np.float32 and rows.shape[1] == LOOPS.width
        assert np.isfinite(rows).all()
        assert (rows >= 0).all() and (rows < 64).all()
        check_tree(rows)
        check_sizes(rows)
        if operator == "matmul":
            total = np.exp2(rows[roots(rows), AT["float mad"]].astype(np.float64)) - 1
            # A guarded loop runs a few more iterations than there is work.
            assert 32 * 48 * 24 - 1 <= total.sum() < 2 * 32 * 48 * 24


def roots(rows: Floats) -> npt.NDArray[np.bool_]:
    return np.asarray(rows[:, 0] == 0)


def check_tree(rows: Floats) -> None:
    parents = np.arange(len(rows)) - rows[:, 0].astype(int)
    assert (parents >= 0).all()
    leaf = rows[:, AT["statement"]] == 1
    inner = parents[~roots(rows)]
    assert not leaf[inner].any()
    # Every loop has something in it, and pre-order: the path to a node is that to the one before,
    # cut at the node's parent.
    assert set(inner) == set(np.flatnonzero(~leaf))
    path: list[int] = []
    for node, parent in enumerate(parents):
        above = [] if parent == node else path[: path.index(parent) + 1]
        path = [*above, node]
    top_down = rows[:, AT["top-down"]] - rows[:, AT["length"]]
    around = np.where(roots(rows), 0, rows[parents, AT["top-down"]])
    np.testing.assert_allclose(top_down, around, atol=1e-4)


def check_sizes(rows: Floats) -> None:
    parents = np.arange(len(rows)) - rows[:, 0].astype(int)
    for name in ("bytes", "lines", "loads", "stores", "statements"):
        assert (rows[:, AT[name]] <= rows[parents, AT[name]] + 1e-4).all(), name
    for i in range(LOOP_BUFFERS):
        touches, unique = rows[:, AT[f"buffer {i}: touches"]], rows[:, AT[f"buffer {i}: unique"]]
        lines, size = rows[:, AT[f"buffer {i}: lines"]], rows[:, AT[f"buffer {i}: bytes"]]
        assert (unique <= touches + 1e-4).all()
        assert (lines <= unique + 1e-4).all() and (size <= lines + 6 + 1e-4).all()
        assert (size <= rows[:, AT["bytes"]] + 1e-4).all()


def test_alone_or_in_a_batch(candidates: tuple[str, list[Scheduled]]) -> None:
    _, programs = candidates
    together = loops.extract(programs, TARGET, threads=2)
    for one, rows in zip(programs, together, strict=True):
        np.testing.assert_array_equal(loops.extract([one], TARGET)[0], rows)
    assert len({rows.tobytes() for rows in together}) > 1


def test_every_dtype() -> None:
    def rows(dtype: str) -> Floats:
        space = make_space("sketch", workload("matmul", 64, 64, 64, dtype=dtype), TARGET)
        drawn = space.sample(np.random.default_rng(0), 10)
        return np.concatenate(loops.extract([space.schedule(c) for c in drawn], TARGET))

    for dtype in ("float16", "float64", "int8"):
        assert np.isfinite(rows(dtype)).all(), dtype


def test_a_program_that_cannot_be_analysed_costs_its_own_features_only(rows: Floats) -> None:
    good = Scheduled(Candidate("by hand", ()), tiled(), None)
    broken = Scheduled(good.candidate, object(), None)
    found = loops.extract([good, broken, good], TARGET)
    assert found[1].shape == (1, LOOPS.width) and np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[0], rows)
    np.testing.assert_array_equal(found[2], rows)


def test_samples() -> None:
    assert loops.extract([], TARGET) == []
    assert len(loops.samples([], TARGET)) == 0
    one = Scheduled(Candidate("by hand", ()), tiled(), None)
    found = loops.samples([one, one], TARGET, [1.0, 2.0], [0, 1])
    assert found.schema == LOOPS and found.counts.tolist() == [9, 9]
    assert found.latency_s.tolist() == [1.0, 2.0] and found.groups.tolist() == [0, 1]
