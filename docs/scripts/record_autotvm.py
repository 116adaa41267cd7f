r"""Tunes one operator with the real AutoTVM and writes its log, one JSON object a trial.

AutoTVM has left TVM, so this runs in an interpreter of its own, where nothing of tensortune is:

    python3.10 -m venv autotvm
    autotvm/bin/pip install hhb-tvm==3.2.3 'numpy<2' 'xgboost<2' ml-dtypes==0.2.0 attrs \
        cloudpickle decorator psutil scipy tornado typing_extensions synr tqdm tflite
    autotvm/bin/python docs/scripts/record_autotvm.py dense 128 128 128 --out dense.jsonl
    autotvm/bin/python docs/scripts/record_autotvm.py conv2d 1 28 28 32 64 3 1 1 --tuner random

The log is appended to. `tensortune.data.logs.reader.read_log` reads it.
"""

import argparse
import contextlib
import random
import time

import numpy as np
import tvm
import tvm.topi  # registers the templates
from tvm import autotvm
from tvm.autotvm.measure.measure import MeasureErrorNo, MeasureResult, Runner
from tvm.contrib import cc
from tvm.target import codegen

TENSOR = "TENSOR"
TUNERS = ("xgb", "random", "ga")


def host_target():
    """This machine's target; the default triple of the package is another architecture's."""
    return f"llvm -mtriple=x86_64-linux-gnu -mcpu={codegen.llvm_get_system_cpu()}"


def template_of(operator, shape, dtype):
    """The x86 template of an operator and the arguments of its task.

    `dense` and `bitserial_dense` (1-bit numbers) take m n k; `conv2d` takes n h w ci co kernel
    stride padding, and lies in NCHW.
    """
    if operator == "bitserial_dense":
        m, n, k = shape
        args = ((TENSOR, (m, k), "uint32"), (TENSOR, (n, k), "uint32"), 1, 1, "uint32", "int16")
        return "bitserial_dense.x86", args
    if operator == "dense":
        m, n, k = shape
        args = ((TENSOR, (m, k), dtype), (TENSOR, (n, k), dtype), None, dtype)
        return "dense_nopack.x86", args
    n, h, w, ci, co, kernel, stride, padding = shape
    args = (
        (TENSOR, (n, ci, h, w), dtype),
        (TENSOR, (co, ci, kernel, kernel), dtype),
        (stride, stride),
        (padding, padding, padding, padding),
        (1, 1),
        "NCHW",
        "NCHW",
        dtype,
    )
    return "conv2d_NCHWc.x86", args


class InProcessRunner(Runner):
    """Times the built library in this process; AutoTVM's own runner needs an RPC server."""

    def __init__(self, number=1, repeat=3, min_repeat_ms=20):
        super().__init__(timeout=10, n_parallel=1)
        self.number, self.repeat, self.min_repeat_ms = number, repeat, min_repeat_ms

    def get_build_kwargs(self):
        return {}

    def run(self, measure_inputs, build_results):
        return [
            built if isinstance(built, MeasureResult) else self._time(built)
            for built in build_results
        ]

    def _time(self, built):
        start = time.time()
        try:
            module = tvm.runtime.load_module(built.filename)
            rng = np.random.default_rng(0)
            arrays = [
                tvm.nd.array(rng.uniform(0.5, 1.5, shape).astype(dtype))
                for shape, dtype in built.arg_info
            ]
            timer = module.time_evaluator(
                module.entry_name,
                tvm.cpu(0),
                number=self.number,
                repeat=self.repeat,
                min_repeat_ms=self.min_repeat_ms,
            )
            costs, error = timer(*arrays).results, MeasureErrorNo.NO_ERROR
        except Exception as failure:  # whatever the kernel did; the log has a number for it
            costs, error = (failure,), MeasureErrorNo.RUNTIME_DEVICE
        seconds = built.time_cost + time.time() - start
        return MeasureResult(tuple(costs), error, seconds, time.time())


def shared_library(output, objects, options=None, **kwargs):
    """Links to a library that can be loaded here; the default is an archive for RPC."""
    cc.create_shared(output, objects, options or ["-shared", "-fPIC"])


shared_library.output_format = "so"


def tuner_of(name, task):
    if name == "xgb":
        return autotvm.tuner.XGBTuner(task, loss_type="rank", plan_size=16)
    return {"random": autotvm.tuner.RandomTuner, "ga": autotvm.tuner.GATuner}[name](task)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operator", choices=("dense", "conv2d", "bitserial_dense"))
    parser.add_argument("shape", type=int, nargs="+")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--tuner", choices=TUNERS, default="xgb")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default=None, help="by default this machine's")
    parser.add_argument("--build-timeout", type=float, default=10.0)
    parser.add_argument("--out", default="autotvm.jsonl")
    asked = parser.parse_args()

    random.seed(asked.seed)
    # AutoTVM draws from the global generators.
    np.random.seed(asked.seed)  # noqa: NPY002
    name, args = template_of(asked.operator, asked.shape, asked.dtype)
    task = autotvm.task.create(name, args, target=tvm.target.Target(asked.target or host_target()))
    print(f"{name}: {len(task.config_space)} configurations, {asked.trials} trials")
    option = autotvm.measure_option(
        builder=autotvm.LocalBuilder(
            timeout=asked.build_timeout, n_parallel=1, build_func=shared_library
        ),
        runner=InProcessRunner(),
    )
    start = time.time()
    tuner_of(asked.tuner, task).tune(
        n_trial=asked.trials,
        measure_option=option,
        callbacks=[autotvm.callback.log_to_file(asked.out)],
    )
    best = None
    with contextlib.suppress(FileNotFoundError):
        best = min(
            float(np.mean(result.costs))
            for _, result in autotvm.record.load_from_file(asked.out)
            if result.error_no == 0
        )
    print(f"{time.time() - start:.0f} s; the log's best takes {best} s")


if __name__ == "__main__":
    main()
