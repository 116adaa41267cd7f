"""Writes a scheduled program as a Python script that runs by itself, on TVM and NumPy alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from pprint import pformat
from string import Template
from typing import Any

import tvm
from tvm_ffi import structural_equal

from ..target import num_cores, target_string
from ..workload import Workload

_SCRIPT = Template('''\
"""A kernel that tensortune scheduled: run this file to build it and time it.

From other programs: `from $module import Module, build`. `Module` is the scheduled program;
`build()["main"]` is the kernel, which takes $count arrays as TVM tensors, in the order of
ARGUMENTS. It needs NumPy and TVM, nothing else; TVM $version made it.
"""

import os

os.environ["TVM_NUM_THREADS"] = "$threads"  # what it was tuned for; TVM has to be told in advance

import ml_dtypes  # comes with TVM
import numpy as np
import tvm
$imports

WORKLOAD = $key
FLOPS = $flops  # arithmetic operations in one run
TARGET = $target
# Name, shape, dtype, what the kernel does with it, and the values [low, high) that it may hold.
ARGUMENTS = $arguments


$program


def build(target=TARGET):
    """Compile for a target."""
    return tvm.compile(Module, target=tvm.target.Target(target)).jit()


def make_array(rng, shape, dtype, role, low, high):
    """Random where it is read, NaN (or zero) where it is only written."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if role == "output":
        return np.full(shape, np.nan if "float" in dtype else 0).astype(kind)
    if "float" not in dtype:
        return rng.integers(low or 0, 2 if high is None else high, size=shape).astype(kind)
    values = rng.uniform(0.1, 1.0, size=shape)
    signs = 1.0 if low is not None else rng.choice([-1.0, 1.0], size=shape)
    return (values * signs).astype(kind)


def main():
    """Build it, run it on random inputs, and print how long it takes."""
    library = build()
    rng = np.random.default_rng(0)
    tensors = [tvm.runtime.tensor(make_array(rng, *spec)) for _, *spec in ARGUMENTS]
    library["main"](*tensors)
    for (name, _, _, role, _, _), tensor in zip(ARGUMENTS, tensors):
        if role != "input" and not np.isfinite(tensor.numpy().astype("float64")).all():
            raise SystemExit(f"{WORKLOAD}: {name} holds values that are not finite")
    timer = library.time_evaluator("main", tvm.cpu(), number=1, repeat=10, min_repeat_ms=50)
    seconds = timer(*tensors).median
    rate = f", {FLOPS / seconds / 1e9:.2f} GFLOP/s" if FLOPS else ""
    print(f"{WORKLOAD}: {seconds * 1e6:.2f} us{rate}")


if __name__ == "__main__":
    main()
''')


def write_script(path: str | Path, workload: Workload, mod: Any, target: Any) -> Path:
    """Write a Python file that holds the scheduled program and can build, run and time it.

    Args:
        path: The file; its folder is made if it does not exist.
        workload: What is computed.
        mod: The scheduled `tvm.IRModule`, with one function `main`.
        target: The `tvm.target.Target` to build for, unless told otherwise.

    Returns:
        The path.
    """
    path = Path(path)
    imports, program = _program(mod)
    arguments = [
        (arg.name, arg.shape, arg.dtype, arg.role, arg.low, arg.high) for arg in workload.arguments
    ]
    text = _SCRIPT.substitute(
        module=path.stem,
        count=len(arguments),
        version=tvm.__version__,
        threads=num_cores(target),
        imports=imports,
        key=repr(workload.key),
        flops=repr(float(workload.flops)),
        target=pformat(json.loads(target_string(target)), width=96),
        arguments=pformat(arguments, width=96),
        program=program,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    return path


_COMMENTED_IMPORT = re.compile(r"# ((?:from [\w.]+ )?import .+)")


def _program(mod: Any) -> tuple[str, str]:
    """The imports and the definition of `Module`.

    TVM's printer is not the inverse of its parser for everything that a module can hold. Where the
    parser does not give the same module back, the script loads it from JSON instead, and has the
    TVMScript as a comment.
    """
    lines = mod.script().splitlines()
    imports = []
    # The printer comments its imports out, for there is no telling where the text will go.
    while lines and (found := _COMMENTED_IMPORT.fullmatch(lines[0])):
        imports.append(found[1])
        lines.pop(0)
    program = "\n".join(lines).strip()
    if _parses_to(program, mod):
        return "\n".join(imports), program
    comment = "\n".join(f"# {line}".rstrip() for line in program.splitlines())
    return "", f"{comment}\nModule = tvm.ir.load_json({tvm.ir.save_json(mod)!r})"


def _parses_to(program: str, mod: Any) -> bool:
    if not re.search(r"^class Module:$", program, re.MULTILINE):
        return False
    try:
        return bool(structural_equal(tvm.script.from_source(program), mod))
    # The parser raises whatever it stumbles over, and some objects refuse to be compared.
    except Exception:
        return False
