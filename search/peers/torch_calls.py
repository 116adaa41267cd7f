"""The named operators as torch users call them, to be timed beside tuned kernels.

Loaded by the worker that times them, and by nobody else: torch is an extra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ...data.definitions.numpy_calls import NumpyCall
from ...data.workload import Workload

Array = np.ndarray[Any, Any]
Params = Mapping[str, int]
Run = Callable[[], Any]
"""Computes and gives the result; a view of it in the operator's own layout is free."""

_CHANNELS_LAST = {
    3: torch.contiguous_format,
    4: torch.channels_last,
    5: torch.channels_last_3d,
}


def torch_call(workload: Workload) -> NumpyCall:
    """A function of the workload's arrays that runs the operator in torch and drops the result.

    The arrays are laid out on the first call, and again for other arrays.
    """
    bound: list[Any] = [None, None]

    def call(arrays: Sequence[Array]) -> None:
        if bound[0] is not arrays:
            bound[:] = arrays, bind(workload, arrays)
        bound[1]()

    return call


def bind(workload: Workload, arrays: Sequence[Array]) -> Run:
    """The operator on arrays: inputs in order, then the output, which may stay unwritten."""
    params = {name: int(value) for name, value in workload.params}
    return _CALLS[workload.operator](params, [torch.from_numpy(array) for array in arrays])


def _channels_first(array: Any) -> Any:
    """(n, ..., c) as torch has it, (n, c, ...); in memory channels stay last where it can."""
    moved = array.movedim(-1, 1)
    return moved.contiguous(memory_format=_CHANNELS_LAST[array.ndim])


def _channels_last(array: Any) -> Any:
    return array.movedim(1, -1)


def _weights(array: Any) -> Any:
    """(..., ci, co) as (co, ci, ...)."""
    moved = array.movedim((-1, -2), (0, 1))
    return moved.contiguous(memory_format=_CHANNELS_LAST[array.ndim])


def _out(function: Any) -> Any:
    """An operator that writes its result where it is told."""

    def bound(p: Params, t: Sequence[Any]) -> Run:
        *inputs, out = t
        return lambda: function(*inputs, out=out)

    return bound


def _plain(function: Any) -> Any:
    """An operator that makes a new array."""

    def bound(p: Params, t: Sequence[Any]) -> Run:
        inputs = t[:-1]
        return lambda: function(*inputs)

    return bound


def _reduce(function: Any) -> Any:
    def bound(p: Params, t: Sequence[Any]) -> Run:
        a, out = t
        return lambda: function(a, dim=-1, out=out)

    return bound


def _convolution(function: Any) -> Any:
    def bound(p: Params, t: Sequence[Any]) -> Run:
        data, weight = _channels_first(t[0]), _weights(t[1])
        options = {name: p[name] for name in ("stride", "padding")}
        options |= {"dilation": p.get("dilation", 1), "groups": p.get("groups", 1)}
        return lambda: _channels_last(function(data, weight, **options))

    return bound


def _depthwise(p: Params, t: Sequence[Any]) -> Run:
    data = _channels_first(t[0])
    weight = t[1].movedim(-1, 0)[:, None].contiguous(memory_format=torch.channels_last)
    options = {"stride": p["stride"], "padding": p["padding"], "dilation": p["dilation"]}
    return lambda: _channels_last(F.conv2d(data, weight, groups=p["c"], **options))


def _transposed(p: Params, t: Sequence[Any]) -> Run:
    data = _channels_first(t[0])
    weight = t[1].permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)
    stride, padding = p["stride"], p["padding"]
    return lambda: _channels_last(F.conv_transpose2d(data, weight, None, stride, padding))


def _conv2d_bn_relu(p: Params, t: Sequence[Any]) -> Run:
    data, weight, bias = _channels_first(t[0]), _weights(t[1]), t[2]
    offset, scale = (array[:, None, None] for array in t[3:5])
    options = {name: p[name] for name in ("stride", "padding", "dilation")}

    def run() -> Any:
        conv = F.conv2d(data, weight, bias, **options)
        return _channels_last(conv.mul_(scale).add_(offset).relu_())

    return run


def _pool(function: Any) -> Any:
    def bound(p: Params, t: Sequence[Any]) -> Run:
        data = _channels_first(t[0])
        window = p["kernel"], p["stride"], p["padding"]
        return lambda: _channels_last(function(data, *window))

    return bound


def _matmul_relu(p: Params, t: Sequence[Any]) -> Run:
    a, b, out = t
    return lambda: torch.mm(a, b, out=out).relu_()


def _scores(p: Params, t: Sequence[Any]) -> Run:
    query, key = t[0].permute(0, 2, 1, 3), t[1].permute(0, 2, 3, 1)
    return lambda: torch.matmul(query, key)


def _layer_norm(p: Params, t: Sequence[Any]) -> Run:
    a, gamma, beta, _ = t
    return lambda: F.layer_norm(a, (p["n"],), gamma, beta, 1e-5)


def _rms_norm(p: Params, t: Sequence[Any]) -> Run:
    a, gamma, _ = t
    return lambda: F.rms_norm(a, (p["n"],), gamma, 1e-5)


def _batch_norm(p: Params, t: Sequence[Any]) -> Run:
    data, (gamma, beta, mean, variance) = _channels_first(t[0]), t[1:5]
    return lambda: _channels_last(
        F.batch_norm(data, mean, variance, gamma, beta, training=False, eps=1e-5)
    )


def _norm(p: Params, t: Sequence[Any]) -> Run:
    a, out = t
    return lambda: torch.linalg.vector_norm(a, dim=(1, 2), out=out)


def _transpose(p: Params, t: Sequence[Any]) -> Run:
    a, out = t
    return lambda: out.copy_(a.t())


def _take(p: Params, t: Sequence[Any]) -> Run:
    table, index, out = t
    return lambda: torch.index_select(table, 0, index, out=out)


_CALLS: Mapping[str, Callable[[Params, Sequence[Any]], Run]] = {
    "matmul": _out(torch.mm),
    "matmul_relu": _matmul_relu,
    "dense": _plain(F.linear),
    "batch_matmul": _out(torch.bmm),
    "transpose_batch_matmul": _scores,
    "conv1d": _convolution(F.conv1d),
    "conv2d": _convolution(F.conv2d),
    "conv3d": _convolution(F.conv3d),
    "grouped_conv2d": _convolution(F.conv2d),
    "dilated_conv2d": _convolution(F.conv2d),
    "depthwise_conv2d": _depthwise,
    "transposed_conv2d": _transposed,
    "conv2d_bn_relu": _conv2d_bn_relu,
    "max_pool2d": _pool(F.max_pool2d),
    "avg_pool2d": _pool(F.avg_pool2d),
    "softmax": lambda p, t: lambda: torch.softmax(t[0], -1),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
    "norm": _norm,
    "sum": _reduce(torch.sum),
    "max": _reduce(torch.amax),
    "min": _reduce(torch.amin),
    "mean": _reduce(torch.mean),
    "add": _out(torch.add),
    "subtract": _out(torch.sub),
    "multiply": _out(torch.mul),
    "divide": _out(torch.div),
    "maximum": _out(torch.maximum),
    "relu": _plain(torch.relu),
    "exp": _out(torch.exp),
    "log": _out(torch.log),
    "sqrt": _out(torch.sqrt),
    "tanh": _out(torch.tanh),
    "sigmoid": _out(torch.sigmoid),
    "silu": _plain(F.silu),
    "gelu": _plain(F.gelu),
    "transpose": _transpose,
    "take": _take,
}
