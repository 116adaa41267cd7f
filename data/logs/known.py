"""Which of our named operators another tuner's task computes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .. import operators
from ..signature import DTYPES, WorkloadError, accumulator
from .entry import canonical_json

# The functions of TVM's own list of Ansor's operators (`te_workload`), whose arguments come in the
# order of our parameters. Its `matmul` is not here: so does everybody call theirs, in any order.
_FUNCTIONS = {
    "batch_matmul_nkkm": "batch_matmul",
    "conv1d_nlc": "conv1d",
    "conv2d_nhwc": "conv2d",
    "conv3d_ndhwc": "conv3d",
    "depthwise_conv2d_nhwc": "depthwise_conv2d",
    "conv2d_transpose_nhwc": "transposed_conv2d",
    "conv2d_capsule_nhwijc": "capsule_conv2d",
    "conv2d_nhwc_bn_relu": "conv2d_bn_relu",
    "norm_bmn": "norm",
    "softmax_mn": "softmax",
    "transpose_batch_matmul": "transpose_batch_matmul",
}

_CONVOLUTION = re.compile(r"(depthwise_|group_)?conv([123])d_(n[dhw]+c|nc[dhw]+)c?(_\w+)?")


def chosen(workloads: Mapping[str, str], task: str, args: Sequence[Any]) -> str:
    """What the caller says the task is, or nothing."""
    exact = task + canonical_json(args)
    return workloads.get(exact) or workloads.get(task) or ""


def of_function(name: str, args: Sequence[Any]) -> str:
    """Our key for a function that Ansor tuned, or nothing.

    Args:
        name: The function's name; a hash is none that is known.
        args: Its arguments: integers, then possibly the types of input and output.
    """
    operator = _FUNCTIONS.get(name.rpartition(".")[2])
    sizes = [arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)]
    types = list(args[len(sizes) :])
    if operator is None or sizes != list(args[: len(sizes)]):
        return ""
    if operator == "depthwise_conv2d" and len(sizes) > 8:
        if sizes[8:] != [1]:  # channels that come of each
            return ""
        sizes = sizes[:8]
    return _key(operator, types or ["float32"], *sizes)


def of_template(task: str, args: Sequence[Any]) -> str:
    """Our key for what an AutoTVM template computes, or nothing.

    Args:
        task: The template's name: `dense_nopack.x86`, `conv2d_NCHWc.x86`.
        args: Its arguments; a tensor is `["TENSOR", shape, dtype]`.
    """
    name = task.partition(".")[0]
    tensors = [_tensor(arg) for arg in args]
    if len(tensors) < 2 or tensors[0] is None or tensors[1] is None:
        return ""
    (first, dtype), (second, other) = tensors[0], tensors[1]
    # A further tensor is a bias, which our operators don't have.
    if dtype != other or any(tensors[2:]):
        return ""
    rest = list(args[2:])
    types = [dtype, *[arg for arg in rest if isinstance(arg, str) and arg in DTYPES]]
    if re.match(r"dense(_|$)", name) and len(first) == len(second) == 2:
        return _product("dense", first, second, types, {"m": 0, "k": 1}, {"n": 0, "k": 1})
    if re.match(r"batch_matmul(_|$)", name) and len(first) == len(second) == 3:
        flags = [arg for arg in rest if isinstance(arg, bool)] or [False, True]
        left = {"b": 0, "m": 2, "k": 1} if flags[0] else {"b": 0, "m": 1, "k": 2}
        right = {"b": 0, "n": 1, "k": 2} if flags[-1] else {"b": 0, "n": 2, "k": 1}
        return _product("batch_matmul", first, second, types, left, right)
    match = _CONVOLUTION.fullmatch(name.lower())
    if match is None:
        return ""
    depthwise, rank, layout = match[1] == "depthwise_", int(match[2]), match[3]
    return _convolution(depthwise, rank, layout, first, second, rest, types)


def _tensor(arg: Any) -> tuple[list[int], str] | None:
    """Shape and type of a tensor among a template's arguments."""
    if not (isinstance(arg, list) and len(arg) == 3 and arg[0] == "TENSOR"):
        return None
    shape, dtype = arg[1:]
    if not (isinstance(shape, list) and isinstance(dtype, str)):
        return None
    return (shape, dtype) if all(type(size) is int for size in shape) else None


def _product(
    operator: str,
    first: list[int],
    second: list[int],
    types: list[str],
    left: dict[str, int],
    right: dict[str, int],
) -> str:
    """A product's key, if the sizes that both sides have agree."""
    sizes = {name: first[at] for name, at in left.items()}
    others = {name: second[at] for name, at in right.items()}
    if any(sizes.get(name, size) != size for name, size in others.items()):
        return ""
    return _key(operator, types, **sizes, **{n: s for n, s in others.items() if n not in sizes})


def _convolution(
    depthwise: bool,
    rank: int,
    layout: str,
    data: list[int],
    weight: list[int],
    rest: list[Any],
    types: list[str],
) -> str:
    """A convolution's key; `rest` holds stride, padding, dilation, and what else there is."""
    sides = {1: "w", 2: "hw", 3: "dhw"}[rank]
    last = layout == f"n{sides}c"
    if not (last or layout == f"nc{sides}") or len(data) != rank + 2 or len(weight) != rank + 2:
        return ""
    at = 1 if last else 2
    window, (a, b) = (weight[:rank], weight[rank:]) if last else (weight[2:], weight[:2])
    channels = data[-1] if last else data[1]
    numbers = [_one(window), *(_one(value) for value in rest[:3])]
    if None in numbers or len(numbers) != 4:
        return ""
    names = ("kernel", "stride", "padding", "dilation")
    sizes = {"n": data[0], **dict(zip(sides, data[at : at + rank], strict=True))}
    if rank == 1:
        sizes["l"] = sizes.pop("w")
    sizes |= {name: size for name, size in zip(names, numbers, strict=True) if size is not None}
    if depthwise:
        if sorted((a, b)) != sorted((channels, 1)):
            return ""
        return _key("depthwise_conv2d", types, **sizes, c=channels) if rank == 2 else ""
    group_in, co = (a, b) if last else (b, a)
    if group_in < 1 or channels % group_in:
        return ""
    groups = channels // group_in
    operator = "grouped_conv2d" if rank == 2 and groups > 1 else f"conv{rank}d"
    return _key(operator, types, **sizes, ci=channels, co=co, groups=groups)


def _one(value: Any) -> int | None:
    """The number that all sides share, of a number or a list of them."""
    numbers = value if isinstance(value, list) else [value]
    first = numbers[0] if numbers else None
    same = type(first) is int and all(number == first for number in numbers)
    return first if same else None


def _key(operator: str, types: Sequence[Any], *shape: int, **params: int) -> str:
    """The workload's key, or nothing where there is no such workload.

    Args:
        operator: Its name.
        types: The type of the inputs, and possibly others, the last of which is the output's.
        shape: Its parameters by position.
        params: Its parameters by name.
    """
    dtype = types[0]
    if dtype not in DTYPES or types[-1] != accumulator(dtype):
        return ""
    known = operators.get(operator)
    try:
        operators.check_dtype(known, dtype)
        bound = known.bind(shape, params)
    except WorkloadError:
        return ""
    inside = [f"{name}={value}" for name, value in bound.items()]
    if dtype != "float32":
        inside.append(f"dtype={dtype}")
    return f"{operator}({','.join(inside)})"
