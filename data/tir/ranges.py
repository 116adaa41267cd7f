"""Which integers an input may hold so that every access stays in bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .graph import ANYTHING, Interval, Node, callee, combine, integer

# Small enough that sums of products stay exact in int32, wide enough to exercise every bit of int8.
_DEFAULTS = {"bool": (0, 2), "uint": (0, 256), "int": (-128, 128)}


@dataclass
class Sites:
    """Where a function indexes, divides and stores: what the values of its inputs must allow.

    Attributes:
        indices: Index expressions with the extent that each stays below.
        divisors: Integer divisors.
        shifts: Distances of shifts with the bits of the shifted type.
        positive: Operands of `sqrt`, `log` and their like.
        domains: For each variable (by `id`) its least value and its extent.
        stores: For each buffer (by `id`) the values stored to it.
        reduced: Buffers (by `id`) that a reduction accumulates in.
    """

    indices: list[tuple[Node, Node]] = field(default_factory=list)
    divisors: list[Node] = field(default_factory=list)
    shifts: list[tuple[Node, int]] = field(default_factory=list)
    positive: list[Node] = field(default_factory=list)
    domains: dict[int, tuple[Node, Node]] = field(default_factory=dict)
    stores: dict[int, list[Node]] = field(default_factory=dict)
    reduced: set[int] = field(default_factory=set)


class RangeSolver:
    """Finds a range for each integer input from the places where its values matter."""

    def __init__(self, inputs: Sequence[Node], sites: Sites) -> None:
        """Solve.

        Args:
            inputs: The buffers whose values come from outside.
            sites: What the function does with them.
        """
        self.sites = sites
        self.ranges: dict[int, tuple[int, int]] = {}
        for node in inputs:
            kind = node.dtype.rstrip("0123456789")
            if kind in _DEFAULTS:
                self.ranges[id(node)] = _DEFAULTS[kind]
        self.floats = {id(node) for node in inputs if "float" in node.dtype}
        self.positive: set[int] = set()
        self.busy: set[int] = set()
        self.known: dict[int, Interval] = {}
        for expression in sites.positive:
            self.positive |= self._sources(expression, through_sums=False) & self.floats
        self._solve()

    def bounds(self, node: Node) -> tuple[int | None, int | None]:
        """The range [low, high) of an argument; (0, 1) for a float that has to be positive."""
        if id(node) in self.positive:
            return 0, 1
        return self.ranges.get(id(node), (None, None))

    def _solve(self) -> None:
        indices = [
            (expression, int(extent), found)
            for expression, node in self.sites.indices
            if (extent := integer(node)) is not None
            and (found := self._sources(expression) & self.ranges.keys())
        ]
        # Start from the widest range that could be right, so that a clamped index uses all of it.
        widest: dict[int, int] = {}
        for _, extent, found in indices:
            for key in found:
                widest[key] = min(extent, widest.get(key, extent))
        self.ranges |= {key: (0, extent) for key, extent in widest.items()}
        for expression, extent, found in indices:
            for key in found:
                self._shrink(key, expression, extent)
        for expression, bits in self.sites.shifts:
            for key in self._sources(expression) & self.ranges.keys():
                low, high = self.ranges[key]
                self.ranges[key] = (max(low, 0), min(high, bits))
        for expression in self.sites.divisors:
            for key in self._sources(expression) & self.ranges.keys():
                low, high = self.ranges[key]
                self.ranges[key] = (max(low, 1), max(high, 2))

    def _shrink(self, key: int, expression: Node, extent: int) -> None:
        """Lower one input's bound until the index stays in [0, extent), or to 1 if none will do."""
        low, high = 1, self.ranges[key][1]
        if self._fits(expression, extent):
            return
        while low < high:
            middle = (low + high + 1) // 2
            self.ranges[key] = (0, middle)
            if self._fits(expression, extent):
                low = middle
            else:
                high = middle - 1
        self.ranges[key] = (0, low)

    def _fits(self, expression: Node, extent: int) -> bool:
        self.known.clear()
        interval = self._interval(expression)
        return interval[0] >= 0 and interval[1] < extent

    def _sources(self, node: Node, *, through_sums: bool = True) -> set[int]:
        """Buffers (by `id`) whose values reach an expression, also through other buffers."""
        found: set[int] = set()
        pending, seen = [node], set()
        while pending:
            current = pending.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            if current.kind == "ir.TensorLoad":
                buffer = id(current["source"])
                found.add(buffer)
                if through_sums or buffer not in self.sites.reduced:
                    pending += self.sites.stores.get(buffer, [])
            elif current.kind == "ir.Var":
                pending += self.sites.domains.get(id(current), ())
            else:
                pending += current.children()
        return found

    def _interval(self, node: Node) -> Interval:
        """The interval of an integer expression under the current ranges."""
        if id(node) not in self.known:
            self.known[id(node)] = self._evaluate(node)
        return self.known[id(node)]

    def _evaluate(self, node: Node) -> Interval:
        kind = node.kind
        if kind == "ir.IntImm":
            return node["value"], node["value"]
        if kind == "ir.Var":
            return self._variable(node)
        if kind == "ir.TensorLoad":
            return self._load(id(node["source"]))
        if kind == "prim.Cast":
            return self._interval(node["value"])
        if kind == "prim.Not":
            low, high = self._interval(node["a"])
            return 1 - high, 1 - low
        if kind == "prim.Select":
            return self._choice(node["condition"], node["true_value"], node["false_value"])
        name = callee(node).rpartition(".")[2]
        if name == "if_then_else":
            return self._choice(*node["args"])
        if name == "likely":
            return self._interval(node["args"][0])
        if "a" in node.fields and "b" in node.fields:
            return combine(kind, self._interval(node["a"]), self._interval(node["b"]))
        return ANYTHING

    def _variable(self, node: Node) -> Interval:
        domain = self.sites.domains.get(id(node))
        if domain is None or id(node) in self.busy:
            return ANYTHING
        self.busy.add(id(node))
        low, extent = self._interval(domain[0]), self._interval(domain[1])
        self.busy.discard(id(node))
        return low[0], low[1] + max(extent[1], 1) - 1

    def _load(self, buffer: int) -> Interval:
        if buffer in self.ranges:
            low, high = self.ranges[buffer]
            return low, high - 1
        stored = self.sites.stores.get(buffer)
        # A buffer that is computed from itself has no interval that one look could find.
        if not stored or buffer in self.busy:
            return ANYTHING
        self.busy.add(buffer)
        intervals = [self._interval(value) for value in stored]
        self.busy.discard(buffer)
        return min(low for low, _ in intervals), max(high for _, high in intervals)

    def _choice(self, condition: Node, then: Node, other: Node) -> Interval:
        low, high = self._interval(condition)
        if low == high and not math.isinf(low):
            return self._interval(then if low else other)
        a, b = self._interval(then), self._interval(other)
        return min(a[0], b[0]), max(a[1], b[1])
