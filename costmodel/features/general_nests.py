"""General decision features of candidates of the loop space, straight from their points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ...data.candidate import Candidate, InvalidCandidate
from ...data.loop_space import LoopSpace
from ...data.loops.nest import INLINED, MARKS
from ..base import Floats
from .general_columns import AT, Ints, Machine, Nests, constants, fill
from .general_shapes import Shape, producers_of, read_shapes, recomputed, views
from .schemas import GENERAL_SLOTS

_MARK = {mark: number for number, mark in enumerate(MARKS)}
_UNROLL, _VECTORIZE, _PARALLEL = _MARK["unroll"], _MARK["vectorize"], _MARK["parallel"]


@dataclass(frozen=True)
class _Loops:
    """The loops of some candidates, outermost first; loops of one iteration fill up the shorter.

    Attributes:
        axis: The axis of each loop, of shape (loops, candidates); one more for partial results.
        extent: Its iterations, of the same shape.
        mark: Its mark, of the same shape.
        tile: The loop that the tile of its own begins at; -1 for none. Of shape (candidates,).
        factored: The axis whose partial results are kept apart; -1 for none.
    """

    axis: Ints
    extent: Floats
    mark: Ints
    tile: Ints
    factored: Ints

    def take(self, members: Ints) -> _Loops:
        """The loops of some of the candidates."""
        return _Loops(
            self.axis[:, members],
            self.extent[:, members],
            self.mark[:, members],
            self.tile[members],
            self.factored[members],
        )

    def marked(self, mark: int) -> Floats:
        """Iterations of the loops with a mark."""
        found: Floats = np.where(self.mark == mark, self.extent, np.float32(1)).prod(axis=0)
        return found


@dataclass(frozen=True)
class _Places:
    """Boundaries of nests, each of shape (candidates,); see `Nests`.

    Attributes:
        task: Inside of the parallel loops.
        first: Where the first reduction begins.
        inner: Inside of all reductions but the last run of reduction loops.
        last: Where that run begins.
        register: Inside of it.
    """

    task: Ints
    first: Ints
    inner: Ints
    last: Ints
    register: Ints


class NestFeatures:
    """Computes the features of one space's candidates.

    Args:
        space: The space.
    """

    def __init__(self, space: LoopSpace) -> None:
        self.name = space.name
        self.machine = Machine.of(space.target)
        schedule, frame = space._prepared.schedule, space.frame
        shapes = read_shapes(schedule.mod)
        self.main = next(shape for shape in shapes if shape.name == frame.block)
        self.partial = len(self.main.extents)
        long = [axis for axis, extent in enumerate(self.main.extents) if extent > 1]
        self.axes = np.array([*long, self.partial])
        self.summed = np.array([*self.main.reduction, False])
        workload = space.workload
        self.base = constants(shapes, self.main, workload.flops, workload.bytes, self.machine)
        self.base[AT["loop space"]] = 1
        self.base[AT["places"]] = len(frame.producers)
        names = [producer.name for producer in frame.producers]
        ordered = [shape.name for shape in reversed(shapes) if shape.name in names]
        self.slots = {names.index(name): slot for slot, name in enumerate(ordered[:GENERAL_SLOTS])}
        read = producers_of(self.main, shapes)
        self.stages = {n: read[name] for n, name in enumerate(names) if name in read}
        self.views = views(schedule, self.main, [names[n] for n in self.stages])
        self.producers = names

    def rows(self, candidates: Sequence[Candidate]) -> Floats:
        """Features, of shape (candidates, columns).

        Raises:
            InvalidCandidate: one is of another space, or its point is of another form.
        """
        if not candidates:
            return np.empty((0, len(AT)), np.float32)
        try:
            loops, tile, stages, factored = zip(*(c.point for c in candidates), strict=True)
            nests = self._read(loops, tile, factored)
            places = np.array(stages, np.int64).reshape(len(candidates), -1).T
            found = np.ascontiguousarray(self._columns(nests, places, self.main).T)
            for view, members in self._inlined(places):
                one = nests.take(members)
                found[members] = self._columns(one, places[:, members], view).T
            return found
        except (TypeError, ValueError, IndexError, KeyError) as error:
            raise InvalidCandidate(f"not candidates of this loop space: {error}") from error

    def _read(self, loops: Sequence[Any], tile: Sequence[Any], factored: Sequence[Any]) -> _Loops:
        n = len(loops)
        counts = np.fromiter(map(len, loops), np.int64, n)
        total, most = int(counts.sum()), int(counts.max())
        axis, extent, mark = zip(*chain.from_iterable(loops), strict=True) if total else ((),) * 3
        owner = np.repeat(np.arange(n), counts)
        level = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        found = _Loops(
            np.full((most, n), self.partial, np.int64),
            np.ones((most, n), np.float32),
            np.zeros((most, n), np.int64),
            np.array([t[0] if t else -1 for t in tile], np.int64),
            np.array([self.axes[f[0]] if f else -1 for f in factored], np.int64),
        )
        found.axis[level, owner] = self.axes[np.fromiter(axis, np.int64, total)]
        found.extent[level, owner] = np.fromiter(extent, np.float32, total)
        found.mark[level, owner] = np.fromiter(map(_MARK.__getitem__, mark), np.int64, total)
        return found

    def _inlined(self, places: Ints) -> Iterator[tuple[Shape, Ints]]:
        """Candidates whose main block reads in another way, by how it does."""
        for names, view in self.views.items():
            numbers = [self.producers.index(name) for name in names]
            others = [n for n in self.stages if n not in numbers]
            there = (places[numbers] == INLINED).all(axis=0)
            members = np.flatnonzero(there & (places[others] != INLINED).all(axis=0))
            if len(members):
                yield view, members

    def _columns(self, loops: _Loops, places: Ints, main: Shape) -> Floats:
        """Features, of shape (columns, candidates)."""
        n = len(loops.tile)
        out = np.repeat(self.base[:, None], n, axis=1)
        tiles = self._tiles(loops)
        at = self._boundaries(loops)
        spatial = tiles[:, ~self.summed].prod(axis=1)
        reduction = tiles[:, self.summed].prod(axis=1)
        partial = tiles[:, self.partial].copy()
        largest = self._largest(tiles, at.register)
        for axis in np.unique(loops.factored[loops.factored >= 0]):
            tiles[:, axis] *= np.where(loops.factored == axis, partial, np.float32(1))
        whole = tiles[:, :-1]
        lanes_axis = np.where(loops.mark == _VECTORIZE, loops.axis, -1).max(axis=0, initial=-1)
        nests = Nests(
            whole,
            spatial,
            reduction,
            task=at.task,
            first=at.first,
            inner=at.inner,
            register=at.register,
            parallel=loops.marked(_PARALLEL),
            lanes=loops.marked(_VECTORIZE),
            lanes_axis=np.where(lanes_axis == self.partial, loops.factored, lanes_axis),
            write_cache=loops.tile,
            unroll_limit=np.full(n, np.nan, np.float32),
            unrolled=loops.marked(_UNROLL),
            largest=largest,
        )
        fill(out, nests, main, self.machine)
        extents = np.array(self.main.extents, np.float32)
        out[AT["waste"]] = np.log2(whole[0] / extents[:, None]).sum(axis=0)
        out[AT["factored"]] = loops.factored >= 0
        self._fill_places(out, nests, at, places)
        return out

    def _tiles(self, loops: _Loops) -> Floats:
        """Iterations of each axis inside of each boundary, partial results last."""
        count, n = loops.axis.shape
        tiles = np.ones((count + 1, self.partial + 1, n), np.float32)
        every = np.arange(n)
        for level in range(count - 1, -1, -1):
            tiles[level] = tiles[level + 1]
            tiles[level, loops.axis[level], every] *= loops.extent[level]
        return tiles

    def _boundaries(self, loops: _Loops) -> _Places:
        count = len(loops.axis)
        level = np.arange(count)[:, None]
        real = loops.extent > 1
        summed = self.summed[loops.axis] & real
        task = (loops.mark == _PARALLEL).sum(axis=0)
        end = (real & (loops.mark != _VECTORIZE)).sum(axis=0)
        there = summed.any(axis=0)
        first = np.where(there, np.where(summed, level, count).min(axis=0, initial=count), end)
        final = np.where(summed, level, -1).max(axis=0, initial=-1)
        apart = real & ~summed & (level < final)
        last = np.maximum(np.where(apart, level + 1, 0).max(axis=0, initial=0), first)
        before = summed & (level < last)
        inner = np.maximum(np.where(before, level + 1, 0).max(axis=0, initial=0), first)
        return _Places(task, first, inner, last, np.where(there, final + 1, first))

    def _largest(self, tiles: Floats, register: Ints) -> tuple[Floats, Floats]:
        """The two largest spatial factors of the register tile."""
        every = np.arange(len(register))
        inside: npt.NDArray[Any] = tiles[register, :, every][:, ~self.summed]
        inside = np.concatenate([np.ones((len(every), 2), np.float32), inside], axis=1)
        inside = np.partition(inside, -2, axis=1)
        return inside[:, -1], inside[:, -2]

    def _fill_places(self, out: Floats, nests: Nests, at: _Places, places: Ints) -> None:
        """Where the other blocks are computed, in the terms of the sketch space."""
        out[AT["inlined"]] = (places == INLINED).sum(axis=0)
        out[AT["at the root"]] = (places == 0).sum(axis=0)
        out[AT["at a depth"]] = (places > 0).sum(axis=0)
        for number, slot in self.slots.items():
            place = places[number]
            bounds = (at.task, at.first, at.inner, at.last, at.register)
            level = np.sum([place > bound for bound in bounds], axis=0)
            known = np.where(place == INLINED, -2, np.where(place == 0, -1, level))
            out[AT[f"block {slot}: place"]] = known
        if self.stages:
            every = np.arange(len(out.T))
            deepest = len(nests.tiles) - 1
            inside = [
                nests.tiles[np.where(places[n] == INLINED, deepest, places[n]), :, every].T
                for n in self.stages
            ]
            made = recomputed(list(self.stages.values()), inside, nests.tiles[0])
            out[AT["recomputed"]], out[AT["placed bytes"]] = made
