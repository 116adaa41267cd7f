"""Tunes one operator with Ansor, and writes its winner as a library.

    python -m old_tvm.ansor_worker job.json

It is given what `peers/autotvm.py` wrote, and writes `log.jsonl` and `result.json` beside it.
Ansor works on the operator's own layout, so there is nothing to convert.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import tvm
import xgboost
from tvm import auto_scheduler, te
from tvm.meta_schedule.testing import te_workload

from .library import die_with_parent, make_launcher, shared_library, target_of, write_libraries
from .plan import Step

_BUILD_TIMEOUT_S = 15
_RUN_TIMEOUT_S = 10
_REPEATS = 3
_REPEAT_MS = 20
# Trials between two fits of the model, by default 64; and its scores are random up to 100 trials. A
# budget of 64 would have no model.
_ROUND = 16


def dense(m: int, n: int, k: int) -> list[Any]:
    """C[m,n] = A[m,k] W[n,k]."""
    a, w = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="W")
    r = te.reduce_axis((0, k), "k")
    return [a, w, te.compute((m, n), lambda i, j: te.sum(a[i, r] * w[j, r], axis=[r]), name="C")]


# The functions that TVM lists of Ansor's own suite, and the parameters in their order. They compute
# what the operators of the name do, on the same arguments in the same order.
_WINDOW = "kernel stride padding"
_WORKLOADS = {
    "matmul": (te_workload.matmul, "m n k"),
    "matmul_relu": (te_workload.matmul_relu, "m n k"),
    "dense": (dense, "m n k"),
    "batch_matmul": (te_workload.batch_matmul_nkkm, "b m n k"),
    "transpose_batch_matmul": (te_workload.transpose_batch_matmul, "batch seq heads dim"),
    "conv1d": (te_workload.conv1d_nlc, f"n l ci co {_WINDOW} dilation groups"),
    "conv2d": (te_workload.conv2d_nhwc, f"n h w ci co {_WINDOW} dilation groups"),
    "grouped_conv2d": (te_workload.conv2d_nhwc, f"n h w ci co {_WINDOW} dilation groups"),
    "dilated_conv2d": (te_workload.conv2d_nhwc, f"n h w ci co {_WINDOW} dilation groups"),
    "conv3d": (te_workload.conv3d_ndhwc, f"n d h w ci co {_WINDOW} dilation groups"),
    "depthwise_conv2d": (te_workload.depthwise_conv2d_nhwc, f"n h w c {_WINDOW} dilation"),
    "transposed_conv2d": (te_workload.conv2d_transpose_nhwc, f"n h w ci co {_WINDOW}"),
    "capsule_conv2d": (te_workload.conv2d_capsule_nhwijc, f"n h w ci co {_WINDOW} capsule"),
    "conv2d_bn_relu": (te_workload.conv2d_nhwc_bn_relu, f"n h w ci co {_WINDOW} dilation"),
    "norm": (te_workload.norm_bmn, "b m n"),
    "softmax": (te_workload.softmax_mn, "m n"),
}


def main() -> None:
    """Tune unless there is a log, then write the schedule of the rank that is asked for."""
    die_with_parent()
    path = Path(sys.argv[1]).resolve()
    job, folder = json.loads(path.read_text()), path.parent
    os.sched_setaffinity(0, job["cpus"])
    why = ""
    if job["operator"] not in _WORKLOADS:
        why = f"Ansor's suite has no {job['operator']}, and none is defined for it here"
    elif job["dtype"] != "float32":
        why = f"Ansor is compared in float32 only, not in {job['dtype']}"
    if why:
        (folder / "result.json").write_text(json.dumps({"reason": why}))
        return
    function, names = _WORKLOADS[job["operator"]]
    arguments = tuple(job["params"][name] for name in names.split())
    target = target_of(job["mcpu"], job["mattr"])
    auto_scheduler.register_workload(function, override=True)
    task = auto_scheduler.SearchTask(func=function, args=arguments, target=target)
    log = folder / "log.jsonl"
    if not log.exists():
        _tune(task, job, log)
    result = _write_winner(task, log, job["rank"], folder, target)
    result["about"] = {
        "space": "sketches",
        "target": str(target),
        "tvm": tvm.__version__,
        "xgboost": xgboost.__version__,
    }
    (folder / "result.json").write_text(json.dumps(result))


def _tune(task: Any, job: dict[str, Any], log: Path) -> None:
    make_launcher()
    log.touch()
    options = auto_scheduler.TuningOptions(
        num_measure_trials=job["trials"],
        num_measures_per_round=min(_ROUND, job["trials"]),
        builder=auto_scheduler.LocalBuilder(timeout=_BUILD_TIMEOUT_S, build_func=shared_library),
        runner=auto_scheduler.LocalRunner(
            timeout=_RUN_TIMEOUT_S, number=1, repeat=_REPEATS, min_repeat_ms=_REPEAT_MS
        ),
        measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
        verbose=0,
    )
    model = auto_scheduler.XGBModel(num_warmup_sample=_ROUND - 1, seed=job["seed"])
    policy = auto_scheduler.SketchPolicy(task, model, seed=job["seed"], verbose=0)
    task.tune(options, search_policy=policy)


def _write_winner(task: Any, log: Path, rank: int, folder: Path, target: Any) -> dict[str, Any]:
    """Write the library of the schedule that is `rank`-th by its mean time, from 0."""
    found = [
        (sum(float(cost) for cost in result.costs) / len(result.costs), position, measured.state)
        for position, (measured, result) in enumerate(auto_scheduler.load_records(str(log)))
        if result.error_no == 0
    ]
    found.sort(key=lambda entry: entry[:2])
    if rank >= len(found):
        return {"reason": "no valid candidate was found" if rank == 0 else "no right one was found"}
    schedule, tensors = task.compute_dag.apply_steps_from_state(found[rank][2])
    step = Step("kernel", schedule, list(tensors), False, list(range(len(tensors))))
    return {**write_libraries(folder, [step], target)}


if __name__ == "__main__":
    main()
