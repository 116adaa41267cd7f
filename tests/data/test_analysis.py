"""Arguments, the values that they may hold, inputs, work and references."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi
from tvm.script import tirx as T

from tensortune.data.workload import Argument, Workload, workload

TARGET = tvm.target.Target.from_device("cpu")


def of(*tensors: Any) -> Workload:
    return Workload.from_module(te.create_prim_func(list(tensors)))


def argument(item: Workload, name: str) -> Argument:
    return next(a for a in item.arguments if a.name == name)


def run(mod: Any, arrays: list[Any]) -> list[Any]:
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(mod, target=TARGET).jit()["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


@T.prim_func(s_tir=True)
def in_place(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")) -> None:
    for i in range(16):
        with T.sblock("update"):
            vi = T.axis.spatial(16, i)
            a[vi] = a[vi] + b[vi]


@T.prim_func(s_tir=True)
def foreign(a: T.Buffer((16, 16), "float32"), b: T.Buffer((16, 16), "float32")) -> None:
    for i in range(16):
        with T.sblock("call"):
            vi = T.axis.spatial(16, i)
            T.reads(a[vi, 0:16])
            T.writes(b[vi, 0:16])
            source = T.match_buffer(a[vi, 0:16], (1, 16), strides=[16, 1], offset_factor=1)
            target = T.match_buffer(b[vi, 0:16], (1, 16), strides=[16, 1], offset_factor=1)
            T.evaluate(T.call_extern("int32", "copy", source.data, target.data, 16))


class TestWork:
    def test_flops_and_bytes(self) -> None:
        item = workload("matmul", 8, 16, 32)
        assert item.flops == 2 * 8 * 16 * 32
        assert item.bytes == 4 * (8 * 32 + 32 * 16 + 8 * 16)
        conv = workload("conv2d", 1, 14, 14, 8, 4, 3, padding=1)
        assert conv.flops == 2 * 14 * 14 * 8 * 4 * 9
        assert workload("matmul", 8, 16, 32, dtype="int8").bytes == 256 + 512 + 4 * 128
        assert workload("matmul", 8, 16, 32, dtype="bfloat16").bytes == 2 * (256 + 512 + 128)
        assert workload("relu", 4, 4).flops == 16
        assert workload("transpose", 4, 4).flops == 0

    def test_an_argument_updated_in_place_moves_twice(self) -> None:
        item = Workload.from_module(in_place)
        assert [a.role for a in item.arguments] == ["inout", "input"]
        assert item.bytes == 4 * 16 * 3
        assert item.flops == 16


class TestRanges:
    def test_indices_stay_in_bounds(self) -> None:
        x = te.placeholder((8, 10), name="x")
        for mode in ("clip", "wrap", "fast"):
            flat = te.placeholder((4,), name="index", dtype="int64")
            item = of(x, flat, topi.take(x, flat, axis=1, mode=mode))
            assert (argument(item, "index").low, argument(item, "index").high) == (0, 10)
        index = te.placeholder((8, 3), name="index", dtype="int32")
        item = of(x, index, topi.gather(x, 1, index))
        assert argument(item, "index").high == 10
        (_, values, _) = item.make_inputs(0)
        assert values.min() >= 0
        assert values.max() < 10

    def test_scaled_and_staged_indices(self) -> None:
        x = te.placeholder((8, 10), name="x")
        index = te.placeholder((8,), name="index", dtype="int32")
        staged = te.compute((8,), lambda i: index[i] * 2 + 1)
        item = of(x, index, te.compute((8, 4), lambda i, j: x[staged[i], j * 2]))
        # 2 * 3 + 1 is the last row.
        assert argument(item, "index").high == 4

    def test_scatter_takes_every_row(self) -> None:
        x, up = te.placeholder((8, 10), name="x"), te.placeholder((3, 10), name="up")
        index = te.placeholder((3, 10), name="index", dtype="int32")
        item = of(x, index, up, topi.scatter_elements(x, index, up, axis=0))
        assert (argument(item, "index").low, argument(item, "index").high) == (0, 8)
        run(item.mod, item.make_inputs(0))

    def test_sparse_rows_stay_in_bounds(self) -> None:
        data = te.placeholder((20,), name="data")
        column = te.placeholder((20,), name="column", dtype="int32")
        start = te.placeholder((9,), name="start", dtype="int32")
        y = te.placeholder((10,), name="y")

        def row(i: Any) -> Any:
            r = te.reduce_axis((0, start[i + 1] - start[i]), "r")
            return te.sum(data[start[i] + r] * y[column[start[i] + r]], axis=r)

        item = of(data, column, start, y, te.compute((8,), row))
        assert argument(item, "column").high == 10
        assert 1 <= (argument(item, "start").high or 0) <= 20

    def test_divisors_and_shifts(self) -> None:
        a = te.placeholder((8,), name="a", dtype="int32")
        b = te.placeholder((8,), name="b", dtype="int32")
        item = of(a, b, te.compute((8,), lambda i: tirx.floordiv(a[i], b[i])))
        assert argument(item, "b").low == 1
        assert argument(item, "a").low == -128
        item = of(a, b, te.compute((8,), lambda i: a[i] << b[i]))
        assert (argument(item, "b").low, argument(item, "b").high) == (0, 32)

    def test_roots_are_of_positive_numbers(self) -> None:
        x, v = te.placeholder((8, 4), name="x"), te.placeholder((4,), name="v")
        shifted = te.compute((4,), lambda i: v[i] + tirx.const(1e-5, "float32"))
        item = of(x, v, te.compute((8, 4), lambda i, j: x[i, j] / te.sqrt(shifted[j])))
        assert (argument(item, "v").low, argument(item, "v").high) == (0, 1)
        assert argument(item, "x").low is None
        assert (item.make_inputs(0)[1] > 0).all()


class TestInputs:
    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
    def test_floats_are_neither_zero_nor_tiny(self, dtype: str) -> None:
        a, b, out = workload("add", 40, 50, dtype=dtype).make_inputs(0)
        for array in (a, b):
            size = np.abs(array.astype(np.float64))
            # bfloat16 rounds 0.1 and 1 by at most one part in 256.
            assert size.min() >= 0.1 * (1 - 2**-8)
            assert size.max() <= 1
            assert 0.4 < (array.astype(np.float64) < 0).mean() < 0.6
        assert np.isnan(out.astype(np.float64)).all()
        assert (a.dtype == ml_dtypes.bfloat16) == (dtype == "bfloat16")

    def test_outputs_of_integers_are_poisoned(self) -> None:
        a, _b, out = workload("matmul", 4, 4, 4, dtype="int8").make_inputs(0)
        assert out.dtype == np.int32
        assert (out == 0x5A5A5A5A).all()
        assert a.min() < 0 < a.max()

    def test_an_unwritten_output_shows(self) -> None:
        a = te.placeholder((8,), name="a")
        half = te.compute((4,), lambda i: a[i])
        func = te.create_prim_func([a, half])
        item = Workload.from_module(func)
        assert not np.isnan(run(item.mod, item.make_inputs(0))[-1]).any()
        assert np.isnan(item.make_inputs(0)[-1]).all()

    def test_depend_on_the_seed_alone(self) -> None:
        item = workload("matmul", 8, 8, 8)
        first, again, other = (item.make_inputs(seed)[0] for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    def test_booleans_and_float8(self) -> None:
        mask = te.placeholder((8, 8), name="mask", dtype="bool")
        x = te.placeholder((8, 8), name="x", dtype="float8_e4m3fn")
        item = of(
            mask, x, te.compute((8, 8), lambda i, j: tirx.Select(mask[i, j], x[i, j], x[j, i]))
        )
        chosen, values, _ = item.make_inputs(0)
        assert chosen.dtype == np.bool_
        assert chosen.any()
        assert not chosen.all()
        assert values.dtype == ml_dtypes.float8_e4m3fn
        assert item.bytes == 3 * 64


class TestReference:
    def test_is_in_float64(self) -> None:
        item = workload("conv2d_bn_relu", 1, 8, 8, 4, 4, 3, dtype="float16")
        promoted = item.float64_mod()
        assert promoted is not None
        assert "float16" not in promoted.script()
        assert {a.dtype for a in Workload.from_module(promoted).arguments} == {"float64"}

    def test_keeps_integers(self) -> None:
        item = workload("take", 16, 4, 8)
        promoted = item.float64_mod()
        assert promoted is not None
        arrays = item.make_inputs(0)
        table, index, out = arrays
        result = run(promoted, [table.astype(np.float64), index, out.astype(np.float64)])[-1]
        np.testing.assert_array_equal(result, table[index])

    def test_is_none_where_bits_are_reinterpreted(self) -> None:
        a = te.placeholder((8,), name="a")
        assert of(a, topi.fast_exp(a)).float64_mod() is None
        assert of(a, topi.sort(a)).float64_mod() is None

    def test_opaque_arguments_are_what_their_block_declares(self) -> None:
        a = te.placeholder((8,), name="a")
        assert {x.role for x in of(a, topi.sort(a)).arguments} == {"inout"}
        item = Workload.from_module(foreign)
        assert [x.role for x in item.arguments] == ["input", "output"]
        assert item.float64_mod() is None
