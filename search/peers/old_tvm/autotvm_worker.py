"""Tunes one operator with AutoTVM, and writes its winner as a library.

    python -m old_tvm.autotvm_worker job.json

It is given what `peers/autotvm.py` wrote, and writes `log.jsonl` and `result.json` beside it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm.topi
import xgboost
from tvm import autotvm
from tvm.autotvm.measure.measure import MeasureErrorNo, MeasureResult, Runner

from .library import die_with_parent, make_launcher, shared_library, target_of, write_libraries
from .plan import Plan, Unsupported, steps_of
from .templates import plan_of
from .timing import Timer

_BUILD_TIMEOUT_S = 10
_RUN_TIMEOUT_S = 10.0
# Trials between two fits of the model, and a generation of the genetic algorithm. By default they
# are 64 and 100: with a budget of 64 trials both would be a random search.
_PLAN_SIZE = 16
_ERRORS = {
    "seconds": MeasureErrorNo.NO_ERROR,
    "error": MeasureErrorNo.RUNTIME_DEVICE,
    "timeout": MeasureErrorNo.RUN_TIMEOUT,
}


def main() -> None:
    """Tune unless there is a log, then write the configuration of the rank that is asked for."""
    die_with_parent()
    path = Path(sys.argv[1]).resolve()
    job, folder = json.loads(path.read_text()), path.parent
    os.sched_setaffinity(0, job["cpus"])
    try:
        plan = plan_of(job["operator"], job["params"], job["dtype"])
    except Unsupported as why:
        (folder / "result.json").write_text(json.dumps({"reason": str(why)}))
        return
    target = target_of(job["mcpu"], job["mattr"])
    task = autotvm.task.create(plan.template, plan.task_args, target=target)
    log = folder / "log.jsonl"
    if not log.exists():
        _tune(task, job, log)
    result = _write_winner(plan, log, job["rank"], folder, target)
    result["about"] = {
        **result.get("about", {}),
        "template": plan.template,
        "space": str(len(task.config_space)),
        "target": str(target),
        "tvm": tvm.__version__,
        "xgboost": xgboost.__version__,
    }
    (folder / "result.json").write_text(json.dumps(result))


def _tune(task: Any, job: dict[str, Any], log: Path) -> None:
    random.seed(job["seed"])
    # AutoTVM draws from the global generators.
    np.random.seed(job["seed"])  # noqa: NPY002
    make_launcher()
    log.touch()
    timer = Timer(job["cpus"][: job["threads"]], _RUN_TIMEOUT_S)
    option = autotvm.measure_option(
        # `None` is its default: as many at once as there are CPUs.
        builder=autotvm.LocalBuilder(
            timeout=_BUILD_TIMEOUT_S, n_parallel=None, build_func=shared_library
        ),
        runner=TimerRunner(timer),
    )
    try:
        _tuner(job["tuner"], task).tune(
            n_trial=job["trials"],
            measure_option=option,
            callbacks=[autotvm.callback.log_to_file(str(log))],
        )
    finally:
        timer.close()


def _tuner(name: str, task: Any) -> Any:
    if name == "autotvm":
        return autotvm.tuner.XGBTuner(task, loss_type="rank", plan_size=_PLAN_SIZE)
    if name == "autotvm-ga":
        return autotvm.tuner.GATuner(task, pop_size=_PLAN_SIZE)
    return autotvm.tuner.RandomTuner(task)


def _write_winner(plan: Plan, log: Path, rank: int, folder: Path, target: Any) -> dict[str, Any]:
    """Write the library of the configuration that is `rank`-th by its mean time, from 0."""
    means: dict[int, float] = {}
    configs: dict[int, Any] = {}
    for measured, result in autotvm.record.load_from_file(str(log)):
        if result.error_no == MeasureErrorNo.NO_ERROR:
            index = measured.config.index
            means[index] = min(means.get(index, float("inf")), float(np.mean(result.costs)))
            configs[index] = measured.config
    ranking = sorted(means, key=means.__getitem__)
    if rank >= len(ranking):
        return {"reason": "no valid candidate was found" if rank == 0 else "no right one was found"}
    config = configs[ranking[rank]]
    with target:
        steps = steps_of(plan, config)
    about = {"configuration": str(config)}
    return {**write_libraries(folder, steps, target), "about": about}


class TimerRunner(Runner):
    """Times candidates one after the other.

    AutoTVM's own runner talks to a server, which fails for every candidate in the package that is
    used here.
    """

    def __init__(self, timer: Timer) -> None:
        super().__init__(timeout=_RUN_TIMEOUT_S, n_parallel=1)
        self.timer = timer

    def get_build_kwargs(self) -> dict[str, Any]:
        """Nothing that building has to know."""
        return {}

    def run(self, measure_inputs: Sequence[Any], build_results: Sequence[Any]) -> list[Any]:
        """Time what was built; what was not comes as its result."""
        return [
            built if isinstance(built, MeasureResult) else self._time(built)
            for built in build_results
        ]

    def _time(self, built: Any) -> Any:
        began = time.time()
        kind, found = self.timer.time(built.filename, built.arg_info)
        costs = found if kind == "seconds" else ("", found)
        seconds = built.time_cost + time.time() - began
        return MeasureResult(costs, _ERRORS[kind], seconds, time.time())


if __name__ == "__main__":
    main()
