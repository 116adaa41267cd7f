"""A loop nest as a value. Knows no TVM.

A nest is the order, sizes and marks of the loops around one block. Each loop belongs to an axis of
the block; the loops of an axis stay in order, the coarsest outside. The product of an axis's loops
is its extent or, for a *ragged* axis, a little more: then its coarsest loop rounds up, and its last
iteration is cut short. Loops of extent 1 are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

Mark = Literal["", "parallel", "vectorize", "unroll"]
MARKS: tuple[Mark, ...] = ("", "unroll", "vectorize", "parallel")

MAX_UNROLL = 64
"""Iterations of one unrolled loop."""

_NONE: frozenset[int] = frozenset()

INLINED = -1
"""Level of a producer that is computed within the block itself."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of the block, of extent 2 or more.

    Attributes:
        name: Its name in the program.
        extent: Its iterations.
        reduction: Whether it is summed over.
        contiguous: Whether every access moves by one element along it, or not at all, and nothing
            branches on it: a vector along it then stays whole.
    """

    name: str
    extent: int
    reduction: bool
    contiguous: bool


@dataclass(frozen=True, slots=True)
class Producer:
    """A block that computes an operand of the nest's block and nothing else, such as a padding.

    Attributes:
        name: Its name in the program.
        inlines: Whether it can be computed within the block.
        contiguous: For each axis whether the block's vectors along it stay whole, if it is.
    """

    name: str
    inlines: bool
    contiguous: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """One tensor that the block reads or writes.

    Attributes:
        tensor: Its name.
        item_bytes: Bytes of an element.
        strides: Elements that one step along each axis moves by; None where that varies.
        write: Whether it is the output.
    """

    tensor: str
    item_bytes: int
    strides: tuple[int | None, ...]
    write: bool


@dataclass(frozen=True)
class Frame:
    """What all nests of a block have in common.

    Attributes:
        block: Name of the block in the prepared program.
        axes: Its axes of extent 2 or more.
        producers: Operands whose place is open.
        accesses: The tensors it reads and writes.
        native: Elements of a native vector.
        reduces: Whether the block is a reduction (its reduction axes may all have extent 1).
        factors: Whether the reduction may be factored into partial results.
        consumed: Whether a block that goes through the output element by element follows; it then
            takes the place of writing the tile back.
    """

    block: str
    axes: tuple[Axis, ...]
    producers: tuple[Producer, ...]
    accesses: tuple[Access, ...]
    native: int
    reduces: bool
    factors: bool
    consumed: bool

    @cached_property
    def partial_axis(self) -> int:
        """Number of the axis of partial results, which a factored reduction has."""
        return len(self.axes)

    @cached_property
    def width(self) -> int:
        """How many axes a nest can have, that of partial results included."""
        return len(self.axes) + 1

    @cached_property
    def summed(self) -> tuple[bool, ...]:
        """For each of these axes whether it is a reduction."""
        return (*(axis.reduction for axis in self.axes), False)

    @cached_property
    def extents(self) -> list[int]:
        """The axes' extents."""
        return [axis.extent for axis in self.axes]


class Loop(NamedTuple):
    """One loop: the axis it belongs to, its iterations, and how it is run."""

    axis: int
    extent: int
    mark: Mark = ""


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop nest.

    Attributes:
        frame: The block it is of; not compared.
        loops: The loops, outermost first.
        tile: Results are accumulated in a tile of their own by the loops from this position on, and
            written back after them; None accumulates in the output.
        stages: For each producer where it is computed: 0 ahead of the nest, `INLINED`, or a number
            of loops that it is computed within.
        factored: The reduction axis whose partial results are kept apart, or None.
    """

    frame: Frame = field(compare=False, repr=False)
    loops: tuple[Loop, ...]
    tile: int | None = None
    stages: tuple[int, ...] = ()
    factored: int | None = None

    def is_reduction(self, loop: Loop) -> bool:
        """Whether a loop is a reduction's."""
        return self.frame.summed[loop.axis]

    @property
    def band(self) -> int:
        """How many loops, from the outermost on, are run in parallel as one."""
        for level, loop in enumerate(self.loops):
            if loop.mark != "parallel":
                return level
        return len(self.loops)

    @property
    def vector(self) -> Loop | None:
        """The vectorised loop."""
        return self.loops[-1] if self.loops and self.loops[-1].mark == "vectorize" else None

    @property
    def first_reduction(self) -> int:
        """Position of the outermost reduction loop; of the vectorised loop or the end if none."""
        summed = self.frame.summed
        for level, loop in enumerate(self.loops):
            if summed[loop.axis]:
                return level
        return len(self.loops) - (self.vector is not None)

    def loops_of(self, axis: int) -> list[int]:
        """The extents of an axis's loops, the coarsest first."""
        return [loop.extent for loop in self.loops if loop.axis == axis]

    def extent(self, axis: int) -> int:
        """What an axis's loops have to cover."""
        axes = self.frame.axes
        if axis == len(axes):
            return math.prod(self.loops_of(axis))
        if axis == self.factored:
            return axes[axis].extent // math.prod(self.loops_of(len(axes)))
        return axes[axis].extent

    def covered(self) -> list[int]:
        """For every axis, that of partial results included, the product of its loops."""
        found = [1] * self.frame.width
        for axis, extent, _ in self.loops:
            found[axis] *= extent
        return found

    def ragged(self) -> frozenset[int]:
        """The axes whose last coarse iteration is cut short."""
        covered = self.covered()
        if self.factored is not None:
            covered[self.factored] *= covered[-1]
        extents = self.frame.extents
        if covered[:-1] == extents:
            return _NONE
        return frozenset(n for n, extent in enumerate(extents) if covered[n] != extent)

    def contiguous(self, axis: int) -> bool:
        """Whether a vector along an axis stays whole."""
        if axis == self.frame.partial_axis:
            return self.factored is None or self.contiguous(self.factored)
        return self.frame.axes[axis].contiguous and all(
            producer.contiguous[axis]
            for producer, stage in zip(self.frame.producers, self.stages, strict=True)
            if stage == INLINED
        )

    def tile_size(self) -> int:
        """Elements of the accumulation tile; 0 where there is none."""
        if self.tile is None:
            return 0
        partial = self.frame.partial_axis
        return math.prod(
            loop.extent
            for loop in self.loops[self.tile :]
            if loop.axis == partial or not self.is_reduction(loop)
        )


def initial(frame: Frame) -> Nest:
    """The nest of the program as it stands."""
    loops = tuple(Loop(number, axis.extent) for number, axis in enumerate(frame.axes))
    return Nest(frame, loops, None, (0,) * len(frame.producers), None)


def canonical(nest: Nest) -> Nest:
    """The nest in which loops that run as one are one.

    Adjacent loops of one axis with the same mark are merged, unless a tile or a producer lies
    between them. The program stays the same, so this is what candidates are compared by.
    """
    if not any(a[0] == b[0] and a[2] == b[2] for a, b in pairwise(nest.loops)):
        return nest
    fixed = {nest.tile, *nest.stages} - {None}
    loops: list[Loop] = []
    moved: dict[int, int] = {}
    for level, loop in enumerate(nest.loops):
        before = loops[-1] if loops else None
        joins = (
            before is not None
            and level not in fixed
            and (before.axis, before.mark) == (loop.axis, loop.mark)
            and (loop.mark != "unroll" or before.extent * loop.extent <= MAX_UNROLL)
        )
        if not joins:
            moved[level] = len(loops)
            loops.append(loop)
        elif before is not None:
            loops[-1] = Loop(loop.axis, before.extent * loop.extent, loop.mark)
    moved[len(nest.loops)] = len(loops)
    if len(loops) == len(nest.loops):
        return nest
    merged = Nest(
        nest.frame,
        tuple(loops),
        None if nest.tile is None else moved[nest.tile],
        tuple(moved[stage] if stage > 0 else stage for stage in nest.stages),
        nest.factored,
    )
    return canonical(round_up(merged))  # a shorter coarsest loop may merge with the next


def round_up(nest: Nest) -> Nest:
    """The nest with the coarsest loop of every axis as long as it has to be, and no longer.

    Loops that come down to one iteration are dropped.
    """
    inner: dict[int, int] = {}
    extents: list[int] = [0] * len(nest.loops)
    left = {number: nest.extent(number) for number in range(len(nest.frame.axes))}
    first: dict[int, int] = {}
    for level in range(len(nest.loops) - 1, -1, -1):
        loop = nest.loops[level]
        extents[level] = loop.extent
        inner[loop.axis] = inner.get(loop.axis, 1) * loop.extent
        first[loop.axis] = level
    for axis, level in first.items():
        if axis in left:
            extents[level] = -(-left[axis] // (inner[axis] // nest.loops[level].extent))
    loops = [
        Loop(loop.axis, extent, loop.mark) for loop, extent in zip(nest.loops, extents, strict=True)
    ]
    return drop_units(Nest(nest.frame, tuple(loops), nest.tile, nest.stages, nest.factored))


def drop_units(nest: Nest) -> Nest:
    """The nest without loops of one iteration."""
    if all(loop.extent > 1 for loop in nest.loops):
        return nest
    kept = [0]
    for loop in nest.loops:
        kept.append(kept[-1] + (loop.extent > 1))
    return Nest(
        nest.frame,
        tuple(loop for loop in nest.loops if loop.extent > 1),
        None if nest.tile is None else kept[nest.tile],
        tuple(kept[stage] if stage > 0 else stage for stage in nest.stages),
        nest.factored,
    )
