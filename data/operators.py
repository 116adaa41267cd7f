"""The named operators: their parameters, defaults and limits. Loads no TVM, so listing is instant.

What an operator computes, in TE and in NumPy, is in `definitions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .signature import DTYPES, Operator, Params, WorkloadError, suggestion


def _check_window(params: Params, sides: str) -> None:
    reach = (params["kernel"] - 1) * params.get("dilation", 1) + 1
    for side in sides:
        padded = params[side] + 2 * params["padding"]
        if reach > padded:
            raise WorkloadError(
                f"the kernel reaches {reach} elements (kernel={params['kernel']}, "
                f"dilation={params.get('dilation', 1)}), the padded input has only {padded} along "
                f"`{side}`: enlarge `{side}` or `padding`, or shrink the kernel"
            )


def _check_groups(params: Params) -> None:
    groups = params["groups"]
    for channels in ("ci", "co"):
        if params[channels] % groups:
            raise WorkloadError(
                f"`{channels}`={params[channels]} is not divisible by groups={groups}: "
                "choose channels that are"
            )


def _convolution(sides: str) -> Callable[[Params], None]:
    def check(params: Params) -> None:
        _check_window(params, sides)
        if "groups" in params:
            _check_groups(params)

    return check


def _pooling(params: Params) -> None:
    _check_window(params, "hw")
    if 2 * params["padding"] > params["kernel"]:
        raise WorkloadError(
            f"padding={params['padding']} is more than half of kernel={params['kernel']}: "
            "some windows would hold nothing but padding"
        )


def _transposed(params: Params) -> None:
    if params["padding"] > params["kernel"] - 1:
        raise WorkloadError(
            f"padding={params['padding']} has to be below kernel={params['kernel']} "
            "in a transposed convolution"
        )
    for side in "hw":
        out = (params[side] - 1) * params["stride"] - 2 * params["padding"] + params["kernel"]
        if out < 1:
            raise WorkloadError(f"the output would have {out} elements along `{side}`")


def _parameters(text: str) -> tuple[tuple[str, int | None], ...]:
    """`"m n stride=1"` as pairs of name and default."""
    pairs = (word.partition("=") for word in text.split())
    return tuple((name, int(value) if value else None) for name, _, value in pairs)


def _operator(
    name: str,
    parameters: str,
    example: tuple[int, ...],
    summary: str,
    *,
    float_only: bool = False,
    check: Callable[[Params], None] | None = None,
) -> Operator:
    return Operator(name, summary, _parameters(parameters), example, float_only, check)


_WINDOW = "kernel stride=1 padding=0 dilation=1"
_CONV2D = f"n h w ci co {_WINDOW}"

_PRODUCTS = (
    _operator("matmul", "m n k", (512, 512, 512), "C[m,n] = A[m,k] B[k,n]"),
    _operator("batch_matmul", "b m n k", (8, 128, 128, 64), "C[b,m,n] = A[b,m,k] B[b,k,n]"),
    _operator("dense", "m n k", (128, 512, 512), "C[m,n] = A[m,k] W[n,k], weights transposed"),
    _operator("matmul_relu", "m n k", (512, 512, 512), "max(A[m,k] B[k,n], 0)"),
    _operator(
        "transpose_batch_matmul",
        "batch seq heads dim",
        (1, 128, 12, 64),
        "attention scores Q K^T from Q, K of shape (batch, seq, heads, dim)",
    ),
)

_CONVOLUTIONS = (
    _operator(
        "conv1d",
        f"n l ci co {_WINDOW} groups=1",
        (1, 256, 64, 128, 3, 2, 1),
        "1-D convolution, (n,l,c)",
        check=_convolution("l"),
    ),
    _operator(
        "conv2d",
        f"{_CONV2D} groups=1",
        (1, 14, 14, 256, 256, 3, 1, 1),
        "2-D convolution, NHWC",
        check=_convolution("hw"),
    ),
    _operator(
        "conv3d",
        f"n d h w ci co {_WINDOW} groups=1",
        (1, 16, 14, 14, 256, 256, 3, 1, 1),
        "3-D convolution, NDHWC",
        check=_convolution("dhw"),
    ),
    _operator(
        "grouped_conv2d",
        f"{_CONV2D} groups=4",
        (1, 14, 14, 256, 256, 3, 1, 1),
        "2-D convolution in groups of channels, NHWC",
        check=_convolution("hw"),
    ),
    _operator(
        "dilated_conv2d",
        "n h w ci co kernel stride=1 padding=0 dilation=2 groups=1",
        (1, 14, 14, 256, 256, 3, 1, 1),
        "2-D convolution with a dilated kernel, NHWC",
        check=_convolution("hw"),
    ),
    _operator(
        "depthwise_conv2d",
        f"n h w c {_WINDOW}",
        (1, 112, 112, 32, 3, 1, 1),
        "2-D convolution of each channel by itself, NHWC",
        check=_convolution("hw"),
    ),
    _operator(
        "transposed_conv2d",
        "n h w ci co kernel stride=1 padding=0",
        (1, 8, 8, 256, 128, 4, 2, 1),
        "transposed 2-D convolution, NHWC",
        check=_transposed,
    ),
    _operator(
        "capsule_conv2d",
        "n h w ci co kernel stride=1 padding=0 capsule=4",
        (1, 16, 16, 32, 32, 3, 2, 1),
        "2-D convolution of capsule matrices, (n,h,w,i,j,c)",
        check=_convolution("hw"),
    ),
    _operator(
        "conv2d_bn_relu",
        _CONV2D,
        (1, 56, 56, 64, 128, 3, 2, 1),
        "2-D convolution, bias, batch normalisation and ReLU, NHWC",
        float_only=True,
        check=_convolution("hw"),
    ),
    _operator(
        "max_pool2d",
        "n h w c kernel=2 stride=2 padding=0",
        (1, 112, 112, 64),
        "maximum over 2-D windows, NHWC",
        check=_pooling,
    ),
    _operator(
        "avg_pool2d",
        "n h w c kernel=2 stride=2 padding=0",
        (1, 112, 112, 64),
        "mean over 2-D windows (padding counts), NHWC",
        float_only=True,
        check=_pooling,
    ),
)

_NORMS = (
    _operator("softmax", "m n", (512, 512), "softmax over the last axis", float_only=True),
    _operator(
        "layer_norm", "m n", (512, 768), "layer normalisation over the last axis", float_only=True
    ),
    _operator(
        "rms_norm", "m n", (512, 768), "root-mean-square normalisation, last axis", float_only=True
    ),
    _operator(
        "batch_norm", "n h w c", (1, 56, 56, 64), "batch normalisation, inference", float_only=True
    ),
    _operator(
        "norm", "b m n", (1, 512, 512), "Euclidean norm of each m x n matrix", float_only=True
    ),
)

_REDUCTIONS = tuple(
    _operator(name, "m n", (512, 512), f"{what} over the last axis", float_only=name == "mean")
    for name, what in (
        ("sum", "sum"),
        ("max", "maximum"),
        ("min", "minimum"),
        ("mean", "mean"),
    )
)

_ELEMENTWISE = tuple(
    _operator(name, "m n", (512, 512), f"{what}, element by element", float_only=float_only)
    for name, what, float_only in (
        ("add", "A + B", False),
        ("subtract", "A - B", False),
        ("multiply", "A * B", False),
        ("divide", "A / B", True),
        ("maximum", "max(A, B)", False),
        ("relu", "max(A, 0)", False),
        ("exp", "exp(A)", True),
        ("log", "log(A), A > 0", True),
        ("sqrt", "sqrt(A), A > 0", True),
        ("tanh", "tanh(A)", True),
        ("sigmoid", "1 / (1 + exp(-A))", True),
        ("silu", "A * sigmoid(A)", True),
        ("gelu", "GELU, exact", True),
    )
)

_MOVES = (
    _operator("transpose", "m n", (512, 512), "B[n,m] = A[m,n]"),
    _operator("take", "rows dim count", (1000, 256, 128), "rows of a table, chosen by an index"),
)

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for group in (_PRODUCTS, _CONVOLUTIONS, _NORMS, _REDUCTIONS, _ELEMENTWISE, _MOVES)
    for operator in group
}


def names() -> tuple[str, ...]:
    """The names of the built-in operators, in the order of `tensortune list`."""
    return tuple(OPERATORS)


def get(name: str) -> Operator:
    """Look an operator up.

    Raises:
        WorkloadError: there is none of that name; the message has the nearest ones.
    """
    if name not in OPERATORS:
        hint = suggestion(name, list(OPERATORS)) or "; `tensortune list` shows the operators"
        raise WorkloadError(f"there is no operator `{name}`{hint}")
    return OPERATORS[name]


def check_dtype(operator: Operator, dtype: str) -> None:
    """Raise `WorkloadError` when the operator does not take the dtype."""
    if dtype not in DTYPES:
        hint = suggestion(dtype, list(DTYPES)) or f"; use one of {', '.join(DTYPES)}"
        raise WorkloadError(f"there is no dtype `{dtype}`{hint}")
    if dtype not in operator.dtypes:
        raise WorkloadError(
            f"{operator.name} is for floating point only: use one of {', '.join(operator.dtypes)}"
        )
