"""What the blocks of a program run over and touch, as far as a tiling needs it: once a program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from ...data.tir.analysis import item_bytes
from ...data.tir.graph import Node, deep_recursion, integer, read_graph
from ..base import Floats

_REDUCTION = 2  # TVM's number of the kind of axis
_LINE = 64.0  # bytes of a cache line


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a tensor.

    Attributes:
        size: Its elements.
        base: Elements that one iteration touches.
        steps: Axes that move along it, each with how many elements a step goes on average.
        local: How many a step in the middle of each of these goes.
    """

    size: int
    base: float
    steps: tuple[tuple[int, float], ...]
    local: tuple[int, ...]

    def touched(self, tiles: Floats) -> Floats:
        """Elements that tiles touch: of shape (boundaries, axes, candidates), without the axes."""
        if not self.steps:
            return np.full((len(tiles), tiles.shape[2]), min(self.base, self.size), np.float32)
        found: Floats = np.float32(self.steps[0][1]) * tiles[:, self.steps[0][0]]
        for axis, step in self.steps[1:]:
            found = found + np.float32(step) * tiles[:, axis]
        found = found + np.float32(self.base - sum(step for _, step in self.steps))
        return np.clip(found, 1, np.float32(self.size))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a block reads or writes.

    Attributes:
        name: Its name.
        item_bytes: Bytes of an element.
        dims: Its dimensions of more than one element, the contiguous one last.
        write: Whether it is written.
    """

    name: str
    item_bytes: int
    dims: tuple[Dim, ...]
    write: bool

    @property
    def bytes(self) -> float:
        """All of it."""
        return float(self.item_bytes * math.prod(dim.size for dim in self.dims))

    def stride(self, axis: int) -> int:
        """How an axis goes through it: 0 not at all, 1 element by element, 2 any other way.

        One that moves now and then only, as that of the outputs of a group, does not move.
        """
        moved = [
            (n, local)
            for n, dim in enumerate(self.dims)
            for (a, _), local in zip(dim.steps, dim.local, strict=True)
            if a == axis and local
        ]
        if not moved:
            return 0
        return 1 if moved == [(len(self.dims) - 1, 1)] else 2

    def touched(self, tiles: Floats) -> tuple[Floats, Floats, Floats]:
        """What tiles of shape (boundaries, axes, candidates) touch, without the axes.

        Returns:
            Elements, bytes of cache lines, and elements one after the other.
        """
        spans = [dim.touched(tiles) for dim in self.dims]
        if not spans:
            one = np.ones((len(tiles), tiles.shape[2]), np.float32)
            return one, one * np.float32(_LINE), one
        rows = np.ones_like(spans[0])
        for span in spans[:-1]:
            rows = rows * span
        run = spans[-1]
        return rows * run, rows * np.maximum(run * np.float32(self.item_bytes), _LINE), run


@dataclass(frozen=True)
class Shape:
    """A block.

    Attributes:
        name: Its name.
        extents: Iterations of each axis.
        reduction: For each axis whether it is summed over.
        tensors: What it reads, and last what it writes.
    """

    name: str
    extents: tuple[int, ...]
    reduction: tuple[bool, ...]
    tensors: tuple[Tensor, ...]

    @property
    def work(self) -> float:
        """Elements that it touches, which stands for its arithmetic."""
        return math.prod(map(float, self.extents)) * len(self.tensors)

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        """What it reads."""
        return tuple(tensor for tensor in self.tensors if not tensor.write)

    @property
    def written(self) -> Tensor:
        """What it writes."""
        return self.tensors[-1]

    @cached_property
    def strides(self) -> Floats:
        """Shares of the tensors by `Tensor.stride`, of shape (3, axes + 1); the last is no axis."""
        found = np.zeros((3, len(self.extents) + 1), np.float32)
        for axis in range(len(self.extents)):
            for tensor in self.tensors:
                found[tensor.stride(axis), axis] += 1 / len(self.tensors)
        found[:, -1] = np.nan
        return found

    def total(self, reduction: bool) -> float:
        """Iterations of its spatial or its reduction axes."""
        kinds = zip(self.extents, self.reduction, strict=True)
        return math.prod(float(extent) for extent, summed in kinds if summed == reduction)

    def contiguous(self) -> int | None:
        """The axis that what it writes goes along element by element."""
        spatial = [a for a, summed in enumerate(self.reduction) if not summed]
        return next((a for a in spatial if self.written.stride(a) == 1), None)


def read_shapes(mod: Any) -> tuple[Shape, ...]:
    """The blocks of a module's only function that write something, in program order."""
    func = read_graph(mod)
    with deep_recursion():
        blocks = list(_blocks(func["body"]["block"]["body"]))
        return tuple(_shape(block) for block in blocks if block["writes"])


def views(schedule: Any, main: Shape, producers: Sequence[str]) -> dict[frozenset[str], Shape]:
    """The main block with some of its producers inlined, where that changes how vectors load.

    Args:
        schedule: A schedule of the program; left as it is.
        main: The block.
        producers: Names of blocks that compute what it reads.

    Returns:
        By the names of those that are inlined; empty where no vector loads in another way.
    """
    found = {}
    for count in range(1, len(producers) + 1):
        for names in combinations(producers, count):
            trial = schedule.copy()
            try:
                for name in names:
                    trial.compute_inline(trial.get_sblock(name))
            except Exception:  # whatever TVM's C++ side throws: these can't be inlined
                continue
            view = next(shape for shape in read_shapes(trial.mod) if shape.name == main.name)
            found[frozenset(names)] = view
    changed = any(not np.array_equal(v.strides, main.strides, True) for v in found.values())
    return found if changed else {}


def producers_of(main: Shape, shapes: Sequence[Shape]) -> dict[str, Tensor]:
    """What the main block reads of other blocks, by their names."""
    reads = {tensor.name: tensor for tensor in main.reads}
    return {s.name: reads[s.written.name] for s in shapes if s.written.name in reads}


def recomputed(
    tensors: Sequence[Tensor], inside: Sequence[Floats], whole: Floats
) -> tuple[Floats, Floats]:
    """How often tensors are computed over, and how large what is computed at once is; log2.

    Args:
        tensors: What the main block reads of other blocks.
        inside: For each of them the iterations of each axis inside of the loop that it is computed
            in, of shape (axes, candidates).
        whole: All iterations of each axis.
    """
    work, held = np.zeros((2, whole.shape[1]), np.float32)
    for tensor, tiles in zip(tensors, inside, strict=True):
        elements, size, _ = tensor.touched(tiles[None])
        # Loops that do not move the tile are around it all the same.
        runs = whole.prod(axis=0) / tiles.prod(axis=0)
        work += np.maximum(runs * elements[0] * np.float32(tensor.item_bytes), tensor.bytes)
        held += size[0]
    return np.log2(work / sum(tensor.bytes for tensor in tensors)), np.log2(held)


def heaviest(shapes: tuple[Shape, ...]) -> Shape | None:
    """The reduction with the most work; where there is none, the block with the most work."""
    reductions = [shape for shape in shapes if any(shape.reduction)]
    return max(reversed(reductions or shapes), key=lambda shape: shape.work, default=None)


def _blocks(node: Node) -> Iterator[Node]:
    """The outermost blocks below a node."""
    if node.kind == "s_tir.SBlockRealize":
        yield node["block"]
        return
    for child in node.children():
        yield from _blocks(child)


def _shape(block: Node) -> Shape:
    iterations = block["iter_vars"]
    extents = tuple(integer(it["dom"]["extent"]) or 1 for it in iterations)
    variables = {id(it["var"]): axis for axis, it in enumerate(iterations)}
    written = [_tensor(region, variables, extents, write=True) for region in block["writes"]]
    own = {id(region["source"]) for region in block["writes"]}
    reads = [
        _tensor(region, variables, extents, write=False)
        for region in block["reads"]
        if id(region["source"]) not in own
    ]
    reduction = tuple(it["iter_type"] == _REDUCTION for it in iterations)
    return Shape(str(block["name_hint"]), extents, reduction, (*reads, *written))


def _tensor(
    region: Node, variables: dict[int, int], extents: tuple[int, ...], *, write: bool
) -> Tensor:
    source = region["source"]
    dims = []
    for size, span in zip(source.shape, region["region"], strict=True):
        elements = integer(size) or 1
        if elements > 1:
            dims.append(_dim(elements, span, variables, extents))
    return Tensor(str(source["name"]), item_bytes(source.dtype), tuple(dims), write)


def _dim(size: int, span: Node, variables: dict[int, int], extents: tuple[int, ...]) -> Dim:
    """How axes move along a dimension; one that depends on data is taken to be touched whole."""
    start = span["min"]
    origin = dict.fromkeys(variables, 0)
    first = _evaluate(start, origin)
    steps, local = [], []
    for variable, axis in variables.items():
        extent = extents[axis]
        if first is None or extent < 2:
            continue
        middle = min(extent // 2, extent - 2)
        probes = (extent - 1, middle, middle + 1)
        last, before, after = (_evaluate(start, {**origin, variable: at}) for at in probes)
        if last is None or before is None or after is None or last == first:
            continue
        steps.append((axis, abs(last - first) / (extent - 1)))
        local.append(abs(after - before))
    base = size if first is None else float(integer(span["extent"]) or 1)
    return Dim(size, base, tuple(steps), tuple(local))


def _evaluate(node: Node, at: dict[int, int]) -> int | None:
    """The value of an index; None where it takes more than arithmetic on loop variables."""
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
    return _apply(node.kind, a, b)


def _apply(kind: str, a: int, b: int) -> int | None:
    if kind == "prim.Add":
        return a + b
    if kind == "prim.Sub":
        return a - b
    if kind == "prim.Mul":
        return a * b
    if kind == "prim.Min":
        return min(a, b)
    if kind == "prim.Max":
        return max(a, b)
    if kind in ("prim.FloorDiv", "prim.FloorMod") and b > 0:
        return a // b if kind == "prim.FloorDiv" else a % b
    return None
