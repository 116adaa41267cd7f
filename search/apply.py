"""Scheduling a module's functions from stored records."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import tvm
from tvm import tirx

from ..data.candidate import InvalidCandidate
from ..data.record import Record
from ..data.space import Space
from ..data.spaces import SPACES, make_space
from ..data.store import Store
from ..data.target import cpu_target, target_string
from ..data.workload import Workload, WorkloadError

Records = Iterable[Record] | str | os.PathLike[str]


def apply(mod: Any, records: Records, *, target: Any = None) -> tvm.IRModule:
    """Schedule every function of a module that the records know, with the fastest record.

    A function is known when its computation is the one that was tuned (see `canonical`); its name
    plays no part. The others are left as they are.

    Records found wrong are passed over. Of a tuning run, the four that were fastest when they were
    first timed have been checked, so the fastest has.

    Args:
        mod: A `tvm.IRModule` or a `PrimFunc`.
        records: Records, or the path of a store (`records.jsonl`) or of a run's folder.
        target: The target to compile for; by default this machine.

    Returns:
        The module with the scheduled functions in the old ones' places.

    Raises:
        ValueError: no function of the module is in the records; the message says what is.
    """
    chosen = cpu_target(target)
    known = _fastest(records, target_string(chosen))
    module = mod if isinstance(mod, tvm.IRModule) else tvm.IRModule({"main": mod})
    scheduled: dict[Any, Any] = {}
    for name, function in module.functions.items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        try:
            workload = Workload.from_module(function)
        except WorkloadError:  # a dynamic shape: nothing that could have been tuned
            continue
        replacement = _schedule(workload, known.get(workload.identity, ()), chosen)
        if replacement is not None:
            scheduled[name] = _keep_attributes(replacement, function)
    if not scheduled:
        tuned = ", ".join(sorted({r.workload for rs in known.values() for r in rs})) or "nothing"
        raise ValueError(f"no function of the module is in the records; they hold {tuned}")
    result = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    for name, function in scheduled.items():
        result.update_func(name, function)
    return result


def _fastest(records: Records, target: str) -> dict[str, list[Record]]:
    """Valid records of the target by identity, fastest first; those found wrong are left out."""
    if isinstance(records, (str, os.PathLike)):
        path = os.fspath(records)
        if os.path.isdir(path):
            path = os.path.join(path, "records.jsonl")
        if not os.path.exists(path):
            raise ValueError(f"{path} does not exist")
        records = Store(path).read().records
    latest: dict[tuple[str, Any], Record] = {}
    for record in records:
        if record.target == target:
            latest[record.identity, record.candidate] = record
    known: dict[str, list[Record]] = {}
    for (identity, _), record in latest.items():
        if record.valid:
            known.setdefault(identity, []).append(record)
    for found in known.values():
        found.sort(key=lambda record: record.latency_s)
    return known


def _schedule(workload: Workload, records: Iterable[Record], target: Any) -> Any:
    """The function scheduled by the first record that replays on it, or None."""
    spaces: dict[str, Space] = {}
    for record in records:
        name = record.candidate.space
        if name not in SPACES:
            continue
        if name not in spaces:
            spaces[name] = make_space(name, workload, target)
        try:
            return spaces[name].schedule(record.candidate).mod["main"]
        except InvalidCandidate:
            # The computation is the same, but its unit dimensions give it other decisions.
            continue
    return None


def _keep_attributes(scheduled: Any, original: Any) -> Any:
    """The scheduled function with the original's attributes, its symbol among them."""
    for name, value in (original.attrs or {}).items():
        scheduled = scheduled.with_attr(name, value)
    return scheduled.with_attr("tirx.is_scheduled", True)
