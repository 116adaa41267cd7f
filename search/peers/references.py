"""What every comparison shows besides its strategies: how fast the operator is without tuning.

They are timed in turn with the winners, in workers of their own, on the same threads and arguments.
"""

from __future__ import annotations

from importlib.util import find_spec

from ...data.measure import LocalMeasurer
from ...data.worker import NumpyProgram, Program
from ...data.workload import Workload

_TORCH_CALL = f"{__package__}.torch_calls:torch_call"
_TORCH_DTYPES = ("float32", "float64")
TORCH_OPERATORS = frozenset(
    "matmul matmul_relu dense batch_matmul transpose_batch_matmul conv1d conv2d conv3d "
    "grouped_conv2d dilated_conv2d depthwise_conv2d transposed_conv2d conv2d_bn_relu max_pool2d "
    "avg_pool2d softmax layer_norm rms_norm batch_norm norm sum max min mean add subtract multiply "
    "divide maximum relu exp log sqrt tanh sigmoid silu gelu transpose take".split()
)
"""The operators that torch has a call for."""


def reference_programs(measurer: LocalMeasurer) -> dict[str, Program | NumpyProgram]:
    """The references of the measurer's workload by name, in the order of their columns.

    `untuned` is TVM's program as it stands, `numpy` what a NumPy user would call, `torch` what a
    torch user would: one eager call, weights and inputs laid out beforehand as torch likes them.
    """
    workload = measurer.workload
    programs: dict[str, Program | NumpyProgram] = {"untuned": measurer.program(workload.mod)}
    missing = missing_references(workload)
    for name, maker in (("numpy", ""), ("torch", _TORCH_CALL)):
        if name not in missing:
            programs[name] = NumpyProgram(
                workload.key, measurer.inputs, measurer.memory_bytes, maker
            )
    return programs


def missing_references(workload: Workload) -> dict[str, str]:
    """Why a workload lacks a reference, by the reference's name."""
    missing = {}
    if workload.source is not None:
        return dict.fromkeys(("numpy", "torch"), "nobody has told how it is called there")
    if workload.numpy_call() is None:
        missing["numpy"] = f"NumPy has no call for {workload.operator} in {workload.dtype}"
    if workload.operator not in TORCH_OPERATORS or workload.dtype not in _TORCH_DTYPES:
        missing["torch"] = (
            f"no call of torch's is known for {workload.operator} in {workload.dtype}"
        )
    elif find_spec("torch") is None:
        missing["torch"] = "torch is not installed: pip install 'tensortune[neural]'"
    return missing
