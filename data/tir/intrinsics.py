"""Registers the tensor intrinsics that the CPU's schedule rules need, and no others.

`tvm.s_tir.tensor_intrin` parses the intrinsics of every GPU when it is imported, which takes about
15 s. The CPU's rules need one of its modules, which loads in a tenth of a second by itself.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path

import tvm.s_tir

_PACKAGE = "tvm.s_tir.tensor_intrin"
# In the order of their imports: a module whose siblings are loaded does not pull the package in.
_MODULES = {"x86_64": ("x86",), "aarch64": ("dot_product_common", "arm_cpu")}


def load_cpu_intrinsics(arch: str) -> None:
    """Register the intrinsics of one CPU architecture; a no-op the second time.

    The modules keep their real names in `sys.modules`, so a later import of the whole package
    finds them there and does not register the same intrinsic twice (which is an error in TVM).

    Args:
        arch: `x86_64` or `aarch64`, the first part of the target's triple.
    """
    if _PACKAGE in sys.modules:
        return
    folder = Path(next(iter(tvm.s_tir.__path__))) / "tensor_intrin"
    for module in _MODULES.get(arch, ()):
        name = f"{_PACKAGE}.{module}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, folder / f"{module}.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"TVM's {name} is missing; reinstall apache-tvm")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        try:
            spec.loader.exec_module(loaded)
        except BaseException:
            del sys.modules[name]
            raise


def skip_gpu_intrinsics() -> None:
    """Spare this process 15 s: tuning for the CPU needs no tensor intrinsics of GPUs.

    `ms.tune_tir` imports `tvm.s_tir.tensor_intrin` first, which parses those of every GPU; after
    this call it finds the CPU's only. To tune for a GPU in the same process after all, import
    its module, as in `import tvm.s_tir.tensor_intrin.cuda`.
    """
    if _PACKAGE in sys.modules:
        return
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None:
        raise ImportError(f"TVM's {_PACKAGE} is missing; reinstall apache-tvm")
    load_cpu_intrinsics({"arm64": "aarch64"}.get(platform.machine(), platform.machine()))
    package = importlib.util.module_from_spec(spec)
    for name in [name for name in sys.modules if name.startswith(f"{_PACKAGE}.")]:
        setattr(package, name.rpartition(".")[2], sys.modules[name])
    sys.modules[_PACKAGE] = package
    tvm.s_tir.tensor_intrin = package
