"""What the blocks of a program are: their axes, and how they go through their tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..tir.analysis import item_bytes
from ..tir.graph import Node, callee, deep_recursion, integer, read_graph
from .nest import Access

_SPATIAL, _REDUCTION = 0, 2
# Calls that choose or convert; any other one is taken for dear.
_CHEAP = frozenset({"if_then_else", "likely", "reinterpret"})


@dataclass(frozen=True)
class Block:
    """A block that one perfect nest of loops runs, each loop an axis of the block.

    Attributes:
        name: Its name in the program.
        axes: Name, extent and whether it is a reduction, for every axis.
        reads: The tensors it reads, as accesses over all of its axes.
        write: The tensor it writes.
        whole: For each axis whether vectors along it stay whole.
        ordered: Whether every tensor is read in the order in which the output is written.
        branches: Whether the body branches.
        dear: Whether the body calls functions.
        output: Whether it writes an argument of the program.
    """

    name: str
    axes: tuple[tuple[str, int, bool], ...]
    reads: tuple[Access, ...]
    write: Access
    whole: tuple[bool, ...]
    ordered: bool
    branches: bool
    dear: bool
    output: bool

    @property
    def reduces(self) -> bool:
        """Whether it is a reduction."""
        return any(reduction for _, _, reduction in self.axes)

    @property
    def results(self) -> int:
        """How many elements it writes."""
        return math.prod(extent for _, extent, reduction in self.axes if not reduction)

    @property
    def work(self) -> int:
        """Tensor elements that it touches, which stands for its arithmetic."""
        return math.prod(extent for _, extent, _ in self.axes) * (1 + len(self.reads))


def read_blocks(mod: Any) -> dict[str, Block | None]:
    """The blocks of a module's only function in program order.

    None for a block that is no perfect nest over its own axes, or does more than store one value.
    """
    func = read_graph(mod)
    outputs = {id(param) for param in func["params"]}
    with deep_recursion():
        return {
            str(realize["block"]["name_hint"]): _block(loops, realize, outputs)
            for loops, realize in _realized(func["body"]["block"]["body"], ())
        }


def _realized(node: Node, loops: tuple[Node, ...]) -> Iterator[tuple[tuple[Node, ...], Node]]:
    """The blocks directly under the root with the loops around each.

    What stands beside others in a loop comes with no loops, so that it is no perfect nest.
    """
    if node.kind == "tirx.For":
        yield from _realized(node["body"], (*loops, node))
    elif node.kind == "s_tir.SBlockRealize":
        yield loops, node
    elif node.kind == "tirx.SeqStmt":
        for child in node["seq"]:
            yield from _realized(child, ())
    else:
        for child in node.children():
            yield from _realized(child, ())


def _block(loops: tuple[Node, ...], realize: Node, outputs: set[int]) -> Block | None:
    block = realize["block"]
    axes = _axes(loops, realize)
    if axes is None or len(block["writes"]) != 1 or block["body"].kind != "tirx.BufferStore":
        return None
    if block["alloc_buffers"] or block["match_buffers"]:
        return None
    if any(reduction for _, _, reduction in axes) != (block["init"] is not None):
        return None
    variables = [id(iteration["var"]) for iteration in block["iter_vars"]]
    write = _access(block["writes"][0], variables, axes, write=True)
    own = id(block["writes"][0]["source"])
    reads = [region for region in block["reads"] if id(region["source"]) != own]
    store = block["body"]
    spatial = [v for v, axis in zip(variables, axes, strict=True) if not axis[2]]
    written = [id(index) for index in store["indices"] if integer(index) is None]
    if sorted(written) != sorted(spatial):
        return None
    accesses = tuple(_access(region, variables, axes, write=False) for region in reads)
    conditions, calls = _body(store["value"])
    return Block(
        name=str(block["name_hint"]),
        axes=axes,
        reads=accesses,
        write=write,
        whole=tuple(
            variable not in conditions
            and all(access.strides[i] in (0, 1) for access in (*accesses, write))
            for i, variable in enumerate(variables)
        ),
        ordered=all(_ordered(region, variables) for region in reads),
        branches=bool(conditions) or "if_then_else" in calls,
        dear=bool(calls - _CHEAP),
        output=own in outputs,
    )


def _axes(loops: tuple[Node, ...], realize: Node) -> tuple[tuple[str, int, bool], ...] | None:
    """The axes, if each is bound to a loop of its own, in order."""
    iterations, values = realize["block"]["iter_vars"], realize["iter_values"]
    if integer(realize["predicate"]) != 1 or len(loops) != len(iterations):
        return None
    axes = []
    for loop, iteration, value in zip(loops, iterations, values, strict=True):
        extent = integer(loop["extent"])
        plain = (
            loop["kind"] == 0
            and not loop["annotations"].items
            and integer(loop["min"]) == 0
            and extent is not None
            and extent == integer(iteration["dom"]["extent"])
            and integer(iteration["dom"]["min"]) == 0
            and value is loop["loop_var"]
            and iteration["iter_type"] in (_SPATIAL, _REDUCTION)
        )
        if not plain or extent is None:
            return None
        axes.append((str(loop["loop_var"]["name"]), extent, iteration["iter_type"] == _REDUCTION))
    return tuple(axes)


def _ordered(region: Node, variables: list[int]) -> bool:
    """Whether a tensor is indexed by plain axes in increasing order."""
    found = [id(span["min"]) for span in region["region"] if integer(span["min"]) is None]
    at = [variables.index(variable) for variable in found if variable in variables]
    return len(at) == len(found) and all(a < b for a, b in pairwise(at))


def _access(
    region: Node, variables: list[int], axes: tuple[tuple[str, int, bool], ...], *, write: bool
) -> Access:
    source = region["source"]
    shape = [integer(extent) or 1 for extent in source.shape]
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    starts = [span["min"] for span in region["region"]]

    zero = dict.fromkeys(variables, 0)
    strides = []
    for variable, (_, extent, _) in zip(variables, axes, strict=True):
        # A place that does not depend on the axis may be whatever it likes, even data.
        moving = [
            (e, step) for e, step in zip(starts, steps, strict=True) if variable in _variables(e)
        ]
        strides.append(_stride(moving, variable, zero, extent))
    return Access(str(source["name"]), item_bytes(source.dtype), tuple(strides), write)


def _stride(
    moving: list[tuple[Node, int]], variable: int, zero: dict[int, int], extent: int
) -> int | None:
    """What one step along an axis adds to the offset; None where that varies.

    Args:
        moving: The indices that depend on the axis, and the elements that each counts for.
        variable: The axis's variable.
        zero: All variables at 0.
        extent: The axis's extent.
    """
    probes = sorted({0, 1, extent // 3, extent // 2, extent - 1} & set(range(extent)))
    offsets = []
    for at in probes:
        places = [(_evaluate(start, {**zero, variable: at}), step) for start, step in moving]
        if any(place is None for place, _ in places):
            return None
        offsets.append(sum(place * step for place, step in places if place is not None))
    stride = offsets[1] - offsets[0] if extent > 1 else 0
    straight = all(o - offsets[0] == stride * at for o, at in zip(offsets, probes, strict=True))
    return stride if straight else None


def _evaluate(node: Node, at: dict[int, int]) -> int | None:
    """The value of an index expression; None where it takes more than arithmetic."""
    if node.kind == "ir.IntImm":
        return int(node["value"])
    if node.kind == "ir.Var":
        return at.get(id(node))
    if node.kind == "prim.Cast":
        return _evaluate(node["value"], at)
    if "a" not in node.fields or "b" not in node.fields:
        return None
    a, b = _evaluate(node["a"], at), _evaluate(node["b"], at)
    if a is None or b is None:
        return None
    if node.kind == "prim.Add":
        return a + b
    if node.kind == "prim.Sub":
        return a - b
    if node.kind == "prim.Mul":
        return a * b
    if node.kind in ("prim.FloorDiv", "prim.FloorMod") and b > 0:
        return a // b if node.kind == "prim.FloorDiv" else a % b
    return None


def _body(value: Node) -> tuple[set[int], set[str]]:
    """The variables (by `id`) that the value branches on, and the functions that it calls."""
    conditions: set[int] = set()
    calls: set[str] = set()
    pending, seen = [value], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        name = callee(node).rpartition(".")[2]
        if name:
            calls.add(name)
        if name == "if_then_else":
            conditions |= _variables(node["args"][0])
        pending += node.children()
    return conditions, calls


def _variables(node: Node) -> set[int]:
    own = {id(node)} if node.kind == "ir.Var" else set()
    return own.union(*(_variables(child) for child in node.children()))
