"""The steps that change a loop nest, and which of them are legal next. Knows no TVM.

A step is a tuple of its name and integers, so it is JSON as it stands:

    ("split", level, factor)      the loop at `level` becomes two, the inner one of `factor`
    ("swap", level)               the loops at `level` and `level + 1` change places
    ("move", level, to)           the loop at `level` goes to position `to`
    ("parallel", level)           the loops up to `level` are run in parallel, as one
    ("vectorize",)                the innermost loop is vectorised
    ("unroll", level)             the loop at `level` is unrolled
    ("accumulate", level)         the loops from `level` on accumulate in a tile of their own
    ("stage", producer, level)    the producer is computed within `level` loops; at 0 ahead of them
                                  all, at -1 within the block
    ("factor", level)             the reduction loop at `level` keeps partial results apart, and is
                                  no reduction any more: they are summed up afterwards

Splitting needs no divisor: the coarsest loop of an axis may round up, and only its last round is
guarded. A product of primes has no tiles otherwise: on one core, 127x131x67 runs at 90 to 103
GFLOP/s with ragged register tiles and at 54 with whole loops in the order i, k, j, 257x263x251 at
82 to 108 against 55, and 509x509x509 at 54 to 75 against 43.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ..candidate import InvalidCandidate
from .legality import MAX_LEVELS, problem
from .nest import Loop, Nest, initial

Step = tuple[str | int, ...]

FACTORS = (2, 3, 4, 5, 6, 7, 8, 12, 14, 16, 24, 32, 48, 64, 128, 256)
"""Factors that `legal_steps` lists for a split; any other one is as legal."""


def is_legal(nest: Nest, step: Step) -> bool:
    """Whether a step can come next. Exact, and takes microseconds."""
    changed = _change(nest, step)
    return changed is not None and problem(changed) is None


def apply_step(nest: Nest, step: Step) -> Nest:
    """The nest after a step.

    Raises:
        InvalidCandidate: the step is not legal; the message says why.
    """
    changed = _change(nest, step)
    why = f"{step!r} does not fit this nest" if changed is None else problem(changed)
    if changed is None or why is not None:
        raise InvalidCandidate(str(why))
    return changed


def apply_steps(nest: Nest, steps: list[Step] | tuple[Step, ...]) -> Nest:
    """The nest after several steps.

    Raises:
        InvalidCandidate: one of them is not legal; the message says which and why.
    """
    for number, step in enumerate(steps):
        try:
            nest = apply_step(nest, step)
        except InvalidCandidate as error:
            raise InvalidCandidate(f"step {number}, {step!r}: {error}") from error
    return nest


def legal_steps(nest: Nest, factors: tuple[int, ...] = FACTORS) -> list[Step]:
    """Every step that is legal next; of the splits those by one of `factors`."""
    return [step for step in _thinkable(nest, factors) if is_legal(nest, step)]


def _thinkable(nest: Nest, factors: tuple[int, ...]) -> Iterator[Step]:
    """The steps that are in range."""
    count = len(nest.loops)
    yield ("vectorize",)
    for level, loop in enumerate(nest.loops):
        yield from (("split", level, f) for f in factors if f < loop.extent)
        yield from (("move", level, to) for to in range(count) if abs(level - to) > 1)
        if level + 1 < count:
            yield ("swap", level)
        yield ("parallel", level)
        yield ("unroll", level)
        yield ("factor", level)
    for level in range(count + 1):
        yield ("accumulate", level)
        for producer in range(len(nest.stages)):
            yield ("stage", producer, level)
    yield from (("stage", producer, -1) for producer in range(len(nest.stages)))


def _change(nest: Nest, step: Step) -> Nest | None:
    """The nest that a step would lead to, be it legal or not; None where there is none."""
    if not isinstance(step, tuple) or not step:
        return None
    name, *numbers = step
    change = _CHANGES.get(name) if isinstance(name, str) else None
    if change is None or not all(type(number) is int for number in numbers):
        return None
    how, arity = change
    return how(nest, *numbers) if len(numbers) == arity else None


def _split(nest: Nest, level: int, factor: int) -> Nest | None:
    loops = nest.loops
    if not 0 <= level < len(loops) or not 2 <= factor < loops[level].extent:
        return None
    loop = loops[level]
    if loop.mark or sum(other.axis == loop.axis for other in loops) >= MAX_LEVELS:
        return None
    coarsest = all(other.axis != loop.axis for other in loops[:level])
    if loop.extent % factor and not coarsest:
        return None
    parts = (Loop(loop.axis, -(-loop.extent // factor)), Loop(loop.axis, factor))
    return Nest(
        nest.frame,
        loops[:level] + parts + loops[level + 1 :],
        None if nest.tile is None else nest.tile + (nest.tile > level),
        tuple(stage + (stage > level) for stage in nest.stages),
        nest.factored,
    )


def _swap(nest: Nest, level: int) -> Nest | None:
    return _move(nest, level, level + 1)


def _move(nest: Nest, level: int, to: int) -> Nest | None:
    loops = list(nest.loops)
    if not (0 <= level < len(loops) and 0 <= to < len(loops)) or level == to:
        return None
    passed = loops[level + 1 : to + 1] if to > level else loops[to:level]
    if any(other.axis == loops[level].axis for other in passed):
        return None
    loops.insert(to, loops.pop(level))
    return Nest(nest.frame, tuple(loops), nest.tile, nest.stages, nest.factored)


def _mark_parallel(nest: Nest, level: int) -> Nest | None:
    loops = nest.loops
    if not nest.band <= level < len(loops):
        return None
    if any(loop.mark not in ("", "parallel") for loop in loops[: level + 1]):
        return None
    marked = tuple(Loop(loop.axis, loop.extent, "parallel") for loop in loops[: level + 1])
    return replace(nest, loops=marked + loops[level + 1 :])


def _mark_vector(nest: Nest) -> Nest | None:
    if not nest.loops or nest.loops[-1].mark:
        return None
    last = nest.loops[-1]
    return replace(nest, loops=(*nest.loops[:-1], Loop(last.axis, last.extent, "vectorize")))


def _mark_unroll(nest: Nest, level: int) -> Nest | None:
    loops = nest.loops
    if not 0 <= level < len(loops) or loops[level].mark:
        return None
    marked = Loop(loops[level].axis, loops[level].extent, "unroll")
    return replace(nest, loops=(*loops[:level], marked, *loops[level + 1 :]))


def _accumulate(nest: Nest, level: int) -> Nest | None:
    return None if nest.tile == level or level < 0 else replace(nest, tile=level)


def _stage(nest: Nest, producer: int, level: int) -> Nest | None:
    if not 0 <= producer < len(nest.stages) or nest.stages[producer] == level or level < -1:
        return None
    stages = nest.stages
    return replace(nest, stages=(*stages[:producer], level, *stages[producer + 1 :]))


def _factor(nest: Nest, level: int) -> Nest | None:
    loops = nest.loops
    if not 0 <= level < len(loops) or nest.factored is not None or loops[level].mark:
        return None
    loop = loops[level]
    if not nest.is_reduction(loop) or any(o.axis == loop.axis for o in loops[level + 1 :]):
        return None
    changed = (*loops[:level], Loop(nest.frame.partial_axis, loop.extent), *loops[level + 1 :])
    return replace(nest, loops=changed, factored=loop.axis)


_CHANGES: dict[str, tuple[Callable[..., Nest | None], int]] = {
    "split": (_split, 2),
    "swap": (_swap, 1),
    "move": (_move, 2),
    "parallel": (_mark_parallel, 1),
    "vectorize": (_mark_vector, 0),
    "unroll": (_mark_unroll, 1),
    "accumulate": (_accumulate, 1),
    "stage": (_stage, 2),
    "factor": (_factor, 1),
}


def steps_to(nest: Nest) -> list[Step]:
    """Steps that lead from the initial nest to this one, in a normal form.

    First the factored reduction, then the splits, axis by axis and from the inside out, the order,
    the places and the marks, of which unrolling comes last and from the inside out. Every step is
    legal where it stands.
    """
    now, steps = initial(nest.frame), []

    def take(step: Step) -> None:
        nonlocal now
        now = apply_step(now, step)
        steps.append(step)

    partial = nest.frame.partial_axis
    if nest.factored is not None:
        level = nest.factored
        whole = [loop.extent for loop in nest.loops if loop.axis == partial]
        size = 1
        for extent in whole:
            size *= extent
        take(("split", level, size))
        take(("factor", level + 1))
    for axis in range(nest.frame.width):
        for extent in nest.loops_of(axis)[:0:-1]:
            level = next(i for i, loop in enumerate(now.loops) if loop.axis == axis)
            take(("split", level, extent))
    for to, loop in enumerate(nest.loops):
        level = next(i for i in range(to, len(now.loops)) if now.loops[i].axis == loop.axis)
        if level != to:
            take(("swap", to) if level == to + 1 else ("move", level, to))
    if nest.band:
        take(("parallel", nest.band - 1))
    if nest.tile is not None:
        take(("accumulate", nest.tile))
    if nest.vector is not None:
        take(("vectorize",))
    for producer, stage in enumerate(nest.stages):
        if stage:
            take(("stage", producer, stage))
    for level in range(len(nest.loops) - 1, -1, -1):
        if nest.loops[level].mark == "unroll":
            take(("unroll", level))
    return steps
