"""The space of schedules that TVM's MetaSchedule generates: a sketch and its decisions."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import _ffi_api as ms_ffi
from tvm.s_tir.meta_schedule.logging import get_logger, get_logging_func

from .candidate import Candidate, InvalidCandidate
from .host import usable_cpus
from .sketch import MOST_LOOPS, Decision, Sketch
from .space import Scheduled
from .tir.intrinsics import load_cpu_intrinsics
from .workload import Workload

# A replayed module weighs a few hundred kB; the cache holds a tuning batch and its drafts.
_CACHE_SIZE = 512
# What follows is the end of a sampling instruction's line.
_DECISION = re.compile(r", decision=.*")


def tune_context(
    mod: tvm.IRModule, target: tvm.target.Target, *, search_strategy: Any = None, seed: int = 1
) -> Any:
    """A `TuneContext` with the default space generator for a CPU target.

    TVM's own constructor imports the intrinsics of every GPU first (15 s); this one goes straight
    to the C++ object. The context must outlive the schedules' post-processors.

    Args:
        mod: The workload's module.
        target: The target.
        search_strategy: MetaSchedule's search strategy, for a context that is to search.
        seed: Its random state, 1 or more.
    """
    triple = str(target.attrs.get("mtriple", "") or "x86_64")
    load_cpu_intrinsics(triple.split("-")[0])
    context = ms.TuneContext.__new__(ms.TuneContext)
    context.__init_handle_by_constructor__(
        ms_ffi.TuneContext,
        mod,
        target,
        ms.SpaceGenerator.create("post-order-apply"),
        search_strategy,
        "main",
        len(usable_cpus()),
        seed,
        get_logging_func(get_logger(__name__)),
    )
    ms_ffi.TuneContextInitialize(context)
    return context


class SketchSpace:
    """MetaSchedule's design space of one workload, as a `Space`.

    A candidate's point is `(sketch, (decision, ...))`: the sketch's number, then one entry for each
    sampling instruction of the sketch in its order: a tuple of tile sizes, the index of a category,
    or the index of a loop (-1 the root, -2 inlined).

    Attributes:
        concurrent: Several threads may replay candidates at once.

    Args:
        workload: The workload.
        target: The target.
        sketches: The schedules that the space is made of; by default those that the default rules
            for the target generate.
        postprocs: The post-processors that go with given sketches. What they were initialised with
            must outlive the space.
    """

    name = "sketch"
    concurrent = True

    def __init__(
        self,
        workload: Workload,
        target: tvm.target.Target,
        *,
        sketches: Sequence[Any] | None = None,
        postprocs: Sequence[Any] = (),
    ) -> None:
        self.workload = workload
        self.target = target
        if sketches is None:
            self._context = tune_context(workload.mod, target)
            postprocs = self._context.space_generator.postprocs
            sketches = self._context.generate_design_space()
        self._postprocs = list(postprocs)
        traces = [schedule.trace for schedule in sketches]
        if not traces:  # nothing that the rules know: the program as it stands
            traces = [Schedule(workload.mod).trace]
        self._traces = traces
        self.sketches = [Sketch.read(t, self._location_ceilings(t)) for t in traces]
        self._columns, self._width = self._lay_out_columns()
        self._cache: OrderedDict[Candidate, Scheduled] = OrderedDict()

    @property
    def size(self) -> float:
        """How many decision vectors there are, over all sketches."""
        return sum(
            math.prod(float(decision.size) for decision in sketch.decisions)
            for sketch in self.sketches
        )

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Draw candidates with TVM's own samplers; they are canonical already.

        Sketches that can't be replayed with the drawn decisions are drawn again.
        """
        drawn: list[Candidate] = []
        for _ in range(20 * n):
            if len(drawn) == n:
                break
            index = int(rng.integers(len(self._traces)))
            seed = int(rng.integers(1, 2**31 - 1))
            try:
                drawn.append(self._replay(index, None, seed).candidate)
            except InvalidCandidate:
                continue
        return drawn

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Draw every decision on its own, without TVM: microseconds a candidate.

        Unlike what `sample` draws these may be illegal, or another candidate in other words.
        """
        counts = rng.multinomial(n, [1.0 / len(self.sketches)] * len(self.sketches)).tolist()
        return [
            Candidate(self.name, (index, point))
            for index, count in enumerate(counts)
            for point in self.sketches[index].draw(count, rng)
        ]

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        """Move one decision of each candidate; the sketch stays."""
        draws = rng.random((len(candidates), 2)).tolist()  # one call: a draw costs as a move does
        return [
            self._neighbour(candidate, where, what)
            for candidate, (where, what) in zip(candidates, draws, strict=True)
        ]

    def _neighbour(self, candidate: Candidate, where: float, what: float) -> Candidate:
        """The neighbour that two numbers from [0, 1) choose."""
        index, decisions = self._read(candidate)
        sketch = self.sketches[index]
        if not sketch.tunable:
            return candidate
        position = sketch.tunable[int(where * len(sketch.tunable))]
        moves = sketch.decisions[position].moves(decisions[position])
        if not moves:
            return candidate
        moved = moves[int(what * len(moves))]
        changed = (*decisions[:position], moved, *decisions[position + 1 :])
        return Candidate(self.name, (index, changed))

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        """Keep `a`'s sketch; take each decision that both have from either with equal chance."""
        index, first = self._read(a)
        other, second = self._read(b)
        theirs = {
            decision.key: value
            for decision, value in zip(self.sketches[other].decisions, second, strict=True)
        }
        picks = rng.random(len(first)) < 0.5
        mixed = tuple(
            theirs[decision.key]
            if pick and decision.key in theirs and decision.legal(theirs[decision.key])
            else value
            for decision, value, pick in zip(
                self.sketches[index].decisions, first, picks, strict=True
            )
        )
        return Candidate(self.name, (index, mixed))

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        """Decision features, one row a candidate.

        Columns: a one-hot of the sketch, then for every decision, matched across the sketches by
        what it decides, its tile sizes' log2, its category's log2(1 + value), or its loop's index.
        NaN where the sketch has no such decision.
        """
        rows = np.full((len(candidates), self._width), np.nan, dtype=np.float32)
        rows[:, : len(self.sketches)] = 0.0
        points = [self._read(candidate) for candidate in candidates]
        by_sketch: dict[int, list[int]] = {}
        for row, (index, _) in enumerate(points):
            by_sketch.setdefault(index, []).append(row)
        for index, members in by_sketch.items():
            rows[members, index] = 1.0
            values = self.sketches[index].features([points[row][1] for row in members])
            rows[np.ix_(members, self._columns[index])] = values
        return rows

    def feature_names(self) -> list[str]:
        """What each column of `encode` is, in order."""
        names = [f"sketch {i}" for i in range(len(self.sketches))] + [""] * self._width
        for sketch, columns in zip(self.sketches, self._columns, strict=True):
            left = iter(columns)
            for decision in sketch.decisions:
                for part in range(decision.width):
                    suffix = f", tile {part}" if decision.width > 1 else ""
                    names[next(left)] = decision.key + suffix
        return names[: self._width]

    def schedule(self, candidate: Candidate) -> Scheduled:
        """Replay a candidate's decisions and run every post-processor.

        Raises:
            InvalidCandidate: it is of another space, a decision is out of its range, TVM refuses
                the replay, or a post-processor rejects the result.
        """
        known = self._cache.get(candidate)
        if known is not None:
            with suppress(KeyError):  # another thread has just thrown it out
                self._cache.move_to_end(candidate)
            return known
        index, decisions = self._read(candidate)
        for decision, value in zip(self.sketches[index].decisions, decisions, strict=True):
            if not decision.legal(value):
                raise InvalidCandidate(f"{decision.key}: {value} is out of range")
        return self._replay(index, decisions, 1)

    def find(self, trace: Any) -> Candidate | None:
        """The candidate whose decisions a trace holds; None when no sketch leads to the trace."""
        steps = _steps(trace)
        for index, (known, sketch) in enumerate(zip(self._traces, self.sketches, strict=True)):
            if len(trace.decisions) == len(sketch.decisions) and _steps(known) == steps:
                return Candidate(self.name, (index, self._read_back(index, trace)))
        return None

    def _read(self, candidate: Candidate) -> tuple[int, tuple[Any, ...]]:
        point = candidate.point
        if candidate.space != self.name or len(point) != 2:
            raise InvalidCandidate(f"not a candidate of the sketch space: {candidate}")
        index, decisions = point
        if not isinstance(index, int) or not 0 <= index < len(self.sketches):
            raise InvalidCandidate(f"this workload has no sketch {index!r}")
        if not isinstance(decisions, tuple) or len(decisions) != len(
            self.sketches[index].decisions
        ):
            raise InvalidCandidate(f"sketch {index} does not take these decisions: {decisions!r}")
        return index, decisions

    def _replay(self, index: int, decisions: tuple[Any, ...] | None, seed: int) -> Scheduled:
        """Replay a sketch with given decisions, or with TVM's own draws."""
        schedule = Schedule(self.workload.mod, seed=seed, error_render_level="none")
        given = iter(decisions or ())

        def provide(inst: Any, inputs: Any, attrs: Any, decision: Any) -> Any:
            if decisions is None or decision is None:  # drawn afresh; not a sampling instruction
                return None
            value = next(given)
            return list(value) if isinstance(value, tuple) else value

        try:
            self._traces[index].apply_to_schedule(
                schedule, remove_postproc=True, decision_provider=provide
            )
            taken = self._read_back(index, schedule.trace)
            schedule.enter_postproc()
            for postproc in self._postprocs:
                if not postproc.apply(schedule):
                    raise InvalidCandidate(f"{type(postproc).__name__} rejects the schedule")
        except InvalidCandidate:
            raise
        # TVM raises whatever its C++ side threw; all of it says that the schedule is illegal.
        except Exception as error:
            raise InvalidCandidate(str(error).strip().splitlines()[-1]) from error
        scheduled = Scheduled(Candidate(self.name, (index, taken)), schedule.mod, schedule.trace)
        for key in {scheduled.candidate, Candidate(self.name, (index, decisions or taken))}:
            self._cache[key] = scheduled
        while len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)
        return scheduled

    def _read_back(self, index: int, trace: Any) -> tuple[Any, ...]:
        """The decisions as TVM took them (it snaps loop indices to legal ones)."""
        made = trace.decisions
        return tuple(
            self.sketches[index].decisions[position].freeze(made[inst])
            for position, inst in enumerate(inst for inst in trace.insts if inst in made)
        )

    def _location_ceilings(self, trace: Any) -> list[int]:
        """The largest index of each compute location.

        The last legal loop varies with the decisions before it. This is the last one there is in
        the deepest nest at that point of the trace, with the blocks before it as deep as they go.
        """
        schedule = Schedule(self.workload.mod, seed=1, error_render_level="none")
        ceilings: list[int] = []

        def provide(inst: Any, inputs: Any, attrs: Any, decision: Any) -> Any:
            if inst.kind.name != "SampleComputeLocation":
                return decision
            ceilings.append(_depth(schedule.copy()) - 1)  # looking leaves traces: in a copy
            return MOST_LOOPS  # snaps to the last legal one

        trace.apply_to_schedule(schedule, remove_postproc=True, decision_provider=provide)
        return ceilings

    def _lay_out_columns(self) -> tuple[list[list[int]], int]:
        """The columns of each sketch's decisions, shared with other sketches, and the width."""
        starts: dict[str, int] = {}
        width = len(self.sketches)
        columns: list[list[int]] = []
        for sketch in self.sketches:
            columns.append([])
            for decision in sketch.decisions:
                if decision.key not in starts:
                    starts[decision.key] = width
                    width += decision.width
                start = starts[decision.key]
                columns[-1] += range(start, start + decision.width)
        return columns, width


def _steps(trace: Any) -> list[str]:
    """What a trace does up to the post-processors, whatever its decisions.

    Without the instructions that lead nowhere: MetaSchedule's own search strips them.
    """
    return [_DECISION.sub("", line) for line in trace.simplified(True).as_python()]


def _depth(schedule: Any) -> int:
    """How many loops the deepest block is nested in."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    return max((len(schedule.get_loops(block)) for block in blocks), default=0)


__all__ = ["Decision", "Sketch", "SketchSpace", "tune_context"]
