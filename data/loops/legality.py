"""Which loop nests there may be. Knows no TVM, and takes microseconds."""

from __future__ import annotations

import math

from .nest import INLINED, MAX_UNROLL, Nest

MAX_LEVELS = 4
"""Loops that an axis may be split into."""

MAX_LANES = 64
"""Elements of a vectorised loop: more than the registers of any CPU hold of a useful tile."""

MAX_RAGGED = 3
"""Axes that may be ragged: each doubles the code, its last round being apart."""

# Statements that unrolling and vectorising make of one, in native vectors. Of 900 random programs
# under this bound nine in ten compiled within 0.24 s here, three took more than 2 s, and one 6 s;
# with no bound on what LLVM unrolls by itself a few of them took 10 s to a minute.
MAX_CODE = 512

# LLVM unrolls a loop of up to about as many statements whether it is told to or not. Without marks
# a nest has no more code than this and its tails come to, so that splitting is never in the way.
_SHORT = MAX_CODE >> MAX_RAGGED

# What a loop costs to compile, in statements of its body, and a statement that is no vector:
# LLVM then looks long for vectors of its own.
_LOOP = 4
_SCALAR = 4

# Elements of the tile that is accumulated apart from the output: 64 KB of float32, within the L2.
_MAX_TILE = 16384

# Elements of the partial results of a factored reduction.
_MAX_PARTIAL = 1 << 20


def problem(nest: Nest) -> str | None:
    """Why a nest cannot be, or None. Exact: a nest without a problem has a right program."""
    why = _sizes(nest)
    if why is not None:
        return why
    ragged = nest.ragged()
    return _marks(nest, ragged) or _places(nest)


def _sizes(nest: Nest) -> str | None:
    """Do the loops cover their axes?"""
    frame = nest.frame
    width = frame.width
    if len(nest.stages) != len(frame.producers):
        return "every producer has a place"
    counts, first, covered = [0] * width, [1] * width, [1] * width
    for at, extent, _ in nest.loops:
        if not 0 <= at < width or extent < 2:
            return "every loop has an axis of the block, and 2 iterations or more"
        if not counts[at]:
            first[at] = extent
        counts[at] += 1
        covered[at] *= extent
        if counts[at] > MAX_LEVELS:
            return f"an axis has at most {MAX_LEVELS} loops"
    if nest.factored is not None or covered[-1] != 1:
        why = _partial(nest, covered)
        if why is not None:
            return why
    if covered[:-1] == frame.extents:
        return None
    for number, axis in enumerate(frame.axes):
        if covered[number] == axis.extent or number == nest.factored:
            continue
        inner = covered[number] // first[number]
        if not counts[number] or first[number] != -(-axis.extent // inner):
            return f"the loops of {axis.name} do not cover it"
        if nest.factored is not None:
            return "a factored reduction has no ragged axis"
    return None


def _partial(nest: Nest, covered: list[int]) -> str | None:
    """Are the partial results those of a part of a reduction?"""
    frame, partial = nest.frame, covered[-1]
    if (partial == 1) != (nest.factored is None):
        return "partial results need an axis, and an axis of them a reduction"
    if nest.factored is None:
        return None
    if not frame.factors or not 0 <= nest.factored < len(frame.axes):
        return "this reduction is not factored"
    axis, rest = frame.axes[nest.factored], covered[nest.factored]
    if not axis.reduction or rest == 1 or rest * partial != axis.extent:
        return "partial results come from a part of one reduction axis"
    results = math.prod(loop.extent for loop in nest.loops if not nest.is_reduction(loop))
    return "there would be too many partial results" if results > _MAX_PARTIAL else None


def _marks(nest: Nest, ragged: frozenset[int]) -> str | None:
    """Are the loops run as they can be?"""
    if len(ragged) > MAX_RAGGED:
        return f"at most {MAX_RAGGED} axes are ragged"
    band, last = nest.band, len(nest.loops) - 1
    summed = nest.frame.summed
    for level, (axis, extent, mark) in enumerate(nest.loops):
        if not mark:
            continue
        if mark == "parallel":
            if level >= band or summed[axis]:
                return "parallel loops are the outermost ones, and not a reduction's"
            if band > 1 and axis in ragged:
                return "a ragged axis is run in parallel alone or not at all"
        elif mark == "vectorize":
            if level != last or summed[axis] or extent > MAX_LANES:
                return f"the vector loop is the innermost, no reduction's, up to {MAX_LANES}"
        elif extent > MAX_UNROLL:
            return f"a loop of more than {MAX_UNROLL} iterations is not unrolled"
    if code_size(nest, ragged) > MAX_CODE:
        return "the unrolled code would be too long"
    return None


def code_size(nest: Nest, ragged: frozenset[int]) -> int:
    """Statements that unrolling, vectorising and cutting tails make of the block's one.

    Short loops that are not marked count as well: LLVM unrolls them on its own. Unrolling one more
    loop, from the inside out, never makes it less.
    """
    vector = nest.vector
    statements = _SCALAR
    # A ragged axis's last round is code apart, and so is what an inlined operand branches to: the
    # more so where loops are partitioned anyway.
    doubled = len(ragged) + nest.stages.count(INLINED) * (2 if ragged else 1)
    if vector is not None:
        whole = nest.contiguous(vector.axis)
        statements = -(-vector.extent // nest.frame.native) if whole else vector.extent
        if vector.axis in ragged:  # its last round is a vector cut down to single elements
            statements += vector.extent // 2
            doubled -= 1
    short = copied = True
    for _, extent, mark in reversed(nest.loops):
        if mark == "unroll":
            statements *= extent
            if not short and copied:  # copies of whole loops, each of which LLVM works on
                statements *= _LOOP
                copied = False
        elif mark == "" and short:
            short = statements * extent <= _SHORT
            statements *= extent if short else 1
    return statements << doubled


def _places(nest: Nest) -> str | None:
    """Are the tile and the producers where they can be?"""
    frame, loops = nest.frame, nest.loops
    if nest.tile is not None:
        scalar = len(loops) - (nest.vector is not None)
        if not frame.reduces or not nest.band <= nest.tile <= min(scalar, closing(nest)):
            return "the tile lies within the parallel loops and around the reduction's"
        if nest.tile == 0 and (frame.consumed or nest.factored is not None):
            return "a tile of all results is what the program has anyway"
        if nest.tile_size() > _MAX_TILE:
            return "the tile is too large"
    for stage, producer in zip(nest.stages, frame.producers, strict=True):
        if stage == INLINED:
            if not producer.inlines:
                return f"{producer.name} is not inlined"
        elif stage != 0 and not max(1, nest.band) <= stage <= stage_ceiling(nest):
            return "producers are computed between the parallel and the unrolled loops"
    return None


def closing(nest: Nest) -> int:
    """The last position that a tile may start at: all that is summed up lies within."""
    partial, summed = nest.frame.partial_axis, nest.frame.summed
    for level, loop in enumerate(nest.loops):
        if loop.axis == partial or summed[loop.axis]:
            return level
    return len(nest.loops)


def stage_ceiling(nest: Nest) -> int:
    """How many loops a producer may be computed within."""
    for level, loop in enumerate(nest.loops):
        if loop.mark in ("unroll", "vectorize"):
            return level
    return len(nest.loops)
