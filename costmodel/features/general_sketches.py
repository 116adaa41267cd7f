"""General decision features of candidates of the sketch space."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ...data.candidate import Candidate, InvalidCandidate
from ...data.sketch import Tile
from ...data.sketch_space import SketchSpace
from ..base import Floats
from .general_columns import AT, Ints, Machine, Nests, constants, fill
from .general_shapes import (
    Shape,
    Tensor,
    heaviest,
    producers_of,
    read_shapes,
    recomputed,
    views,
)
from .general_traces import Plan, inline, read_plan, tiled_blocks
from .schemas import GENERAL_SLOTS

_BOUNDARIES = 7  # of the six levels of tiling
_DEEPEST = 6  # a loop's index beyond is as good as this
_MOST_LANES = 64  # MetaSchedule fuses loops into a vector up to so many


class SketchFeatures:
    """Computes the features of one space's candidates.

    Args:
        space: The space.
    """

    def __init__(self, space: SketchSpace) -> None:
        self.name = space.name
        self.machine = Machine.of(space.target)
        schedule = inline(space.workload.mod, space._traces)
        shapes = read_shapes(schedule.mod)
        tiled = {name for trace in space._traces for name in tiled_blocks(trace)}
        self.main = heaviest(tuple(s for s in shapes if s.name in tiled) or shapes)
        self.plans = [
            read_plan(sketch, trace, self.main)
            for sketch, trace in zip(space.sketches, space._traces, strict=True)
        ]
        slots = _slots(shapes, self.plans)
        row = constants(shapes, self.main, space.workload.flops, space.workload.bytes, self.machine)
        row[AT["loop space"]] = 0
        read = {} if self.main is None else producers_of(self.main, shapes)
        placed = {name for plan in self.plans for name, partial, _ in plan.places if not partial}
        stages = {name: tensor for name, tensor in read.items() if name in placed}
        known = {} if self.main is None else views(schedule, self.main, list(stages))
        self._sketches: dict[Any, _OneSketch] = {
            number: _OneSketch(
                plan, sketch.decisions, row, self.main, slots, stages, known, self.machine
            )
            for number, (plan, sketch) in enumerate(zip(self.plans, space.sketches, strict=True))
        }

    def rows(self, candidates: Sequence[Candidate]) -> Floats:
        """Features, of shape (candidates, columns).

        Raises:
            InvalidCandidate: one is of another space, or of no sketch of this one.
        """
        found = np.empty((len(candidates), len(AT)), np.float32)
        try:
            pairs: list[Any] = [candidate.point for candidate in candidates]
            for sketch in {index for index, _ in pairs}:
                members = [row for row, pair in enumerate(pairs) if pair[0] == sketch]
                made = self._sketches[sketch].rows([pairs[row][1] for row in members])
                found[members] = made.T
        except (TypeError, ValueError, LookupError) as error:
            raise InvalidCandidate(f"not candidates of this sketch space: {error}") from error
        return found


def _slots(shapes: Sequence[Shape], plans: Sequence[Plan]) -> dict[str, int]:
    """Numbers for the blocks that have a place or partial results, the last in the program first.

    In every sketch of a workload, and in workloads of one structure, a block has the same number.
    """
    named = {name for plan in plans for name, *_ in (*plan.places, *plan.factors)}
    ordered = [shape.name for shape in reversed(shapes) if shape.name in named]
    return {name: slot for slot, name in enumerate(ordered[:GENERAL_SLOTS])}


class _OneSketch:
    """The features of one sketch's candidates."""

    def __init__(
        self,
        plan: Plan,
        decisions: Sequence[Any],
        row: Floats,
        main: Shape | None,
        slots: dict[str, int],
        stages: dict[str, Tensor],
        known: dict[frozenset[str], Shape],
        machine: Machine,
    ) -> None:
        self.plan = plan
        self.parts = [d.parts if isinstance(d, Tile) else 1 for d in decisions]
        self.main = main
        self.machine = machine
        self.base = row.copy()
        self.base[AT["tiled"]] = bool(plan.axes)
        self.base[AT["waste"]] = 0
        self.base[AT["factored"]] = len(plan.factors)
        for name, part, _ in plan.factors:
            if name in slots:
                self.base[AT[f"block {slots[name]}: factored loop"]] = part
        self.slots = slots
        self.loops = _Loops(main) if main is not None and plan.axes else None
        # Positions of the places of what the main block reads, and what it reads there.
        self.stages = {
            position: (name, stages[name])
            for name, partial, position in plan.places
            if plan.axes and not partial and name in stages
        }
        self.views = known if plan.axes else {}

    def rows(self, points: Sequence[tuple[Any, ...]]) -> Floats:
        """Features, of shape (columns, points)."""
        if {len(point) for point in points} - {len(self.parts)}:
            raise ValueError(f"the sketch has {len(self.parts)} decisions")
        if not self.views:
            return self._rows(points, self.main)
        groups: dict[frozenset[str], list[int]] = {}
        for number, point in enumerate(points):
            inlined = frozenset(name for at, (name, _) in self.stages.items() if point[at] == -2)
            groups.setdefault(inlined, []).append(number)
        found = np.empty((len(AT), len(points)), np.float32)
        for inlined, members in groups.items():
            view = self.views.get(inlined, self.main)
            found[:, members] = self._rows([points[number] for number in members], view)
        return found

    def _rows(self, points: Sequence[tuple[Any, ...]], main: Shape | None) -> Floats:
        """Features of points with one view of the main block."""
        n = len(points)
        columns = list(zip(*points, strict=True)) if n else [()] * len(self.parts)
        out = np.repeat(self.base[:, None], n, axis=1)
        limit = np.full(n, np.nan, np.float32)
        if self.plan.unroll is not None:
            position, values = self.plan.unroll
            limit = np.array(values, np.float32)[_whole(columns[position], n)]
            out[AT["unroll limit"]] = np.log2(1 + limit)
        for name, part, position in self.plan.factors:
            if name in self.slots:
                sizes = _factors(columns[position], 2, n)
                out[AT[f"block {self.slots[name]}: partial results"]] = np.log2(sizes[part])
        self._fill_places(out, columns, n)
        if main is not None and self.loops is not None:
            places = {at: _whole(columns[at], n) for at in self.stages}
            fill(out, nests := self._nests(main, columns, limit, places), main, self.machine)
            if places:
                inside = [self.loops.inside(nests.tiles, place) for place in places.values()]
                tensors = [tensor for _, tensor in self.stages.values()]
                made = recomputed(tensors, inside, nests.tiles[0])
                out[AT["recomputed"]], out[AT["placed bytes"]] = made
        return out

    def _fill_places(self, out: Floats, columns: Sequence[Any], n: int) -> None:
        """Where the other blocks are computed."""
        inlined, root = np.zeros((2, n), np.float32)
        for name, partial, position in self.plan.places:
            place = _whole(columns[position], n)
            inlined += place == -2
            root += place == -1
            if name in self.slots:
                what = "place of partial results" if partial else "place"
                level = np.minimum(place, _DEEPEST)
                if self.loops is not None and not partial:
                    level = self.loops.level(place)
                out[AT[f"block {self.slots[name]}: {what}"]] = level
        out[AT["places"]] = len(self.plan.places)
        out[AT["inlined"]] = inlined
        out[AT["at the root"]] = root
        out[AT["at a depth"]] = len(self.plan.places) - inlined - root

    def _nests(
        self, main: Shape, columns: Sequence[Any], limit: Floats, places: dict[int, Ints]
    ) -> Nests:
        n = len(limit)
        tiles = np.ones((_BOUNDARIES, len(main.extents), n), np.float32)
        spatial, reduction = np.ones((2, _BOUNDARIES, n), np.float32)
        outer: list[tuple[int, int, Floats]] = []  # level, axis, iterations
        for axis, position in self.plan.axes:
            sizes = _factors(columns[position], self.parts[position], n)
            own = tiles[:, axis]
            own[0] = main.extents[axis]
            if main.reduction[axis]:
                own[1:3] = main.extents[axis]
                own[3:5] = sizes[1]
                reduction *= own
            else:
                own[4:6] = sizes[3]
                own[2:4] = sizes[2] * sizes[3]
                own[1] = sizes[1] * own[2]
                spatial *= own
                outer += [(0, axis, sizes[0]), (1, axis, sizes[1])]
        # Levels of reductions of one iteration are none.
        apart = reduction[3] > 1
        both = apart & (reduction[2] > reduction[3])
        first = np.where(apart & ~both, 4, 2)
        register = np.where(apart, 5, 3)
        lanes, lanes_axis = _lanes(main, tiles)
        level = self.plan.level
        tasks, whole = self._parallel(main, outer, places, n)
        return Nests(
            tiles,
            spatial,
            reduction,
            task=np.where(whole, 2, 1),
            first=first,
            inner=np.where(both, 3, first),
            register=register,
            parallel=tasks,
            lanes=lanes,
            lanes_axis=lanes_axis,
            write_cache=np.full(n, level or -1, np.int64),
            unroll_limit=limit,
            unrolled=_unrolled(spatial * reduction, lanes, limit),
            largest=_largest(main, tiles, apart),
        )

    def _parallel(
        self,
        main: Shape,
        outer: Sequence[tuple[int, int, Floats]],
        places: dict[int, Ints],
        n: int,
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Tasks, and whether both outer levels are run in parallel.

        The outermost loops are fused until there are enough of them; what is computed or written
        back between two loops keeps them apart.
        """
        tasks, whole = np.ones(n, np.float32), np.full(n, self.plan.level != 1)
        spatial = [axis for axis, summed in enumerate(main.reduction) if not summed]
        for level, axis, sizes in sorted(outer, key=lambda loop: loop[:2]):
            if level and self.plan.level == 1:
                break
            joins = tasks <= self.machine.jobs
            for place in places.values():
                joins &= (place < 0) | (place >= level * len(spatial) + spatial.index(axis))
            tasks = np.where(joins, tasks * sizes, tasks)
            whole &= joins | (sizes == 1)
        return tasks, whole


class _Loops:
    """The loops of a tiled block in order, those of one iteration included."""

    def __init__(self, main: Shape) -> None:
        spatial = [axis for axis, summed in enumerate(main.reduction) if not summed]
        reduction = [axis for axis, summed in enumerate(main.reduction) if summed]
        levels = [spatial, spatial, reduction, spatial, reduction, spatial]
        self.levels = np.repeat(np.arange(6), [len(level) for level in levels])
        count = len(self.levels)
        # Whether the loop of an axis at the level of a loop is that loop or around it.
        self.around = np.zeros((len(main.extents), count), dtype=bool)
        for at, level in enumerate(self.levels):
            start = int(np.flatnonzero(self.levels == level)[0])
            self.around[levels[level][: at - start + 1], at] = True

    def level(self, place: Ints) -> Ints:
        """The level of a loop by its index; what is no loop stays as it is."""
        known = self.levels[np.clip(place, 0, len(self.levels) - 1)]
        found: Ints = np.where(place < 0, place, known)
        return found

    def inside(self, tiles: Floats, place: Ints) -> Floats:
        """Iterations of each axis inside of a loop, or of all loops, or of none (inlined)."""
        at = np.clip(place, 0, len(self.levels) - 1)
        level = self.levels[at]
        every = np.arange(len(place))
        before, after = tiles[level, :, every].T, tiles[level + 1, :, every].T
        found = np.where(self.around[:, at], after, before)
        found = np.where(place == -1, tiles[0], found)
        made: Floats = np.where(place == -2, tiles[-1], found)
        return made


def _whole(values: Sequence[int], n: int) -> Ints:
    return np.fromiter(values, np.int64, n)


def _factors(values: Sequence[tuple[int, ...]], parts: int, n: int) -> Floats:
    """Tile sizes, of shape (parts, candidates)."""
    return np.fromiter(chain.from_iterable(values), np.float32, n * parts).reshape(n, parts).T


def _lanes(main: Shape, tiles: Floats) -> tuple[Floats, Ints]:
    """The innermost spatial loops, fused up to the most lanes there may be; and the last's axis."""
    n = tiles.shape[2]
    lanes, alive = np.ones(n, np.float32), np.ones(n, dtype=bool)
    axis = np.full(n, -1, np.int64)
    for number in reversed(range(len(main.extents))):
        if main.reduction[number] or main.extents[number] == 1:
            continue
        size = tiles[5, number]
        alive &= lanes * size <= _MOST_LANES
        axis[(axis < 0) & (size > 1)] = number
        lanes = np.where(alive, lanes * size, lanes)
    return lanes, axis


def _unrolled(inside: Floats, lanes: Floats, limit: Floats) -> Floats:
    """Iterations of the largest part of the nest that is within the limit."""
    found = np.ones_like(lanes)
    for at in range(len(inside) - 2, 0, -1):
        iterations = inside[at] / lanes
        found = np.where(iterations <= limit, iterations, found)
    return found


def _largest(main: Shape, tiles: Floats, apart: Any) -> tuple[Floats, Floats]:
    """The two largest spatial factors of the register tile."""
    largest, second = np.ones((2, tiles.shape[2]), np.float32)
    for axis, summed in enumerate(main.reduction):
        if not summed and main.extents[axis] > 1:
            size = np.where(apart, tiles[5, axis], tiles[3, axis])
            second = np.maximum(second, np.minimum(largest, size))
            largest = np.maximum(largest, size)
    return largest, second
