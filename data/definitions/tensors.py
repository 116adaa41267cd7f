"""The pieces that the definitions of operators are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te

from ..signature import Params, accumulator

Tensors = Sequence[Any]
Builder = Callable[[Params, str], Tensors]


def axis(extent: int, name: str) -> Any:
    """A reduction axis."""
    return te.reduce_axis((0, extent), name=name)


def placeholder(name: str, dtype: str, *shape: int) -> Any:
    """An input tensor."""
    return te.placeholder(shape, name=name, dtype=dtype)


def product(a: Any, b: Any, dtype: str) -> Any:
    """`a * b` in the type that sums of `dtype` are kept in."""
    wide = accumulator(dtype)
    return a.astype(wide) * b.astype(wide)
