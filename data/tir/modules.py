"""Reads the one `PrimFunc` of a workload from wherever the user keeps it."""

from __future__ import annotations

import hashlib
import importlib
import linecache
import re
import sys
import types
from pathlib import Path
from typing import Any

import tvm
from tvm import te, tirx
from tvm.script import ir as ir_script
from tvm.script import tirx as tir_script

from ..signature import WorkloadError


def normalise(func: Any) -> Any:
    """A module whose only function is `func`, called `main` and marked free of aliases.

    This is the form that MetaSchedule's own tuning gives to what it tunes.
    """
    func = func.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    return tvm.IRModule({"main": func})


def only_function(source: Any) -> tuple[str, Any]:
    """Name and `PrimFunc` of a function, or of a module that holds exactly one.

    Raises:
        WorkloadError: there is none, or there are several; the message names them.
    """
    if isinstance(source, tirx.PrimFunc):
        return _symbol(source) or "main", source
    if not isinstance(source, tvm.IRModule):
        raise WorkloadError(
            f"a workload is a PrimFunc or an IRModule, not {type(source).__name__}; "
            "make one of TE tensors with `te.create_prim_func`"
        )
    found = _functions(source)
    if len(found) == 1:
        return next(iter(found.items()))
    if not found:
        others = ", ".join(sorted(var.name_hint for var in source.functions)) or "nothing"
        raise WorkloadError(f"the module holds no PrimFunc ({others})")
    names = sorted(found)
    raise WorkloadError(
        f"the module holds {len(found)} functions, {', '.join(names)}: "
        f'pass one of them, as in mod["{names[0]}"]'
    )


def _functions(mod: Any) -> dict[str, Any]:
    return {
        var.name_hint: func
        for var, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }


def _symbol(func: Any) -> str:
    return str(func.attrs["global_symbol"]) if func.attrs and "global_symbol" in func.attrs else ""


def structural_hash(mod: Any) -> str:
    """12 hexadecimal digits that change with anything in a module's script, names included."""
    return hashlib.sha256(mod.script(show_meta=True).encode()).hexdigest()[:12]


def function_in_file(path: str | Path) -> tuple[str, Any]:
    """Name and function of the only one in a TVMScript file.

    The file is run, as Python: it may import what it needs; `T` and `I` are there already, so that
    what `mod.script()` prints is a file too.

    Raises:
        WorkloadError: the file does not exist or does not parse, or holds none or several.
    """
    path = Path(path)
    if not path.is_file():
        raise WorkloadError(f"there is no file {path}")
    found: dict[str, Any] = {}
    for name, value in _run(path).items():
        if isinstance(value, tirx.PrimFunc):
            found[name] = value
        elif isinstance(value, tvm.IRModule):
            inner = _functions(value)
            found |= {key if len(inner) == 1 else f"{name}.{key}": inner[key] for key in inner}
    unique = {name: func for name, func in found.items() if not name.startswith("_")}
    if len(unique) == 1:
        name, func = next(iter(unique.items()))
        return (path.stem if name == "main" else name), func
    if not unique:
        raise WorkloadError(
            f"{path} holds no function: define one with @T.prim_func, or a module with @I.ir_module"
        )
    raise WorkloadError(f"{path} holds {len(unique)} functions, {', '.join(unique)}: leave one")


def _run(path: Path) -> dict[str, Any]:
    source = path.read_text()
    module = types.ModuleType(f"_tensortune_file_{path.stem}")
    module.__dict__.update({"T": tir_script, "I": ir_script, "tvm": tvm, "__file__": str(path)})
    # The parser of TVMScript asks `inspect` for the source: of a class it looks the module up, and
    # the lines come from `linecache`, which may hold those of an earlier run.
    linecache.checkcache(str(path))
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        raise WorkloadError(f"{path}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        raise WorkloadError(f"{path}{_line(error, path)}: {_first_line(error)}") from error
    finally:
        del sys.modules[module.__name__]
    return {name: value for name, value in module.__dict__.items() if name not in ("T", "I", "tvm")}


def _line(error: BaseException, path: Path) -> str:
    # TVMScript's own message has the line; the traceback stops at the decorator.
    reported = re.search(r"-->.*?:(\d+):\d+\s", str(error))
    number = int(reported[1]) if reported else None
    trace = error.__traceback__ if reported is None else None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            number = trace.tb_lineno
        trace = trace.tb_next
    return "" if number is None else f", line {number}"


def _first_line(error: BaseException) -> str:
    text = str(error).strip().removeprefix("error: ")
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def imported_builder(path: str) -> Any:
    """The function that `package.module:name` names.

    Raises:
        WorkloadError: the module does not import, or has no such function.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise WorkloadError(f"`{module}` does not import: {error}") from error
    if not callable(found):
        raise WorkloadError(f"`{module}` has no function `{name}`")
    return found


def as_function(built: Any) -> Any:
    """What a user's builder returned, a `PrimFunc`, a module or TE tensors, as a `PrimFunc`.

    Raises:
        WorkloadError: it is something else.
    """
    if isinstance(built, (list, tuple)):
        return te.create_prim_func(list(built))
    return only_function(built)[1]
