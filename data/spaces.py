"""The schedule spaces by name."""

from __future__ import annotations

import tvm

from .loop_space import LoopSpace
from .sketch_space import SketchSpace
from .workload import Workload

NamedSpace = SketchSpace | LoopSpace

SPACES: dict[str, type[SketchSpace] | type[LoopSpace]] = {
    SketchSpace.name: SketchSpace,
    LoopSpace.name: LoopSpace,
}


def check_space(name: str) -> None:
    """Check the name of a space.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in SPACES:
        raise ValueError(f"there is no space `{name}`; the spaces are {', '.join(SPACES)}")


def make_space(name: str, workload: Workload, target: tvm.target.Target) -> NamedSpace:
    """The space of that name for a workload.

    Raises:
        ValueError: there is none of that name, or the workload has nothing that it shapes.
    """
    check_space(name)
    return SPACES[name](workload, target)
