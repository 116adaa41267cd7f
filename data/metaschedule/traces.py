"""Traces as MetaSchedule writes them down, and the candidates that they stand for."""

from __future__ import annotations

import json
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from ..candidate import Candidate, InvalidCandidate
from ..measure import UNTUNED
from ..sketch_space import SketchSpace
from ..space import Scheduled, Space
from ..spaces import SPACES
from ..workload import Workload

TRACE_SPACE = "trace"
"""The space of candidates that are a whole trace: the point is its JSON, as one text."""


def as_json(value: Any) -> Any:
    """TVM's containers and constants as plain JSON values, true and false as 1 and 0."""
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "value"):  # IntImm, FloatImm, StringImm
        return as_json(value.value)
    if hasattr(value, "items"):
        return {str(key): as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value]


def trace_json(trace: Any) -> list[Any]:
    """What MetaSchedule writes down for a trace: `[instructions, decisions]`.

    Its searches strip what leads nowhere from a sketch before they follow it, but not from what the
    post-processors add; so does this, and the result is the same, instruction for instruction.
    """
    insts = list(trace.insts)
    kinds = [inst.kind.name for inst in insts]
    if "EnterPostproc" in kinds:
        sketch = trace.simplified(True)
        insts = [*sketch.insts, *insts[kinds.index("EnterPostproc") :]]
        made = {inst: trace.decisions[inst] for inst in insts if inst in trace.decisions}
        trace = Trace(insts, made)
    written: list[Any] = as_json(trace.as_json())
    return written


def check_trace(trace: Any) -> None:
    """Check a trace's form, which TVM does not: it crashes on a decision of no instruction.

    Raises:
        ValueError: it is no trace, or its decisions are not those of its sampling instructions.
    """
    if not (isinstance(trace, list) and [type(part) for part in trace] == [list, list]):
        raise ValueError("a trace is [instructions, decisions]")
    insts, decisions = trace
    if not all(isinstance(inst, list) and len(inst) == 4 for inst in insts):
        raise ValueError("an instruction of a trace is [name, inputs, attributes, outputs]")
    sampling = [i for i, inst in enumerate(insts) if str(inst[0]).startswith("Sample")]
    if not all(isinstance(each, list) and len(each) == 2 for each in decisions):
        raise ValueError("a decision of a trace is [instruction, value]")
    if [each[0] for each in decisions] != sampling or None in (each[1] for each in decisions):
        raise ValueError("the trace's decisions are not one for each sampling instruction")


class TraceReader:
    """Between the traces and the candidates of one workload on one target.

    Args:
        workload: The workload.
        target: The target, as text of JSON. For a target that is no CPU's, traces are taken as they
            stand; otherwise they are replayed before they are believed.
    """

    def __init__(self, workload: Workload, target: str) -> None:
        self.workload = workload
        self._config: dict[str, Any] = json.loads(target)
        self._spaces: dict[str, Space | None] = {}

    def candidate(self, trace: Any) -> Candidate:
        """The candidate that a trace stands for.

        It is the sketch space's when that has a candidate which is written down as this very trace.
        Otherwise (another space, a mutated degree of parallelism) it holds the trace itself.

        Args:
            trace: The trace as JSON.

        Raises:
            ValueError: it is no trace, or can't be replayed on the workload.
        """
        check_trace(trace)
        found = self._sketch_candidate(trace)
        if found is None:
            found = Candidate(TRACE_SPACE, (json.dumps(trace, separators=(",", ":")),))
            if self._is_cpu:
                self.replay(found)
        return found

    def trace(self, candidate: Candidate) -> Any:
        """The trace of a candidate as JSON: for one made by `candidate` the trace it was made of.

        Raises:
            InvalidCandidate: it can't be replayed, or its space has no traces.
        """
        if candidate == UNTUNED:
            return trace_json(Schedule(self.workload.mod).trace)
        if candidate.space == TRACE_SPACE:
            if self._is_cpu:
                self.replay(candidate)
            return _read(candidate)
        if candidate.space not in SPACES:
            raise InvalidCandidate(f"no traces are known of the space `{candidate.space}`")
        space = self._space(candidate.space)
        if space is None:
            raise InvalidCandidate(f"there is no {candidate.space} space of it on its target")
        scheduled = space.schedule(candidate)
        if scheduled.candidate != candidate:
            raise InvalidCandidate("TVM no longer replays it as it was")
        return trace_json(scheduled.trace)

    def replay(self, candidate: Candidate) -> Scheduled:
        """Replay a candidate that holds a trace.

        Raises:
            InvalidCandidate: TVM refuses it.
        """
        trace = _read(candidate)
        self._space(SketchSpace.name)  # registers the intrinsics that a trace may use
        schedule = Schedule(self.workload.mod, error_render_level="none")
        try:
            Trace.apply_json_to_schedule(trace, schedule)
        # TVM raises whatever its C++ side threw.
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise InvalidCandidate(f"TVM can't replay the trace: {reason[-1][:200]}") from error
        return Scheduled(candidate, schedule.mod, schedule.trace)

    def _sketch_candidate(self, trace: Any) -> Candidate | None:
        space = self._space(SketchSpace.name) if self._is_cpu else None
        if not isinstance(space, SketchSpace):
            return None
        decisions = [value for _, value in trace[1]]
        for index, sketch in enumerate(space.sketches):
            if len(sketch.decisions) != len(decisions):
                continue
            try:
                candidate = Candidate.from_json([SketchSpace.name, [index, decisions]])
                scheduled = space.schedule(candidate)
            except InvalidCandidate:
                continue
            if scheduled.candidate == candidate and trace_json(scheduled.trace) == trace:
                return candidate
        return None

    @property
    def _is_cpu(self) -> bool:
        return self._config.get("kind") == "llvm"

    def _space(self, name: str) -> Space | None:
        """One of `SPACES`, or None where this workload and target have none."""
        if name not in self._spaces:
            try:
                self._spaces[name] = SPACES[name](self.workload, Target(self._config))
            # A target without `num-cores`, a function not called `main`: TVM raises what it likes.
            except Exception:
                self._spaces[name] = None
        return self._spaces[name]


def _read(candidate: Candidate) -> Any:
    """The trace that a candidate holds."""
    try:
        (text,) = candidate.point
        trace = json.loads(str(text))
        check_trace(trace)
    except ValueError as error:
        raise InvalidCandidate(f"the candidate holds no trace: {error}") from None
    return trace
