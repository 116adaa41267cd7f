"""Nests next to a nest. Every one that comes out is legal and canonical."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .legality import MAX_LEVELS, closing, problem, stage_ceiling
from .nest import INLINED, Loop, Mark, Nest, canonical, drop_units, round_up
from .vectors import is_good, lanes_of

# Attempts at a random move before a nest is taken to have none.
_ATTEMPTS = 48
_SIZES = (2, 3, 4, 6, 7, 8, 12, 14, 16, 24, 32, 48, 64, 128)


def neighbour(nest: Nest, rng: np.random.Generator) -> Nest:
    """A nest with one thing changed; the nest itself if nothing can be."""
    start = canonical(nest)
    for _ in range(_ATTEMPTS):
        kind, *draws = rng.random(4).tolist()
        move = _MOVES[int(kind * len(_MOVES))]
        changed = move(start, *draws)
        if changed is None:
            continue
        changed = canonical(settle(changed))
        if changed != start and problem(changed) is None:
            return changed
    return start


def settle(nest: Nest) -> Nest:
    """The nest with the parallel loops, the tile and the producers moved to where they can be.

    A vector of sums gets a good length (see `vectors`).
    """
    nest = _without_ragged_band(_with_good_vector(nest))
    tile = nest.tile
    if tile is not None:
        vector = nest.vector is not None
        high = min(len(nest.loops) - vector, closing(nest))
        tile = None if nest.band > high else min(max(tile, nest.band), high)
    low, ceiling = max(1, nest.band), stage_ceiling(nest)
    stages = []
    for stage in nest.stages:
        inside = stage > 0 and low <= ceiling
        stages.append(min(max(stage, low), ceiling) if inside else min(stage, 0))
    return replace(nest, tile=tile, stages=tuple(stages))


def _with_good_vector(nest: Nest) -> Nest:
    vector, frame = nest.vector, nest.frame
    if vector is None or not frame.reduces or is_good(vector.extent, frame.native):
        return nest
    if vector.axis == frame.partial_axis or not nest.contiguous(vector.axis):
        return nest
    lanes, level = lanes_of(vector.extent, frame.native), len(nest.loops) - 1
    if any(loop.axis == vector.axis for loop in nest.loops[:level]):
        return _with_extent(nest, level, lanes)
    outer = Loop(vector.axis, -(-vector.extent // lanes))
    return replace(
        nest,
        loops=(*nest.loops[:level], outer, vector._replace(extent=lanes)),
        tile=None if nest.tile is None else nest.tile + (nest.tile > level),
        stages=tuple(stage + (stage > level) for stage in nest.stages),
    )


def _without_ragged_band(nest: Nest) -> Nest:
    """The nest with no ragged axis among several parallel loops: they end before it."""
    band, ragged = nest.band, nest.ragged()
    found = [level for level in range(band) if nest.loops[level].axis in ragged]
    if band < 2 or not found:
        return nest
    kept = max(1, found[0])
    loops = [
        loop._replace(mark="") if kept <= level < band else loop
        for level, loop in enumerate(nest.loops)
    ]
    return replace(nest, loops=tuple(loops))


def _at(draw: float, count: int) -> int:
    return min(int(draw * count), count - 1)


def _resize(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Give an inner loop another size; the coarsest one of its axis makes up for it."""
    inner = [
        level
        for level, loop in enumerate(nest.loops)
        if any(other.axis == loop.axis for other in nest.loops[:level])
    ]
    if not inner:
        return _split(nest, where, what, how)
    level = inner[_at(where, len(inner))]
    loop = nest.loops[level]
    sizes = [size for size in (1, *_SIZES) if size != loop.extent]
    if how < 0.6:  # near sizes
        smaller = [size for size in sizes if size < loop.extent][-2:]
        larger = [size for size in sizes if size > loop.extent][:2]
        sizes = smaller + larger
    return _with_extent(nest, level, sizes[_at(what, len(sizes))])


def _with_extent(nest: Nest, level: int, extent: int) -> Nest:
    """The nest with a loop of another size, and the coarsest of its axis rounded up."""
    loop = nest.loops[level]
    loops = list(nest.loops)
    loops[level] = Loop(loop.axis, extent, loop.mark)
    return round_up(replace(nest, loops=tuple(loops)))


def _exchange(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Move a factor from one loop to another one of the same axis."""
    pairs = [
        (a, b)
        for a, first in enumerate(nest.loops)
        for b, second in enumerate(nest.loops)
        if a != b and first.axis == second.axis
    ]
    if not pairs:
        return _split(nest, where, what, how)
    source, target = pairs[_at(where, len(pairs))]
    loops = list(nest.loops)
    factors = [f for f in (2, 3, 4, 5, 7, 8) if loops[source].extent % f == 0]
    if not factors:
        return None
    factor = factors[_at(what, len(factors))]
    loops[source] = loops[source]._replace(extent=loops[source].extent // factor)
    loops[target] = loops[target]._replace(extent=loops[target].extent * factor)
    return round_up(replace(nest, loops=tuple(loops)))


def _split(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Take a new loop out of one, and put it anywhere within it."""
    level = _at(where, len(nest.loops)) if nest.loops else -1
    if level < 0:
        return None
    loop = nest.loops[level]
    if sum(other.axis == loop.axis for other in nest.loops) >= MAX_LEVELS:
        return None
    sizes = [size for size in _SIZES if size < loop.extent]
    if not sizes:
        return None
    size = sizes[_at(what, len(sizes))]
    limit = next(
        (i for i in range(level + 1, len(nest.loops)) if nest.loops[i].axis == loop.axis),
        len(nest.loops),
    )
    to = level + 1 + _at(how, limit - level)
    mark: Mark = "vectorize" if loop.mark == "vectorize" else ""
    loops = list(nest.loops)
    loops[level] = Loop(
        loop.axis, -(-loop.extent // size), "" if loop.mark == "vectorize" else loop.mark
    )
    loops.insert(to, Loop(loop.axis, size, mark))
    moved = replace(
        nest,
        loops=tuple(loops),
        tile=None if nest.tile is None else nest.tile + (nest.tile >= to),
        stages=tuple(stage + (stage >= to) if stage > 0 else stage for stage in nest.stages),
    )
    return round_up(moved)


def _join(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Let a loop go into another one of its axis."""
    pairs = [
        (a, b)
        for a, first in enumerate(nest.loops)
        for b, second in enumerate(nest.loops)
        if a != b and first.axis == second.axis
    ]
    if not pairs:
        return None
    gone, kept = pairs[_at(where, len(pairs))]
    loops = list(nest.loops)
    loops[kept] = loops[kept]._replace(extent=loops[kept].extent * loops[gone].extent)
    loops[gone] = loops[gone]._replace(extent=1)
    return round_up(replace(nest, loops=tuple(loops)))


def _move(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Put a loop elsewhere in the order; the vector mark stays innermost."""
    count = len(nest.loops)
    if count < 2:
        return None
    level = _at(where, count)
    beside = level + (1 if what < 0.5 else -1)
    to = beside if how < 0.5 else _at(what, count)
    if not 0 <= to < count or to == level:
        return None
    loops = list(nest.loops)
    passed = loops[level + 1 : to + 1] if to > level else loops[to:level]
    if any(other.axis == loops[level].axis for other in passed):
        return None
    marks = [loop.mark for loop in loops]
    loops.insert(to, loops.pop(level))
    # What runs in parallel and what is a vector belongs to the place, unrolling to the loop.
    for i, mark in enumerate(marks):
        fixed = mark in ("parallel", "vectorize")
        own = loops[i].mark if loops[i].mark == "unroll" else ""
        loops[i] = loops[i]._replace(mark=mark if fixed else own)
    return replace(nest, loops=tuple(loops))


def _mark(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Unroll a loop or no longer; now and then switch the vector."""
    if not nest.loops:
        return None
    if how < 0.15:
        level, on = len(nest.loops) - 1, "vectorize"
    else:
        inner = range(nest.band, len(nest.loops) - (nest.vector is not None))
        if not inner:
            return None
        level, on = inner[_at(where, len(inner))], "unroll"
    loops = list(nest.loops)
    mark: Mark = "" if loops[level].mark else "unroll" if on == "unroll" else "vectorize"
    loops[level] = loops[level]._replace(mark=mark)
    return replace(nest, loops=tuple(loops))


def _band(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Run one loop more or less in parallel, or another number of them."""
    count, band = len(nest.loops), nest.band
    wanted = band + (1 if what < 0.5 else -1) if how < 0.7 else _at(where, count + 1)
    if not 0 <= wanted <= count or wanted == band:
        return None
    marked = [
        loop._replace(mark="parallel" if level < wanted else _serial(loop.mark))
        for level, loop in enumerate(nest.loops)
    ]
    return replace(nest, loops=tuple(marked))


def _serial(mark: Mark) -> Mark:
    return "" if mark == "parallel" else mark


def _tile(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Accumulate from another loop on, or in the output."""
    high = min(closing(nest), len(nest.loops) - (nest.vector is not None))
    places = [None, *range(nest.band, high + 1)]
    return replace(nest, tile=places[_at(what, len(places))])


def _stage(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Compute a producer elsewhere."""
    if not nest.stages:
        return None
    places = [INLINED, 0, *range(max(1, nest.band), stage_ceiling(nest) + 1)]
    stages = list(nest.stages)
    stages[_at(where, len(stages))] = places[_at(what, len(places))]
    return replace(nest, stages=tuple(stages))


def _factor(nest: Nest, where: float, what: float, how: float) -> Nest | None:
    """Keep partial results of a part of a reduction apart, or no longer."""
    frame = nest.frame
    partial = frame.partial_axis
    if nest.factored is not None:
        if how < 0.7:
            return None
        at = nest.factored
        loops = [
            loop._replace(axis=at, mark="") if loop.axis == partial else loop for loop in nest.loops
        ]
        if len(nest.loops_of(at)) + len(nest.loops_of(partial)) > MAX_LEVELS:
            return None
        coarse = [i for i, loop in enumerate(loops) if loop.axis == at]
        first = min(i for i, loop in enumerate(nest.loops) if loop.axis == partial)
        if coarse[0] == first:  # partial results were outside of the rest of their axis
            return None
        return replace(nest, loops=tuple(loops), factored=None)
    inner = [
        level
        for level, loop in enumerate(nest.loops)
        if nest.is_reduction(loop)
        and all(other.axis != loop.axis for other in nest.loops[level + 1 :])
    ]
    if not frame.factors or not inner:
        return None
    level = inner[_at(where, len(inner))]
    loop = nest.loops[level]
    sizes = [size for size in _SIZES if loop.extent % size == 0]
    if not sizes:
        return None
    size = sizes[_at(what, len(sizes))]
    loops = list(nest.loops)
    loops[level] = loop._replace(extent=loop.extent // size)
    vector = nest.vector is None and size <= 64
    loops.append(Loop(partial, size, "vectorize" if vector else ""))
    if nest.vector is not None:
        loops[-2], loops[-1] = loops[-1], loops[-2]
    made = replace(nest, loops=tuple(loops), factored=loop.axis, tile=nest.tile)
    return drop_units(made)


_Move = Callable[[Nest, float, float, float], Nest | None]
# As many times as a move is listed it is tried.
_MOVES: tuple[_Move, ...] = (
    _resize,
    _resize,
    _resize,
    _exchange,
    _split,
    _split,
    _join,
    _move,
    _move,
    _move,
    _mark,
    _band,
    _tile,
    _stage,
    _factor,
)
