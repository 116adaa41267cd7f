"""Writes a scheduled program as a shared library with a plain C header, which needs no TVM.

TVM's object file reaches its runtime through a handful of symbols; `runtime.c` supplies them on top
of libc and POSIX threads. The system's C compiler links the two, and everything but the kernel's
own functions stays hidden, so several such libraries can be loaded into one process, TVM or not.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import tvm
from tvm.tirx.buffer import BufferType

from ..workload import Workload
from .header import C_TYPES, c_identifier, header_text, wrapper_text


class ExportError(RuntimeError):
    """A program that cannot be written in the form asked for; the message says why."""


_LINK_TIMEOUT_S = 120.0

_RUNTIME = ("runtime.c", "threads.c")
# What they supply. A kernel that calls functions of TVM's (to sort, say) needs others.
_SUPPLIED = frozenset(
    {
        "__TVMBackendAllocWorkspace",
        "__TVMBackendFreeWorkspace",
        "__TVMBackendParallelLaunch",
        "TVMFFIErrorSetRaisedFromCStr",
        "TVMFFIErrorSetRaisedFromCStrParts",
    }
)


def write_library(
    folder: str | Path, name: str, workload: Workload, mod: Any, target: Any
) -> tuple[Path, Path]:
    """Write `lib<name>.so` and `<name>.h`.

    The header declares `int <name>(...)`, which takes a pointer for each argument, and
    `const char *<name>_error(void)`. The library depends on libc and libm alone.

    Args:
        folder: Where to; it is made if it does not exist.
        name: The C function's name; what C does not allow in one becomes `_`.
        workload: What is computed.
        mod: The scheduled `tvm.IRModule`, with one function `main`.
        target: The `tvm.target.Target` to compile for.

    Returns:
        The paths of the library and of the header.

    Raises:
        ExportError: no C compiler, arguments that C has no type for, or a kernel that needs more
            than the C library.
    """
    compiler = _compiler()
    name = c_identifier(name)
    _check_arguments(workload, mod)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    library, header = folder / f"lib{name}.so", folder / f"{name}.h"
    # Linked aside and moved: a library must not change under a program that has loaded it.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".link-") as scratch:
        at = Path(scratch)
        for part in _RUNTIME:
            (at / part).write_bytes((resources.files(__package__) / part).read_bytes())
        (at / header.name).write_text(header_text(name, workload, mod, target), "utf-8")
        (at / "kernel.c").write_text(wrapper_text(name, workload, mod, target), "utf-8")
        (at / "exports").write_text(f"{{ global: {name}; {name}_error; local: *; }};\n", "utf-8")
        tvm.compile(mod, target=target).mod.write_to_file(str(at / "kernel.o"))
        _check_symbols((at / "kernel.o").read_bytes())
        _link(compiler, at, library.name)
        os.replace(at / library.name, library)
        os.replace(at / header.name, header)
    return library, header


def _check_arguments(workload: Workload, mod: Any) -> None:
    """Raise unless the module's function takes the workload's arguments and C has their types."""
    if [var.name_hint for var in mod.get_global_vars()] != ["main"]:
        raise ExportError("the module has to hold one function, `main`")
    params = mod["main"].params
    scalars = [param.name for param in params if not isinstance(param.ty, BufferType)]
    if scalars:
        raise ExportError(f"only arrays can be passed to the kernel, not {', '.join(scalars)}")
    taken = [(tuple(map(str, param.shape)), str(param.dtype)) for param in params]
    wanted = [(tuple(map(str, arg.shape)), arg.dtype) for arg in workload.arguments]
    if taken != wanted:
        raise ExportError(f"the scheduled module does not take the arguments of {workload.key}")
    for argument in workload.arguments:
        if argument.dtype not in C_TYPES:
            raise ExportError(f"{argument.name} is {argument.dtype}, which C has no type for")


def _check_symbols(binary: bytes) -> None:
    """Raise when the object needs more of TVM than `runtime.c` supplies.

    The linker would not notice: those symbols are weak pointers, null until TVM's loader sets them.
    """
    needed = {symbol.decode() for symbol in re.findall(rb"\b_*TVM(?:FFI|Backend)\w+", binary)}
    missing = sorted(needed - _SUPPLIED)
    if missing:
        called = re.findall(rb"\.tvm_func\.([\w.]+)", binary)
        what = ", ".join(sorted({function.decode() for function in called})) or ", ".join(missing)
        raise ExportError(f"the kernel calls functions that only TVM has: {what}")


def _compiler() -> list[str]:
    """The command that compiles C: `$CC`, or the system's."""
    asked = shlex.split(os.environ.get("CC", ""))
    for command in [asked] if asked else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]) is not None:
            return command
    if asked:
        raise ExportError(f"there is no C compiler `{asked[0]}`: set CC to one, or unset it")
    raise ExportError("a C compiler is needed: install gcc or clang (`apt install gcc`), or set CC")


def _link(compiler: list[str], at: Path, library: str) -> None:
    """Compile `kernel.c` in a folder and link it with `kernel.o`."""
    command = [
        *compiler,
        *("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"),
        # A kernel called `exp` would take the place of the C library's.
        "-Werror=builtin-declaration-mismatch",
        *("-o", library, "kernel.c", "kernel.o", "-lm"),
        *("-Wl,--no-undefined", "-Wl,--version-script=exports", f"-Wl,-soname,{library}"),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=at,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_LINK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExportError(f"{compiler[0]} does not run: {error}") from error
    if done.returncode != 0:
        undefined = sorted(set(re.findall(r"undefined reference to [`'\"]([^`'\"]+)", done.stderr)))
        if undefined:
            raise ExportError(f"the kernel needs what no C library has: {', '.join(undefined)}")
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        reason = (errors or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
        raise ExportError(f"{compiler[0]} cannot link the kernel: {reason.strip()}")
