"""The decisions that a sketch leaves open: their ranges, their moves, their features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, permutations
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Features = npt.NDArray[np.float32]

# More loops than a nest can have.
MOST_LOOPS = 64
_BELOW_1 = float(np.nextafter(1.0, 0.0))


class Decision(Protocol):
    """One sampling instruction of a sketch."""

    @property
    def key(self) -> str:
        """What is decided, in words that are the same in every sketch of the workload."""

    @property
    def size(self) -> int:
        """How many values there are."""

    @property
    def width(self) -> int:
        """How many columns its features take."""

    def legal(self, value: Any) -> bool:
        """Whether the value is in range."""

    def moves(self, value: Any) -> tuple[Any, ...]:
        """The values next to this one where nearness means something, else all other values."""

    def features(self, values: Sequence[Any]) -> Features:
        """Features of shape (values, width)."""

    def draw(self, n: int, rng: np.random.Generator) -> list[Any]:
        """Values drawn at random, each in range with equal chance."""

    def freeze(self, value: Any) -> Any:
        """TVM's value as plain Python."""


@lru_cache(maxsize=4096)
def _divisors(number: int) -> tuple[int, ...]:
    """The divisors above 1."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)} - {1}))


@lru_cache(maxsize=65536)
def _count_tilings(extent: int, parts: int, innermost: int) -> int:
    """In how many ways `extent` is a product of `parts` factors, the last one bounded."""
    if parts == 1:
        return int(extent <= innermost)
    last = [d for d in (1, *_divisors(extent)) if d <= innermost]
    if parts == 2:
        return len(last)
    return sum(_count_tilings(extent // d, parts - 1, extent) for d in last)


def _draw_tiling(extent: int, parts: int, innermost: int, chance: float) -> tuple[int, ...]:
    """The tiling that a number from [0, 1) chooses, all with equal chance."""
    if parts == 1:
        return (extent,)
    left = chance * _count_tilings(extent, parts, innermost)
    last, below = 1, 0
    for divisor in (1, *_divisors(extent)):
        if divisor > innermost:
            break
        last, left = divisor, left - below
        below = _count_tilings(extent // divisor, parts - 1, extent)
        if left < below:
            break
    return (*_draw_tiling(extent // last, parts - 1, extent, min(left / below, _BELOW_1)), last)


@lru_cache(maxsize=4096)
def _factor_moves(sizes: tuple[int, ...], innermost: int) -> tuple[tuple[int, ...], ...]:
    """The tilings that differ by one factor, moved from one loop to another."""
    found = []
    last = len(sizes) - 1
    for source, target in permutations(range(len(sizes)), 2):
        for factor in _divisors(sizes[source]):
            if target == last and sizes[target] * factor > innermost:
                break
            moved = list(sizes)
            moved[source] //= factor
            moved[target] *= factor
            found.append(tuple(moved))
    return tuple(found)


@lru_cache(maxsize=4096)
def _others(value: int, values: range) -> tuple[int, ...]:
    return tuple(other for other in values if other != value)


@dataclass(frozen=True)
class Tile:
    """Sizes of the loops that one loop is split into; their product is its extent."""

    key: str
    extent: int
    parts: int
    innermost: int

    @property
    def size(self) -> int:
        """How many perfect tilings there are."""
        return _count_tilings(self.extent, self.parts, self.innermost)

    @property
    def width(self) -> int:
        """One column for each of the loops."""
        return self.parts

    def legal(self, value: Any) -> bool:
        """Positive sizes whose product is the extent, the innermost one within its bound."""
        return (
            isinstance(value, tuple)
            and len(value) == self.parts
            and all(isinstance(size, int) and size > 0 for size in value)
            and math.prod(value) == self.extent
            and value[-1] <= self.innermost
        )

    def moves(self, value: Any) -> tuple[Any, ...]:
        """A factor moved from one loop to another (as MetaSchedule's tile mutator does)."""
        return _factor_moves(value, self.innermost)

    def features(self, values: Sequence[Any]) -> Features:
        """log2 of the sizes."""
        # Not `np.asarray`, which takes several times as long over tuples.
        sizes = np.fromiter(chain.from_iterable(values), dtype=np.float32)
        logs: Features = np.log2(sizes)
        return logs.reshape(len(values), self.parts)

    def draw(self, n: int, rng: np.random.Generator) -> list[Any]:
        """Tilings, all with equal chance (as TVM's own sampler)."""
        chances = rng.random(n).tolist()
        return [_draw_tiling(self.extent, self.parts, self.innermost, c) for c in chances]

    def freeze(self, value: Any) -> Any:
        """A tuple of ints."""
        return tuple(int(size) for size in value)


@lru_cache(maxsize=256)
def _log2_above(values: tuple[int, ...]) -> Features:
    """log2(1 + value), as a column."""
    logs: Features = np.log2(1.0 + np.array(values, dtype=np.float32))
    return logs.reshape(-1, 1)


@dataclass(frozen=True)
class Category:
    """The index of one of a few numbers (the depth of unrolling)."""

    key: str
    values: tuple[int, ...]

    width = 1

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.values)

    def legal(self, value: Any) -> bool:
        """An index into the values."""
        return isinstance(value, int) and 0 <= value < len(self.values)

    def moves(self, value: Any) -> tuple[Any, ...]:
        """All other indices."""
        return _others(value, range(len(self.values)))

    def features(self, values: Sequence[Any]) -> Features:
        """log2(1 + number)."""
        return _log2_above(self.values)[np.fromiter(values, dtype=np.intp)]

    def draw(self, n: int, rng: np.random.Generator) -> list[Any]:
        """Indices."""
        return list(rng.integers(len(self.values), size=n).tolist())

    def freeze(self, value: Any) -> Any:
        """An int."""
        return int(value)


@dataclass(frozen=True)
class Location:
    """The loop at which a block is computed: -2 inlined, -1 at the root, else a loop's index.

    Which indices are legal depends on the decisions before it (a loop of length 1 is none), and TVM
    snaps one that is not to the nearest below. So `ceiling`, the largest index that moves lead to,
    is an estimate from above, and larger ones are legal too.
    """

    key: str
    ceiling: int

    width = 1

    @property
    def size(self) -> int:
        """How many indices moves lead to, legal at once or not."""
        return self.ceiling + 3

    def legal(self, value: Any) -> bool:
        """An index of a loop that may exist."""
        return isinstance(value, int) and -2 <= value < MOST_LOOPS

    def moves(self, value: Any) -> tuple[Any, ...]:
        """All other indices."""
        return _others(value, range(-2, self.ceiling + 1))

    def features(self, values: Sequence[Any]) -> Features:
        """The index."""
        return np.fromiter(values, dtype=np.float32).reshape(-1, 1)

    def draw(self, n: int, rng: np.random.Generator) -> list[Any]:
        """Indices that moves lead to, legal at once or not."""
        return list(rng.integers(-2, self.ceiling + 1, size=n).tolist())

    def freeze(self, value: Any) -> Any:
        """An int."""
        return int(value)


@dataclass(frozen=True)
class Sketch:
    """The open decisions of one sketch, in the order of its trace."""

    decisions: tuple[Decision, ...]

    @cached_property
    def tunable(self) -> tuple[int, ...]:
        """Positions of the decisions that have more than one value."""
        return tuple(i for i, decision in enumerate(self.decisions) if decision.size > 1)

    def draw(self, n: int, rng: np.random.Generator) -> list[tuple[Any, ...]]:
        """Points with every decision drawn on its own."""
        columns = [decision.draw(n, rng) for decision in self.decisions]
        return list(zip(*columns, strict=True)) if columns else [()] * n

    def features(self, points: Sequence[tuple[Any, ...]]) -> Features:
        """Features of at least one point: of shape (points, columns), decision by decision."""
        columns = [np.empty((len(points), 0), np.float32)]
        for decision, values in zip(self.decisions, zip(*points, strict=True), strict=True):
            columns.append(decision.features(values))
        return np.concatenate(columns, axis=1)

    @classmethod
    def read(cls, trace: Any, ceilings: Sequence[int]) -> Sketch:
        """Read a sketch's trace.

        Args:
            trace: The `tvm.s_tir.schedule.Trace` of the sketch, with decisions.
            ceilings: The largest index of each compute location, in order.
        """
        sources = _Sources()
        made = trace.decisions
        left = iter(ceilings)
        decisions: list[Decision] = []
        for inst in trace.insts:
            kind = inst.kind.name
            if inst in made:
                subject = sources.of(inst.inputs[0]) if len(inst.inputs) else "unroll"
                key = sources.unique(subject)
                if kind == "SamplePerfectTile":
                    sizes = [int(size) for size in made[inst]]
                    extent = math.prod(sizes)
                    decisions.append(Tile(key, extent, len(sizes), int(inst.attrs[1])))
                elif kind == "SampleCategorical":
                    decisions.append(Category(key, tuple(int(v) for v in inst.attrs[0])))
                else:
                    decisions.append(Location(key, next(left)))
            sources.add(inst)
        return cls(tuple(decisions))


class _Sources:
    """Names for the variables of a trace: the block, and the loop's number within it."""

    def __init__(self) -> None:
        self._names: list[tuple[Any, str]] = []
        self._taken: dict[str, int] = {}

    def of(self, variable: Any) -> str:
        """The name of a loop or a block variable."""
        return next((name for var, name in self._names if var.same_as(variable)), "?")

    def unique(self, name: str) -> str:
        """The name, numbered from its second use on."""
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def add(self, inst: Any) -> None:
        """Learn what an instruction defines."""
        kind = inst.kind.name
        if kind == "GetSBlock":
            names = [f"block {inst.attrs[0]}"]
        elif kind == "GetLoops":
            block = self.of(inst.inputs[0])
            names = [f"{block} loop {i}" for i in range(len(inst.outputs))]
        else:
            first = self.of(inst.inputs[0]) if len(inst.inputs) else ""
            names = [f"{kind}({first}) {i}" for i in range(len(inst.outputs))]
        self._names.extend(zip(inst.outputs, names, strict=True))
