"""What the named operators compute, as TE tensors.

The single-operator suite of Ansor (Zheng et al., OSDI 2020, section 7.1) is among them, with the
same stages and the same order of axes. None sets `layout_free_buffers`: TOPI's `matmul`, `dense`
and `conv2d_nhwc` do, and are then measured with weights packed in a way that no caller gets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx, topi

from ..signature import Params, accumulator
from .convolutions import (
    capsule_conv2d,
    conv2d,
    conv2d_bn_relu,
    convolution,
    depthwise_conv2d,
    pool2d,
    transposed_conv2d,
)
from .tensors import Builder, Tensors, axis, placeholder, product


def _matmul(p: Params, dtype: str) -> Tensors:
    a, b = placeholder("A", dtype, p["m"], p["k"]), placeholder("B", dtype, p["k"], p["n"])
    k = axis(p["k"], "k")
    c = te.compute(
        (p["m"], p["n"]), lambda i, j: te.sum(product(a[i, k], b[k, j], dtype), axis=[k]), "C"
    )
    return a, b, c


def _matmul_relu(p: Params, dtype: str) -> Tensors:
    a, b, c = _matmul(p, dtype)
    return a, b, topi.nn.relu(c)


def _dense(p: Params, dtype: str) -> Tensors:
    a, w = placeholder("A", dtype, p["m"], p["k"]), placeholder("W", dtype, p["n"], p["k"])
    k = axis(p["k"], "k")
    c = te.compute(
        (p["m"], p["n"]), lambda i, j: te.sum(product(a[i, k], w[j, k], dtype), axis=[k]), "C"
    )
    return a, w, c


def _batch_matmul(p: Params, dtype: str) -> Tensors:
    a, b = (
        placeholder("A", dtype, p["b"], p["m"], p["k"]),
        placeholder("B", dtype, p["b"], p["k"], p["n"]),
    )
    k = axis(p["k"], "k")
    c = te.compute(
        (p["b"], p["m"], p["n"]),
        lambda s, i, j: te.sum(product(a[s, i, k], b[s, k, j], dtype), axis=[k]),
        "C",
    )
    return a, b, c


def _transpose_batch_matmul(p: Params, dtype: str) -> Tensors:
    batch, seq, heads, dim = p["batch"], p["seq"], p["heads"], p["dim"]
    query = placeholder("Q", dtype, batch, seq, heads, dim)
    value = placeholder("K", dtype, batch, seq, heads, dim)
    rows = te.compute((batch, heads, seq, dim), lambda b, h, s, d: query[b, s, h, d], "Q_T")
    columns = te.compute((batch, heads, dim, seq), lambda b, h, d, s: value[b, s, h, d], "K_T")
    k = axis(dim, "k")
    scores = te.compute(
        (batch, heads, seq, seq),
        lambda b, h, i, j: te.sum(product(rows[b, h, i, k], columns[b, h, k, j], dtype), axis=[k]),
        "scores",
    )
    return query, value, scores


def _softmax(p: Params, dtype: str) -> Tensors:
    m, n = p["m"], p["n"]
    a = placeholder("A", dtype, m, n)
    k, l = axis(n, "k"), axis(n, "l")  # noqa: E741
    top = te.compute((m,), lambda i: te.max(a[i, k], axis=[k]), "top")
    power = te.compute((m, n), lambda i, j: te.exp(a[i, j] - top[i]), "power")
    total = te.compute((m,), lambda i: te.sum(power[i, l], axis=[l]), "total")
    return a, te.compute((m, n), lambda i, j: power[i, j] / total[i], "softmax")


def _layer_norm(p: Params, dtype: str) -> Tensors:
    m, n = p["m"], p["n"]
    a, gamma, beta = (
        placeholder("A", dtype, m, n),
        placeholder("gamma", dtype, n),
        placeholder("beta", dtype, n),
    )
    k, l = axis(n, "k"), axis(n, "l")  # noqa: E741
    count, epsilon = tirx.const(n, dtype), tirx.const(1e-5, dtype)
    total = te.compute((m,), lambda i: te.sum(a[i, k], axis=[k]), "total")
    centred = te.compute((m, n), lambda i, j: a[i, j] - total[i] / count, "centred")
    square = te.compute((m,), lambda i: te.sum(centred[i, l] * centred[i, l], axis=[l]), "square")
    out = te.compute(
        (m, n),
        lambda i, j: centred[i, j] / te.sqrt(square[i] / count + epsilon) * gamma[j] + beta[j],
        "layer_norm",
    )
    return a, gamma, beta, out


def _rms_norm(p: Params, dtype: str) -> Tensors:
    m, n = p["m"], p["n"]
    a, gamma = placeholder("A", dtype, m, n), placeholder("gamma", dtype, n)
    k = axis(n, "k")
    count, epsilon = tirx.const(n, dtype), tirx.const(1e-5, dtype)
    square = te.compute((m,), lambda i: te.sum(a[i, k] * a[i, k], axis=[k]), "square")
    out = te.compute(
        (m, n), lambda i, j: a[i, j] / te.sqrt(square[i] / count + epsilon) * gamma[j], "rms_norm"
    )
    return a, gamma, out


def _batch_norm(p: Params, dtype: str) -> Tensors:
    shape = (p["n"], p["h"], p["w"], p["c"])
    data = placeholder("data", dtype, *shape)
    gamma, beta, mean, variance = (
        placeholder(name, dtype, p["c"]) for name in ("gamma", "beta", "mean", "variance")
    )
    epsilon = tirx.const(1e-5, dtype)
    out = te.compute(
        shape,
        lambda n, h, w, c: (
            (data[n, h, w, c] - mean[c]) / te.sqrt(variance[c] + epsilon) * gamma[c] + beta[c]
        ),
        "batch_norm",
    )
    return data, gamma, beta, mean, variance, out


def _norm(p: Params, dtype: str) -> Tensors:
    a = placeholder("A", dtype, p["b"], p["m"], p["n"])
    i, j = axis(p["m"], "i"), axis(p["n"], "j")
    square = te.compute((p["b"],), lambda b: te.sum(a[b, i, j] * a[b, i, j], axis=[i, j]), "square")
    return a, te.compute((p["b"],), lambda b: te.sqrt(square[b]), "norm")


def _reduction(combine: Callable[..., Any], *, widen: bool = False) -> Builder:
    def build(p: Params, dtype: str) -> Tensors:
        a = placeholder("A", dtype, p["m"], p["n"])
        k = axis(p["n"], "k")
        wide = accumulator(dtype) if widen else dtype
        out = te.compute((p["m"],), lambda i: combine(a[i, k].astype(wide), axis=[k]), "reduced")
        return a, out

    return build


def _mean(p: Params, dtype: str) -> Tensors:
    a, total = _reduction(te.sum)(p, dtype)
    count = tirx.const(p["n"], dtype)
    return a, te.compute((p["m"],), lambda i: total[i] / count, "mean")


def _elementwise(function: Callable[..., Any], inputs: int) -> Builder:
    def build(p: Params, dtype: str) -> Tensors:
        shape = (p["m"], p["n"])
        sources = [placeholder(name, dtype, *shape) for name in "AB"[:inputs]]
        out = te.compute(shape, lambda i, j: function(*(s[i, j] for s in sources)), "out")
        return *sources, out

    return build


def _sigmoid(x: Any) -> Any:
    one = tirx.const(1, x.dtype)
    return one / (one + te.exp(-x))


def _gelu(x: Any) -> Any:
    # erf exists for float32 and float64 only.
    wide = "float64" if str(x.dtype) == "float64" else "float32"
    half, root = tirx.const(0.5, wide), tirx.const(0.5**0.5, wide)
    y = x.astype(wide)
    return (half * y * (tirx.const(1, wide) + te.erf(y * root))).astype(x.dtype)


def _transpose(p: Params, dtype: str) -> Tensors:
    a = placeholder("A", dtype, p["m"], p["n"])
    return a, te.compute((p["n"], p["m"]), lambda i, j: a[j, i], "transposed")


def _take(p: Params, dtype: str) -> Tensors:
    table, index = (
        placeholder("table", dtype, p["rows"], p["dim"]),
        placeholder("index", "int32", p["count"]),
    )
    out = te.compute((p["count"], p["dim"]), lambda i, j: table[index[i], j], "taken")
    return table, index, out


BUILDERS: dict[str, Builder] = {
    "matmul": _matmul,
    "batch_matmul": _batch_matmul,
    "dense": _dense,
    "matmul_relu": _matmul_relu,
    "transpose_batch_matmul": _transpose_batch_matmul,
    "conv1d": convolution("l"),
    "conv2d": conv2d,
    "conv3d": convolution("dhw"),
    "grouped_conv2d": conv2d,
    "dilated_conv2d": conv2d,
    "depthwise_conv2d": depthwise_conv2d,
    "transposed_conv2d": transposed_conv2d,
    "capsule_conv2d": capsule_conv2d,
    "conv2d_bn_relu": conv2d_bn_relu,
    "max_pool2d": lambda p, dtype: pool2d(p, dtype, mean=False),
    "avg_pool2d": lambda p, dtype: pool2d(p, dtype, mean=True),
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
    "norm": _norm,
    "sum": _reduction(te.sum, widen=True),
    "max": _reduction(te.max),
    "min": _reduction(te.min),
    "mean": _mean,
    "add": _elementwise(lambda a, b: a + b, 2),
    "subtract": _elementwise(lambda a, b: a - b, 2),
    "multiply": _elementwise(lambda a, b: a * b, 2),
    "divide": _elementwise(lambda a, b: a / b, 2),
    "maximum": _elementwise(tirx.max, 2),
    "relu": _elementwise(lambda a: tirx.max(a, tirx.const(0, a.dtype)), 1),
    "exp": _elementwise(te.exp, 1),
    "log": _elementwise(te.log, 1),
    "sqrt": _elementwise(te.sqrt, 1),
    "tanh": _elementwise(te.tanh, 1),
    "sigmoid": _elementwise(_sigmoid, 1),
    "silu": _elementwise(lambda a: a * _sigmoid(a), 1),
    "gelu": _elementwise(_gelu, 1),
    "transpose": _transpose,
    "take": _take,
}


def build(operator: str, params: Params, dtype: str) -> Any:
    """The operator's `PrimFunc`, with one parameter per argument, outputs last."""
    return te.create_prim_func(list(BUILDERS[operator](params, dtype)))
