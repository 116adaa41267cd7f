"""Walking over the decisions of a sketch, all of them at once (Chameleon).

Chameleon (Ahn et al., ICLR 2020) lets an agent move every knob of a template by -1, 0 or +1. The
knobs here are the decisions of a sketch. An index moves to the next one; the sizes of a tile are a
knob each but the outermost, which makes up for the others: a step up takes its smallest prime
factor, a step down gives back one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm
from gymnasium.spaces import Box, MultiDiscrete

from ...data.candidate import Candidate
from ...data.loops.program import smallest_factor
from ...data.sketch import Category, Decision, Location, Tile
from ...data.sketch_space import SketchSpace
from ...data.space import Scheduled
from ...data.workload import Workload, WorkloadError
from .speed import Speed
from .tuning_env import Pay, Spaces, TuningEnv

MOVES = (-1, 0, 1)
"""What the three values of a knob's action do."""

KNOB_COLUMNS = ("there", "tile", "category", "location", "part", "value", "left", "up", "down")
"""What is shown of a knob: its kind, the position of its tile size from the inside, its value and
what its outermost size holds (log2 / 12, or the index over the highest), and its legal moves."""

_SIZE = 12.0
_PARTS = 4.0
# Draws of a start before the workload counts as one without a knob.
_DRAWS = 50


class Knob(NamedTuple):
    """A number that moves: a decision, by its position, and which of a tile's sizes."""

    position: int
    part: int


@dataclass(frozen=True)
class KnobState:
    """A sketch's decisions, and the steps that are left."""

    sketch: int
    values: tuple[Any, ...]
    left: int


class LeanSketchSpace(SketchSpace):
    """A sketch space that holds no programs: an agent sees each of them once."""

    def schedule(self, candidate: Candidate) -> Scheduled:
        """See `SketchSpace.schedule`."""
        scheduled = super().schedule(candidate)
        self._cache.clear()
        return scheduled

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """See `SketchSpace.sample`."""
        drawn = super().sample(rng, n)
        self._cache.clear()
        return drawn


def sketch_spaces(
    workloads: Sequence[Workload], target: tvm.target.Target, keep: int = 64
) -> Spaces[SketchSpace]:
    """The sketch spaces of a set of workloads; arguments as those of `Spaces`."""
    return Spaces(workloads, target, LeanSketchSpace, keep)


class KnobEnv(TuningEnv[SketchSpace]):
    """Chameleon's environment: every step moves each knob by -1, 0 or +1.

    An episode begins with a drawn candidate, or with `options={"candidate": ...}`, and stays in its
    sketch. A mask looks at each knob by itself; a move that is not legal is left out, the others
    are made. Where two sizes of a tile both want the last factor of the outermost one, the outer of
    them has it and the other stays. So the result is always in range. It may still be what TVM
    refuses, or snaps to another candidate (a location), which only a replay tells: what is refused
    counts as failed.

    Args:
        spaces: The workloads and their spaces (`sketch_spaces`).
        speed: What is paid for.
        reward: Whether every step pays what it gains, or the last one for all.
        horizon: Steps of an episode.
        max_knobs: Knobs that a sketch may have; those beyond a sketch's own can only stay.
    """

    def __init__(
        self,
        spaces: Spaces[SketchSpace],
        speed: Speed,
        *,
        reward: Pay = "step",
        horizon: int = 16,
        max_knobs: int = 32,
    ) -> None:
        super().__init__(spaces, speed, reward, horizon)
        self.horizon = horizon
        self.max_knobs = max_knobs
        self.action_space = MultiDiscrete([len(MOVES)] * max_knobs)
        self.observation_space = Box(0.0, 1.0, (max_knobs * len(KNOB_COLUMNS) + 1,), np.float32)
        self._knobs: tuple[Knob, ...] = ()
        self._decisions: tuple[Decision, ...] = ()

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """The knobs of the episode's sketch, in the order of the action's entries."""
        return self._knobs

    def _start(self, space: SketchSpace, options: dict[str, Any]) -> KnobState:
        given = options.get("candidate")
        starts = [given] if given is not None else space.sample(self.np_random, 1)
        for _ in range(_DRAWS):
            space.encode(starts)  # refuses what is of another space
            for candidate in starts:
                point: Any = candidate.point
                sketch, values = point
                self._decisions = space.sketches[sketch].decisions
                self._knobs = knobs_of(self._decisions)
                self._check(space)
                if self._knobs or given is not None:
                    return KnobState(sketch, values, self.horizon)
            starts = space.sample(self.np_random, 1)
        raise WorkloadError(f"no drawn sketch of {space.workload.key} has a knob: leave it out")

    def _check(self, space: SketchSpace) -> None:
        if len(self._knobs) > self.max_knobs:
            raise WorkloadError(
                f"{space.workload.key} has {len(self._knobs)} knobs, and the environment was made "
                f"for {self.max_knobs}: leave it out, or raise `max_knobs` (and train anew)"
            )

    def _next(self, action: Any) -> KnobState | None:
        state, legal = self._turn(action)
        return state if legal else None

    def _wasted(self, action: Any) -> KnobState:
        return self._turn(action)[0]

    def _turn(self, action: Any) -> tuple[KnobState, bool]:
        """The state after the moves that are possible, and whether all of them are."""
        state: KnobState = self._state
        values, legal = list(state.values), True
        for number, value in enumerate(action):
            move = MOVES[int(value)]
            if move and number >= len(self._knobs):
                legal = False
            elif move:
                position, part = self._knobs[number]
                decision = self._decisions[position]
                legal &= moved(decision, state.values[position], part, move) is not None
                now = moved(decision, values[position], part, move)
                values[position] = values[position] if now is None else now
        return KnobState(state.sketch, tuple(values), state.left - 1), legal

    def _over(self, state: KnobState) -> bool:
        return state.left == 0

    def _candidate(self, state: KnobState) -> Candidate:
        return Candidate(SketchSpace.name, (state.sketch, state.values))

    def _legal(self) -> npt.NDArray[np.bool_]:
        mask = np.zeros((self.max_knobs, len(MOVES)), dtype=bool)
        mask[:, 1] = True
        for number, (down, up) in enumerate(self._free()):
            mask[number, 0], mask[number, 2] = down, up
        return mask.reshape(-1)

    def _free(self) -> list[tuple[bool, bool]]:
        """For every knob whether it can go down, and up."""
        found = []
        for position, part in self._knobs:
            decision, value = self._decisions[position], self._state.values[position]
            down, up = (moved(decision, value, part, move) is not None for move in (-1, 1))
            found.append((down, up))
        return found

    def _observe(self) -> npt.NDArray[np.float32]:
        seen = np.zeros(self.observation_space.shape, dtype=np.float32)
        width = len(KNOB_COLUMNS)
        for number, ((position, part), (down, up)) in enumerate(
            zip(self._knobs, self._free(), strict=True)
        ):
            decision, value = self._decisions[position], self._state.values[position]
            row = (*_shown(decision, value, part), float(up), float(down))
            seen[number * width : (number + 1) * width] = row
        seen[-1] = self._state.left / self.horizon
        return np.minimum(seen, np.float32(1.0), out=seen)


def knobs_of(decisions: Sequence[Decision]) -> tuple[Knob, ...]:
    """The knobs of a sketch's decisions: of each that has more than one value."""
    found = []
    for position, decision in enumerate(decisions):
        if decision.size > 1:
            parts = range(1, decision.parts) if isinstance(decision, Tile) else range(1)
            found += [Knob(position, part) for part in parts]
    return tuple(found)


def moved(decision: Decision, value: Any, part: int, move: int) -> Any | None:
    """A decision's value with one knob moved by -1 or +1; None where that is not possible."""
    if isinstance(decision, Tile):
        source, target = (0, part) if move > 0 else (part, 0)
        if value[source] == 1:
            return None
        factor = smallest_factor(value[source])
        sizes = list(value)
        sizes[source] //= factor
        sizes[target] *= factor
        return tuple(sizes) if decision.legal(tuple(sizes)) else None
    low, high = _range(decision)
    return value + move if low <= value + move <= high else None


def _range(decision: Decision) -> tuple[int, int]:
    if isinstance(decision, Location):
        return -2, decision.ceiling
    return 0, decision.size - 1


def _shown(decision: Decision, value: Any, part: int) -> tuple[float, ...]:
    """The columns of `KNOB_COLUMNS` but for the moves."""
    kinds = tuple(float(isinstance(decision, kind)) for kind in (Tile, Category, Location))
    if isinstance(decision, Tile):
        inner = (decision.parts - 1 - part) / _PARTS
        return (1.0, *kinds, inner, np.log2(value[part]) / _SIZE, np.log2(value[0]) / _SIZE)
    low, high = _range(decision)
    return (1.0, *kinds, 0.0, max(0.0, (value - low) / max(1, high - low)), 0.0)
