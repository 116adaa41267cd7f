"""A TIR module as a plain graph of nodes, and integer intervals of its expressions.

TVM 0.27 has no Python visitors that reach every TIR node, but `tvm.ir.save_json` writes every one,
whatever its type, in about a millisecond. Analyses walk that graph and need no list of node types:
one they do not know is a name with fields.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm

# Fields that hold a plain integer; any other integer in the JSON is the number of a node.
_PLAIN = frozenset(
    {
        "data_alignment",
        "offset_factor",
        "iter_type",
        "kind",
        "ndim",
        "value_index",
        "line",
        "column",
        "end_line",
        "end_column",
    }
)

Interval = tuple[float, float]
ANYTHING: Interval = (-math.inf, math.inf)


class Node:
    """One node: `kind` such as `tirx.For`, and `fields` by name.

    A field is a node, or a plain value. Arrays and maps carry `items` instead, and literals carry
    `value`. Two references to the same TVM object are the same `Node`.
    """

    __slots__ = ("fields", "items", "kind", "value")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.fields: dict[str, Any] = {}
        self.items: list[Node] = []
        self.value: Any = None

    def __getitem__(self, name: str) -> Any:
        """The field's node or value, a literal's value, or the list of an array; None if absent."""
        field = self.fields.get(name)
        if isinstance(field, Node):
            if field.kind == "ffi.Array":
                return field.items
            if field.kind in _LITERALS:
                return field.value
        return field

    @property
    def dtype(self) -> str:
        """The dtype of an expression or a buffer, or an empty string."""
        node: Any = self.fields.get("ty")
        while isinstance(node, Node) and "dtype" in node.fields:
            node = node["dtype"]
        return node if isinstance(node, str) else ""

    @property
    def is_buffer(self) -> bool:
        """Whether this is the variable of a buffer."""
        ty = self.fields.get("ty")
        return self.kind == "ir.Var" and isinstance(ty, Node) and ty.kind == "tirx.BufferType"

    @property
    def shape(self) -> list[Node]:
        """A buffer's dimensions."""
        shape: list[Node] = self.fields["ty"]["shape"]
        return shape

    def children(self) -> Iterator[Node]:
        """The nodes that this one refers to, types and source positions aside."""
        yield from self.items
        for name, field in self.fields.items():
            if isinstance(field, Node) and name not in ("span", "ty"):
                yield field


_LITERALS = frozenset({"None", "int", "bool", "float", "ffi.String", "DataType"})


def read_graph(mod: Any) -> Node:
    """The graph of a module's only `PrimFunc`."""
    raw = json.loads(tvm.ir.save_json(mod))["nodes"]
    nodes = [Node(entry["type"]) for entry in raw]
    for position, (node, entry) in enumerate(zip(nodes, raw, strict=True)):
        data = entry.get("data")
        if node.kind in ("ffi.Array", "ffi.Map", "ffi.Dict", "ffi.List"):
            node.items = [nodes[i] for i in data]
        elif isinstance(data, dict):
            for name, value in data.items():
                # A node refers to earlier ones only.
                plain = type(value) is not int or name in _PLAIN or value >= position
                node.fields[name] = value if plain else nodes[value]
        else:
            node.value = data
    return next(node for node in nodes if node.kind == "tirx.PrimFunc")


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Room for recursion into expressions of thousands of levels, as unrolled sums have."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 50_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def integer(node: Node | None) -> int | None:
    """The value of an integer literal, or None."""
    if isinstance(node, Node) and node.kind == "ir.IntImm":
        return int(node["value"])
    return None


def callee(node: Node) -> str:
    """The operator that an `ir.Call` calls, such as `tirx.exp`; empty for any other node."""
    operator = node.fields.get("op") if node.kind == "ir.Call" else None
    if not isinstance(operator, Node):
        return ""
    return str(operator.value if operator.kind == "ir.Op" else operator.kind)


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _multiply(a: Interval, b: Interval) -> Interval:
    corners = [_product(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _floor_divide(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        return ANYTHING
    corners = [_floor_quotient(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _floor_quotient(x: float, y: float) -> float:
    if math.isinf(x):
        return x
    if math.isinf(y):
        return 0.0 if x >= 0 else -1.0
    return x // y


def _floor_modulo(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        return ANYTHING
    return a if a[0] >= 0 and a[1] < b[0] else (0.0, b[1] - 1)


def _compare(kind: str, a: Interval, b: Interval) -> Interval:
    """(1, 1) where the comparison always holds, (0, 0) where it never does."""
    if kind in ("prim.GT", "prim.GE"):
        return _compare({"prim.GT": "prim.LT", "prim.GE": "prim.LE"}[kind], b, a)
    if kind == "prim.LT":
        return (1.0, 1.0) if a[1] < b[0] else (0.0, 0.0) if a[0] >= b[1] else (0.0, 1.0)
    if kind == "prim.LE":
        return (1.0, 1.0) if a[1] <= b[0] else (0.0, 0.0) if a[0] > b[1] else (0.0, 1.0)
    if a[1] < b[0] or b[1] < a[0]:
        equal: Interval = (0.0, 0.0)
    else:
        equal = (1.0, 1.0) if a[0] == a[1] == b[0] == b[1] else (0.0, 1.0)
    return equal if kind == "prim.EQ" else (1 - equal[1], 1 - equal[0])


def combine(kind: str, a: Interval, b: Interval) -> Interval:
    """The interval of a binary integer or boolean operation, from those of its operands."""
    if kind == "prim.Add":
        return a[0] + b[0], a[1] + b[1]
    if kind == "prim.Sub":
        return a[0] - b[1], a[1] - b[0]
    if kind == "prim.Mul":
        return _multiply(a, b)
    # Truncation and flooring agree where nothing is negative.
    if kind == "prim.FloorDiv" or (kind == "prim.Div" and a[0] >= 0):
        return _floor_divide(a, b)
    if kind == "prim.FloorMod" or (kind == "prim.Mod" and a[0] >= 0):
        return _floor_modulo(a, b)
    if kind == "prim.Min":
        return min(a[0], b[0]), min(a[1], b[1])
    if kind == "prim.Max":
        return max(a[0], b[0]), max(a[1], b[1])
    if kind == "prim.And":
        return min(a[0], b[0]), min(a[1], b[1])
    if kind == "prim.Or":
        return max(a[0], b[0]), max(a[1], b[1])
    if kind in COMPARISONS:
        return _compare(kind, a, b)
    return ANYTHING


COMPARISONS = frozenset({"prim.LT", "prim.LE", "prim.GT", "prim.GE", "prim.EQ", "prim.NE"})
