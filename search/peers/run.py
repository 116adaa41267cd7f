"""One run of one strategy on one workload, in a process of its own.

A fresh process for every run, ours included, so that wall-clock means the same for all: from the
start of Python to the winner.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import tvm

from ...data.target import cpu_target
from ...data.workload import Workload
from ..outcome import Outcome, process_age
from ..run_folder import write_json
from ..tune import tune
from .autotvm import OLD_TVM, run_old_tvm

PEERS = ("metaschedule", "metaschedule-plugin", "metaschedule-fast", *OLD_TVM)


def run(job: dict[str, Any], folder: Path) -> Outcome:
    """Carry a job out: a workload, strategy, trials, seed, and, for ours, a model and a space."""
    workload = Workload.from_json(job["workload"])
    target = cpu_target(job["target"])
    strategy, trials, seed = job["strategy"], job["trials"], job["seed"]
    if strategy in OLD_TVM:
        return run_old_tvm(strategy, workload, target, trials, seed, folder)
    if strategy in PEERS:
        # Loaded on use, or our own runs would pay for it.
        peer = import_module(".metaschedule", __package__)
        outcome: Outcome
        if strategy == "metaschedule":
            outcome = peer.run_shipped(workload, target, trials, seed, folder)
        elif strategy == "metaschedule-plugin":
            outcome = peer.run_with_our_parts(workload, target, trials, seed, folder)
        else:
            outcome = peer.run_on_our_workers(workload, target, trials, seed, job["batch"])
        return outcome
    start_s, began = process_age(), time.monotonic()
    elapsed: list[float | None] = []
    result = tune(
        workload,
        trials=trials,
        strategy=strategy,
        model=job["model"],
        space=job["space"],
        acquisition=job["acquisition"],
        policy=job.get("policy"),
        batch=job["batch"],
        seed=seed,
        target=target,
        on_status=lambda _: elapsed.append(time.monotonic() - began),
    )
    return Outcome(
        mod=result.schedule().mod,
        latencies_s=[record.latency_s for record in result.records],
        elapsed_s=elapsed,
        failures=dict(result.failures),
        seconds=result.seconds,
        start_s=start_s,
    )


def main() -> None:
    """Read `job.json` in the folder given, and write `winner.json` and `outcome.json` there."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    outcome = run(job, folder)
    if outcome.mod is not None:
        (folder / "winner.json").write_text(tvm.ir.save_json(outcome.mod))
    write_json(
        folder / "outcome.json",
        {
            "trials": len(outcome.latencies_s),
            "failures": dict(outcome.failures),
            "seconds": dict(outcome.seconds),
            "curve": outcome.curve(),
            "about": dict(outcome.about),
            "reason": outcome.reason,
            "start_s": outcome.start_s,
            "library": _below(outcome.library, folder),
            "packed": _below(outcome.packed, folder),
        },
    )


def _below(path: Path | None, folder: Path) -> str | None:
    return None if path is None else str(path.relative_to(folder))
