"""Loop nests shaped with a cursor (LoopTune), and what all environments of loop nests share.

LoopTune (Grubisic et al., 2023) decides the order and the tiling of the loops, and leaves the rest
to its backend, which vectorises the innermost loop, keeps results in registers and unrolls. TVM
does none of that by itself, so `finish` does it, by fixed rules, to every nest that is scored: an
agent learns what it is in charge of, and its horizon stays at the published ten steps. With actions
for marks as well an episode would be half again as long, and most of them the same every time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from gymnasium.spaces import Discrete

from ...data.candidate import Candidate, InvalidCandidate
from ...data.loop_space import LoopSpace
from ...data.loops.legality import MAX_LEVELS, MAX_RAGGED, closing
from ...data.loops.nest import Nest, canonical
from ...data.loops.points import to_point
from ...data.loops.steps import Step, apply_step
from ...data.loops.vectors import lanes_of
from ...data.space import Scheduled
from ...data.target import num_cores
from ...data.workload import Workload, WorkloadError
from .observe import Kind, Observation, View, make_observer
from .speed import Speed
from .tuning_env import Pay, Spaces, TuningEnv

# A parallel loop costs as much to start as some thousand iterations, and this many pieces are
# enough for any number of cores here.
_WORTH_THREADS = 16384
_PIECES = 64
# Native vectors of the tile that results are accumulated in: twice the registers there are. A
# larger one saves little, and is copied.
_TILE_VECTORS = 64
# Native vectors that a register tile is unrolled to.
_UNROLLED = 64


def finish(nest: Nest, threads: int = 1) -> Nest:
    """The nest with what its loops' order leaves open, as far as that is legal.

    Outer loops run in parallel, if there are threads and the work is worth it. The innermost loop
    is vectorised, where vectors along it stay whole; one that makes no good vector is split first,
    if need be with a last round that is cut short. What is summed up is accumulated in a tile of
    its own, if that is small. Spatial loops between the innermost reduction loop and the vector are
    unrolled, from the inside out: they are the tile's rows. What is there already stays.
    """
    if threads > 1:
        nest = _parallel(nest)
    return _rows(_tile(_vector(nest)))


def attempt(nest: Nest, step: Step) -> Nest | None:
    """The nest after a step; None if the step is not legal."""
    try:
        return apply_step(nest, step)
    except InvalidCandidate:
        return None


def _parallel(nest: Nest) -> Nest:
    work = math.prod(loop.extent for loop in nest.loops)
    if work < _WORTH_THREADS or nest.band:
        return nest
    pieces = 1
    for level, loop in enumerate(nest.loops):
        marked = attempt(nest, ("parallel", level))
        if marked is None or pieces >= _PIECES:
            break
        nest, pieces = marked, pieces * loop.extent
    return nest


def _vector(nest: Nest) -> Nest:
    if not nest.loops or nest.loops[-1].mark or not nest.contiguous(nest.loops[-1].axis):
        return nest
    extent = nest.loops[-1].extent
    lanes = lanes_of(extent, nest.frame.native)
    split = attempt(nest, ("split", len(nest.loops) - 1, lanes)) if lanes < extent else nest
    return nest if split is None else attempt(split, ("vectorize",)) or nest


def _tile(nest: Nest) -> Nest:
    if nest.tile is not None:
        return nest
    tiled = attempt(nest, ("accumulate", innermost_tile(nest)))
    small = tiled is not None and tiled.tile_size() <= _TILE_VECTORS * nest.frame.native
    return tiled if tiled is not None and small else nest


def innermost_tile(nest: Nest) -> int:
    """The last position that a tile may start at."""
    return min(closing(nest), len(nest.loops) - (nest.vector is not None))


def _rows(nest: Nest) -> Nest:
    vector = nest.vector
    vectors = -(-vector.extent // nest.frame.native) if vector else 1
    last = max((i for i, loop in enumerate(nest.loops) if nest.is_reduction(loop)), default=None)
    if last is None:
        return nest
    for level in range(len(nest.loops) - 1 - (vector is not None), last, -1):
        vectors *= nest.loops[level].extent
        unrolled = attempt(nest, ("unroll", level))
        if unrolled is None or vectors > _UNROLLED:
            break
        nest = unrolled
    return nest


class LeanLoopSpace(LoopSpace):
    """A loop space that holds no programs: an agent sees each of them once."""

    def schedule(self, candidate: Candidate) -> Scheduled:
        """See `LoopSpace.schedule`."""
        scheduled = super().schedule(candidate)
        self._cache.clear()
        self._nests.clear()
        return scheduled


def loop_spaces(
    workloads: Sequence[Workload], target: tvm.target.Target, keep: int = 256
) -> Spaces[LoopSpace]:
    """The loop spaces of a set of workloads; arguments as those of `Spaces`."""
    return Spaces(workloads, target, LeanLoopSpace, keep)


class LoopEnv(TuningEnv[LoopSpace]):
    """An environment whose states are loop nests; see `TuningEnv`.

    Args:
        spaces: The workloads and their spaces (`loop_spaces`).
        speed: What is paid for.
        reward: Whether every step pays what it gains, or the last one for all.
        limit: Steps after which an episode is cut off.
        observation: `flat` or `graph`; see `observe`.
        extras: How many globals of its own the environment shows.
        finished: Whether `finish` completes the nests.
        max_loops: Loops that a nest may have; what would make more is not legal.
    """

    def __init__(
        self,
        spaces: Spaces[LoopSpace],
        speed: Speed,
        *,
        reward: Pay,
        limit: int,
        observation: Kind,
        extras: int,
        finished: bool,
        max_loops: int,
    ) -> None:
        super().__init__(spaces, speed, reward, limit)
        self.finished = finished
        self.max_loops = max_loops
        self.threads = num_cores(spaces.target)
        self.observer = make_observer(observation, max_loops, extras)
        self.observation_space = self.observer.space
        self._made: tuple[Nest, Candidate] | None = None

    @property
    def nest(self) -> Nest:
        """The nest as the agent has shaped it; `candidate` is what comes of it."""
        nest: Nest = self._state.nest
        return nest

    def _candidate(self, state: Any) -> Candidate:
        shaped: Nest = state.nest
        if self._made is None or self._made[0] is not shaped:  # many steps leave it as it is
            nest = finish(shaped, self.threads) if self.finished else shaped
            self._made = shaped, Candidate(LoopSpace.name, to_point(canonical(nest)))
        return self._made[1]

    def _first(self, space: LoopSpace) -> Nest:
        """The nest that an episode begins with."""
        nest = space.start
        if not nest.loops:
            raise WorkloadError(f"{space.workload.key} has no loop of two iterations: leave it out")
        if len(nest.loops) > self.max_loops:
            raise WorkloadError(
                f"{space.workload.key} has {len(nest.loops)} loops, and the environment was made "
                f"for {self.max_loops}: leave it out, or raise `max_loops` (and train anew)"
            )
        return nest


FACTORS = (2, 4, 8, 16, 32, 64)
"""What a loop is split by."""

_SPLITS = {f"split_{factor}": factor for factor in FACTORS}

ACTIONS = ("up", "down", "swap_up", "swap_down", *_SPLITS, "stop")
"""The cursor's actions, in their order."""


@dataclass(frozen=True, slots=True)
class CursorState:
    """A nest, the level of the cursor, and the steps that are left."""

    nest: Nest
    cursor: int
    left: int


class CursorEnv(LoopEnv):
    """LoopTune's environment: a cursor walks over the loops, swaps them and splits them.

    The actions (`ACTIONS`, discrete) move the cursor up or down, swap the loop at the cursor with
    the one above or below, in which case the cursor goes with it, or split it; the cursor then
    stays on the outer part. `stop` is ours: it is always legal, so that no mask is ever empty (a
    nest of a single short loop has no other action), and a good nest need not be left again for
    want of something to do. A loop whose extent is no multiple of the factor may be split as well:
    its last round is then cut short.

    Args:
        spaces: The workloads and their spaces (`loop_spaces`).
        speed: What is paid for.
        reward: Whether every step pays what it gains, or the last one for all.
        horizon: Steps of an episode.
        observation: `flat` or `graph`; see `observe`.
        finished: Whether `finish` completes the nests.
        max_loops: Loops that a nest may have; a split that would make more is not legal.
    """

    def __init__(
        self,
        spaces: Spaces[LoopSpace],
        speed: Speed,
        *,
        reward: Pay = "step",
        horizon: int = 10,
        observation: Kind = "flat",
        finished: bool = True,
        max_loops: int = 16,
    ) -> None:
        super().__init__(
            spaces,
            speed,
            reward=reward,
            limit=horizon,
            observation=observation,
            extras=1,
            finished=finished,
            max_loops=max_loops,
        )
        self.horizon = horizon
        self.action_space = Discrete(len(ACTIONS))

    def _start(self, space: LoopSpace, options: dict[str, Any]) -> CursorState:
        return CursorState(self._first(space), 0, self.horizon)

    def _next(self, action: Any) -> CursorState | None:
        state: CursorState = self._state
        nest, cursor, left = state.nest, state.cursor, state.left - 1
        name = ACTIONS[int(action)]
        if name == "stop":
            return CursorState(nest, cursor, 0)
        if name in _SPLITS:
            full = len(nest.loops) >= self.max_loops
            changed = None if full else attempt(nest, ("split", cursor, _SPLITS[name]))
            return None if changed is None else CursorState(changed, cursor, left)
        to = cursor + (1 if name.endswith("down") else -1)
        if not 0 <= to < len(nest.loops):
            return None
        if name.startswith("swap"):
            changed = attempt(nest, ("swap", min(cursor, to)))
            return None if changed is None else CursorState(changed, to, left)
        return CursorState(nest, to, left)

    def _wasted(self, action: Any) -> CursorState:
        state: CursorState = self._state
        return CursorState(state.nest, state.cursor, state.left - 1)

    def _over(self, state: CursorState) -> bool:
        return state.left == 0

    def _legal(self) -> npt.NDArray[np.bool_]:
        """The mask, without a look at the nests: they have neither marks nor places here.

        Then all that can be wrong with a nest are too many loops, or too many ragged axes.
        """
        state: CursorState = self._state
        loops, cursor = state.nest.loops, state.cursor
        axis, extent, _ = loops[cursor]
        up, down = cursor > 0, cursor + 1 < len(loops)
        own = [level for level, loop in enumerate(loops) if loop.axis == axis]
        room = len(loops) < self.max_loops and len(own) < MAX_LEVELS
        uneven = own[0] == cursor and self._may_be_ragged(axis)
        mask = [up, down, up and loops[cursor - 1].axis != axis]
        mask.append(down and loops[cursor + 1].axis != axis)
        mask += [room and f < extent and (uneven or extent % f == 0) for f in FACTORS]
        return np.array([*mask, True])

    def _may_be_ragged(self, axis: int) -> bool:
        ragged = self._state.nest.ragged()
        return axis in ragged or len(ragged) < MAX_RAGGED

    def _observe(self) -> Observation:
        state: CursorState = self._state
        view = View(state.nest, state.cursor, extras=(state.left / self.horizon,))
        return self.observer(view)
