"""The convolutions and poolings among the named operators, as TE tensors (see `definitions`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx, topi

from ..signature import Params
from .tensors import Builder, Tensors, axis, placeholder, product


def _out_size(size: int, p: Params) -> int:
    reach = (p["kernel"] - 1) * p.get("dilation", 1) + 1
    return (size + 2 * p["padding"] - reach) // p["stride"] + 1


def convolution(sides: Sequence[str]) -> Builder:
    """A channels-last convolution over any number of spatial axes."""

    def build(p: Params, dtype: str) -> Tensors:
        rank, groups = len(sides), p.get("groups", 1)
        stride, dilation = p["stride"], p.get("dilation", 1)
        group_in, group_out = p["ci"] // groups, p["co"] // groups
        data = placeholder("data", dtype, p["n"], *(p[side] for side in sides), p["ci"])
        weight = placeholder("weight", dtype, *[p["kernel"]] * rank, group_in, p["co"])
        padded = topi.nn.pad(data, [0, *[p["padding"]] * rank, 0])
        window = [axis(p["kernel"], f"r{side}") for side in sides]
        rc = axis(group_in, "rc")

        def point(n: Any, *rest: Any) -> Any:
            *at, co = rest
            taps = [x * stride + r * dilation for x, r in zip(at, window, strict=True)]
            source = padded(n, *taps, co // group_out * group_in + rc)
            return te.sum(product(source, weight(*window, rc, co), dtype), axis=[*window, rc])

        shape = (p["n"], *(_out_size(p[side], p) for side in sides), p["co"])
        return data, weight, te.compute(shape, point, "conv")

    return build


conv2d = convolution("hw")


def depthwise_conv2d(p: Params, dtype: str) -> Tensors:
    """Each channel by itself."""
    data = placeholder("data", dtype, p["n"], p["h"], p["w"], p["c"])
    weight = placeholder("weight", dtype, p["kernel"], p["kernel"], p["c"])
    padded = topi.nn.pad(data, [0, p["padding"], p["padding"], 0])
    rh, rw = axis(p["kernel"], "rh"), axis(p["kernel"], "rw")
    stride, dilation = p["stride"], p["dilation"]
    out = te.compute(
        (p["n"], _out_size(p["h"], p), _out_size(p["w"], p), p["c"]),
        lambda n, h, w, c: te.sum(
            product(
                padded[n, h * stride + rh * dilation, w * stride + rw * dilation, c],
                weight[rh, rw, c],
                dtype,
            ),
            axis=[rh, rw],
        ),
        "depthwise",
    )
    return data, weight, out


def transposed_conv2d(p: Params, dtype: str) -> Tensors:
    """The transpose of a convolution, as a convolution of the input spread out with zeros."""
    kernel, stride, padding = p["kernel"], p["stride"], p["padding"]
    data = placeholder("data", dtype, p["n"], p["h"], p["w"], p["ci"])
    weight = placeholder("weight", dtype, kernel, kernel, p["ci"], p["co"])
    # The input is spread out with stride - 1 zeros between its elements and kernel - 1 - padding
    # around them. The border is padded in whole input elements; `skip` takes the excess off.
    border = kernel - 1 - padding
    pad = -(-border // stride)
    skip = pad * stride - border
    padded = topi.nn.pad(data, [0, pad, pad, 0])
    rc, rh, rw = axis(p["ci"], "rc"), axis(kernel, "rh"), axis(kernel, "rw")

    def spread(n: Any, h: Any, w: Any, c: Any) -> Any:
        if stride == 1:
            return padded[n, h, w, c]
        hit = te.all(te.indexmod(h, stride).equal(0), te.indexmod(w, stride).equal(0))
        value = padded[n, te.indexdiv(h, stride), te.indexdiv(w, stride), c]
        return te.if_then_else(hit, value, tirx.const(0, dtype))

    def point(n: Any, h: Any, w: Any, co: Any) -> Any:
        source = spread(n, h + rh + skip, w + rw + skip, rc)
        flipped = weight[kernel - 1 - rh, kernel - 1 - rw, rc, co]
        return te.sum(product(source, flipped, dtype), axis=[rh, rw, rc])

    high, wide = ((p[side] - 1) * stride - 2 * padding + kernel for side in "hw")
    out = te.compute((p["n"], high, wide, p["co"]), point, "transposed_conv")
    return data, weight, out


def capsule_conv2d(p: Params, dtype: str) -> Tensors:
    """A convolution whose channels are square matrices."""
    size, kernel, stride = p["capsule"], p["kernel"], p["stride"]
    data = placeholder("data", dtype, p["n"], p["h"], p["w"], size, size, p["ci"])
    weight = placeholder("weight", dtype, kernel, kernel, size, size, p["ci"], p["co"])
    padded = topi.nn.pad(data, [0, p["padding"], p["padding"], 0, 0, 0])
    rh, rw = axis(kernel, "rh"), axis(kernel, "rw")
    rk, rc = axis(size, "rk"), axis(p["ci"], "rc")
    out = te.compute(
        (p["n"], _out_size(p["h"], p), _out_size(p["w"], p), size, size, p["co"]),
        lambda n, h, w, i, j, co: te.sum(
            product(
                padded[n, h * stride + rh, w * stride + rw, i, rk, rc],
                weight[rh, rw, rk, j, rc, co],
                dtype,
            ),
            axis=[rh, rw, rk, rc],
        ),
        "capsule_conv",
    )
    return data, weight, out


def conv2d_bn_relu(p: Params, dtype: str) -> Tensors:
    """A convolution, its bias, scale and offset, and a ReLU, one stage each."""
    data, weight, conv = conv2d(p, dtype)
    bias = placeholder("bias", dtype, p["co"])
    offset = placeholder("offset", dtype, p["co"])
    scale = placeholder("scale", dtype, p["co"])
    shape = conv.shape
    biased = te.compute(shape, lambda n, h, w, c: conv[n, h, w, c] + bias[c], "biased")
    scaled = te.compute(shape, lambda n, h, w, c: biased[n, h, w, c] * scale[c], "scaled")
    shifted = te.compute(shape, lambda n, h, w, c: scaled[n, h, w, c] + offset[c], "shifted")
    return data, weight, bias, offset, scale, topi.nn.relu(shifted)


def pool2d(p: Params, dtype: str, *, mean: bool) -> Tensors:
    """Maximum or mean over windows; padding counts as the least value, or as zero."""
    data = placeholder("data", dtype, p["n"], p["h"], p["w"], p["c"])
    fill = tirx.const(0, dtype) if mean else te.min_value(dtype)
    border = [0, p["padding"], p["padding"], 0]
    padded = topi.nn.pad(data, border, pad_value=fill) if p["padding"] else data
    rh, rw = axis(p["kernel"], "rh"), axis(p["kernel"], "rw")
    combine = te.sum if mean else te.max
    shape = (p["n"], _out_size(p["h"], p), _out_size(p["w"], p), p["c"])
    pooled = te.compute(
        shape,
        lambda n, h, w, c: combine(
            padded[n, h * p["stride"] + rh, w * p["stride"] + rw, c], axis=[rh, rw]
        ),
        "pool",
    )
    if not mean:
        return data, pooled
    count = tirx.const(p["kernel"] ** 2, dtype)
    return data, te.compute(shape, lambda n, h, w, c: pooled[n, h, w, c] / count, "mean")
