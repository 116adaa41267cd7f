"""A nest that is good for most blocks, for those that are not tuned and to start from."""

from __future__ import annotations

import math

from .legality import MAX_LANES, problem
from .nest import Frame, Loop, Nest, initial

# Starting a parallel loop takes as long as some thousand iterations.
_WORTH_THREADS = 16384
_MIN_LANES = 4


def default_nest(frame: Frame) -> Nest:
    """Outer loops in parallel, reductions inside, a vector innermost; no ragged loops."""
    start = initial(frame)
    vector = vector_axis(frame)
    factored = None if vector is not None else _factored_axis(frame)
    chosen = factored if vector is None else vector
    lanes = 1 if chosen is None else _lanes(frame, frame.axes[chosen].extent)
    if lanes < _MIN_LANES or (factored is not None and frame.axes[factored].extent == lanes):
        chosen, factored, lanes = None, None, 1
    outer: list[Loop] = []
    inner: list[Loop] = []
    for number, axis in enumerate(frame.axes):
        extent = axis.extent // lanes if number == chosen else axis.extent
        if extent > 1:
            (inner if axis.reduction else outer).append(Loop(number, extent))
    if math.prod(axis.extent for axis in frame.axes) >= _WORTH_THREADS:
        outer = [Loop(loop.axis, loop.extent, "parallel") for loop in outer]
    innermost = []
    if chosen is not None:
        taken = chosen if factored is None else frame.partial_axis
        innermost = [Loop(taken, lanes, "vectorize")]
    tile = len(outer) if factored is not None and outer else None
    nest = Nest(frame, (*outer, *inner, *innermost), tile, start.stages, factored)
    return nest if problem(nest) is None else start


def vector_axis(frame: Frame) -> int | None:
    """The spatial axis to vectorise: one that the output goes along, else any that loads do."""
    whole = [n for n, axis in enumerate(frame.axes) if axis.contiguous and not axis.reduction]
    written = [n for n in whole if frame.accesses[-1].strides[n] == 1]
    loaded = [n for n in whole if any(access.strides[n] == 1 for access in frame.accesses)]
    return next(iter(written or loaded), None)


def _factored_axis(frame: Frame) -> int | None:
    """The reduction axis to vectorise by partial results."""
    if not frame.factors:
        return None
    whole = [n for n, axis in enumerate(frame.axes) if axis.contiguous and axis.reduction]
    return whole[-1] if whole else None


def _lanes(frame: Frame, extent: int) -> int:
    """The largest divisor that makes one or two native vectors."""
    most = min(MAX_LANES, 2 * frame.native)
    return max(d for d in range(1, most + 1) if extent % d == 0)
