"""One line of another tuner's log as a value, and what the logs have in common."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from typing import Any, Literal

from ..candidate import Candidate, Point
from ..record import Failure

Tuner = Literal["autotvm", "ansor"]

# A failed trial's cost is 1e9 s in AutoTVM's logs and 1e10 s in Ansor's.
_NO_COST_S = 1e9
# AutoTVM and Ansor number their errors alike. The first one found its configuration illegal, which
# is our `invalid`; the last one says nothing but that the trial came to no result.
ERRORS: dict[int, tuple[Failure, str]] = {
    1: ("invalid", "INSTANTIATION_ERROR"),
    2: ("compile", "COMPILE_HOST"),
    3: ("compile", "COMPILE_DEVICE"),
    4: ("runtime", "RUNTIME_DEVICE"),
    5: ("wrong", "WRONG_ANSWER"),
    6: ("timeout", "BUILD_TIMEOUT"),
    7: ("timeout", "RUN_TIMEOUT"),
    8: ("runtime", "UNKNOWN_ERROR"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial.

    Attributes:
        repeats: Seconds per run, one mean a repeat; empty for a failure.
        failure: What went wrong, or None.
        detail: The log's own number and name of the error.
        seconds: What the whole trial took, building included.
        time: When it ended, in seconds since the epoch.
    """

    repeats: tuple[float, ...]
    failure: Failure | None
    detail: str
    seconds: float
    time: float


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One measured configuration of another tuner.

    Attributes:
        line: Its number in the file, from 1.
        tuner: Whose log it is of.
        task: AutoTVM's name of the template (`dense_nopack.x86`); with Ansor the name of the
            function that defines the computation, or the hash of its graph.
        args: The task's arguments, as JSON.
        workload: Key of the named operator that computes the same, or empty where that can't be
            told. How its arguments lie in memory is left aside: AutoTVM's `conv2d_NCHWc.x86` is
            our `conv2d`, which lies in NHWC. So a split by it errs on the safe side.
        target: The TVM target as the log has it.
        candidate: The configuration. With AutoTVM a point is a tuple of (knob, kind, value), with
            Ansor a tuple of the schedule's steps.
        outcome: What came of it.
        versions: The log's format and, where the log tells, TVM's version.
    """

    line: int
    tuner: Tuner
    task: str
    args: str
    workload: str
    target: str
    candidate: Candidate
    outcome: Outcome
    versions: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """What is tuned: the named operator's key, or else the task with its arguments."""
        return self.workload or f"{self.tuner}:{self.task}{self.args}"

    @property
    def latency_s(self) -> float:
        """Median of the repeats in seconds; infinity for a failure."""
        repeats = sorted(self.outcome.repeats)
        if not repeats:
            return math.inf
        middle = len(repeats) // 2
        return (repeats[middle] + repeats[-1 - middle]) / 2


def wrong(what: str, wanted: str, value: Any) -> ValueError:
    """The error for a part of a line that is not what it has to be."""
    return ValueError(f"{what} is {wanted}, not {shown(value)}")


def shown(value: Any) -> str:
    """A value in short."""
    return f"{value!r:.60}"


def get(value: Any, key: str) -> Any:
    """A field of a JSON object.

    Raises:
        ValueError: it is no object, or has no such field.
    """
    if not isinstance(value, dict):
        raise wrong("the entry", "a JSON object", value)
    if key not in value:
        raise ValueError(f"`{key}` is missing")
    return value[key]


def text(value: Any, what: str) -> str:
    """A string, or a ValueError."""
    if not isinstance(value, str):
        raise wrong(what, "a string", value)
    return value


def integer(value: Any, what: str) -> int:
    """An integer of 64 bits, or a ValueError; `true` is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(what, "an integer", value)
    if not -(2**63) <= value < 2**63:
        raise wrong(what, "an integer of 64 bits", value)
    return value


def items(value: Any, what: str) -> list[Any]:
    """A list, or a ValueError."""
    if not isinstance(value, list):
        raise wrong(what, "a list", value)
    return value


def integers(value: Any, what: str) -> tuple[Point, ...]:
    """A list of integers as a tuple, or a ValueError."""
    return tuple(integer(item, what) for item in items(value, what))


def number(value: Any, what: str) -> float:
    """A finite number, or a ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(what, "a number", value)
    # An integer of hundreds of digits is none that a float can hold.
    if abs(value) > 1e300 or not math.isfinite(value):
        raise wrong(what, "a finite number", value)
    return float(value)


def canonical_json(value: Any) -> str:
    """The same text for the same value."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def outcome(result: Any) -> Outcome:
    """Read `[costs, error number, seconds, time]`, of which both tuners' results consist.

    Raises:
        ValueError: it is not of that form, or says both that it failed and how long it took.
    """
    parts = items(result, "the result")
    if len(parts) != 4:
        raise wrong("the result", "[costs, error, seconds, time]", result)
    error = integer(parts[1], "the error number")
    seconds, time = number(parts[2], "the trial's time"), number(parts[3], "the timestamp")
    if error:
        if error not in ERRORS:
            raise ValueError(f"error number {error} is none of 0 to {max(ERRORS)}")
        failure, name = ERRORS[error]
        return Outcome((), failure, f"error {error} ({name})", seconds, time)
    repeats = tuple(number(cost, "a cost") for cost in items(parts[0], "costs"))
    if not repeats:
        raise ValueError("there is neither a cost nor an error number")
    for cost in repeats:
        if not 0 < cost < _NO_COST_S:
            raise ValueError(f"a cost of {cost:g} s is no time that was measured")
    return Outcome(repeats, None, "", seconds, time)


def target_options(target: str) -> dict[str, str]:
    """The options of a target, in short form or JSON, with its `kind` among them.

    Raises:
        ValueError: it is no target.
    """
    if target.lstrip().startswith("{"):
        try:
            fields = json.loads(target)
        except ValueError:
            raise wrong("the target", "JSON if it begins with a brace", target) from None
        if "kind" not in fields:
            raise ValueError(f"the target {shown(target)} names no kind")
        return {str(name): str(value) for name, value in fields.items()}
    try:
        kind, *words = shlex.split(target)
    except ValueError:  # nothing in it, or a quotation mark too many
        raise wrong("the target", "like 'llvm -mcpu=znver4'", target) from None
    options = {"kind": kind}
    while words:
        name, equals, value = words.pop(0).lstrip("-").partition("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        options[name] = value
    # What `-mtriple` was called before TVM 0.7.
    if "target" in options:
        options.setdefault("mtriple", options.pop("target"))
    return options


def foreign(target: str, wanted: str | None) -> str | None:
    """Why a line for `target` is not for `wanted`, or None where it is.

    Args:
        target: The line's target.
        wanted: A target whose `mcpu` and architecture, where it names them, the line's has to
            share; None for any CPU.
    """
    options = target_options(target)
    if options["kind"] != "llvm":
        return f"it is for the target kind {options['kind']!r}, which is no CPU's"
    if wanted is None:
        return None
    ours = target_options(wanted)
    arches = [(o.get("mtriple") or "").partition("-")[0] for o in (options, ours)]
    if all(arches) and arches[0] != arches[1]:
        return f"it is for {arches[0]}, not {arches[1]}"
    cpus = [o.get("mcpu") or "generic" for o in (options, ours)]
    if ours.get("mcpu") and cpus[0] != cpus[1]:
        return f"it is for mcpu {cpus[0]}, not {cpus[1]}"
    return None
