"""Forty operators of TOPI and ours, each tuned end to end to a checked kernel."""

from collections.abc import Callable

import pytest
from tvm import te, topi

import tensortune
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload

Build = Callable[[], list[te.Tensor]]


def t(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, name="x", dtype=dtype)


def unary(function: Callable[[te.Tensor], te.Tensor], *shape: int, dtype: str = "float32") -> Build:
    def build() -> list[te.Tensor]:
        x = t(*shape, dtype=dtype)
        return [x, function(x)]

    return build


def binary(
    function: Callable[[te.Tensor, te.Tensor], te.Tensor],
    first: tuple[int, ...],
    second: tuple[int, ...],
    dtypes: tuple[str, str] = ("float32", "float32"),
) -> Build:
    def build() -> list[te.Tensor]:
        x, y = t(*first, dtype=dtypes[0]), t(*second, dtype=dtypes[1])
        return [x, y, function(x, y)]

    return build


def pool_grad(kind: str) -> Build:
    def build() -> list[te.Tensor]:
        data, grad = t(1, 8, 14, 14), t(1, 8, 7, 7)
        found = topi.nn.pool_grad(
            grad, data, (2, 2), (2, 2), (0, 0, 0, 0), pool_type=kind, layout="NCHW"
        )
        return [grad, data, found]

    return build


def scatter() -> list[te.Tensor]:
    data, index, updates = t(32, 8), t(4, 8, dtype="int32"), t(4, 8)
    return [data, index, updates, topi.scatter_elements(data, index, updates, 0)]


def conv2d(ci: int, co: int, size: int, dtype: str = "float32") -> Build:
    def convolve(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return topi.nn.conv2d_nchw(x, w, 1, 1, 1, out_dtype="int32" if dtype == "int8" else dtype)

    return binary(convolve, (1, ci, size, size), (co, ci, 3, 3), (dtype, dtype))


OPERATORS: dict[str, Build] = {
    "relu": unary(topi.nn.relu, 127, 64),
    "exp": unary(topi.exp, 1, 1009),
    "sigmoid_float16": unary(topi.sigmoid, 33, 64, dtype="float16"),
    "tanh_bfloat16": unary(topi.tanh, 64, 64, dtype="bfloat16"),
    "add_broadcast": binary(topi.add, (16, 1, 32), (1, 24, 32)),
    "multiply_int8": binary(topi.multiply, (64, 96), (64, 96), ("int8", "int8")),
    "left_shift_int32": binary(topi.left_shift, (64,), (64,), ("int32", "int32")),
    "cast_to_int8": unary(lambda x: topi.cast(x * 100.0, "int8"), 64, 64),
    "clip": unary(lambda x: topi.clip(x, -0.5, 0.5), 3, 5, 7),
    "sum": unary(lambda x: topi.sum(x, axis=1), 64, 1000),
    "sum_all": unary(lambda x: topi.sum(x), 61, 67),
    "max_unit": unary(lambda x: topi.max(x, axis=(1, 2)), 1, 31, 37),
    "argmax": unary(lambda x: topi.argmax(x, axis=1), 32, 100),
    "prod_int32": unary(lambda x: topi.prod(x, axis=0), 5, 64, dtype="int32"),
    "all_bool": unary(lambda x: topi.all(x, axis=1), 64, 32, dtype="bool"),
    "cumulative_mean": unary(lambda x: topi.divide(topi.sum(x, axis=-1), 100.0), 16, 100),
    "softmax": unary(lambda x: topi.nn.softmax(x, axis=1), 64, 256),
    "log_softmax": unary(lambda x: topi.nn.log_softmax(x, axis=1), 32, 101),
    "max_pool": unary(
        lambda x: topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max"), 1, 16, 28, 28
    ),
    "avg_pool": unary(
        lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "avg"), 1, 13, 14, 14
    ),
    "global_pool": unary(lambda x: topi.nn.global_pool(x, "avg"), 1, 32, 7, 7),
    "max_pool_grad": pool_grad("max"),
    "avg_pool_grad": pool_grad("avg"),
    "transpose": unary(lambda x: topi.transpose(x, (0, 2, 1)), 2, 61, 64),
    "reverse": unary(lambda x: topi.flip(x, axis=1), 32, 65),
    "concatenate": binary(lambda x, y: topi.concatenate([x, y], axis=1), (16, 31), (16, 33)),
    "strided_slice": unary(lambda x: topi.strided_slice(x, [1, 2], [60, 60], [2, 3]), 64, 64),
    "gather": binary(lambda x, i: topi.gather(x, 0, i), (50, 16), (20, 16), ("float32", "int32")),
    "take": binary(lambda x, i: topi.take(x, i, axis=0), (100, 32), (17,), ("float32", "int32")),
    "scatter": scatter,
    "tile_repeat": unary(lambda x: topi.tile(x, (2, 3)), 16, 17),
    "resize": unary(lambda x: topi.nn.upsampling(x, 2, 2), 1, 8, 10, 10),
    "conv2d_primes": conv2d(7, 13, 11),
    "conv2d_int8": conv2d(16, 16, 14, "int8"),
    "conv2d_float16": conv2d(8, 16, 14, "float16"),
    "depthwise": binary(
        lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1),
        (1, 16, 14, 14),
        (16, 1, 3, 3),
    ),
    "dense_unit": binary(topi.nn.dense, (1, 128), (97, 128)),
    "batch_matmul_bfloat16": binary(
        topi.nn.batch_matmul, (2, 32, 32), (2, 32, 32), ("bfloat16", "bfloat16")
    ),
    "matmul_float64": binary(topi.matmul, (48, 64), (64, 80), ("float64", "float64")),
    "dense_float16": binary(topi.nn.dense, (32, 64), (48, 64), ("float16", "float16")),
}

TUNABLE: set[str] = set()


def test_there_are_forty() -> None:
    assert len(OPERATORS) == 40


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_ends_with_a_checked_kernel(name: str) -> None:
    workload = Workload.from_module(te.create_prim_func(OPERATORS[name]()), name)
    result = tensortune.tune(workload, trials=4, target=cpu_target())
    assert result.best.checked
    assert result.best.latency_s <= result.best.untuned_s * 1.5
    kernel = result.compile()
    arrays = workload.make_inputs(seed=1)
    kernel(*(a for a, g in zip(arrays, workload.arguments, strict=True) if g.role != "output"))
    if result.tunable:
        TUNABLE.add(name)
        assert result.trials > 0


@pytest.mark.slow
def test_half_of_them_have_something_to_tune() -> None:
    assert len(TUNABLE) >= 20
