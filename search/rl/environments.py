"""The environments by name: how each is made, and what its actions and observations are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tvm

from ...data.loop_space import LoopSpace
from ...data.sketch_space import SketchSpace
from ...data.workload import Workload
from .cursor_env import ACTIONS, CursorEnv, loop_spaces
from .knob_env import KNOB_COLUMNS, MOVES, KnobEnv, sketch_spaces
from .observe import ACCESS_COLUMNS, EDGE_COLUMNS, FLAT_COLUMNS, GLOBALS, LOOP_COLUMNS
from .speed import Speed
from .transform_env import PHASES, SIZES, TRANSFORMATIONS, TransformEnv, action_groups
from .tuning_env import Pay, Spaces, TuningEnv

VERSION = 1
"""Raised whenever what an action does, or a column means, changes: policies are then refused."""

_ENVIRONMENTS: dict[str, type[CursorEnv] | type[TransformEnv] | type[KnobEnv]] = {
    "cursor": CursorEnv,
    "transform": TransformEnv,
    "knob": KnobEnv,
}
ENVIRONMENTS = tuple(_ENVIRONMENTS)
"""Their names."""

_LOOPS = {"horizon": 10, "observation": "flat", "finished": True, "max_loops": 16}
DEFAULTS: dict[str, dict[str, Any]] = {
    "cursor": _LOOPS,
    "transform": _LOOPS
    | {"horizon": 8, "finished": False, "interchange": "pointers", "most_permuted": 5},
    "knob": {"horizon": 16, "max_knobs": 32},
}
"""What each is made with unless told otherwise."""


class Actions(NamedTuple):
    """The actions of an environment.

    Attributes:
        names: All of them, those of every dimension.
        values: How many each dimension has.
    """

    names: tuple[str, ...]
    values: int


def settings_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of an environment, from those that differ from the `DEFAULTS`.

    Raises:
        ValueError: there is no environment of that name, or no such setting.
    """
    if name not in DEFAULTS:
        raise ValueError(f"there is no environment `{name}`: choose {', '.join(ENVIRONMENTS)}")
    unknown = [key for key in given if key not in DEFAULTS[name]]
    if unknown:
        raise ValueError(
            f"the `{name}` environment has no setting `{unknown[0]}`; it has "
            f"{', '.join(DEFAULTS[name])}"
        )
    return DEFAULTS[name] | dict(given)


def make_env(
    name: str,
    settings: Mapping[str, Any],
    spaces: Spaces[Any],
    speed: Speed,
    reward: Pay = "step",
) -> TuningEnv[Any]:
    """An environment.

    Args:
        name: One of `ENVIRONMENTS`.
        settings: What to make it with besides; see `DEFAULTS`.
        spaces: The workloads and their spaces; see `make_spaces`.
        speed: What is paid for.
        reward: Whether every step pays, or the last one for all.

    Raises:
        ValueError: see `settings_of`.
    """
    made = settings_of(name, settings)
    return _ENVIRONMENTS[name](spaces, speed, reward=reward, **made)


def make_spaces(name: str, workloads: Sequence[Workload], target: tvm.target.Target) -> Spaces[Any]:
    """The spaces that an environment is over."""
    if space_of(name) == SketchSpace.name:
        return sketch_spaces(workloads, target)
    return loop_spaces(workloads, target)


def space_of(name: str) -> str:
    """The name of the space that an environment is over."""
    settings_of(name, {})
    return SketchSpace.name if name == "knob" else LoopSpace.name


def actions_of(name: str, settings: Mapping[str, Any]) -> Actions:
    """What its actions are, in their order."""
    made = settings_of(name, settings)
    if name == "cursor":
        return Actions(ACTIONS, len(ACTIONS))
    if name == "knob":
        moves = tuple(f"knob {n}: {move:+}" for n in range(made["max_knobs"]) for move in MOVES)
        return Actions(moves, len(MOVES))
    groups = action_groups(made["interchange"], made["max_loops"], made["most_permuted"])
    words: dict[str, Sequence[Any]] = {"transformation": TRANSFORMATIONS, "size": SIZES}
    names = [
        f"{group} {words.get(group, range(len(places)))[number]}"
        for group, places in groups.items()
        for number in range(len(places))
    ]
    return Actions(tuple(names), len(names))


def columns_of(name: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What the columns of its observations are: those of each part, one after the other."""
    made = settings_of(name, settings)
    if name == "knob":
        return (*KNOB_COLUMNS, f"{made['max_knobs']} knobs")
    own = ("left",) if name == "cursor" else ("left", *PHASES)
    parts = FLAT_COLUMNS
    if made["observation"] == "graph":
        parts = (*LOOP_COLUMNS, *ACCESS_COLUMNS, *EDGE_COLUMNS)
    return (*parts, *GLOBALS, *own, f"{made['max_loops']} loops")
