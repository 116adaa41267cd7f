"""Decision features of a loop nest: numbers of a fixed layout, straight from the nest."""

from __future__ import annotations

import math

from .legality import MAX_LEVELS
from .nest import MARKS, Frame, Nest

_PER_LOOP = ("size", "depth", "mark")
_WHOLE = (
    "parallel loops",
    "parallel iterations",
    "vector lanes",
    "vector stays whole",
    "loops",
    "code size",
    "tile depth",
    "tile size",
    "iterations under the first reduction",
    "factored axis",
)


def names(frame: Frame) -> list[str]:
    """What each number is. Sizes are log2; depths and levels count from the innermost loop."""
    axes = [axis.name for axis in frame.axes] + ["partial results"]
    found = [
        f"{what} of {axis}, level {level}"
        for axis in axes
        for level in range(MAX_LEVELS)
        for what in _PER_LOOP
    ]
    found += [f"share of {axis.name} in its loops" for axis in frame.axes]
    return [*found, *_WHOLE, *(f"place of {producer.name}" for producer in frame.producers)]


def numbers(nest: Nest) -> list[float]:
    """The features of one nest; NaN where there is no such loop, tile or axis."""
    frame, count = nest.frame, len(nest.loops)
    per_loop = [math.nan] * (frame.width * MAX_LEVELS * len(_PER_LOOP))
    seen = [0] * frame.width
    covered = [1] * frame.width
    code = 0.0
    for depth in range(count):
        loop = nest.loops[count - 1 - depth]
        start = (loop.axis * MAX_LEVELS + seen[loop.axis]) * len(_PER_LOOP)
        seen[loop.axis] += 1
        covered[loop.axis] *= loop.extent
        size = math.log2(loop.extent)
        per_loop[start : start + 3] = size, depth, MARKS.index(loop.mark)
        code += size if loop.mark == "unroll" else 0.0
    shares = [
        axis.extent / (covered[n] * (covered[-1] if n == nest.factored else 1))
        for n, axis in enumerate(frame.axes)
    ]
    band, first = nest.band, nest.first_reduction
    vector = nest.vector
    lanes = vector.extent if vector else 1
    tile = nest.tile
    whole = [
        band,
        sum(math.log2(loop.extent) for loop in nest.loops[:band]),
        math.log2(lanes),
        float(nest.contiguous(vector.axis)) if vector else math.nan,
        count,
        code + math.log2(lanes),
        math.nan if tile is None else count - tile,
        math.nan if tile is None else math.log2(nest.tile_size()),
        sum(math.log2(loop.extent) for loop in nest.loops[first:]),
        math.nan if nest.factored is None else nest.factored,
    ]
    # Ahead of the nest is as far out as a place can be.
    places = [count - stage if stage >= 0 else -1 for stage in nest.stages]
    return per_loop + shares + whole + places
