"""Numbers that tell how fast a loop nest is, straight from the nest: for the model that pays.

They mean the same in every workload, as those of `costmodel.features.general`, and take some 0.1 ms
a nest; those are faster for many candidates of one workload at once, but an agent asks for a few in
each of many. The rough model of a machine is theirs too: a cache keeps what the largest part of the
nest that fits into it touches, and what none of the loops around that part moves stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...costmodel.base import FeatureSchema
from ...data.candidate import Candidate
from ...data.loops.legality import code_size
from ...data.loops.nest import Frame, Loop, Nest

CACHES = (13, 15, 16, 18, 20, 22)
"""Sizes of a cache that are looked at: log2 of bytes."""

COLUMNS = (
    # The block.
    *("iterations", "reduction", "reads", "item bytes", "native lanes", "written by one"),
    # The innermost tile, inside of the last reduction loop.
    *("lanes", "lanes filled", "vectors", "whole", "rows", "accumulators", "registers"),
    *("unrolled", "code", "spilled code", "vector loads", "other loads", "gathers", "loads"),
    *("inner reduction", "inner trip", "inner trip is a reduction", "loops"),
    # The tile that results are accumulated in.
    *("tile", "tile size", "reduction in the tile", "write-backs"),
    # What is cut short, and what runs in parallel.
    *("waste", "ragged axes", "vector tail", "vectors in the tail"),
    *("parallel", "balance", "factored", "inlined", "staged"),
    # How the tensors are walked through by the innermost reduction loop, and by the one around.
    *("stride", "twos of the stride", "outer stride"),
    *(f"cache 2^{c}: {what}" for c in CACHES for what in ("moved", "inside")),
)
"""What each number is; sizes and counts are log2."""

SCHEMA = FeatureSchema(name="nests", version=1, width=len(COLUMNS))

_LINE = 64.0  # bytes of a cache line
_REGISTERS = 32  # vector registers


def nest_of(frame: Frame, candidate: Candidate) -> Nest:
    """The nest of a candidate that is known to be legal."""
    loops, tile, stages, factored = candidate.point
    made = tuple(Loop(*loop) for loop in loops)  # type: ignore[misc,union-attr,arg-type,unused-ignore]
    return Nest(
        frame,
        made,
        tile[0] if tile else None,  # type: ignore[index, arg-type]
        stages,  # type: ignore[arg-type]
        factored[0] if factored else None,  # type: ignore[index, arg-type]
    )


def features(nest: Nest, threads: int) -> list[float]:
    """The numbers of `COLUMNS` for a nest.

    Args:
        nest: The nest.
        threads: Threads that it runs with.
    """
    return _Reader(nest, threads).row()


class _Reader:
    """Reads a nest from the inside out."""

    def __init__(self, nest: Nest, threads: int) -> None:
        self.nest = nest
        self.frame = frame = nest.frame
        self.threads = threads
        partial, factored = frame.partial_axis, nest.factored
        # The axis that moves the tensors, for partial results too.
        self.axes = [
            factored if loop.axis == partial and factored is not None else loop.axis
            for loop in nest.loops
        ]
        self.strides = [access.strides for access in frame.accesses]
        self.summed = [nest.is_reduction(loop) for loop in nest.loops]
        self.register = self._register()

    def _register(self) -> int:
        """The level inside of the last reduction loop."""
        last = max((level for level, summed in enumerate(self.summed) if summed), default=-1)
        return last + 1

    def row(self) -> list[float]:
        """All columns."""
        ragged = self.nest.ragged()
        sizes = self._sizes()
        return [
            *self._block(),
            *self._innermost(ragged),
            *self._kept(),
            *self._cut(ragged),
            *self._walk(),
            *self._caches(sizes),
        ]

    def _block(self) -> list[float]:
        frame = self.frame
        reduction = math.prod(axis.extent for axis in frame.axes if axis.reduction)
        written = frame.accesses[-1]
        return [
            math.log2(math.prod(frame.extents)),
            math.log2(reduction),
            len(frame.accesses) - 1,
            written.item_bytes,
            math.log2(frame.native),
            float(any(stride == 1 for stride in written.strides)),
        ]

    def _innermost(self, ragged: frozenset[int]) -> list[float]:
        nest, native = self.nest, self.frame.native
        vector = nest.vector
        lanes = vector.extent if vector else 1
        vectors = -(-lanes // native)
        inside = nest.loops[self.register :]
        points = math.prod(loop.extent for loop in inside)
        rows = max(1, points // lanes)
        accumulators = rows * vectors
        loads = self._loads(lanes, vectors)
        held = accumulators + loads[0]
        code = code_size(nest, ragged)
        return [
            math.log2(lanes),
            lanes / (vectors * native),
            vectors,
            float(nest.contiguous(vector.axis)) if vector else -1.0,
            math.log2(rows),
            math.log2(accumulators),
            math.log2(held / _REGISTERS),
            sum(math.log2(loop.extent) for loop in inside if loop.mark == "unroll"),
            math.log2(code),
            math.log2(1.0 + max(0, held - _REGISTERS)),
            *(load / accumulators for load in loads),
            sum(loads) / accumulators,
            *self._trips(),
        ]

    def _loads(self, lanes: int, vectors: int) -> tuple[float, float, float]:
        """Vectors, single elements and gathered elements that the innermost tile reads."""
        vector = self.nest.vector
        along = self.axes[-1] if vector else None
        inside = range(self.register, len(self.axes))
        found = [0.0, 0.0, 0.0]
        for strides in self.strides[:-1]:
            elements = 1.0
            for level in inside:
                if strides[self.axes[level]] != 0:
                    elements *= self.nest.loops[level].extent
            stride = 0 if along is None else strides[along]
            if stride == 0:
                found[1] += elements
            elif stride == 1:
                found[0] += elements / lanes * vectors
            else:
                found[2] += elements
        return found[0], found[1], found[2]

    def _trips(self) -> list[float]:
        nest = self.nest
        run, level = 1, self.register - 1
        while level >= 0 and self.summed[level]:
            run *= nest.loops[level].extent
            level -= 1
        plain = [at for at, loop in enumerate(nest.loops) if loop.mark == ""]
        trip = nest.loops[plain[-1]].extent if plain else 1
        return [
            math.log2(run),
            math.log2(trip),
            float(bool(plain) and self.summed[plain[-1]]),
            len(nest.loops),
        ]

    def _kept(self) -> list[float]:
        nest = self.nest
        if nest.tile is None:
            return [0.0, -1.0, -1.0, -1.0]
        sizes = [loop.extent if nest.is_reduction(loop) else 1 for loop in nest.loops]
        within, around = math.prod(sizes[nest.tile :]), math.prod(sizes[: nest.tile])
        return [1.0, math.log2(nest.tile_size()), math.log2(within), math.log2(around)]

    def _cut(self, ragged: frozenset[int]) -> list[float]:
        nest, extents = self.nest, self.frame.extents
        covered = nest.covered()
        if nest.factored is not None:
            covered[nest.factored] *= covered[-1]
        waste = sum(math.log2(c / e) for c, e in zip(covered, extents, strict=False))
        vector = nest.vector
        tail = 0.0
        if vector is not None and vector.axis in ragged:
            tail = extents[vector.axis] % vector.extent / vector.extent
        parallel = math.prod(loop.extent for loop in nest.loops[: nest.band])
        balance = parallel / (-(-parallel // self.threads) * self.threads)
        return [
            waste,
            len(ragged),
            tail,
            covered[vector.axis] / vector.extent if tail and vector else 0.0,
            math.log2(parallel),
            balance,
            float(nest.factored is not None),
            sum(stage < 0 for stage in nest.stages),
            sum(stage > 0 for stage in nest.stages),
        ]

    def _walk(self) -> list[float]:
        """Bytes that the innermost reduction loop jumps by, and the loop around it."""
        if not self.register:
            return [0.0, 0.0, 0.0]
        axis, loops = self.axes[self.register - 1], self.nest.loops
        # Partial results of the same axis may lie within.
        levels = range(self.register, len(loops))
        inner = math.prod(loops[at].extent for at in levels if self.axes[at] == axis)
        longest, twos, outer = 0, 0, 0
        for access in self.frame.accesses:
            step = abs(access.strides[axis] or 0) * access.item_bytes * inner
            if step > longest:
                longest, twos = step, (step & -step).bit_length() - 1
            if self.register > 1:
                step = abs(access.strides[self.axes[self.register - 2]] or 0) * access.item_bytes
                outer = max(outer, step)
        return [math.log2(1 + longest), twos, math.log2(1 + outer)]

    def _sizes(self) -> list[list[float]]:
        """Bytes of cache lines that each access touches inside of each level, the outermost first.

        The last one is of a single iteration.
        """
        tiles = [1] * len(self.frame.axes)
        sizes = [self._touched(tiles)]
        for loop, axis in zip(reversed(self.nest.loops), reversed(self.axes), strict=True):
            tiles[axis] = min(tiles[axis] * loop.extent, self.frame.extents[axis])
            sizes.append(self._touched(tiles))
        return sizes[::-1]

    def _touched(self, tiles: Sequence[int]) -> list[float]:
        found = []
        for access in self.frame.accesses:
            rows, run = 1.0, 1.0
            for size, stride in zip(tiles, access.strides, strict=True):
                if stride == 1:
                    run *= size
                elif stride != 0:
                    rows *= size
            found.append(rows * max(run * access.item_bytes, _LINE))
        return found

    def _caches(self, sizes: list[list[float]]) -> list[float]:
        loops, count = self.nest.loops, len(self.nest.loops)
        total = [sum(each) for each in sizes]
        work = math.log2(math.prod(self.frame.extents))
        row: list[float] = []
        for cache in CACHES:
            limit = 2.0**cache
            level = next((at for at in range(count + 1) if total[at] <= limit), count)
            moved = 0.0
            for number, strides in enumerate(self.strides):
                trips, stays = 1.0, True
                for at in range(level - 1, -1, -1):
                    if stays and strides[self.axes[at]] == 0:
                        continue
                    stays = False
                    trips *= loops[at].extent
                moved += sizes[level][number] * trips
            inside = math.prod(loop.extent for loop in loops[level:])
            row += [math.log2(moved) - work, math.log2(inside)]
        return row
