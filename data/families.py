"""Which operators are of one kind, for splits and counts. Loads no TVM.

A family's programs have one structure; shapes and element types tell its members apart. Where
Ansor's suite has the family it goes by Ansor's name. Operators that differ by one scalar function
alone (`add` and `subtract`, `sum` and `max`) are one family: a model that has seen one of them has
seen the others.
"""

from __future__ import annotations

import re

_KEY = re.compile(r"([\w.:]+)\((.*)\)", re.DOTALL)

ANSOR_FAMILIES = (
    *("C1D", "C2D", "C3D", "GMM", "GRP", "DIL", "DEP", "T2D", "CAP", "NRM", "SFM", "CBR", "TBG"),
)
"""The 13 families of Ansor's single-operator suite."""

# Operators whose family isn't their own name. The 2-D convolutions are told apart by parameters:
# `conv2d(..., dilation=2)` is what `dilated_conv2d` is.
_CONV2D = frozenset({"conv2d", "grouped_conv2d", "dilated_conv2d"})
_MEMBERS: dict[str, tuple[str, ...]] = {
    "GMM": ("matmul", "batch_matmul"),  # a product is a batch of one
    "TBG": ("transpose_batch_matmul",),
    "C1D": ("conv1d",),
    "C3D": ("conv3d",),
    "DEP": ("depthwise_conv2d",),
    "T2D": ("transposed_conv2d",),
    "CAP": ("capsule_conv2d",),
    "CBR": ("conv2d_bn_relu",),
    "NRM": ("norm",),
    "SFM": ("softmax",),
    "pooling": ("max_pool2d", "avg_pool2d"),
    "row norm": ("layer_norm", "rms_norm"),
    "reduction": ("sum", "max", "min", "mean"),
    "elementwise": (
        *("add", "subtract", "multiply", "divide", "maximum", "relu", "exp", "log", "sqrt"),
        *("tanh", "sigmoid", "silu", "gelu"),
    ),
}
_FAMILY_OF = {operator: family for family, members in _MEMBERS.items() for operator in members}


def operator_of(key: str) -> str:
    """The operator in a workload's key: `matmul`, `package.module:function`, `custom:attention`.

    Of another tuner's task it is the tuner with the task's name.
    """
    match = _KEY.fullmatch(key)
    return match[1] if match else re.split(r"[@\[]", key, maxsplit=1)[0]


def family_of(key: str) -> str:
    """The family of a workload by its key: Ansor's name, a group's, or else the operator's."""
    operator = operator_of(key)
    if operator not in _CONV2D:
        return _FAMILY_OF.get(operator, operator)
    match = _KEY.fullmatch(key)
    pairs = (part.partition("=") for part in (match[2] if match else "").split(","))
    params = {name.strip(): value.strip() for name, _, value in pairs}
    if params.get("groups", "1") != "1":
        return "GRP"
    return "DIL" if params.get("dilation", "1") != "1" else "C2D"
