"""What a module's arguments are, which values they may hold, and how much work it does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ..signature import WorkloadError
from .graph import COMPARISONS, Node, callee, deep_recursion, integer, read_graph
from .ranges import RangeSolver, Sites

Role = Literal["input", "output", "inout"]


@dataclass(frozen=True)
class Argument:
    """One argument of a workload.

    Attributes:
        name: Its name in the module.
        shape: Extents.
        dtype: TVM's name of the element type.
        role: `output` when every element is written before any is read, `inout` when both the old
            and the new values count.
        low: The least integer it may hold; for a float 0 where it has to be positive, else None.
        high: One more than the greatest integer it may hold; None for an unbounded float.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    low: int | None
    high: int | None


@dataclass(frozen=True)
class Analysis:
    """Arguments in order, and arithmetic operations (a multiply-add is two)."""

    arguments: tuple[Argument, ...]
    flops: float


def analyse(mod: Any) -> Analysis:
    """Analyse a module's only function.

    Raises:
        WorkloadError: an argument is a scalar, or a shape is not constant.
    """
    func = read_graph(mod)
    params: list[Node] = func["params"]
    shapes = [_constant_shape(param) for param in params]
    walk = _Walk()
    with deep_recursion():
        walk.statement(func["body"], 1.0)
        roles = [walk.role(param) for param in params]
        inputs = [param for param, role in zip(params, roles, strict=True) if role != "output"]
        solver = RangeSolver(inputs, walk.sites)
    arguments = tuple(
        Argument(param["name"], shape, param.dtype, role, *solver.bounds(param))
        for param, shape, role in zip(params, shapes, roles, strict=True)
    )
    return Analysis(arguments, walk.flops)


def _constant_shape(param: Node) -> tuple[int, ...]:
    if not param.is_buffer:
        raise WorkloadError(
            f"argument `{param['name']}` is a scalar: make it a constant, or a buffer of size one"
        )
    shape = [integer(extent) for extent in param.shape]
    if any(extent is None for extent in shape):
        raise WorkloadError(
            f"argument `{param['name']}` has a dynamic shape: bind it first, with `func.specialize`"
        )
    return tuple(extent for extent in shape if extent is not None)


_ARITHMETIC = COMPARISONS | {
    "prim.Add",
    "prim.Sub",
    "prim.Mul",
    "prim.Div",
    "prim.Mod",
    "prim.FloorDiv",
    "prim.FloorMod",
    "prim.Min",
    "prim.Max",
    "prim.LShift",
    "prim.RShift",
    "prim.BitwiseAnd",
    "prim.BitwiseOr",
    "prim.BitwiseXor",
}
_DIVISIONS = frozenset({"prim.Div", "prim.Mod", "prim.FloorDiv", "prim.FloorMod"})
_POSITIVE = frozenset({"sqrt", "rsqrt", "log", "log2", "log10", "pow"})
# Calls that choose, reinterpret or address but do no arithmetic.
_FREE = frozenset({"if_then_else", "reinterpret", "likely", "address_of", "buffer_data"})


class _Walk:
    """Walks a function in program order."""

    def __init__(self) -> None:
        self.flops = 0.0
        self.first: dict[int, str] = {}
        self.written: set[int] = set()
        self.opaque: set[int] = set()
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.seen: dict[int, bool] = {}
        self.sites = Sites()

    def role(self, param: Node) -> Role:
        key = id(param)
        if key in self.opaque:
            return self.declared(key)
        if key not in self.written:
            return "input"
        return "output" if self.first[key] == "write" else "inout"

    def declared(self, key: int) -> Role:
        """The role that the blocks declare for a buffer whose accesses cannot be seen."""
        read, written = key in self.reads, key in self.writes
        return "inout" if read == written else "input" if read else "output"

    # Statements

    def statement(self, node: Node, times: float) -> None:
        kind = node.kind
        if kind == "tirx.For":
            self.sites.domains[id(node["loop_var"])] = (node["min"], node["extent"])
            self.value(node["min"])
            self.value(node["extent"])
            self.statement(node["body"], times * (integer(node["extent"]) or 1))
        elif kind == "s_tir.SBlock":
            self.block(node, times)
        elif kind == "tirx.BufferStore":
            self.store(node, times)
        elif kind in ("ir.Var", "ir.TensorRegion"):
            self.value(node)
        elif kind.startswith("prim.") or kind in ("ir.Call", "ir.TensorLoad"):
            self.seen.clear()
            self.flops += times * self.value(node)[0]
        else:
            for child in node.children():
                self.statement(child, times)

    def block(self, node: Node, times: float) -> None:
        for iteration in node["iter_vars"]:
            domain = iteration["dom"]
            self.sites.domains[id(iteration["var"])] = (domain["min"], domain["extent"])
        for match in node["match_buffers"]:
            # The view's accesses are not followed back to their source.
            self.opaque.add(id(match["source"]["source"]))
        if node["init"] is not None:
            # The initial value is stored once an output, not once an iteration.
            self.statement(node["init"], 0.0)
            self.sites.reduced |= {id(buffer) for buffer in _stored(node["init"])}
        self.statement(node["body"], times)
        self.reads |= {id(region["source"]) for region in node["reads"]}
        self.writes |= {id(region["source"]) for region in node["writes"]}

    def store(self, node: Node, times: float) -> None:
        buffer = node["buffer"]
        self.seen.clear()
        self.index(buffer, node["indices"])
        self.flops += times * self.value(node["value"])[0]
        self.first.setdefault(id(buffer), "write")
        self.written.add(id(buffer))
        self.sites.stores.setdefault(id(buffer), []).append(node["value"])

    # Expressions

    def index(self, buffer: Node, indices: list[Node]) -> None:
        for position, expression in enumerate(indices):
            self.value(expression)
            if len(indices) == len(buffer.shape):
                self.sites.indices.append((expression, buffer.shape[position]))

    def value(self, node: Node) -> tuple[float, bool]:
        """Operations of one evaluation, and whether the value depends on a buffer.

        A node that one statement uses several times is evaluated once.
        """
        if id(node) in self.seen:
            return 0.0, self.seen[id(node)]
        operations, depends = self.evaluate(node)
        self.seen[id(node)] = depends
        return operations, depends

    def evaluate(self, node: Node) -> tuple[float, bool]:
        if node.kind == "ir.TensorLoad":
            self.index(node["source"], node["indices"])
            self.first.setdefault(id(node["source"]), "read")
            return 0.0, True
        if node.kind == "ir.Var":
            if node.is_buffer:
                # A bare buffer is handed to something that may read and write it.
                self.opaque.add(id(node))
            return 0.0, False
        parts = [self.value(child) for child in node.children()]
        operations = sum(part[0] for part in parts)
        depends = any(part[1] for part in parts)
        name = callee(node).rpartition(".")[2]
        self.note(node, name)
        # Arithmetic on loop variables alone is addressing, not work.
        counts = depends or "float" in node.dtype
        if counts and (node.kind in _ARITHMETIC or (name and name not in _FREE)):
            operations += 1
        return operations, depends

    def note(self, node: Node, name: str) -> None:
        """Remember what limits the values of the operands."""
        if node.kind in _DIVISIONS and "float" not in node.dtype:
            self.sites.divisors.append(node["b"])
        elif node.kind in ("prim.LShift", "prim.RShift"):
            self.sites.shifts.append((node["b"], 8 * item_bytes(node.dtype)))
        elif name in _POSITIVE and not (name == "pow" and _whole(node["args"][1])):
            self.sites.positive.append(node["args"][0])


def _whole(exponent: Node) -> bool:
    return exponent.kind == "ir.FloatImm" and float(exponent["value"]).is_integer()


def _stored(node: Node) -> Iterator[Node]:
    if node.kind == "tirx.BufferStore":
        yield node["buffer"]
    for child in node.children():
        yield from _stored(child)


def total_bytes(arguments: tuple[Argument, ...]) -> int:
    """Bytes read and written once each; an `inout` argument counts twice."""
    return sum(
        math.prod(argument.shape) * item_bytes(argument.dtype) * (1 + (argument.role == "inout"))
        for argument in arguments
    )


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    if dtype == "bool":
        return 1
    head = dtype.partition("_")[0].removeprefix("float8").removeprefix("bfloat")
    digits = "".join(filter(str.isdigit, head))
    return max(1, int(digits) // 8) if digits else 1
