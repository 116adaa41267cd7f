"""Loop nests shaped by transformations with parameters (MLIR RL).

MLIR RL (2024) chooses a transformation and then its parameters, from small sets whose product is
the whole space. Its operation has one loop an axis; tiling puts loops around them, which nothing
touches any more, and later transformations act on the loops of the tile. So it is here: a nest is
a frozen part, and the *open* loops within it, at most one an axis.

The action space is a single discrete one, and a transformation is chosen by several steps: first
its name, then one parameter a step, each with a mask of its own. A multi-discrete action would
settle all parameters at once, and `MaskablePPO` masks its dimensions independently of each other:
but which sizes are legal depends on the transformation, on the loop, and on the sizes before, so
such a mask would have to let illegal actions pass or leave out legal ones.

Interchange is a choice of three: *pointers* (for every place in turn the loop that goes there, the
loops that were placed masked out: N outputs), *permutations* (one step, N! outputs) and *swaps*
(one step, two loops at a distance of up to 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete

from ...data.loop_space import LoopSpace
from ...data.loops.legality import problem
from ...data.loops.nest import Loop, Mark, Nest
from ...data.loops.steps import Step
from .cursor_env import LoopEnv, attempt, innermost_tile
from .observe import Kind, Observation, View
from .speed import Speed
from .tuning_env import Pay, Spaces

Interchange = Literal["pointers", "permutations", "swaps"]

SIZES = (0, 1, 2, 4, 8, 16, 32, 64)
"""Sizes that a loop is tiled by: 0 leaves it as it is, 1 moves all of it outwards."""

SHAPING = ("tile", "tile_parallel", "interchange", "factor")
"""Transformations that change which loops there are: before any of the others."""

TRANSFORMATIONS = ("stop", *SHAPING, "fuse", "inline", "accumulate", "vectorize", "unroll")
"""The transformations, in the order of their actions."""

PHASES = ("choose", "tile", "tile_parallel", "interchange", "factor", "unroll")
"""What an action is asked for: a transformation, or a parameter of one."""

_FARTHEST_SWAP = 3
# The group of actions of each interchange.
_ORDERED_BY = {"pointers": "pointer", "permutations": "permutation", "swaps": "swap"}


def action_groups(interchange: str, max_loops: int, most_permuted: int) -> dict[str, range]:
    """The groups of actions, and where each lies among them all; arguments as `TransformEnv`'s.

    Raises:
        ValueError: there is no such interchange.
    """
    if interchange not in _ORDERED_BY:
        raise ValueError(f"an interchange is by {', '.join(_ORDERED_BY)}, not {interchange!r}")
    sizes = {
        "transformation": len(TRANSFORMATIONS),
        "size": len(SIZES),
        "pointer": max_loops,
        "permutation": math.factorial(most_permuted),
        "swap": max_loops * _FARTHEST_SWAP,
    }
    groups: dict[str, range] = {}
    start = 0
    for group in dict.fromkeys(("transformation", "size", "pointer", _ORDERED_BY[interchange])):
        groups[group] = range(start, start + sizes[group])
        start += sizes[group]
    return groups


class TransformState(NamedTuple):
    """A nest on its way.

    Attributes:
        nest: The nest.
        point: The first level of the open loops.
        left: Transformations that are left.
        phase: What the next action settles.
        picks: The parameters settled so far: sizes of the open loops in their order, or the levels
            of the loops that go to the open places.
    """

    nest: Nest
    point: int
    left: int
    phase: str = "choose"
    picks: tuple[int, ...] = ()


class TransformEnv(LoopEnv):
    """MLIR RL's environment: transformations, and their parameters by further steps.

    The actions are laid out one group after the other, see `groups`: the `TRANSFORMATIONS`, the
    `SIZES`, the pointers (each names the loop at its level), and for the interchanges that are not
    by pointers the permutations or the swaps.

    - `stop` ends the episode, and is always legal.
    - `tile` takes a size for every open loop, from the outermost on; the outer parts go, in their
      order, around all open loops. `tile_parallel` runs the outer parts in parallel.
    - `interchange` orders the open loops anew.
    - `factor` takes a reduction loop, the inner part of its axis, and keeps its partial results
      apart, so that it can be vectorised.
    - `fuse` and `inline` compute the first operand that still can be, such as a padding, around the
      open loops or within the block.
    - `accumulate` keeps results in a tile around all that is summed up, `vectorize` makes the
      innermost loop a vector, and `unroll` takes an open loop. After one of these the loops are no
      longer reshaped. Unlike in MLIR RL `vectorize` is not the last one, for without the other two
      no matrix product is fast in TVM.

    Args:
        spaces: The workloads and their spaces (`loop_spaces`).
        speed: What is paid for.
        reward: Whether every step pays what it gains, or the last one for all.
        horizon: Transformations of an episode (5 in MLIR RL, which has fewer of them).
        observation: `flat` or `graph`; see `observe`.
        interchange: `pointers`, `permutations` or `swaps`.
        most_permuted: Of more open loops than that `permutations` orders the innermost ones.
        finished: Whether `finish` completes the nests.
        max_loops: Loops that a nest may have; what would make more is not legal.
    """

    def __init__(
        self,
        spaces: Spaces[LoopSpace],
        speed: Speed,
        *,
        reward: Pay = "step",
        horizon: int = 8,
        observation: Kind = "flat",
        interchange: Interchange = "pointers",
        most_permuted: int = 5,
        finished: bool = False,
        max_loops: int = 16,
    ) -> None:
        super().__init__(
            spaces,
            speed,
            reward=reward,
            limit=horizon * (max_loops + 1),
            observation=observation,
            extras=1 + len(PHASES),
            finished=finished,
            max_loops=max_loops,
        )
        self.horizon = horizon
        self.interchange = interchange
        self.most_permuted = most_permuted
        self.groups = action_groups(interchange, max_loops, most_permuted)
        self._ordering = _ORDERED_BY[interchange]
        self.action_space = Discrete(sum(map(len, self.groups.values())))
        self._choices: dict[str, Callable[[TransformState], TransformState | None]] = {
            "stop": lambda state: state._replace(left=0),
            "tile": self._begin,
            "tile_parallel": self._begin,
            "interchange": self._begin,
            "factor": self._begin,
            "unroll": self._begin,
            "fuse": _fuse,
            "inline": _inline,
            "accumulate": _accumulate,
            "vectorize": _vectorize,
        }

    def _start(self, space: LoopSpace, options: dict[str, Any]) -> TransformState:
        return TransformState(self._first(space), 0, self.horizon)

    def _over(self, state: TransformState) -> bool:
        return state.left == 0

    def _wasted(self, action: Any) -> TransformState:
        state: TransformState = self._state
        return state

    def _next(self, action: Any) -> TransformState | None:
        state: TransformState = self._state
        group = self._group(state.phase)
        value = int(action) - self.groups[group].start
        if not 0 <= value < len(self.groups[group]):
            return None
        return self._take(state, value)

    def _legal(self) -> npt.NDArray[np.bool_]:
        state: TransformState = self._state
        mask = np.zeros(self.action_space.n, dtype=bool)
        group = self.groups[self._group(state.phase)]
        mask[group.start : group.stop] = [
            self._take(state, value) is not None for value in range(len(group))
        ]
        return mask

    def _observe(self) -> Observation:
        state: TransformState = self._state
        tiling = state.phase in ("tile", "tile_parallel")
        count = len(state.nest.loops) - state.point
        choices = [0.0] * count
        for number, pick in enumerate(state.picks):
            if tiling:
                choices[number] = (1 + SIZES.index(pick)) / len(SIZES)
            else:
                choices[pick - state.point] = (1 + number) / count
        phase = [float(state.phase == name) for name in PHASES]
        cursor = state.point + len(state.picks) if state.phase != "choose" else None
        extras = (state.left / self.horizon, *phase)
        return self.observer(View(state.nest, cursor, state.point, choices, extras))

    def _group(self, phase: str) -> str:
        """The group of actions that a phase asks for."""
        if phase == "choose":
            return "transformation"
        if phase in ("tile", "tile_parallel"):
            return "size"
        return self._ordering if phase == "interchange" else "pointer"

    def _take(self, state: TransformState, value: int) -> TransformState | None:
        """The state after an action of the phase's group; None if it is not legal."""
        if state.phase == "choose":
            name = TRANSFORMATIONS[value]
            if name in SHAPING and not _shapeable(state):
                return None
            # Those with parameters begin a phase of their own name.
            asked = state._replace(phase=name) if name in PHASES else state
            return self._choices[name](asked)
        if state.phase in ("tile", "tile_parallel"):
            return self._size(state, SIZES[value])
        if state.phase == "interchange":
            return _ORDERINGS[self._ordering](state, value, self.most_permuted)
        changed = attempt(state.nest, (state.phase, value)) if value >= state.point else None
        return None if changed is None else _done(state, changed)

    def _begin(self, state: TransformState) -> TransformState | None:
        """The state itself, if the phase that it has begun has an action."""
        if state.point == len(state.nest.loops):
            return None
        group = self.groups[self._group(state.phase)]
        values = (*range(1, len(group)), 0)  # a size of 0 has to look at the loops after it
        found = any(self._take(state, value) is not None for value in values)
        return state if found else None

    def _size(self, state: TransformState, size: int) -> TransformState | None:
        """A tile's next size.

        Another size for a later loop never makes legal what is not, so a size is legal if it is
        with the later loops as they are; and a tile has to change something.
        """
        chosen = state._replace(picks=(*state.picks, size))
        nest = self._tiled(chosen)
        if nest is None:
            return None
        last = len(chosen.picks) == len(state.nest.loops) - state.point
        if not any(chosen.picks):
            return None if last or self._begin(chosen) is None else chosen
        if not last:
            return chosen
        outer = sum(pick > 0 for pick in chosen.picks)
        return _done(state, nest)._replace(point=state.point + outer)

    def _tiled(self, state: TransformState) -> Nest | None:
        """The nest with the open loops tiled by the sizes settled, the others as they are."""
        nest, point = state.nest, state.point
        mark: Mark = "parallel" if state.phase == "tile_parallel" else ""
        outer: list[Loop] = []
        inner: list[Loop] = []
        for number, loop in enumerate(nest.loops[point:]):
            size = state.picks[number] if number < len(state.picks) else 0
            if size >= loop.extent:
                return None
            if size:
                outer.append(Loop(loop.axis, -(-loop.extent // size), mark))
            if size != 1:
                inner.append(loop._replace(extent=size or loop.extent))
        if not outer:
            return nest
        if point + len(outer) + len(inner) > self.max_loops:
            return None
        changed = _with_loops(nest, (*nest.loops[:point], *outer, *inner))
        return changed if problem(changed) is None else None


def _shapeable(state: TransformState) -> bool:
    """Whether the loops may still be reshaped: nothing is placed or marked within them."""
    nest = state.nest
    marked = any(loop.mark for loop in nest.loops[state.point :])
    return nest.tile is None and not marked and not any(nest.stages)


def _with_loops(nest: Nest, loops: tuple[Loop, ...]) -> Nest:
    # `dataclasses.replace` takes as long as the check of what comes out.
    return Nest(nest.frame, loops, nest.tile, nest.stages, nest.factored)


def _done(state: TransformState, nest: Nest) -> TransformState:
    """The state after a whole transformation."""
    return TransformState(nest, state.point, state.left - 1)


def _fuse(state: TransformState) -> TransformState | None:
    return _place(state, state.point) if state.point else None


def _inline(state: TransformState) -> TransformState | None:
    return _place(state, -1)


def _place(state: TransformState, level: int) -> TransformState | None:
    """The first operand that is not placed yet, and can be there, is."""
    for producer, stage in enumerate(state.nest.stages):
        step: Step = ("stage", producer, level)
        changed = attempt(state.nest, step) if stage == 0 else None
        if changed is not None:
            return _done(state, changed)
    return None


def _accumulate(state: TransformState) -> TransformState | None:
    if state.nest.tile is not None:
        return None
    changed = attempt(state.nest, ("accumulate", innermost_tile(state.nest)))
    return None if changed is None else _done(state, changed)


def _vectorize(state: TransformState) -> TransformState | None:
    is_open = state.point < len(state.nest.loops)
    changed = attempt(state.nest, ("vectorize",)) if is_open else None
    return None if changed is None else _done(state, changed)


def _reordered(state: TransformState, levels: tuple[int, ...]) -> TransformState | None:
    """The open loops in the order of these levels; it has to be another one.

    Every order is legal: the open loops are of different axes, have no marks, and neither a tile
    nor an operand lies among them.
    """
    nest = state.nest
    if levels == tuple(range(state.point, len(nest.loops))):
        return None
    loops = (*nest.loops[: state.point], *(nest.loops[level] for level in levels))
    return _done(state, _with_loops(nest, loops))


def _point_at(state: TransformState, level: int, most: int) -> TransformState | None:
    """The loop at `level` goes to the next place; the last loop goes where there is room."""
    left = [at for at in range(state.point, len(state.nest.loops)) if at not in state.picks]
    if level not in left or len(left) < 2:
        return None
    if len(left) > 2:
        return state._replace(picks=(*state.picks, level))
    return _reordered(state, (*state.picks, level, *(at for at in left if at != level)))


def _permute(state: TransformState, number: int, most: int) -> TransformState | None:
    """Permutation `number`, in lexicographic order, of the innermost open loops."""
    end = len(state.nest.loops)
    first = max(state.point, end - most)
    if number >= math.factorial(end - first):
        return None
    return _reordered(
        state, (*range(state.point, first), *(first + at for at in _orders(end - first)[number]))
    )


@cache
def _orders(count: int) -> list[tuple[int, ...]]:
    return list(permutations(range(count)))


def _swap(state: TransformState, number: int, most: int) -> TransformState | None:
    """Two loops change places: swap `number` is of the level and the distance that it encodes."""
    level, far = divmod(number, _FARTHEST_SWAP)
    other = level + far + 1
    end = len(state.nest.loops)
    if level < state.point or other >= end:
        return None
    levels = list(range(state.point, end))
    a, b = level - state.point, other - state.point
    levels[a], levels[b] = levels[b], levels[a]
    return _reordered(state, tuple(levels))


_ORDERINGS: dict[str, Callable[[TransformState, int, int], TransformState | None]] = {
    "pointer": _point_at,
    "permutation": _permute,
    "swap": _swap,
}
