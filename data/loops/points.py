"""Loop nests in writing: the point of a candidate, and one line for people."""

from __future__ import annotations

from typing import Any

from ..candidate import InvalidCandidate, Point
from .legality import problem
from .nest import INLINED, MARKS, Frame, Loop, Nest


def to_point(nest: Nest) -> tuple[Point, ...]:
    """The nest as the point of a candidate: `(loops, tile, stages, factored)`."""
    return (
        tuple(tuple(loop) for loop in nest.loops),
        () if nest.tile is None else (nest.tile,),
        nest.stages,
        () if nest.factored is None else (nest.factored,),
    )


def from_point(frame: Frame, point: Any) -> Nest:
    """Read what `to_point` gave.

    Raises:
        InvalidCandidate: it is not of that form, or no nest of the frame that may be.
    """
    try:
        loops, tile, stages, factored = point
        if not all(len(part) <= 1 for part in (tile, factored)):
            raise TypeError
        nest = Nest(
            frame,
            tuple(Loop(_whole(a), _whole(e), MARKS[MARKS.index(m)]) for a, e, m in loops),
            _whole(tile[0]) if tile else None,
            tuple(_whole(stage) for stage in stages),
            _whole(factored[0]) if factored else None,
        )
    except (TypeError, ValueError) as error:
        raise InvalidCandidate(f"not a loop nest: {point!r:.200}") from error
    why = problem(nest)
    if why is not None:
        raise InvalidCandidate(why)
    return nest


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError
    return value


def describe(nest: Nest) -> str:
    """The nest in one line, such as `parallel i:64 | tile | k:512 unroll i:8 vectorize j:32`.

    A producer stands in brackets where it is computed, behind everything if within the block.
    """
    names = [axis.name for axis in nest.frame.axes] + ["partial"]
    words: list[str] = []
    for level, loop in enumerate(nest.loops):
        words += _signs(nest, level)
        words.append(f"{loop.mark} {names[loop.axis]}:{loop.extent}".strip())
    return " ".join(words + _signs(nest, len(nest.loops)))


def _signs(nest: Nest, level: int) -> list[str]:
    signs = ["| tile |"] if nest.tile == level else []
    for stage, producer in zip(nest.stages, nest.frame.producers, strict=True):
        if stage == level or (stage == INLINED and level == len(nest.loops)):
            signs.append(f"[{producer.name}]")
    return signs
