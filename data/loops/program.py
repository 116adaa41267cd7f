"""From a program to the loop nest that is tuned in it, with everything else settled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.target.codegen import llvm_get_vector_width

from ..signature import WorkloadError
from .blocks import Block, read_blocks
from .nest import Access, Axis, Frame, Producer


@dataclass(frozen=True)
class Plan:
    """A block whose nest can be shaped.

    Attributes:
        frame: What its nests have in common.
        positions: For each of the frame's axes its position among the axes of the block.
        kinds: For every axis of the block whether it is a reduction.
        rank: How many spatial axes the block has.
        consumer: The block that goes through its output element by element.
    """

    frame: Frame
    positions: tuple[int, ...]
    kinds: tuple[bool, ...]
    rank: int
    consumer: str | None = None


@dataclass
class Prepared:
    """A program with one nest left open.

    Attributes:
        schedule: Where every candidate's schedule starts: to be copied.
        plan: The block whose nest is tuned.
        plans: Blocks around it that get a nest of their own where it does not take them in.
        rest: Blocks whose nest does not depend on the candidate.
    """

    schedule: Any
    plan: Plan
    plans: dict[str, Plan] = field(default_factory=dict)
    rest: list[Plan] = field(default_factory=list)


def prepare(mod: Any, target: tvm.target.Target) -> Prepared:
    """Choose the block to tune, and take in or lay out the others.

    Raises:
        WorkloadError: no block of the program is a plain loop nest.
    """
    schedule = Schedule(mod, error_render_level="none")
    main = _heaviest(read_blocks(mod))
    _inline_others(schedule, main)
    blocks = read_blocks(schedule.mod)
    known = {name: block for name, block in blocks.items() if block is not None}
    subject = known[main]
    bits = max(128, int(llvm_get_vector_width(target)))
    consumer = _consumer(schedule, blocks, subject)
    producers = [
        _producer(schedule, known[name], subject)
        for name in _sole_producers(schedule, blocks, subject)
    ]
    plan = _plan(schedule, subject, bits, tuple(producers), consumer)
    around = {producer.name for producer in producers} | ({consumer} if consumer else set())
    others = {
        name: _plan(schedule, block, bits, (), None)
        for name, block in known.items()
        if name != main
    }
    return Prepared(
        schedule,
        plan,
        {name: other for name, other in others.items() if name in around},
        [other for name, other in others.items() if name not in around],
    )


def _heaviest(blocks: dict[str, Block | None]) -> str:
    """The reduction with the most work; where there is none, the block with the most work."""
    plain = [block for block in blocks.values() if block is not None]
    if not plain:
        names = ", ".join(blocks) or "nothing"
        raise WorkloadError(
            f"there is no loop nest to tune: no block of the program ({names}) is a plain nest of "
            "loops around one assignment; tune it in the sketch space"
        )
    reductions = [block for block in plain if block.reduces] or plain
    # Of equals the last: what it reads can still be computed within its loops.
    return max(reversed(reductions), key=lambda block: block.work).name


def _inline_others(schedule: Any, main: str) -> None:
    """Compute cheap element-by-element blocks where they are used."""
    for name, block in read_blocks(schedule.mod).items():
        if block is None or name == main or block.output or block.reduces:
            continue
        if block.branches or not block.ordered:
            continue
        consumers = _names(schedule, schedule.get_consumers(name))
        taker = read_blocks(schedule.mod)[consumers[0]] if len(consumers) == 1 else None
        # What is dear is not to be computed over and over.
        if not block.dear or (taker is not None and not taker.reduces):
            _attempt(schedule, partial(Schedule.compute_inline, block=name))


def _names(schedule: Any, blocks: Any) -> list[str]:
    return [str(schedule.get(block).name_hint) for block in blocks]


def _attempt(schedule: Any, change: Callable[[Any], object]) -> bool:
    """Make a change, if TVM allows it."""
    if not _allows(schedule, change):
        return False
    change(schedule)
    return True


def _allows(schedule: Any, change: Callable[[Any], object]) -> bool:
    """Whether TVM allows a change."""
    try:
        change(schedule.copy())
    except Exception:  # whatever its C++ side throws: the change is not possible
        return False
    return True


def _spatial_loops(schedule: Any, block: Block) -> list[Any]:
    """The block's spatial loops, moved outside of the others."""
    loops = schedule.get_loops(block.name)
    pairs = list(zip(loops, block.axes, strict=True))
    spatial = [loop for loop, axis in pairs if not axis[2]]
    if len(loops) > 1:
        schedule.reorder(*spatial, *(loop for loop, axis in pairs if axis[2]))
    return spatial


def _consumer(schedule: Any, blocks: dict[str, Block | None], main: Block) -> str | None:
    """The only block that reads the output, if it can follow it tile by tile."""
    names = _names(schedule, schedule.get_consumers(main.name))
    if main.output or not main.reduces or len(names) != 1:
        return None
    block = blocks[names[0]]
    if block is None or block.reduces or block.results != main.results:
        return None

    def follow(trial: Any) -> None:
        spatial = _spatial_loops(trial, main)
        trial.reverse_compute_at(names[0], spatial[-1])

    return names[0] if _allows(schedule, follow) else None


def _sole_producers(schedule: Any, blocks: dict[str, Block | None], main: Block) -> list[str]:
    """Element-by-element blocks that compute operands of the main block and nothing else."""
    found = []
    for name in _names(schedule, schedule.get_producers(main.name)):
        block = blocks[name]
        if block is None or block.reduces or block.output:
            continue
        if _names(schedule, schedule.get_consumers(name)) != [main.name] or name in found:
            continue
        if _allows(schedule, partial(_compute_outside, name=name, main=main.name)):
            found.append(name)
    return found


def _compute_outside(schedule: Any, name: str, main: str) -> None:
    """Compute a block within the outermost loop of another."""
    schedule.compute_at(name, schedule.get_loops(main)[0])


def _producer(schedule: Any, block: Block, main: Block) -> Producer:
    trial = schedule.copy()
    inlines = _attempt(trial, lambda s: s.compute_inline(block.name))
    after = read_blocks(trial.mod)[main.name] if inlines else None
    flags = main.whole if after is None else after.whole
    kept = tuple(flag for flag, axis in zip(flags, main.axes, strict=True) if axis[1] > 1)
    return Producer(block.name, inlines and after is not None, kept)


def _plan(
    schedule: Any,
    block: Block,
    bits: int,
    producers: tuple[Producer, ...],
    consumer: str | None,
) -> Plan:
    positions = tuple(i for i, (_, extent, _) in enumerate(block.axes) if extent > 1)
    axes = tuple(
        Axis(block.axes[i][0], block.axes[i][1], block.axes[i][2], block.whole[i])
        for i in positions
    )
    accesses = tuple(
        Access(a.tensor, a.item_bytes, tuple(a.strides[i] for i in positions), a.write)
        for a in (*block.reads, block.write)
    )
    frame = Frame(
        block.name,
        axes,
        producers,
        accesses,
        max(1, bits // 8 // max(access.item_bytes for access in accesses)),
        block.reduces,
        block.reduces and _factors(schedule, block),
        consumer is not None,
    )
    kinds = tuple(reduction for _, _, reduction in block.axes)
    return Plan(frame, positions, kinds, len(kinds) - sum(kinds), consumer)


def _factors(schedule: Any, block: Block) -> bool:
    """Whether TVM can keep partial results of the reduction apart."""

    def factor(trial: Any) -> None:
        for loop, (_, extent, reduction) in zip(
            trial.get_loops(block.name), block.axes, strict=True
        ):
            if reduction and extent > 1:
                part = smallest_factor(extent)
                trial.rfactor(trial.split(loop, [extent // part, part])[1], block_rank(block))
                return
        raise ValueError("no reduction axis")

    return _allows(schedule, factor)


def block_rank(block: Block) -> int:
    """How many spatial axes a block has."""
    return sum(not reduction for _, _, reduction in block.axes)


def smallest_factor(number: int) -> int:
    """The smallest divisor above 1."""
    return next((d for d in range(2, math.isqrt(number) + 1) if number % d == 0), number)
