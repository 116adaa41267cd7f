"""`Workload`: what is tuned, as a value."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from . import operators
from .definitions import build
from .definitions.numpy_calls import NumpyCall, numpy_call
from .signature import WorkloadError
from .tir.analysis import Analysis, Argument, analyse, total_bytes
from .tir.canonical import canonical_identity
from .tir.inputs import Array, make_input
from .tir.modules import (
    as_function,
    function_in_file,
    imported_builder,
    normalise,
    only_function,
    structural_hash,
)
from .tir.promote import builds, to_float64

__all__ = ["Argument", "Workload", "WorkloadError", "workload"]

CUSTOM = "custom"
_KEY = re.compile(r"\s*([\w.:]+)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Workload:
    """A tensor computation: a named operator with its shape and dtype, or any one `PrimFunc`.

    Make one with `workload`, `from_module`, `from_file`, `from_key` or `from_json`. Two workloads
    are equal when their keys are; whether they compute the same is what `identity` says.

    Attributes:
        key: Readable name: `matmul(m=512,n=512,k=512)`, `custom:attention@0f3a...`.
        operator: The operator's name, its import path, or `custom`.
        params: The operator's parameters in order; empty for a custom one.
        dtype: Element type of the inputs; of the first argument for a custom one.
        source: The module as given, or None where the key says it all.
    """

    key: str
    operator: str
    params: tuple[tuple[str, int | str], ...]
    dtype: str
    source: Any = field(default=None, repr=False)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Workload) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.key

    def __reduce__(self) -> tuple[Any, ...]:
        return Workload.from_json, (self.to_json(),)

    @cached_property
    def mod(self) -> Any:
        """The `tvm.IRModule`, with the one `PrimFunc` `main`."""
        if self.source is not None:
            return self.source
        params = {name: int(value) for name, value in self.params}
        return normalise(build.build(self.operator, params, self.dtype))

    @cached_property
    def identity(self) -> str:
        """16 hexadecimal digits, equal for equal computations (see `canonical`)."""
        return canonical_identity(self.mod)

    @cached_property
    def _analysis(self) -> Analysis:
        return analyse(self.mod)

    @property
    def flops(self) -> float:
        """Arithmetic operations of one run; a multiply-add is two."""
        return self._analysis.flops

    @property
    def bytes(self) -> int:
        """Bytes of the arguments, read or written once each."""
        return total_bytes(self.arguments)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments, in the order in which the compiled function takes them."""
        return self._analysis.arguments

    def make_inputs(self, seed: int) -> list[Array]:
        """One array per argument, in order; the same for the same seed.

        Inputs are realistic (no zeros, no denormals, indices in bounds). Pure outputs are filled
        with NaN or an integer pattern, so that one that is never written shows.

        Raises:
            WorkloadError: no array can hold the dtype of an argument.
        """
        rng = np.random.default_rng(seed)
        return [make_input(argument, rng) for argument in self.arguments]

    def float64_mod(self) -> Any | None:
        """The same computation in float64, to take reference outputs from.

        Its inputs are those of the workload, cast to float64.

        Returns:
            A module, or None where this cannot be done: bits reinterpreted, foreign code, or a
            result that does not compile.
        """
        return self._float64

    @cached_property
    def _float64(self) -> Any | None:
        promoted = to_float64(self.mod)
        return promoted if promoted is not None and builds(promoted) else None

    def numpy_call(self) -> NumpyCall | None:
        """The NumPy equivalent: takes the arrays of `make_inputs`, writes the output in place.

        Returns:
            None where NumPy has no sensible equivalent, as for convolutions.
        """
        params = {name: value for name, value in self.params if isinstance(value, int)}
        return numpy_call(self.operator, params, self.dtype)

    @classmethod
    def from_module(cls, module: Any, name: str | None = None) -> Workload:
        """A workload of any `PrimFunc`, or of an `IRModule` that holds exactly one.

        Args:
            module: The function or module.
            name: What to call it; the function's own name by default.

        Raises:
            WorkloadError: no or several functions, a scalar argument, or a dynamic shape.
        """
        own, func = only_function(module)
        mod = normalise(func)
        arguments = analyse(mod).arguments
        label = re.sub(r"[^\w.-]+", "_", own if name is None else name) or "main"
        key = f"{CUSTOM}:{label}@{structural_hash(mod)}"
        return cls(key, CUSTOM, (), arguments[0].dtype if arguments else "", mod)

    @classmethod
    def from_file(cls, path: str | Path) -> Workload:
        """A workload of the one function in a TVMScript file. The file is run, as Python.

        Raises:
            WorkloadError: the file does not exist or does not parse, or does not hold exactly one
                function.
        """
        name, func = function_in_file(path)
        return cls.from_module(func, name)

    @classmethod
    def from_key(cls, key: str) -> Workload:
        """The named operator that a key stands for; values may also be positional.

        Raises:
            WorkloadError: the key does not parse, or names no possible workload.
        """
        if key.startswith(f"{CUSTOM}:"):
            raise WorkloadError(
                f"{key} is a custom workload: its key cannot bring it back, `from_json` can"
            )
        match = _KEY.fullmatch(key)
        if match is None:
            raise WorkloadError(f"`{key}` is no workload: write e.g. matmul(m=512,n=512,k=512)")
        operator, inside = match.groups()
        shape: list[Any] = []
        named: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in inside.split(","))):
            name, equals, value = (text.strip() for text in part.partition("="))
            if equals and name in named:
                raise WorkloadError(f"`{key}` gives `{name}` twice")
            if equals:
                named[name] = value
            else:
                shape.append(name)
        return workload(operator, *shape, **named)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary: the key, and for what no key can bring back the module."""
        value: dict[str, Any] = {"key": self.key}
        if self.source is not None:
            value |= {
                "operator": self.operator,
                "params": [list(pair) for pair in self.params],
                "dtype": self.dtype,
                "module": tvm.ir.save_json(self.mod),
            }
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Workload:
        """Read what `to_json` gave.

        Raises:
            WorkloadError: the value is not of that form.
        """
        if not isinstance(value, Mapping) or not isinstance(value.get("key"), str):
            raise WorkloadError(f'a workload is {{"key": ...}}, not {value!r:.80}')
        if "module" not in value:
            return cls.from_key(value["key"])
        params = tuple((str(name), number) for name, number in value["params"])
        mod = tvm.ir.load_json(value["module"])
        return cls(value["key"], value["operator"], params, value["dtype"], mod)


def workload(
    operator: str, /, *shape: int, dtype: str = "float32", **params: int | str
) -> Workload:
    """A named operator with a shape.

    Args:
        operator: A name that `tensortune list` prints, or `package.module:function` for a function
            of your own that takes integers (and `dtype`, if it has such a parameter) and returns a
            `PrimFunc`, an `IRModule` or TE tensors.
        shape: Values of the parameters, in the operator's order.
        dtype: Element type of inputs and output; int8, uint8 and int16 accumulate in int32.
        params: Values by name.

    Raises:
        WorkloadError: unknown operator or dtype; a parameter missing, unknown, or not a positive
            integer; a shape that cannot be.

    Example:
        `workload("matmul", 512, 512, 512)`, `workload("conv2d", 1, 14, 14, 256, 256, kernel=3)`
    """
    if ":" in operator:
        return _imported(operator, shape, dtype, params)
    found = operators.get(operator)
    operators.check_dtype(found, dtype)
    bound = tuple(found.bind(shape, params).items())
    return Workload(_key(operator, bound, dtype), operator, bound, dtype)


def _key(operator: str, params: tuple[tuple[str, int | str], ...], dtype: str) -> str:
    inside = [f"{name}={value}" for name, value in params]
    if dtype != "float32":
        inside.append(f"dtype={dtype}")
    return f"{operator}({','.join(inside)})"


def _imported(
    path: str, shape: tuple[int, ...], dtype: str, params: Mapping[str, int | str]
) -> Workload:
    """A workload of a user's own builder."""
    builder = imported_builder(path)
    takes_dtype = "dtype" in inspect.signature(builder).parameters
    if not takes_dtype and dtype != "float32":
        raise WorkloadError(f"`{path}` has no parameter `dtype`: give it one, or leave dtype out")
    try:
        bound = inspect.signature(builder).bind(
            *map(_number, shape),
            **{name: _number(value) for name, value in params.items()},
            **({"dtype": dtype} if takes_dtype else {}),
        )
    except TypeError as error:
        raise WorkloadError(f"`{path}`: {error}") from error
    bound.apply_defaults()
    values = tuple((name, value) for name, value in bound.arguments.items() if name != "dtype")
    mod = normalise(as_function(builder(*bound.args, **bound.kwargs)))
    return Workload(_key(path, values, dtype), path, values, dtype, mod)


def _number(value: int | str) -> int | str:
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value
