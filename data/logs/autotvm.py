"""AutoTVM's log: one JSON object a trial, format 0.2 (TVM 0.6 to 0.18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..candidate import Candidate, Point
from . import known
from .entry import LogEntry, canonical_json, get, integer, integers, items, outcome, text, wrong

SPACE = "autotvm"
_FORMAT = 0.2


def is_autotvm(value: Any) -> bool:
    """Whether an object is a line of AutoTVM's, of this format or of 0.1."""
    return isinstance(value, dict) and ("input" in value or _is_old(value))


def parse(value: Any, line: int, workloads: Mapping[str, str]) -> LogEntry:
    """An entry of a line's JSON.

    Args:
        value: The line, as JSON.
        line: Its number.
        workloads: Our workload by the task's name, or by its name with its arguments as JSON;
            goes before what is recognised.

    Raises:
        ValueError: it is no such line; the message says in what.
    """
    if _is_old(value):
        raise ValueError("it is of AutoTVM's format 0.1, which TVM 0.6 and later can't read either")
    if get(value, "version") != _FORMAT:
        raise wrong("`version`", f"{_FORMAT}", value["version"])
    given = items(get(value, "input"), "`input`")
    if len(given) != 4:
        raise wrong("`input`", "[target, task, arguments, keyword arguments]", given)
    target, task = text(given[0], "the target"), text(given[1], "the task")
    args = items(given[2], "the task's arguments")
    versions = (("autotvm log", str(_FORMAT)), ("tvm", str(value.get("tvm_version", ""))))
    return LogEntry(
        line=line,
        tuner="autotvm",
        task=task,
        args=canonical_json(args),
        workload=known.chosen(workloads, task, args) or known.of_template(task, args),
        target=target,
        candidate=Candidate(f"{SPACE}/{task}", _knobs(get(value, "config"))),
        outcome=outcome(get(value, "result")),
        versions=versions,
    )


def _is_old(value: Any) -> bool:
    return isinstance(value, dict) and value.get("v") == 0.1


def _knobs(config: Any) -> tuple[Point, ...]:
    """The knobs in the log's order, each as (name, kind, value)."""
    knobs: list[Point] = []
    names: set[str] = set()
    for entity in items(get(config, "entity"), "`entity`"):
        if not (isinstance(entity, list) and len(entity) == 3):
            raise wrong("a knob", "[name, kind, value]", entity)
        name, kind = text(entity[0], "a knob's name"), text(entity[1], "a knob's kind")
        if name in names:
            raise ValueError(f"the knob {name!r} is there twice")
        if kind not in _KINDS:
            raise wrong("a knob's kind", f"one of {', '.join(_KINDS)}", kind)
        names.add(name)
        knobs.append((name, kind, _KINDS[kind](entity[2], f"the knob {name!r}")))
    return tuple(knobs)


def _annotations(value: Any, what: str) -> Point:
    return tuple(text(item, what) for item in items(value, what))


def _option(value: Any, what: str) -> Point:
    """One of the values that a template lists: integers stay, the rest becomes JSON text."""
    if isinstance(value, (list, dict)):
        raise wrong(what, "a single value", value)
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return integer(value, what)
    return canonical_json(value)


# `sp` splits a loop (-1 stands for what is left of it), `re` reorders, `an` annotates loops.
_KINDS: dict[str, Callable[[Any, str], Point]] = {
    "sp": integers,
    "re": integers,
    "an": _annotations,
    "ot": _option,
}
