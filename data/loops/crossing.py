"""Nests between two nests. Every one that comes out is legal and canonical."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from .legality import problem
from .moves import settle
from .nest import Loop, Nest, canonical


def cross(a: Nest, b: Nest, rng: np.random.Generator) -> Nest:
    """A nest whose loops come from `a` for some axes and from `b` for the others.

    The order is that of the depths which the loops had. The tile, the producers, the parallel
    loops and the vector come from either parent as far as they fit. `a` where nothing does.
    """
    a, b = canonical(a), canonical(b)
    if a == b:
        return a
    picks = (rng.random(a.frame.width + 2) < 0.5).tolist()
    if a.factored != b.factored:  # partial results and the axis they come from go together
        for axis in (a.factored, b.factored, a.frame.partial_axis):
            if axis is not None:
                picks[axis] = False
    elif a.factored is not None:
        picks[a.frame.partial_axis] = picks[a.factored]
    mixed = [
        (level / max(1, len(nest.loops) - 1), source, loop)
        for source, nest in enumerate((a, b))
        for level, loop in enumerate(nest.loops)
        if picks[loop.axis] == bool(source)
    ]
    mixed.sort(key=lambda entry: entry[:2])
    child = _remark(a, b, [loop for _, _, loop in mixed], picks[-2:])
    return child if problem(child) is None else a


def _remark(a: Nest, b: Nest, loops: list[Loop], picks: list[bool]) -> Nest:
    """Marks and places of the parents on the loops of a child."""
    source = b if picks[0] else a
    vector = source.vector is not None and bool(loops)
    reached = math.prod(loop.extent for loop in source.loops[: source.band])
    shape = replace(a, loops=tuple(loops), tile=None, stages=(0,) * len(a.stages))
    work = 1
    marked: list[Loop] = []
    for level, loop in enumerate(loops):
        band = level == len(marked) and work < reached and not shape.is_reduction(loop)
        band = band and all(other.mark == "parallel" for other in marked)
        if band:
            work *= loop.extent
        unroll = loop.mark == "unroll" and not band
        marked.append(loop._replace(mark="parallel" if band else "unroll" if unroll else ""))
    if vector and not shape.is_reduction(loops[-1]) and marked[-1].mark != "parallel":
        marked[-1] = marked[-1]._replace(mark="vectorize")
    other = b if picks[1] else a
    tile = other.tile
    if tile is not None:  # measured from the inside
        tile = max(0, len(marked) - (len(other.loops) - tile))
    child = replace(shape, loops=tuple(marked), tile=tile, stages=other.stages)
    return canonical(settle(child))
