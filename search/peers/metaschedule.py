"""MetaSchedule as it is shipped, with our parts in it, and its search and model on our workers."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms

from ...costmodel.metaschedule import pretrained_model
from ...costmodel.pretrained import load as load_pretrained
from ...data.candidate import Candidate
from ...data.finals import make_reference
from ...data.host import set_threads
from ...data.measure import LocalMeasurer
from ...data.metaschedule.builder import builder
from ...data.metaschedule.runner import runner
from ...data.record import Record
from ...data.sketch_space import tune_context
from ...data.target import num_cores
from ...data.tir.intrinsics import skip_gpu_intrinsics
from ...data.workload import Workload
from ..annealing import SimulatedAnnealing
from ..metaschedule import MetaScheduleStrategy
from ..outcome import Outcome, process_age

# How MetaSchedule stores a failure.
_FAILED_S = 1e9
# Its default number of trials between two generations.
TRIALS_PER_ITER = 64


def run_shipped(workload: Workload, target: Any, trials: int, seed: int, folder: Path) -> Outcome:
    """`ms.tune_tir` with its own builder, runner, model and search, as anybody would call it."""
    return _tune_tir(workload, target, trials, seed, folder, {})


def run_with_our_parts(
    workload: Workload, target: Any, trials: int, seed: int, folder: Path
) -> Outcome:
    """`ms.tune_tir` with our model (pretrained), strategy, builder and runner in it."""
    skip_gpu_intrinsics()
    parts = {
        "cost_model": pretrained_model(load_pretrained(), seed),
        "strategy": MetaScheduleStrategy(SimulatedAnnealing),
        "builder": builder(),
        "runner": runner(),
    }
    return _tune_tir(workload, target, trials, seed, folder, parts)


def _tune_tir(
    workload: Workload,
    target: Any,
    trials: int,
    seed: int,
    folder: Path,
    parts: Mapping[str, Any],
) -> Outcome:
    """Its records carry no time, so the curve has trials only."""
    set_threads(num_cores(target))  # its runner inherits it
    database = ms.tir_integration.tune_tir(
        mod=workload.mod,
        target=target,
        work_dir=str(folder / "work"),
        max_trials_global=trials,
        num_trials_per_iter=TRIALS_PER_ITER,
        seed=seed + 1,
        **parts,
    )
    latencies = _read_latencies(folder / "work" / "database_tuning_record.json")
    best = database.query_schedule(workload.mod, target, "main")
    return Outcome(
        mod=None if best is None else best.mod,
        latencies_s=latencies,
        elapsed_s=[None] * len(latencies),
        failures=_failures(latencies, folder / "work" / "logs"),
        seconds={},
    )


def run_on_our_workers(
    workload: Workload, target: Any, trials: int, seed: int, per_iter: int
) -> Outcome:
    """Its evolutionary search and its `XGBModel`, measured by `LocalMeasurer`.

    The loop is that of its task scheduler: measure a generation, commit it to the database, update
    the model, tell the search. Its model gives random scores until it has seen 100 samples.
    """
    start_s, began = process_age(), time.monotonic()
    search = ms.search_strategy.EvolutionarySearch()
    context = tune_context(workload.mod, target, search_strategy=search, seed=seed + 1)
    database = ms.database.MemoryDatabase()
    entry = database.commit_workload(workload.mod)
    model = ms.cost_model.CostModel.create("xgb", num_tuning_cores=num_cores(target))
    latencies: list[float] = []
    elapsed: list[float | None] = []
    failures: Counter[str] = Counter()

    def note(record: Record) -> None:
        latencies.append(record.latency_s)
        elapsed.append(time.monotonic() - began)
        if record.failure:
            failures[record.failure] += 1

    with LocalMeasurer(workload, target) as measurer:
        make_reference(measurer)  # sets how long a candidate may run, as for ours
        spaces = context.generate_design_space()
        search.pre_tuning(trials, per_iter, spaces, database, model)
        while (found := search.generate_measure_candidates()) is not None:
            records = _measure(measurer, found, note)
            results = [_as_result(record) for record in records]
            for candidate, record in zip(found, records, strict=True):
                times = list(record.repeats) if record.valid else [1e10]
                database.commit_tuning_record(
                    ms.database.TuningRecord(
                        candidate.sch.trace, entry, times, target, candidate.args_info
                    )
                )
            model.update(context, found, results)
            search.notify_runner_results(found, results)
        search.post_tuning()
        seconds = dict(measurer.seconds)
    best = database.query_schedule(workload.mod, target, "main")
    mod = None if best is None else best.mod
    return Outcome(mod, latencies, elapsed, dict(failures), seconds, start_s=start_s)


def _measure(measurer: LocalMeasurer, found: Sequence[Any], note: Any) -> list[Record]:
    named = [(Candidate("metaschedule", (i,)), item.sch.mod) for i, item in enumerate(found)]
    return measurer.measure_modules(named, note)


def _as_result(record: Record) -> Any:
    if record.valid:
        return ms.runner.RunnerResult(list(record.repeats), None)
    return ms.runner.RunnerResult(None, record.detail or str(record.failure))


def _read_latencies(path: Path) -> list[float]:
    """Mean seconds of every trial in the order of the file; the database itself sorts them.

    A line is `[workload, [trace, run_secs, target, arguments]]`.
    """
    means = []
    for line in path.read_text().splitlines():
        times = [float(second) for second in json.loads(line)[1][1] or []]
        mean = sum(times) / len(times) if times else _FAILED_S
        means.append(mean if mean < _FAILED_S else float("inf"))
    return means


def _failures(latencies: Sequence[float], logs: Path) -> dict[str, int]:
    """Failures by kind: its records don't say, its logs tell the time-outs."""
    failed = sum(latency == float("inf") for latency in latencies)
    text = "\n".join(path.read_text(errors="replace") for path in logs.glob("*.log"))
    timeouts = min(failed, len(re.findall(r"Local(?:Builder|Runner): Timeout", text)))
    kinds = {"timeout": timeouts, "other": failed - timeouts}
    return {kind: count for kind, count in kinds.items() if count}
