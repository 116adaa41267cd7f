"""Ansor's log, which TenSet's files are too: one JSON object a trial, with the schedule's steps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..candidate import Candidate, Point
from . import known
from .entry import LogEntry, canonical_json, get, integer, integers, items, outcome, text, wrong

SPACE = "ansor"
_FORMAT = re.compile(r"v0\.[2-6]")

# The steps of a schedule and what follows their names: i an integer, b a flag, s a string,
# l a list of integers. The first integer is always the stage.
STEPS: Mapping[str, str] = {
    "AN": "iii",  # annotate: loop, annotation
    "FU": "il",  # fuse: loops
    "PR": "iis",  # pragma: loop, which
    "RE": "il",  # reorder: the loops' new order
    "SP": "iiilb",  # split: loop, extent, factors, from the innermost?
    "FSP": "iiii",  # split as another step did: loop, step, factors
    "FFSP": "iilib",  # split as several steps did, fused: loop, steps, level, factor or parts?
    "SA": "iiii",  # align the storage: loop, factor, offset
    "CA": "iii",  # compute at: stage, loop
    "CI": "i",  # compute inline
    "CR": "i",  # compute at the root
    "CHR": "isl",  # cache reads: scope, readers
    "CHW": "is",  # cache writes: scope
    "RF": "iii",  # factor the reduction: loop, new position
}


def is_ansor(value: Any) -> bool:
    """Whether an object is a line of Ansor's."""
    return isinstance(value, dict) and "i" in value and "r" in value


def parse(value: Any, line: int, workloads: Mapping[str, str]) -> LogEntry:
    """An entry of a line's JSON.

    Args:
        value: The line, as JSON.
        line: Its number.
        workloads: Our workload by the function's name or hash, or by that with the arguments as
            JSON; goes before what is recognised.

    Raises:
        ValueError: it is no such line; the message says in what.
    """
    version = text(get(value, "v"), "`v`")
    if not _FORMAT.fullmatch(version):
        raise wrong("`v`", "v0.2 to v0.6", version)
    given = items(get(value, "i"), "`i`")
    if len(given) != 2:
        raise wrong("`i`", "[task, state]", given)
    # Behind the key and the target come, from one version to the next, the hardware's parameters,
    # the host's target, the way of rewriting layouts, and names of inputs.
    key_and_target = items(given[0], "the task")[:2]
    if len(key_and_target) != 2:
        raise wrong("the task", "[workload key, target, ...]", given[0])
    task, args = _workload_key(text(key_and_target[0], "the workload key"))
    state = items(given[1], "the state")
    if len(state) != 2:
        raise wrong("the state", "[stages, steps]", state)
    return LogEntry(
        line=line,
        tuner="ansor",
        task=task,
        args=canonical_json(args),
        workload=known.chosen(workloads, task, args) or known.of_function(task, args),
        target=text(key_and_target[1], "the target"),
        candidate=Candidate(SPACE, tuple(_step(step) for step in items(state[1], "the steps"))),
        outcome=outcome(get(value, "r")),
        versions=(("ansor log", version),),
    )


def _workload_key(key: str) -> tuple[str, list[Any]]:
    """`'["name or hash", argument, ...]'` in its two parts; any other key is a name alone."""
    try:
        parts = json.loads(key)
    except ValueError:
        return key, []
    if not (isinstance(parts, list) and parts and isinstance(parts[0], str)):
        return key, []
    return parts[0], parts[1:]


def _step(step: Any) -> Point:
    """A step as a tuple, its flags as 0 and 1."""
    parts = items(step, "a step")
    name = parts[0] if parts else None
    if not isinstance(name, str) or name not in STEPS:
        raise wrong("a step", f"one of {', '.join(STEPS)}", name)
    form = STEPS[name]
    if len(parts) - 1 != len(form):
        raise ValueError(f"the step {name} takes {len(form)} values, not {len(parts) - 1}")
    what = f"a value of the step {name}"
    return name, *(_value(form[i], part, what) for i, part in enumerate(parts[1:]))


def _value(kind: str, value: Any, what: str) -> Point:
    if kind == "l":
        return integers(value, what)
    if kind == "s":
        return text(value, what)
    return int(value) if kind == "b" and isinstance(value, bool) else integer(value, what)
