"""What a NumPy user would call instead of the named operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..signature import Params

Array = np.ndarray[Any, Any]
NumpyCall = Callable[[Sequence[Array]], None]


def _matmul(arrays: Sequence[Array]) -> None:
    a, b, c = arrays
    np.matmul(a, b, out=c, dtype=c.dtype)


def _dot(arrays: Sequence[Array]) -> None:
    a, b, c = arrays
    np.dot(a, b, out=c)


def _dense(arrays: Sequence[Array]) -> None:
    a, w, c = arrays
    np.matmul(a, w.T, out=c, dtype=c.dtype)


def _matmul_relu(arrays: Sequence[Array]) -> None:
    a, b, c = arrays
    np.matmul(a, b, out=c, dtype=c.dtype)
    np.maximum(c, 0, out=c)


def _scores(arrays: Sequence[Array]) -> None:
    query, key, out = arrays
    np.matmul(query.transpose(0, 2, 1, 3), key.transpose(0, 2, 3, 1), out=out, dtype=out.dtype)


def _softmax(arrays: Sequence[Array]) -> None:
    a, out = arrays
    np.subtract(a, a.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(axis=-1, keepdims=True), out=out)


def _layer_norm(arrays: Sequence[Array]) -> None:
    a, gamma, beta, out = arrays
    np.subtract(a, a.mean(axis=-1, keepdims=True), out=out)
    deviation = np.sqrt((out * out).mean(axis=-1, keepdims=True) + out.dtype.type(1e-5))
    np.divide(out, deviation, out=out)
    np.multiply(out, gamma, out=out)
    np.add(out, beta, out=out)


def _rms_norm(arrays: Sequence[Array]) -> None:
    a, gamma, out = arrays
    size = np.sqrt((a * a).mean(axis=-1, keepdims=True) + out.dtype.type(1e-5))
    np.divide(a, size, out=out)
    np.multiply(out, gamma, out=out)


def _batch_norm(arrays: Sequence[Array]) -> None:
    data, gamma, beta, mean, variance, out = arrays
    scale = gamma / np.sqrt(variance + out.dtype.type(1e-5))
    np.multiply(data, scale, out=out)
    np.add(out, beta - mean * scale, out=out)


def _norm(arrays: Sequence[Array]) -> None:
    a, out = arrays
    np.sqrt(np.einsum("bmn,bmn->b", a, a), out=out)


def _sigmoid(arrays: Sequence[Array]) -> None:
    a, out = arrays
    np.negative(a, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


def _silu(arrays: Sequence[Array]) -> None:
    _sigmoid(arrays)
    a, out = arrays
    np.multiply(a, out, out=out)


def _reduce(function: Any) -> NumpyCall:
    def call(arrays: Sequence[Array]) -> None:
        a, out = arrays
        function(a, axis=-1, out=out)

    return call


def _map(function: Any) -> NumpyCall:
    def call(arrays: Sequence[Array]) -> None:
        *sources, out = arrays
        function(*sources, out=out)

    return call


def _relu(arrays: Sequence[Array]) -> None:
    a, out = arrays
    np.maximum(a, 0, out=out)


def _transpose(arrays: Sequence[Array]) -> None:
    a, out = arrays
    np.copyto(out, a.T)


def _take(arrays: Sequence[Array]) -> None:
    table, index, out = arrays
    np.take(table, index, axis=0, out=out, mode="clip")


# No convolutions: NumPy has none, and a loop in Python would be no practical limit.
# No GELU: NumPy has no erf.
_CALLS: dict[str, NumpyCall] = {
    "matmul": _matmul,
    "batch_matmul": _matmul,
    "dense": _dense,
    "matmul_relu": _matmul_relu,
    "transpose_batch_matmul": _scores,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
    "norm": _norm,
    "sum": _reduce(np.sum),
    "max": _reduce(np.max),
    "min": _reduce(np.min),
    "mean": _reduce(np.mean),
    "add": _map(np.add),
    "subtract": _map(np.subtract),
    "multiply": _map(np.multiply),
    "divide": _map(np.divide),
    "maximum": _map(np.maximum),
    "relu": _relu,
    "exp": _map(np.exp),
    "log": _map(np.log),
    "sqrt": _map(np.sqrt),
    "tanh": _map(np.tanh),
    "sigmoid": _sigmoid,
    "silu": _silu,
    "transpose": _transpose,
    "take": _take,
}


def numpy_call(operator: str, params: Params, dtype: str) -> NumpyCall | None:
    """A function that writes the operator's output in place, or None where NumPy has no call.

    Args:
        operator: The operator's name.
        params: Its parameters.
        dtype: Its dtype; None is returned for those that NumPy lacks.
    """
    if dtype == "bfloat16":
        return None
    if operator == "matmul" and dtype.startswith("float"):
        return _dot
    return _CALLS.get(operator)
