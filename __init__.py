"""Learned cost models and search strategies for tuning tensor operators with TVM.

The names below load on first use (PEP 562): importing the package loads nothing of its own, nor
TVM, and so takes milliseconds. `tensortune.matmul(512, 512, 512)` and the other operators give a
`Workload`, `tensortune.tune` tunes one.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data.workload import Workload, workload
    from .search.apply import apply
    from .search.tune import TuneResult, tune

__version__ = "0.1.0"

# Where each name comes from.
_NAMES: dict[str, str] = {
    "TuneResult": ".search.tune",
    "Workload": ".data.workload",
    "apply": ".search.apply",
    "tune": ".search.tune",
    "workload": ".data.workload",
}

# `tensortune.matmul(...)` is `workload("matmul", ...)`; the same names as `data.operators.names()`.
_OPERATORS = frozenset(
    """
    matmul batch_matmul dense matmul_relu transpose_batch_matmul
    conv1d conv2d conv3d grouped_conv2d dilated_conv2d depthwise_conv2d transposed_conv2d
    capsule_conv2d conv2d_bn_relu max_pool2d avg_pool2d
    softmax layer_norm rms_norm batch_norm norm sum max min mean
    add subtract multiply divide maximum relu exp log sqrt tanh sigmoid silu gelu transpose take
    """.split()
)

# The operators are left out: `from tensortune import *` must not take the place of `max` and `sum`.
__all__ = ["TuneResult", "Workload", "__version__", "apply", "tune", "workload"]


def __getattr__(name: str) -> Any:
    """Load the module that holds `name`, after a check that its packages can work together.

    Raises:
        AttributeError: there is no such name.
        InstallError: TVM is missing, or comes with a release that crashes it.
    """
    module = ".data.workload" if name in _OPERATORS else _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Before TVM is imported: with the wrong packages it dies of a segmentation fault.
    import_module(".data.install", __name__).check_install()
    loaded = import_module(module, __name__)
    value = partial(loaded.workload, name) if name in _OPERATORS else getattr(loaded, name)
    globals()[name] = value  # so that the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_OPERATORS})
