"""A point of a schedule space, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Point = int | str | tuple["Point", ...]


class InvalidCandidate(ValueError):
    """A candidate that its space cannot turn into a legal schedule."""


def _freeze(value: Any) -> Point:
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(item) for item in value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidCandidate(
            f"a candidate holds integers, strings and lists of them, not {value!r}"
        )
    return value


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point of a named space: hashable, immutable, and plain JSON.

    Attributes:
        space: Name of the space that can read the point (`sketch`, `loop`).
        point: Nested tuples of integers and strings; what they mean is the space's own affair.
    """

    space: str
    point: tuple[Point, ...]

    def to_json(self) -> list[Any]:
        """`[space, point]`, for `json.dumps`."""
        return [self.space, self.point]

    @classmethod
    def from_json(cls, value: Any) -> Candidate:
        """Read what `to_json` gave.

        Raises:
            InvalidCandidate: the value is not of that form.
        """
        if not (isinstance(value, (list, tuple)) and len(value) == 2):
            raise InvalidCandidate(f"a candidate is [space, point], not {value!r}")
        space, point = value
        frozen = _freeze(point)
        if not isinstance(space, str) or not isinstance(frozen, tuple):
            raise InvalidCandidate(f"a candidate is [space, point], not {value!r}")
        return cls(space, frozen)
