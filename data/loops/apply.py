"""From a loop nest to a TVM schedule."""

from __future__ import annotations

import math
from typing import Any

from .defaults import default_nest
from .legality import MAX_LANES
from .nest import INLINED, Nest
from .program import Plan, Prepared

# Splits a loop into a part that needs no guard and a rest (TVM's LoopPartition).
_PARTITION = "pragma_loop_partition_hint"

_REDUCTION = 2  # TVM's number of the kind of axis


def schedule_nest(prepared: Prepared, nest: Nest) -> Any:
    """A copy of the prepared schedule in which the tuned block has a nest.

    The other blocks have nests that are good for most, and every reduction is decomposed.
    """
    schedule = prepared.schedule.copy()
    for producer, stage in zip(nest.frame.producers, nest.stages, strict=True):
        if stage == INLINED:
            schedule.compute_inline(producer.name)
    _Shaper(schedule, prepared.plan, nest).shape()
    alone = [
        prepared.plans[producer.name]
        for producer, stage in zip(nest.frame.producers, nest.stages, strict=True)
        if stage == 0
    ]
    consumer = prepared.plan.consumer
    if consumer is not None and (nest.tile is None or nest.factored is not None):
        alone.append(prepared.plans[consumer])
    for plan in (*alone, *prepared.rest):
        _Shaper(schedule, plan, default_nest(plan.frame)).shape()
    return schedule


class _Shaper:
    """Gives one block its nest."""

    def __init__(self, schedule: Any, plan: Plan, nest: Nest) -> None:
        self.schedule = schedule
        self.plan = plan
        self.nest = nest
        self.block = schedule.get_sblock(plan.frame.block)
        self.final: Any = None  # sums up partial results
        self.order: list[Any] = []
        self.fused: Any = None

    def shape(self) -> None:
        """Shape the nest. The reductions are decomposed last: little else is allowed after it."""
        reduction = self._arrange()
        self._write_back()
        self._place_producers()
        self._mark()
        if self.plan.frame.reduces:
            self.schedule.decompose_reduction(self.block, reduction)
        if self.final is not None:
            self._sum_up()

    def _arrange(self) -> Any:
        """Split and order the loops; the outermost reduction loop."""
        schedule, nest, plan = self.schedule, self.nest, self.plan
        loops: list[list[Any]] = [[loop] for loop in schedule.get_loops(self.block)]
        partial = nest.loops_of(plan.frame.partial_axis)
        partials: list[Any] = []
        if nest.factored is not None:
            at = plan.positions[nest.factored]
            outer = math.prod(nest.loops_of(nest.factored))
            parts = schedule.split(loops[at][0], [outer, math.prod(partial)])
            self.final = self.block
            self.block = schedule.rfactor(parts[1], plan.rank)
            fresh = schedule.get_loops(self.block)
            partials = _split(schedule, fresh.pop(at + 1), partial)
            loops = [[loop] for loop in fresh]
        for axis, at in enumerate(plan.positions):
            loops[at] = _split(schedule, loops[at][0], nest.loops_of(axis))
        left = {axis: list(loops[at]) for axis, at in enumerate(plan.positions)}
        left[plan.frame.partial_axis] = partials
        self.order = [left[loop.axis].pop(0) for loop in nest.loops]
        units = [i for i in range(len(plan.kinds)) if i not in plan.positions]
        spatial = [loops[i][0] for i in units if not plan.kinds[i]]
        summed = [loops[i][0] for i in units if plan.kinds[i]]
        first = nest.first_reduction
        ordered = [*spatial, *self.order[:first], *summed, *self.order[first:]]
        if len(ordered) > 1:
            schedule.reorder(*ordered)
        if nest.band:
            self.fused = schedule.fuse(*spatial, *self.order[: nest.band])
        reductions = summed + self.order[first:]
        return reductions[0] if reductions else None

    def _within(self, level: int) -> Any:
        """The loop that something within `level` loops is directly under."""
        return self.fused if level <= self.nest.band else self.order[level - 1]

    def _write_back(self) -> None:
        """Let the tile's results be written back, or gone on with, right after it."""
        schedule, tile = self.schedule, self.nest.tile
        if tile is None:
            return
        if self.final is not None:
            schedule.reverse_compute_at(self.final, self._within(tile), preserve_unit_loops=True)
            return
        if self.plan.consumer is not None:
            writer = schedule.get_sblock(self.plan.consumer)
        else:
            writer = schedule.cache_write(self.block, 0, "global")
        if tile:
            schedule.reverse_compute_at(writer, self._within(tile))
        self._vectorize_last(writer)

    def _place_producers(self) -> None:
        for producer, stage in zip(self.plan.frame.producers, self.nest.stages, strict=True):
            if stage > 0:
                block = self.schedule.get_sblock(producer.name)
                self.schedule.compute_at(block, self._within(stage))
                self._vectorize_last(block)

    def _vectorize_last(self, block: Any) -> None:
        """Vectorise a block's own innermost loop, or as much of it as a vector takes."""
        loops = self.schedule.get_loops(block)
        shared = [self.schedule.get(loop).loop_var for loop in self.schedule.get_loops(self.block)]
        if not loops or any(self.schedule.get(loops[-1]).loop_var.same_as(v) for v in shared):
            return
        extent = getattr(self.schedule.get(loops[-1]).extent, "value", 0)
        lanes = max((d for d in range(1, MAX_LANES + 1) if extent and extent % d == 0), default=1)
        if lanes < 4:
            return
        inner = loops[-1]
        if lanes < extent:
            inner = self.schedule.split(inner, [extent // lanes, lanes])[1]
        self.schedule.vectorize(inner)

    def _mark(self) -> None:
        schedule, nest = self.schedule, self.nest
        ragged = set(nest.ragged())
        if self.fused is not None:
            if nest.loops[0].axis in ragged:
                ragged.remove(nest.loops[0].axis)
                schedule.annotate(self.fused, _PARTITION, 1)
            schedule.parallel(self.fused)
        for loop, handle in zip(nest.loops, self.order, strict=True):
            if loop.mark == "vectorize":
                schedule.vectorize(handle)
            elif loop.mark == "unroll":
                schedule.unroll(handle)
            if loop.axis in ragged:
                ragged.remove(loop.axis)  # its coarsest loop has the guard
                if not loop.mark:
                    schedule.annotate(handle, _PARTITION, 1)

    def _sum_up(self) -> None:
        """Decompose the block that adds up the partial results, which has a loop an axis."""
        axes = list(self.schedule.get(self.final).iter_vars)
        loops = self.schedule.get_loops(self.final)[-len(axes) :]
        summed = next(i for i, axis in enumerate(axes) if axis.iter_type == _REDUCTION)
        self.schedule.decompose_reduction(self.final, loops[summed])


def _split(schedule: Any, loop: Any, sizes: list[int]) -> list[Any]:
    """The loops that one is split into; the coarsest takes what is needed."""
    if len(sizes) < 2:
        return [loop]
    return list(schedule.split(loop, [None, *sizes[1:]]))
