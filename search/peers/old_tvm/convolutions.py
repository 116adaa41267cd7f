"""Convolutions in TOPI's x86 templates.

Operators have their arguments channels-last, as the rest of the comparison does. Most templates
want channels in blocks of a size that is tuned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tir, topi

from .plan import TENSOR, Plan, tile


def _blocked(
    sizes: Sequence[int],
    kernel: int,
    steps: Sequence[int],
    dtype: str,
    data: Callable[..., Any],
    weight: Callable[..., Any],
) -> Plan:
    """`conv2d_NCHWc`, whose channels lie in blocks.

    Args:
        sizes: n, h, w, input channels, output channels.
        kernel: The window's side.
        steps: Stride, padding, dilation.
        dtype: The type.
        data: An element of the input, of n, h, w, channel.
        weight: An element of the weights, of h, w, input channel, output channel.
    """
    n, h, w, ci, co = sizes
    stride, padding, dilation = steps
    rest = ((stride,) * 2, (padding,) * 4, (dilation,) * 2, "NCHW", "NCHW", dtype)

    def pack(config: Any) -> list[Any]:
        inner, outer = tile(config, "tile_ic"), tile(config, "tile_oc")
        return [
            te.compute(
                (n, ci // inner, h, w, inner),
                lambda b, c, y, x, v: data(b, y, x, c * inner + v),
                "packed_data",
            ),
            te.compute(
                (co // outer, ci // inner, kernel, kernel, inner, outer),
                lambda o, c, y, x, v, u: weight(y, x, c * inner + v, o * outer + u),
                "packed_weight",
            ),
        ]

    return Plan(
        "conv2d_NCHWc.x86",
        ((TENSOR, (n, ci, h, w), dtype), (TENSOR, (co, ci, kernel, kernel), dtype), *rest),
        topi.x86.conv2d_NCHWc,
        topi.x86.schedule_conv2d_NCHWc,
        pack,
        rest,
        unpack=_blocks_last,
    )


def _blocks_last(result: Any) -> Any:
    """(n, c, h, w, block) as (n, h, w, c, block), which is channels-last."""
    n, c, h, w, block = result.shape
    return te.compute((n, h, w, c, block), lambda b, y, x, o, v: result[b, o, y, x, v], "unpacked")


def _steps(p: dict[str, int]) -> tuple[int, int, int]:
    return p["stride"], p["padding"], p.get("dilation", 1)


def conv2d(p: dict[str, int], dtype: str) -> Plan:
    """Channels-last, dilated or not, in groups or not."""
    if p.get("groups", 1) > 1:
        return _grouped(p, dtype)
    sizes = tuple(p[name] for name in ("n", "h", "w", "ci", "co"))
    data = te.placeholder(sizes[:4], name="data", dtype=dtype)
    weight = te.placeholder((p["kernel"],) * 2 + sizes[3:], name="weight", dtype=dtype)
    return _blocked(sizes, p["kernel"], _steps(p), dtype, data, weight)


def conv2d_bn_relu(p: dict[str, int], dtype: str) -> Plan:
    """A convolution, with bias, scale, offset and ReLU behind it in one kernel."""
    plan = conv2d(p, dtype)

    def pack(config: Any) -> list[Any]:
        block = tile(config, "tile_oc")
        shape = (p["co"] // block, block)
        names = ("bias", "offset", "scale")
        return plan.pack(config) + [te.placeholder(shape, name=n, dtype=dtype) for n in names]

    def epilogue(result: Any, bias: Any, offset: Any, scale: Any) -> Any:
        affine = te.compute(
            result.shape,
            lambda n, c, h, w, v: (result[n, c, h, w, v] + bias[c, v]) * scale[c, v] + offset[c, v],
            "affine",
            tag=topi.tag.BROADCAST,
        )
        return topi.nn.relu(affine)

    return dataclasses.replace(plan, pack=pack, epilogue=epilogue)


def transposed(p: dict[str, int], dtype: str) -> Plan:
    """As TOPI does it: the same template, on the input spread out with zeros."""
    n, h, w, ci, co = (p[name] for name in ("n", "h", "w", "ci", "co"))
    kernel, stride = p["kernel"], p["stride"]
    border = kernel - 1 - p["padding"]
    data = te.placeholder((n, h, w, ci), name="data", dtype=dtype)
    weight = te.placeholder((kernel, kernel, ci, co), name="weight", dtype=dtype)
    high, wide = ((size - 1) * stride + 1 + 2 * border for size in (h, w))

    def spread(b: Any, y: Any, x: Any, c: Any) -> Any:
        up, left = y - border, x - border
        inside = [up >= 0, up < (h - 1) * stride + 1, left >= 0, left < (w - 1) * stride + 1]
        if stride > 1:
            inside += [tir.indexmod(up, stride).equal(0), tir.indexmod(left, stride).equal(0)]
        value = data[b, tir.indexdiv(up, stride), tir.indexdiv(left, stride), c]
        return tir.if_then_else(tir.all(*inside), value, tir.const(0, dtype))

    def flipped(y: Any, x: Any, c: Any, o: Any) -> Any:
        return weight[kernel - 1 - y, kernel - 1 - x, c, o]

    return _blocked((n, high, wide, ci, co), kernel, (1, 0, 1), dtype, spread, flipped)


def _grouped(p: dict[str, int], dtype: str) -> Plan:
    """`group_conv2d_nchw`, which packs by itself, from channels-first."""
    n, h, w, ci, co = (p[name] for name in ("n", "h", "w", "ci", "co"))
    kernel, groups = p["kernel"], p["groups"]
    stride, padding, dilation = _steps(p)
    rest = ((stride,) * 2, (padding,) * 4, (dilation,) * 2, groups, dtype)
    data = te.placeholder((n, h, w, ci), name="data", dtype=dtype)
    weight = te.placeholder((kernel, kernel, ci // groups, co), name="weight", dtype=dtype)
    first, second = (n, ci, h, w), (co, ci // groups, kernel, kernel)
    packed = [
        te.compute(first, lambda b, c, y, x: data[b, y, x, c], "packed_data"),
        te.compute(second, lambda o, c, y, x: weight[y, x, c, o], "packed_weight"),
    ]

    def unpack(result: Any) -> Any:
        b, c, y, x = result.shape
        return te.compute((b, y, x, c), lambda i, j, k, o: result[i, o, j, k], "unpacked")

    return Plan(
        "group_conv2d_nchw.x86",
        ((TENSOR, first, dtype), (TENSOR, second, dtype), *rest),
        topi.x86.group_conv2d.group_conv2d_nchw_spatial_pack,
        topi.x86.schedule_group_conv2d_nchwc,
        lambda config: packed,
        rest,
        unpack=unpack,
    )


def depthwise(p: dict[str, int], dtype: str) -> Plan:
    """Each channel by itself: `depthwise_conv2d_NCHWc`."""
    n, h, w, c, kernel = (p[name] for name in ("n", "h", "w", "c", "kernel"))
    stride, padding, dilation = _steps(p)
    rest = ((stride,) * 2, (padding,) * 4, (dilation,) * 2, "NCHW", "NCHW", dtype)
    data = te.placeholder((n, h, w, c), name="data", dtype=dtype)
    weight = te.placeholder((kernel, kernel, c), name="weight", dtype=dtype)

    def pack(config: Any) -> list[Any]:
        inner, outer = tile(config, "tile_ic"), tile(config, "tile_oc")
        return [
            te.compute(
                (n, c // inner, h, w, inner),
                lambda b, o, y, x, v: data[b, y, x, o * inner + v],
                "packed_data",
            ),
            te.compute(
                (c // outer, 1, kernel, kernel, 1, outer),
                lambda o, i, y, x, j, v: weight[y, x, o * outer + v],
                "packed_weight",
            ),
        ]

    return Plan(
        "depthwise_conv2d_NCHWc.x86",
        ((TENSOR, (n, c, h, w), dtype), (TENSOR, (c, 1, kernel, kernel), dtype), *rest),
        topi.x86.depthwise_conv2d_NCHWc,
        topi.x86.schedule_depthwise_conv2d_NCHWc,
        pack,
        rest,
        unpack=_blocks_last,
    )


def conv3d(p: dict[str, int], dtype: str) -> Plan:
    """`conv3d_ndhwc`, which takes its arguments as they are and packs by itself."""
    data = tuple(p[name] for name in ("n", "d", "h", "w", "ci"))
    weight = (p["kernel"],) * 3 + (p["ci"] // p["groups"], p["co"])
    stride, padding, dilation = _steps(p)
    rest = ((stride,) * 3, (padding,) * 6, (dilation,) * 3, p["groups"], dtype)
    packed = [
        te.placeholder(data, name="data", dtype=dtype),
        te.placeholder(weight, name="weight", dtype=dtype),
    ]
    return Plan(
        "conv3d_ndhwc.x86",
        ((TENSOR, data, dtype), (TENSOR, weight, dtype), *rest),
        topi.x86.conv3d_ndhwc,
        topi.x86.schedule_conv3d_ndhwc,
        lambda config: packed,
        rest,
    )
