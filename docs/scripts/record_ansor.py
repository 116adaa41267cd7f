"""Tunes one operator with the real Ansor and writes its log, one JSON object a trial.

Runs in the interpreter that `record_autotvm.py` says how to make:

    autotvm/bin/python docs/scripts/record_ansor.py conv2d_nhwc 1 14 14 64 64 3 1 1 --out conv.jsonl
    autotvm/bin/python docs/scripts/record_ansor.py dense 128 128 128 --hashed --out dense.jsonl

`--quick` keeps the search's populations small: the schedules are then nearly random, and are found
in seconds. `--hashed` names the workload by a hash of its computation, as Ansor does for the
operators of an imported network (and as TenSet's files do); otherwise by a function's name and its
arguments.
"""

import argparse

import cloudpickle
import record_autotvm
import tvm
from record_autotvm import host_target, shared_library
from tvm import auto_scheduler, te, topi

# Ansor's workers are given the linking function, and can't import the module that it is from.
cloudpickle.register_pickle_by_value(record_autotvm)


@auto_scheduler.register_workload
def dense(m, n, k):
    """C[m,n] = A[m,k] W[n,k]."""
    a, w = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="W")
    r = te.reduce_axis((0, k), "k")
    return [a, w, te.compute((m, n), lambda i, j: te.sum(a[i, r] * w[j, r], axis=[r]), name="C")]


@auto_scheduler.register_workload
def conv2d_nhwc(n, h, w, ci, co, kernel, stride, padding):
    """A 2-D convolution, and a ReLU behind it."""
    data = te.placeholder((n, h, w, ci), name="data")
    weight = te.placeholder((kernel, kernel, ci, co), name="weight")
    return [data, weight, topi.nn.conv2d_nhwc(data, weight, stride, padding, 1)]


@auto_scheduler.register_workload
def softmax_mn(m, n):
    """Softmax over the last axis."""
    a = te.placeholder((m, n), name="A")
    return [a, topi.nn.softmax(a, axis=1)]


QUICK = {
    "sample_init_min_population": 16,
    "evolutionary_search_population": 64,
    "evolutionary_search_num_iters": 1,
}
OPERATORS = {function.__name__: function for function in (dense, conv2d_nhwc, softmax_mn)}


def task_of(name, shape, target, hashed):
    if not hashed:
        return auto_scheduler.SearchTask(func=OPERATORS[name], args=tuple(shape), target=target)
    dag = auto_scheduler.ComputeDAG(OPERATORS[name](*shape))
    key = dag.workload_key()
    auto_scheduler.workload_registry.register_workload_tensors(key, dag.tensors)
    return auto_scheduler.SearchTask(compute_dag=dag, workload_key=key, target=target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operator", choices=tuple(OPERATORS))
    parser.add_argument("shape", type=int, nargs="+")
    parser.add_argument("--hashed", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default=None, help="by default this machine's")
    parser.add_argument("--build-timeout", type=int, default=15)
    parser.add_argument("--run-timeout", type=int, default=10)
    parser.add_argument("--out", default="ansor.jsonl")
    asked = parser.parse_args()

    target = tvm.target.Target(asked.target or host_target())
    task = task_of(asked.operator, asked.shape, target, asked.hashed)
    options = auto_scheduler.TuningOptions(
        num_measure_trials=asked.trials,
        num_measures_per_round=16,
        builder=auto_scheduler.LocalBuilder(
            timeout=asked.build_timeout, n_parallel=1, build_func=shared_library
        ),
        runner=auto_scheduler.LocalRunner(
            timeout=asked.run_timeout, number=1, repeat=3, min_repeat_ms=20
        ),
        measure_callbacks=[auto_scheduler.RecordToFile(asked.out)],
        verbose=0,
    )
    policy = auto_scheduler.SketchPolicy(
        task,
        auto_scheduler.XGBModel(seed=asked.seed),
        params=QUICK if asked.quick else None,
        seed=asked.seed,
        verbose=0,
    )
    task.tune(options, search_policy=policy)


if __name__ == "__main__":
    main()
