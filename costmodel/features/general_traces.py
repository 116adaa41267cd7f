"""What a sketch's trace says of its decisions: which loop each splits, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm.s_tir import Schedule

from ...data.sketch import Category, Location, Sketch, Tile
from .general_shapes import Shape

_SUBJECT = re.compile(r"block ([\w.]+)(?: loop (\d+))?")
_STRUCTURE = "meta_schedule.tiling_structure"
# Loops of each axis in MetaSchedule's tiling of a CPU: spatial, spatial, reduction, spatial,
# reduction, spatial.
STRUCTURE = "SSRSRS"
_PARTS = {False: STRUCTURE.count("S"), True: STRUCTURE.count("R")}


@dataclass(frozen=True)
class Plan:
    """Where the decisions of a sketch go; a position is that of a decision in the sketch.

    Attributes:
        axes: Axis and position of the tilings of the main block's axes; empty where it isn't tiled.
        level: Spatial levels around the tile that results gather in; 0 where there is none.
        unroll: Position of the limit of unrolling and the limits to choose from.
        places: Name of the block, whether it is its partial results, and position.
        factors: Name of the block, the loop (0 or 1) whose results are kept apart, and position.
    """

    axes: tuple[tuple[int, int], ...] = ()
    level: int = 0
    unroll: tuple[int, tuple[int, ...]] | None = None
    places: tuple[tuple[str, bool, int], ...] = ()
    factors: tuple[tuple[str, int, int], ...] = ()


@dataclass
class _Found:
    """What a trace holds, by the variables that it defines."""

    blocks: list[tuple[Any, str]] = field(default_factory=list)
    loops: list[tuple[Any, int]] = field(default_factory=list)  # loops that a decision tiles
    parts: list[tuple[Any, tuple[int, int]]] = field(default_factory=list)
    tiled: set[str] = field(default_factory=set)
    inlined: list[tuple[str, str]] = field(default_factory=list)
    kept: list[tuple[int, int]] = field(default_factory=list)
    factored: list[tuple[int, int]] = field(default_factory=list)


def tiled_blocks(trace: Any) -> set[str]:
    """Names of the blocks that a trace tiles."""
    return _walk(trace).tiled


def inline(mod: Any, traces: Sequence[Any]) -> Any:
    """A schedule of a module with the blocks inlined that every one of some traces inlines."""
    found = [_walk(trace).inlined for trace in traces]
    schedule = Schedule(mod, error_render_level="none")
    for kind, name in found[0] if found else []:
        if all((kind, name) in each for each in found):
            block = schedule.get_sblock(name)
            if kind == "ComputeInline":
                schedule.compute_inline(block)
            else:
                schedule.reverse_compute_inline(block)
    return schedule


def read_plan(sketch: Sketch, trace: Any, main: Shape | None) -> Plan:
    """Where a sketch's decisions go.

    Args:
        sketch: The sketch.
        trace: Its trace.
        main: The block whose nest is told of.
    """
    found = _walk(trace)
    axes = _axes(sketch, main) if main is not None and main.name in found.tiled else ()
    tiling = {position for _, position in axes}
    level = max((part + 1 for position, part in found.kept if position in tiling), default=0)
    decisions = list(enumerate(sketch.decisions))
    unroll = [(n, d.values) for n, d in decisions if isinstance(d, Category)]
    places = [
        (name, d.key.startswith("GetProducers"), n)
        for n, d in decisions
        if isinstance(d, Location) and (name := _block(d.key))
    ]
    factors = [
        (name, part, position)
        for position, part in found.factored
        if (name := _block(sketch.decisions[position].key))
    ]
    return Plan(axes, level, unroll[-1] if unroll else None, tuple(places), tuple(factors))


def _block(key: str) -> str:
    match = _SUBJECT.search(key)
    return match[1] if match else ""


def _axes(sketch: Sketch, main: Shape) -> tuple[tuple[int, int], ...]:
    """The tilings of all axes of more than one iteration; none where one is not as expected."""
    found: dict[int, int] = {}
    for position, decision in enumerate(sketch.decisions):
        match = re.fullmatch(_SUBJECT, decision.key)
        if isinstance(decision, Tile) and match and match[1] == main.name and match[2]:
            axis = int(match[2])
            fits = axis < len(main.extents) and decision.extent == main.extents[axis]
            if not fits or decision.parts != _PARTS[main.reduction[axis]]:
                return ()
            found[axis] = position
    wanted = [axis for axis, extent in enumerate(main.extents) if extent > 1]
    return tuple((axis, found[axis]) for axis in wanted) if found.keys() >= set(wanted) else ()


def _walk(trace: Any) -> _Found:
    found, position = _Found(), 0
    made = trace.decisions
    for inst in trace.insts:
        kind, inputs = inst.kind.name, inst.inputs
        if kind == "GetSBlock":
            found.blocks.append((inst.outputs[0], str(inst.attrs[0])))
        elif kind == "Annotate" and str(inst.attrs[0]) == _STRUCTURE:
            name = _value(found.blocks, inputs[0])
            if name is not None and str(inputs[1]) == STRUCTURE:
                found.tiled.add(name)
        elif kind in ("ComputeInline", "ReverseComputeInline"):
            name = _value(found.blocks, inputs[0])
            found.inlined += [] if name is None else [(kind, name)]
        elif kind == "SamplePerfectTile":
            found.loops.append((inputs[0], position))
        elif kind == "Split":
            tiling = _value(found.loops, inputs[0])
            if tiling is not None:
                found.parts += [(out, (tiling, part)) for part, out in enumerate(inst.outputs)]
        elif kind == "ReverseComputeAt":
            _note(found.kept, found.parts, inputs[1])
        elif kind == "RFactor":
            _note(found.factored, found.parts, inputs[0])
        position += inst in made
    return found


def _value(known: Sequence[tuple[Any, Any]], variable: Any) -> Any:
    return next((value for var, value in reversed(known) if var.same_as(variable)), None)


def _note(into: list[tuple[int, int]], parts: Sequence[tuple[Any, Any]], loop: Any) -> None:
    part = _value(parts, loop)
    if part is not None:
        into.append(part)
