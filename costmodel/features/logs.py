"""Features of what other tuners measured, from their logs alone: no TVM, old or new, is needed.

An AutoTVM configuration is a point of its template's knobs, and its columns are these knobs. An
Ansor schedule is a sequence of steps; each becomes a fixed number of columns, as in TLP (Zhai et
al., ASPLOS 2023, section 4): what kind of step it is, and the numbers in it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from ...data.candidate import Point
from ...data.logs.ansor import STEPS
from ...data.logs.entry import LogEntry
from ..base import FeatureSchema, Floats, Samples

_KNOBS = "autotvm-knobs"
_KNOBS_VERSION = 1

# Ansor's annotations of a loop, by their number.
_ANNOTATIONS = (
    *("none", "unroll", "vectorize", "parallel", "vthread"),
    *("blockIdx.x", "threadIdx.x", "blockIdx.y", "threadIdx.y", "blockIdx.z", "threadIdx.z"),
    "tensorize",
)
# A kind of step is a column each, an annotation one for every sort of it.
_KINDS = (*(kind for kind in STEPS if kind != "AN"), *(f"AN {name}" for name in _ANNOTATIONS))
# Numbers kept of a step. Only reorders of many loops have more, and their order is the sketch's.
_NUMBERS = 12
STEP_WIDTH = len(_KINDS) + _NUMBERS

# How many steps of a kind have columns of their own. A convolution splits 7 loops and follows 4 of
# these splits; an operator of several stages inlines and places more of them.
_SLOTS_OF = {"SP": 16, "FSP": 10, "FFSP": 6} | dict.fromkeys(("RE", "FU", "CA", "CI", "PR"), 4)
_SLOTS_OF |= {"AN unroll": 4, "AN vectorize": 4}
SLOTS = tuple(_SLOTS_OF.get(kind, 2) for kind in _KINDS)
_STARTS = np.cumsum((0, *SLOTS))
STEPS_SCHEMA = FeatureSchema("ansor-steps", 1, sum(SLOTS) * (1 + _NUMBERS))


def groups(entries: Sequence[LogEntry]) -> npt.NDArray[np.int64]:
    """One number for all that may be compared: the same task for the same target."""
    numbers: dict[tuple[str, str, str, str], int] = {}
    keys = [(one.tuner, one.task, one.args, one.target) for one in entries]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


@dataclass(frozen=True)
class KnobEncoder:
    """Turns configurations of one AutoTVM template into rows of features.

    Columns are named by the knob: `tile_x.1` (log2 of the second factor; NaN for -1, which leaves
    it to the rest), `order.0` (which loop comes first), `ann.0=vec` (0 or 1), `unroll_kw` (the
    number, or 0 and 1), and `shape 0.1` (log2 of a tensor's dimension), so that tasks of one
    template but different shapes fit one model.

    Attributes:
        task: The template.
        columns: Names of the columns.
    """

    task: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, entries: Iterable[LogEntry]) -> KnobEncoder:
        """An encoder with the columns that the entries need.

        Raises:
            ValueError: there are none, or they are of several templates or of another tuner.
        """
        columns: set[str] = set()
        tasks: set[str] = set()
        for entry in entries:
            tasks.add(entry.task if entry.tuner == "autotvm" else f"{entry.task} of Ansor")
            columns |= _named(entry).keys() if entry.tuner == "autotvm" else set()
        if len(tasks) != 1 or not columns:
            raise ValueError(
                "an encoder is for the entries of one AutoTVM template, not "
                f"{', '.join(sorted(tasks)) or 'none'}: choose by `entry.task`"
            )
        return cls(tasks.pop(), tuple(sorted(columns)))

    @property
    def schema(self) -> FeatureSchema:
        """The columns' schema; that of another template, or with other columns, differs."""
        digest = hashlib.sha256(json.dumps(self.columns).encode()).hexdigest()[:8]
        return FeatureSchema(_KNOBS, _KNOBS_VERSION, len(self.columns), f"{self.task}/{digest}")

    def encode(self, entries: Sequence[LogEntry]) -> Floats:
        """Features, of shape (entries, columns).

        What an entry has and the encoder has no column for is left out.

        Raises:
            ValueError: an entry is of another template.
        """
        # A knob that an entry lacks is unknown; an option that it did not take is 0.
        missing = [0.0 if "=" in name else math.nan for name in self.columns]
        rows = np.tile(np.array(missing, dtype=np.float32), (len(entries), 1))
        index = {name: at for at, name in enumerate(self.columns)}
        for row, entry in zip(rows, entries, strict=True):
            if (entry.tuner, entry.task) != ("autotvm", self.task):
                raise ValueError(f"line {entry.line} is of {entry.task}, not of {self.task}")
            for name, value in _named(entry).items():
                if name in index:
                    row[index[name]] = value
        return rows

    def samples(self, entries: Sequence[LogEntry]) -> Samples:
        """Samples with what was measured, a row an entry; infinity for a failure."""
        return _samples(self.schema, self.encode(entries), entries)


def _named(entry: LogEntry) -> dict[str, float]:
    """A configuration's features by the names of their columns."""
    values: dict[str, float] = {}
    for knob in entry.candidate.point:
        name, kind, value = cast("tuple[str, str, Point]", knob)
        parts = value if isinstance(value, tuple) else (value,)
        for i, part in enumerate(parts):
            if kind == "an":
                values[f"{name}.{i}={part}"] = 1.0
            elif kind == "sp":
                values[f"{name}.{i}"] = _log2(part)
            elif kind == "re":
                values[f"{name}.{i}"] = float(cast("int", part))
            else:
                values |= _option(name, part)
    for i, arg in enumerate(json.loads(entry.args)):
        if isinstance(arg, list) and len(arg) == 3 and arg[0] == "TENSOR":
            shape = arg[1] if isinstance(arg[1], list) else []
            values |= {f"shape {i}.{at}": _log2(size) for at, size in enumerate(shape)}
    return values


def _log2(size: object) -> float:
    return math.log2(size) if isinstance(size, int) and size > 0 else math.nan


def _option(name: str, value: Point) -> dict[str, float]:
    """A listed value: a number where it is one, otherwise one of several options."""
    flag = {"true": 1.0, "false": 0.0}.get(str(value))
    if flag is not None:
        return {name: flag}
    try:
        return {name: float(str(value))}
    except ValueError:
        return {f"{name}={value}": 1.0}


def step_rows(entry: LogEntry) -> Floats:
    """An Ansor schedule's steps in their order, of shape (steps, STEP_WIDTH).

    A row has a 1 in the column of the step's kind, and behind the kinds its numbers in their
    order as sign(x) log2(1 + |x|), lists flattened. Of a pragma's name only the number counts.

    Raises:
        ValueError: the entry is of another tuner.
    """
    if entry.tuner != "ansor":
        raise ValueError(f"line {entry.line} is of {entry.tuner}, which has no steps")
    rows = np.zeros((len(entry.candidate.point), STEP_WIDTH), dtype=np.float32)
    for row, step in zip(rows, entry.candidate.point, strict=True):
        kind, *values = cast("tuple[Point, ...]", step)
        if kind == "AN":
            kind = f"AN {_annotation(values.pop())}"
        row[_KINDS.index(str(kind))] = 1.0
        numbers = _numbers(values)[:_NUMBERS]
        row[len(_KINDS) : len(_KINDS) + len(numbers)] = numbers
    return rows


def _annotation(number: Point) -> str:
    at = cast("int", number)
    return _ANNOTATIONS[at] if 0 <= at < len(_ANNOTATIONS) else _ANNOTATIONS[0]


def _numbers(values: Iterable[Point]) -> list[float]:
    """The numbers in a step, scaled."""
    found: list[float] = []
    for value in values:
        if isinstance(value, tuple):
            found += _numbers(value)
        elif isinstance(value, str):
            # `auto_unroll_max_step$512`; the scope of a cache has no number.
            digits = value.rpartition("$")[2]
            found += [math.log2(1 + float(digits))] if digits.isdecimal() else []
        else:
            found.append(math.copysign(math.log2(1 + abs(value)), value))
    return found


def steps_samples(entries: Sequence[LogEntry]) -> Samples:
    """Samples of Ansor's schedules with what was measured, one row a schedule.

    The first split, the second, and so on have columns of their own, and so do the steps of every
    other kind: a 1 where there is such a step, and its numbers (see `step_rows`), zeros where
    there is none. Steps beyond a kind's last slot are added to it. So a step that only one of two
    sketches has leaves the others in their columns: trees of 100 schedules ranked held-out ones of
    a product with a pairwise accuracy of 0.70 (0.66 with columns by a step's place in the
    sequence), those of a convolution with 0.77 (0.76). All tasks share the columns.

    Raises:
        ValueError: an entry is of another tuner.
    """
    rows = np.zeros((len(entries), sum(SLOTS), 1 + _NUMBERS), dtype=np.float32)
    for row, entry in zip(rows, entries, strict=True):
        seen: Counter[int] = Counter()
        for step in step_rows(entry):
            kind = int(step[: len(_KINDS)].argmax())
            slot = _STARTS[kind] + min(seen[kind], SLOTS[kind] - 1)
            row[slot, 0] += 1.0
            row[slot, 1:] += step[len(_KINDS) :]
            seen[kind] += 1
    return _samples(STEPS_SCHEMA, rows.reshape(len(entries), STEPS_SCHEMA.width), entries)


def _samples(schema: FeatureSchema, rows: Floats, entries: Sequence[LogEntry]) -> Samples:
    n = len(entries)
    latency_s = np.array([entry.latency_s for entry in entries], dtype=np.float64)
    return Samples(schema, rows, np.ones(n, dtype=np.int64), latency_s, groups(entries))
