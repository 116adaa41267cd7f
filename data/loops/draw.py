"""Random nests that are decent programs more often than not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .defaults import vector_axis
from .legality import MAX_LANES, closing, problem, stage_ceiling
from .nest import INLINED, Frame, Loop, Nest, canonical, initial, round_up
from .vectors import is_good, longest

# Vectors that the register tile of a draw may hold: 32 registers, and some spilling.
_REGISTERS = 40
_ROWS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16)
_MIDDLES = (1, 1, 2, 4, 8, 16, 32)
_DEPTHS = (1, 1, 2, 4, 8, 16, 32, 64, 128)
# Iterations of the parallel loop that are enough for any number of cores here.
_ENOUGH = 64


def draw(frame: Frame, rng: np.random.Generator) -> Nest:
    """A nest of the kind that is fast on a CPU, its numbers drawn at random.

    Outer loops in parallel, a tile within, the reduction within that, then the rows of a register
    tile, and a vector innermost. Now and then a part of that is left out.
    """
    for _ in range(8):
        nest = canonical(_Draw(frame, rng).nest())
        if problem(nest) is None:
            return nest
    return canonical(initial(frame))


class _Draw:
    """One draw."""

    def __init__(self, frame: Frame, rng: np.random.Generator) -> None:
        self.frame = frame
        self.rng = rng
        self.left = [axis.extent for axis in frame.axes]
        self.factored: int | None = None
        self.smooth = self._chance(0.6)  # no ragged loops but where no divisor will do

    def nest(self) -> Nest:
        """Draw the loops from the inside out, then the marks and the places."""
        frame = self.frame
        vector = self._vector()
        rows = self._rows(vector)
        spatial = [n for n, axis in enumerate(frame.axes) if not axis.reduction]
        summed = [n for n, axis in enumerate(frame.axes) if axis.reduction]
        middle = [self._take(n, self._pick(_MIDDLES)) for n in self._shuffled(spatial)]
        depth = [self._take(n, self._pick(_DEPTHS)) for n in self._shuffled(summed)]
        outer = [Loop(n, self.left[n]) for n in self._shuffled(spatial, 0.5)]
        sums = [Loop(n, self.left[n]) for n in self._shuffled(summed, 0.4)]
        shallow = self._chance(0.75)
        inner = (middle if shallow else []) + sums
        inner += ([] if shallow else middle) + depth
        groups = [outer, inner, rows, vector]
        loops = [loop for group in groups for loop in group if loop.extent > 1]
        places = (0,) * len(frame.producers)
        nest = round_up(Nest(frame, tuple(loops), None, places, self.factored))
        return self._finish(nest, len([loop for loop in outer if loop.extent > 1]))

    def _vector(self) -> list[Loop]:
        """The innermost loop: along the output, or partial results of a reduction."""
        frame = self.frame
        axis = vector_axis(frame)
        whole = [n for n, a in enumerate(frame.axes) if a.contiguous and a.reduction]
        sums = [n for n in whole if self._divisors(n)] if frame.factors else []
        if sums and self._chance(0.9 if axis is None else 0.1):
            self.factored = self._pick(sums)
            lanes = self._pick(self._divisors(self.factored))
            self.left[self.factored] //= lanes
            self.smooth = True
            return [Loop(frame.partial_axis, lanes, "vectorize")]
        spatial = [n for n, a in enumerate(frame.axes) if not a.reduction]
        if not spatial:
            return []
        if axis is None or self._chance(0.1):
            axis = self._pick(spatial)
        native = frame.native
        lanes = self._pick((native, native, 2 * native, 4 * native, max(2, native // 2)))
        lanes = min(lanes, self.left[axis], MAX_LANES)
        if frame.reduces:
            lanes = longest(lanes, native)
        sizes = [d for d in range(1, lanes + 1) if is_good(d, native) or not frame.reduces]
        return [self._take(axis, lanes, sizes)._replace(mark="vectorize")]

    def _divisors(self, axis: int) -> list[int]:
        """Proper divisors that make a vector."""
        extent = self.frame.axes[axis].extent
        native = self.frame.native
        return [
            d for d in range(2, MAX_LANES + 1) if extent % d == 0 and d < extent and d * 4 >= native
        ]

    def _rows(self, vector: list[Loop]) -> list[Loop]:
        """Loops around the vector whose results stay in registers."""
        lanes = vector[0].extent if vector else 1
        room = max(1, _REGISTERS // max(1, -(-lanes // self.frame.native)))
        rows: list[Loop] = []
        spatial = [n for n, axis in enumerate(self.frame.axes) if not axis.reduction]
        for axis in self._shuffled(spatial[::-1], 0.4):
            loop = self._take(axis, self._pick(tuple(r for r in _ROWS if r <= room)))
            if loop.extent > 1:
                room //= loop.extent
                rows.insert(0, loop._replace(mark="unroll") if self._chance(0.8) else loop)
            if len(rows) == 2 or room < 2:
                break
        return rows

    def _take(self, axis: int, wanted: int, sizes: Sequence[int] = ()) -> Loop:
        """A part of what is left of an axis, near the size wanted; one of the sizes, if given."""
        left = self.left[axis]
        size = min(wanted, left)
        if self.smooth or left < 2 * size:
            divisors = [d for d in sizes or range(1, size + 1) if left % d == 0]
            near = divisors[-1]
            # A prime extent has no better divisor: leave a ragged loop rather than none.
            size = near if near * 3 >= size or self.factored is not None else size
        self.left[axis] = -(-left // size)
        return Loop(axis, size)

    def _finish(self, nest: Nest, outer: int) -> Nest:
        """The marks that depend on what came out, and the places."""
        nest = self._parallel(nest, outer)
        if nest.frame.reduces and self._chance(0.85):
            low, high = nest.band, min(closing(nest), nest.first_reduction)
            deepest = low >= high or self._chance(0.7)
            at = high if deepest else int(self.rng.integers(low, high))
            nest = self._keep(nest, replace(nest, tile=at))
        for level, loop in enumerate(nest.loops):
            deep = nest.is_reduction(loop) and level > nest.first_reduction
            if deep and loop.extent <= 16 and not loop.mark and self._chance(0.5):
                loops = list(nest.loops)
                loops[level] = loop._replace(mark="unroll")
                nest = self._keep(nest, replace(nest, loops=tuple(loops)))
        for producer in range(len(nest.stages)):
            nest = self._stage(nest, producer)
        return nest

    def _parallel(self, nest: Nest, outer: int) -> Nest:
        """Mark enough of the outer loops parallel, and sometimes all of them or none."""
        if self._chance(0.05):
            return nest
        greedy = self._chance(0.4)
        work = 1
        for level in range(outer):
            loops = list(nest.loops)
            for i in range(level + 1):
                loops[i] = loops[i]._replace(mark="parallel")
            marked = replace(nest, loops=tuple(loops))
            if problem(marked) is not None:
                break
            nest = marked
            work *= nest.loops[level].extent
            if work >= _ENOUGH and not greedy:
                break
        return nest

    def _stage(self, nest: Nest, producer: int) -> Nest:
        """Where an operand is computed."""
        stages = list(nest.stages)
        high = stage_ceiling(nest)
        choice = self.rng.random()
        if choice < 0.4:
            return nest
        if choice < 0.6:
            stages[producer] = INLINED
        elif choice < 0.8:
            stages[producer] = nest.band
        else:
            stages[producer] = int(self.rng.integers(0, high + 1))
        return self._keep(nest, replace(nest, stages=tuple(stages)))

    def _keep(self, nest: Nest, changed: Nest) -> Nest:
        return changed if problem(changed) is None else nest

    def _chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def _pick(self, values: Sequence[int]) -> int:
        return values[int(self.rng.integers(len(values)))]

    def _shuffled(self, values: Sequence[int], share: float = 0.5) -> list[int]:
        """The values in their order, or now and then in any."""
        if not self._chance(share):
            return list(values)
        return [values[i] for i in self.rng.permutation(len(values)).tolist()]
