"""What an agent sees of a loop nest: numbers of a fixed shape, in two forms.

*flat* is one vector: the columns of `FLAT_COLUMNS` for every loop, outermost first, and then the
environment's globals. It is LoopTune's observation (Grubisic et al., 2023): a loop's size, tail and
kind, and a histogram of the strides that it moves the accesses by.

*graph* is a dictionary of vectors, each a matrix laid out row by row: the loops (`LOOP_COLUMNS`),
the tensors accessed (`ACCESS_COLUMNS`), an edge from every loop to every access (`EDGE_COLUMNS`),
and the globals. A loop's neighbours in the nest are the rows before and after it. Vectors, since
stable-baselines3 takes every other shape for an image; `GraphShape.split` gives the matrices back.

All numbers lie in [0, 1], and rows beyond the nest's loops and accesses are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ...data.loops.nest import Nest

Row = npt.NDArray[np.float32]
Observation = Row | dict[str, Row]
Kind = Literal["flat", "graph"]
KINDS: tuple[Kind, ...] = ("flat", "graph")

LOOP_COLUMNS = (
    *("there", "cursor", "size", "twos", "tail", "reduction", "partial results"),
    *("vectorized", "parallel", "unrolled", "in the tile", "contiguous", "open", "choice"),
)
"""Of a loop. Sizes are log2(extent) / 12, twos how often 2 divides it / 6, the tail the share of
its last round that is cut off; *contiguous* says whether a vector along it stays whole, *open*
whether it can still be pointed at, and *choice* what a transformation under way has settled."""

_BINS = 16
FLAT_COLUMNS = (
    *LOOP_COLUMNS,
    *("output by one", "unknown stride"),
    *(f"stride bin {number}" for number in range(_BINS)),
)
"""Of a loop in the flat form: further whether it moves the output by one element, and the shares of
accesses by stride: unknown, none (bin 0), or from 2^(n-1) elements to under 2^n (bin n)."""

ACCESS_COLUMNS = ("there", "written", "item", "footprint")
"""Of an access: log2 of its element's bytes / 4 and of all its bytes / 32."""

EDGE_COLUMNS = ("moves", "stride", "by one", "unknown")
"""Of a loop and an access: whether the loop moves it, log2(stride) / 24, and whether that is by one
element or by what is not known."""

_SIZE, _TWOS, _STRIDE = 12.0, 6.0, 24.0
_OUTPUT, _UNKNOWN = len(LOOP_COLUMNS), len(LOOP_COLUMNS) + 1
_BIN = _UNKNOWN + 1


@dataclass(frozen=True)
class View:
    """What is shown.

    Attributes:
        nest: The nest.
        cursor: The level that the next action is about, or None.
        point: The first level that can be pointed at.
        choices: For the loops from `point` on what was chosen so far, each in [0, 1].
        extras: The environment's own globals, each in [0, 1].
    """

    nest: Nest
    cursor: int | None = None
    point: int = 0
    choices: Sequence[float] = ()
    extras: Sequence[float] = ()


class Observer(Protocol):
    """Turns views into observations of one space."""

    @property
    def space(self) -> Any:
        """The `gymnasium` space of the observations."""

    def __call__(self, view: View) -> Observation:
        """A view's observation; a new one at every call."""


def make_observer(kind: Kind, max_loops: int, extras: int, max_accesses: int = 6) -> Observer:
    """The observer of that kind.

    Args:
        kind: `flat` or `graph`.
        max_loops: Rows for loops.
        extras: How many globals of its own the environment shows.
        max_accesses: Rows for accesses in the graph; of more the last reads are not shown.

    Raises:
        ValueError: there is none of that kind.
    """
    if kind == "flat":
        return FlatObserver(max_loops, extras)
    if kind == "graph":
        return GraphObserver(GraphShape(max_loops, max_accesses, len(GLOBALS) + extras))
    raise ValueError(f"an observation is one of {', '.join(KINDS)}, not {kind!r}")


class FlatObserver:
    """One vector.

    Args:
        max_loops: Rows for loops.
        extras: How many globals of its own the environment shows.
    """

    def __init__(self, max_loops: int, extras: int) -> None:
        self.max_loops = max_loops
        self.space = _box(max_loops * len(FLAT_COLUMNS) + len(GLOBALS) + extras)

    def __call__(self, view: View) -> Row:
        """See `Observer`."""
        width = len(FLAT_COLUMNS)
        seen: Row = np.zeros(self.space.shape, dtype=np.float32)
        flags, strides = _loops(view), _strides(view.nest)
        share = 1.0 / max(1, len(view.nest.frame.accesses))
        rows: list[float] = []
        for row, moved in zip(flags, strides, strict=True):
            histogram = [0.0] * (width - len(row))
            for access, stride in zip(view.nest.frame.accesses, moved, strict=True):
                if stride is None:
                    histogram[_UNKNOWN - len(row)] += share
                    continue
                histogram[_BIN - len(row) + min(stride.bit_length(), _BINS - 1)] += share
                if access.write and stride == 1:
                    histogram[_OUTPUT - len(row)] = 1.0
            rows += row + histogram
        seen[: len(rows)] = rows
        rest = _globals(view.nest, self.max_loops, view.extras)
        seen[self.max_loops * width :] = rest
        # Shares of a third add up to a little more than 1.
        return np.minimum(seen, np.float32(1.0), out=seen)


class GraphShape(NamedTuple):
    """How large the matrices of a graph are.

    Attributes:
        loops: Rows of loops.
        accesses: Rows of accesses.
        globals: Numbers of the nest as a whole.
    """

    loops: int
    accesses: int
    globals: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each part, by its key in the observation."""
        return {
            "loops": (self.loops, len(LOOP_COLUMNS)),
            "accesses": (self.accesses, len(ACCESS_COLUMNS)),
            "edges": (self.loops, self.accesses, len(EDGE_COLUMNS)),
            "globals": (self.globals,),
        }

    def split(self, observation: dict[str, Any]) -> dict[str, Any]:
        """The parts as matrices, behind whatever axes of a batch they have (arrays or tensors)."""
        return {
            key: observation[key].reshape(*observation[key].shape[:-1], *shape)
            for key, shape in self.shapes().items()
        }


class GraphObserver:
    """Loops, accesses and the strides between them.

    Args:
        shape: How large the matrices are.
    """

    def __init__(self, shape: GraphShape) -> None:
        self.shape = shape
        self.space = spaces.Dict(
            {key: _box(math.prod(size)) for key, size in shape.shapes().items()}
        )

    def __call__(self, view: View) -> dict[str, Row]:
        """See `Observer`."""
        parts: dict[str, Row] = {
            key: np.zeros(math.prod(size), dtype=np.float32)
            for key, size in self.shape.shapes().items()
        }
        accesses = view.nest.frame.accesses
        kept = [*range(min(len(accesses), self.shape.accesses) - 1), len(accesses) - 1]
        rest = [0.0] * ((self.shape.accesses - len(kept)) * len(EDGE_COLUMNS))
        loops = [number for row in _loops(view) for number in row]
        described = [number for at in kept for number in _access(view.nest, at)]
        edges: list[float] = []
        for moved in _strides(view.nest):
            for at in kept:
                edges += _edge(moved[at])
            edges += rest
        parts["loops"][: len(loops)] = loops
        parts["accesses"][: len(described)] = described
        parts["edges"][: len(edges)] = edges
        parts["globals"][:] = _globals(view.nest, self.shape.loops, view.extras)
        return parts


GLOBALS = ("loops", "native vector", "reduces", "consumer follows", "producers", "factored", "tile")
"""Of the nest as a whole, ahead of the environment's own."""


def _globals(nest: Nest, max_loops: int, extras: Sequence[float]) -> list[float]:
    frame = nest.frame
    return [
        len(nest.loops) / max_loops,
        min(1.0, math.log2(frame.native) / 6.0),
        float(frame.reduces),
        float(frame.consumed),
        min(1.0, len(frame.producers) / 4.0),
        float(nest.factored is not None),
        float(nest.tile is not None),
        *extras,
    ]


def _loops(view: View) -> list[list[float]]:
    """A row of `LOOP_COLUMNS` for every loop."""
    nest, choices = view.nest, view.choices
    partial, tile, point = nest.frame.partial_axis, nest.tile, view.point
    summed, tails = nest.frame.summed, _tails(nest)
    rows = []
    for level, (axis, extent, mark) in enumerate(nest.loops):
        twos = (extent & -extent).bit_length() - 1
        chosen = level - point
        row = [
            1.0,
            float(level == view.cursor),
            min(1.0, math.log2(extent) / _SIZE),
            min(1.0, twos / _TWOS),
            tails.get(level, 0.0),
            float(summed[axis]),
            float(axis == partial),
            float(mark == "vectorize"),
            float(mark == "parallel"),
            float(mark == "unroll"),
            float(tile is not None and level >= tile),
            float(nest.contiguous(axis)),
            float(level >= point),
            choices[chosen] if 0 <= chosen < len(choices) else 0.0,
        ]
        rows.append(row)
    return rows


def _tails(nest: Nest) -> dict[int, float]:
    """For the coarsest loop of every ragged axis the share of its last round that is cut off."""
    found = {}
    for axis in nest.ragged():
        level = next(i for i, loop in enumerate(nest.loops) if loop.axis == axis)
        inner = math.prod(nest.loops_of(axis)[1:])
        found[level] = -nest.frame.axes[axis].extent % inner / inner
    return found


def _strides(nest: Nest) -> list[list[int | None]]:
    """For every loop and access the elements that one iteration moves by; None where unknown."""
    frame = nest.frame
    partial, factored = frame.partial_axis, nest.factored
    inner = [1] * frame.width
    if factored is not None:
        inner[factored] = math.prod(nest.loops_of(partial))
    rows: list[list[int | None]] = []
    for axis, extent, _ in reversed(nest.loops):
        source = factored if axis == partial and factored is not None else axis
        times = inner[axis]
        rows.append(
            [
                None if (stride := access.strides[source]) is None else abs(stride) * times
                for access in frame.accesses
            ]
        )
        inner[axis] *= extent
    return rows[::-1]


@cache
def _edge(stride: int | None) -> tuple[float, ...]:
    if stride is None:
        return 1.0, 0.0, 0.0, 1.0
    if stride == 0:
        return 0.0, 0.0, 0.0, 0.0
    return 1.0, min(1.0, math.log2(stride) / _STRIDE), float(stride == 1), 0.0


def _access(nest: Nest, at: int) -> list[float]:
    frame = nest.frame
    access = frame.accesses[at]
    touched = math.prod(
        axis.extent
        for axis, stride in zip(frame.axes, access.strides, strict=True)
        if stride is None or stride
    )
    size = math.log2(access.item_bytes)
    footprint = min(1.0, (size + math.log2(touched)) / 32.0)
    return [1.0, float(access.write), min(1.0, size / 4.0), footprint]


def _box(size: int) -> Any:
    return spaces.Box(0.0, 1.0, (size,), np.float32)
