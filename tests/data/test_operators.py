"""Every named operator computes what its name says, and says so when it cannot."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 with NumPy
import numpy as np
import pytest
import tvm

from tensortune.data import operators
from tensortune.data.definitions import build as definitions
from tensortune.data.workload import Workload, WorkloadError, workload

Array = np.ndarray[Any, Any]
Reference = Callable[..., Array]

TARGET = tvm.target.Target.from_device("cpu")


def run(mod: Any, arrays: list[Array]) -> list[Array]:
    function = tvm.compile(mod, target=TARGET).jit()["main"]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    function(*tensors)
    return [tensor.numpy() for tensor in tensors]


def wide(arrays: list[Array]) -> list[Array]:
    return [a if a.dtype.kind in "iub" else a.astype(np.float64) for a in arrays]


def convolve(
    x: Array,
    w: Array,
    /,
    *,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int = 1,
    groups: int = 1,
    **_: int,
) -> Array:
    """Channels last, any rank: one product of matrices per tap and group."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), *[(padding, padding)] * rank, (0, 0)])
    size = [(s - (kernel - 1) * dilation - 1) // stride + 1 for s in x.shape[1:-1]]
    out = np.zeros((x.shape[0], *size, w.shape[-1]), np.result_type(x, np.int64))
    ci, co = x.shape[-1] // groups, w.shape[-1] // groups
    for tap in np.ndindex(*[kernel] * rank):
        window = tuple(
            slice(t * dilation, t * dilation + (s - 1) * stride + 1, stride)
            for t, s in zip(tap, size, strict=True)
        )
        source = x[(slice(None), *window)]
        for g in range(groups):
            into = (..., slice(g * co, (g + 1) * co))
            out[into] += source[..., g * ci : (g + 1) * ci] @ w[tap][:, g * co : (g + 1) * co]
    return out


def depthwise(x: Array, w: Array, /, **params: int) -> Array:
    """A grouped convolution with one channel a group."""
    return convolve(x, w[:, :, None, :], groups=x.shape[-1], **params)


def transposed(x: Array, w: Array, /, *, kernel: int, stride: int, padding: int, **_: int) -> Array:
    """Every input element scatters its product with the kernel."""
    n, h, wd, _ci = x.shape
    full = np.zeros((n, (h - 1) * stride + kernel, (wd - 1) * stride + kernel, w.shape[-1]))
    for i, j in np.ndindex(h, wd):
        patch = np.einsum("nc,klco->nklo", x[:, i, j], w)
        full[:, i * stride : i * stride + kernel, j * stride : j * stride + kernel] += patch
    return full[:, padding : full.shape[1] - padding, padding : full.shape[2] - padding]


def capsule(x: Array, w: Array, /, *, kernel: int, stride: int, padding: int, **_: int) -> Array:
    x = np.pad(x, [(0, 0), (padding, padding), (padding, padding), (0, 0), (0, 0), (0, 0)])
    high, width = ((s - kernel) // stride + 1 for s in x.shape[1:3])
    out = 0
    for r, s in np.ndindex(kernel, kernel):
        source = x[:, r : r + high * stride : stride, s : s + width * stride : stride]
        out = out + np.einsum("nhwikc,kjcd->nhwijd", source[:, :high, :width], w[r, s])
    return np.asarray(out)


def windows(x: Array, fill: float, *, kernel: int, stride: int, padding: int, **_: int) -> Array:
    border = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    x = np.pad(x, border, constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))
    return view[:, ::stride, ::stride]


def normalised(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def softmax(x: Array) -> Array:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def gelu(x: Array) -> Array:
    from math import erf

    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


MN: Mapping[str, int] = {"m": 6, "n": 9}
CONV = {"n": 2, "h": 7, "w": 8, "ci": 4, "co": 6, "kernel": 3, "stride": 2, "padding": 1}

CASES: list[tuple[str, Mapping[str, int], Reference]] = [
    ("matmul", {"m": 5, "n": 6, "k": 7}, lambda a, b, /, **_: a @ b),
    ("matmul", {"m": 1, "n": 6, "k": 7}, lambda a, b, /, **_: a @ b),
    ("batch_matmul", {"b": 2, "m": 3, "n": 4, "k": 5}, lambda a, b, /, **_: a @ b),
    ("dense", {"m": 5, "n": 6, "k": 7}, lambda a, w, /, **_: a @ w.T),
    ("matmul_relu", {"m": 5, "n": 6, "k": 7}, lambda a, b, /, **_: np.maximum(a @ b, 0)),
    (
        "transpose_batch_matmul",
        {"batch": 2, "seq": 5, "heads": 3, "dim": 4},
        lambda q, k, /, **_: np.einsum("bihd,bjhd->bhij", q, k),
    ),
    (
        "conv1d",
        {"n": 2, "l": 9, "ci": 4, "co": 6, "kernel": 3, "stride": 2, "padding": 1, "groups": 2},
        convolve,
    ),
    ("conv2d", {**CONV, "dilation": 1, "groups": 1}, convolve),
    ("conv2d", {**CONV, "dilation": 2, "groups": 2}, convolve),
    ("conv2d", {**CONV, "kernel": 1, "stride": 1, "padding": 0}, convolve),
    ("conv3d", {**CONV, "d": 4, "stride": 1}, convolve),
    ("grouped_conv2d", {**CONV, "ci": 8, "co": 4, "groups": 4}, convolve),
    ("dilated_conv2d", {**CONV, "dilation": 2}, convolve),
    (
        "depthwise_conv2d",
        {"n": 1, "h": 7, "w": 8, "c": 5, "kernel": 3, "padding": 1, "stride": 2},
        depthwise,
    ),
    ("transposed_conv2d", {**CONV, "kernel": 4}, transposed),
    ("transposed_conv2d", {**CONV, "kernel": 3, "stride": 1, "padding": 0}, transposed),
    ("transposed_conv2d", {**CONV, "kernel": 5, "stride": 3, "padding": 1}, transposed),
    ("transposed_conv2d", {**CONV, "kernel": 2, "stride": 3, "padding": 0}, transposed),
    ("capsule_conv2d", {**CONV, "capsule": 2}, capsule),
    (
        "conv2d_bn_relu",
        {**CONV, "n": 1},
        lambda x, w, bias, offset, scale, /, **p: np.maximum(
            (convolve(x, w, **p) + bias) * scale + offset, 0
        ),
    ),
    (
        "max_pool2d",
        {"n": 1, "h": 6, "w": 8, "c": 3, "kernel": 3, "stride": 2, "padding": 1},
        lambda x, /, **p: windows(x, -np.inf, **p).max((-1, -2)),
    ),
    (
        "avg_pool2d",
        {"n": 1, "h": 6, "w": 8, "c": 3, "kernel": 3, "stride": 2, "padding": 1},
        lambda x, /, **p: windows(x, 0, **p).mean((-1, -2)),
    ),
    ("softmax", MN, lambda a, /, **_: softmax(a)),
    ("layer_norm", MN, lambda a, g, b, /, **_: normalised(a) * g + b),
    ("rms_norm", MN, lambda a, g, /, **_: a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-5) * g),
    (
        "batch_norm",
        {"n": 2, "h": 3, "w": 4, "c": 5},
        lambda x, g, b, mean, var, /, **_: (x - mean) / np.sqrt(var + 1e-5) * g + b,
    ),
    ("norm", {"b": 3, "m": 4, "n": 5}, lambda a, /, **_: np.sqrt((a * a).sum((1, 2)))),
    ("sum", MN, lambda a, /, **_: a.sum(-1)),
    ("max", MN, lambda a, /, **_: a.max(-1)),
    ("min", MN, lambda a, /, **_: a.min(-1)),
    ("mean", MN, lambda a, /, **_: a.mean(-1)),
    ("add", MN, lambda a, b, /, **_: a + b),
    ("subtract", MN, lambda a, b, /, **_: a - b),
    ("multiply", MN, lambda a, b, /, **_: a * b),
    ("divide", MN, lambda a, b, /, **_: a / b),
    ("maximum", MN, lambda a, b, /, **_: np.maximum(a, b)),
    ("relu", MN, lambda a, /, **_: np.maximum(a, 0)),
    ("exp", MN, lambda a, /, **_: np.exp(a)),
    ("log", MN, lambda a, /, **_: np.log(a)),
    ("sqrt", MN, lambda a, /, **_: np.sqrt(a)),
    ("tanh", MN, lambda a, /, **_: np.tanh(a)),
    ("sigmoid", MN, lambda a, /, **_: 1 / (1 + np.exp(-a))),
    ("silu", MN, lambda a, /, **_: a / (1 + np.exp(-a))),
    ("gelu", MN, lambda a, /, **_: gelu(a)),
    ("transpose", MN, lambda a, /, **_: a.T),
    ("take", {"rows": 11, "dim": 5, "count": 7}, lambda table, index, /, **_: table[index]),
]


def test_every_operator_is_defined_and_covered() -> None:
    assert set(definitions.BUILDERS) == set(operators.names())
    assert {name for name, _, _ in CASES} == set(operators.names())


@pytest.mark.parametrize(("name", "params", "reference"), CASES)
def test_computes_what_its_name_says(
    name: str, params: Mapping[str, int], reference: Reference
) -> None:
    item = workload(name, **params)
    arrays = item.make_inputs(0)
    *inputs, out = wide(arrays)
    expected = reference(*inputs, **dict(item.params))
    assert expected.shape == out.shape
    # Sums of at most 108 products of numbers up to 1: 1e-5 is 100 roundings of float32.
    np.testing.assert_allclose(run(item.mod, arrays)[-1], expected, rtol=1e-5, atol=1e-5)

    promoted = item.float64_mod()
    assert promoted is not None
    np.testing.assert_allclose(run(promoted, [*inputs, out])[-1], expected, rtol=1e-9, atol=1e-9)

    call = item.numpy_call()
    if call is not None:
        call(arrays)
        np.testing.assert_allclose(arrays[-1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("name", ["matmul", "conv2d", "sum", "max"])
def test_integers_are_exact(name: str, dtype: str) -> None:
    params, reference = next((p, r) for case, p, r in CASES if case == name)
    item = workload(name, dtype=dtype, **params)
    arrays = item.make_inputs(1)
    *inputs, _ = [array.astype(np.int64) for array in arrays]
    result = run(item.mod, arrays)[-1]
    assert result.dtype == (dtype if name == "max" or dtype == "int32" else "int32")
    np.testing.assert_array_equal(result, reference(*inputs, **dict(item.params)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["matmul", "softmax", "gelu", "max_pool2d", "tanh"])
def test_other_floats(name: str, dtype: str) -> None:
    params, reference = next((p, r) for case, p, r in CASES if case == name)
    item = workload(name, dtype=dtype, **params)
    arrays = item.make_inputs(2)
    *inputs, _ = wide(arrays)
    result = run(item.mod, arrays)[-1].astype(np.float64)
    # bfloat16 keeps 8 bits: 0.4% a rounding, and a sum of seven products makes about ten.
    tolerance = {"float16": 5e-3, "bfloat16": 4e-2, "float64": 1e-9}[dtype]
    expected = reference(*inputs, **dict(item.params))
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", operators.names())
def test_the_example_is_possible_in_every_dtype(name: str) -> None:
    operator = operators.get(name)
    for dtype in operator.dtypes:
        item = workload(name, *operator.example, dtype=dtype)
        assert Workload.from_key(item.key) == item
        assert [a.role for a in item.arguments][:-1] == ["input"] * (len(item.arguments) - 1)
        assert item.arguments[-1].role == "output"
        assert "layout_free_buffers" not in item.mod.script()


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        (("matmull", 1, 2, 3), {}, "no operator `matmull` (did you mean `matmul`"),
        (("zzz",), {}, "`tensortune list`"),
        (("matmul", 512, 512), {}, "matmul needs `k` too: matmul(m, n, k)"),
        (("matmul", 1, 2, 3, 4), {}, "takes 3 parameters, not 4"),
        (("matmul", 1, 2), {"q": 3}, "has no `q`"),
        (("conv2d", 1, 8, 8, 4, 4, 3), {"strides": 2}, "did you mean `stride`"),
        (("matmul", 1, 2, 3), {"m": 3}, "`m` is given twice"),
        (("matmul", 0, 2, 3), {}, "`m` has to be at least 1, not 0"),
        (("matmul", 1, -2, 3), {}, "`n` has to be at least 1, not -2"),
        (("matmul", 1, 2, 3.5), {}, "`k` has to be an integer, not 3.5"),
        (("matmul", 1, 2, "x"), {}, "`k` has to be an integer, not 'x'"),
        (("matmul", 1, 2, True), {}, "`k` has to be an integer, not True"),
        (("matmul", 1, 2, 2**31), {}, "`k` has to be below 2**31"),
        (("matmul", 1, 2, 3), {"dtype": "flaot32"}, "did you mean `float32`"),
        (("matmul", 1, 2, 3), {"dtype": "complex"}, "no dtype `complex`"),
        (("softmax", 1, 2), {"dtype": "int8"}, "softmax is for floating point only"),
        (("conv2d", 1, 4, 4, 4, 4, 7), {}, "reaches 7 elements"),
        (("conv2d", 1, 4, 4, 4, 4, 3), {"dilation": 2}, "reaches 5 elements"),
        (("conv2d", 1, 8, 8, 6, 4, 3), {"groups": 4}, "`ci`=6 is not divisible by groups=4"),
        (("conv2d", 1, 8, 8, 4, 6, 3), {"groups": 4}, "`co`=6 is not divisible by groups=4"),
        (("conv2d", 1, 8, 8, 4, 4, 3), {"padding": -1}, "`padding` has to be at least 0"),
        (("max_pool2d", 1, 8, 8, 4), {"padding": 2}, "more than half"),
        (("transposed_conv2d", 1, 4, 4, 2, 2, 3), {"padding": 3}, "has to be below kernel=3"),
        (("transposed_conv2d", 1, 1, 1, 2, 2, 3), {"padding": 2}, "would have -1 elements"),
    ],
)
def test_bad_input_says_what_to_change(
    args: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        workload(*args, **named)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_numpy_integers_and_texts_are_integers() -> None:
    assert workload("matmul", np.int64(2), "3", k=4) == workload("matmul", 2, 3, 4)


def test_listing_loads_no_tvm() -> None:
    code = (
        "import sys; from tensortune.data import operators; operators.names(); "
        "sys.exit('tvm' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
