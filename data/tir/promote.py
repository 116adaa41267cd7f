"""The same computation in float64, for reference outputs."""

from __future__ import annotations

import json
import re
from typing import Any

import tvm

_FLOAT = re.compile(r"^b?float(?:8_\w+?|16|32)(x\d+)?$")
# Bits taken for another type, or code that exists for one type only.
_TYPED = re.compile(
    r"reinterpret|llvm|call_extern|pure_extern|call_packed|call_cpacked|stack_make|asm|ptx|mma|"
    r"tvm_access_ptr|vscale|atomic"
)


def to_float64(mod: Any) -> Any | None:
    """Promote every float of a module to float64.

    There are no Python mutators for TIR in TVM 0.27; the saved form of a module names each dtype
    once, in its types and data types, so they are exchanged there.

    Returns:
        The module, or None if it holds code that means something in one type only.
    """
    saved = json.loads(tvm.ir.save_json(mod))
    for node in saved["nodes"]:
        data = node.get("data")
        if node["type"] == "ir.Op" and _TYPED.search(data):
            return None
        if node["type"] == "ir.PrimType":
            data["dtype"] = _FLOAT.sub(r"float64\1", data["dtype"])
        elif node["type"] == "DataType":
            node["data"] = _FLOAT.sub(r"float64\1", data)
    try:
        return tvm.ir.load_json(json.dumps(saved))
    except (RuntimeError, TypeError, ValueError):
        return None


def builds(mod: Any) -> bool:
    """Whether a module compiles for this machine, unscheduled."""
    try:
        tvm.compile(mod, target=tvm.target.Target.from_device("cpu"))
    except Exception:
        return False
    return True
