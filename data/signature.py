"""What a named operator is: its parameters, and how values are bound to them. Loads no TVM."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
DTYPES = FLOATS + INTEGERS

Params = Mapping[str, int]


class WorkloadError(ValueError):
    """A workload that cannot be: the message says what is wrong and what to write instead."""


def accumulator(dtype: str) -> str:
    """The type that sums and products of `dtype` are kept in: int32 for the narrow integers."""
    return "int32" if dtype in ("int8", "uint8", "int16") else dtype


@dataclass(frozen=True)
class Operator:
    """A named operator.

    Attributes:
        name: What the user types.
        summary: One line for `tensortune list`.
        parameters: Parameter names in positional order, each with its default, or None where
            the caller has to give it.
        example: Values for the parameters that have to be given, in order.
        float_only: Whether integers make no sense for it.
        check: Raises `WorkloadError` when the (complete, positive) parameters cannot be.
    """

    name: str
    summary: str
    parameters: tuple[tuple[str, int | None], ...]
    example: tuple[int, ...]
    float_only: bool = False
    check: Callable[[Params], None] | None = None

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that it takes."""
        return FLOATS if self.float_only else DTYPES

    @property
    def signature(self) -> str:
        """`conv1d(n, l, ci, co, kernel, stride=1, ...)`."""
        shown = [name if value is None else f"{name}={value}" for name, value in self.parameters]
        return f"{self.name}({', '.join(shown)})"

    def bind(self, shape: tuple[object, ...], params: Mapping[str, object]) -> dict[str, int]:
        """Complete and check the parameters.

        Args:
            shape: Values in positional order.
            params: Values by name.

        Returns:
            Every parameter in the operator's order.

        Raises:
            WorkloadError: one is missing, unknown, given twice, not a positive integer, or the
                shape cannot be.
        """
        names = [name for name, _ in self.parameters]
        if len(shape) > len(names):
            raise WorkloadError(
                f"{self.name} takes {len(names)} parameters, not {len(shape)}: {self.signature}"
            )
        given = dict(zip(names, shape, strict=False))
        for name, value in params.items():
            if name not in names:
                hint = suggestion(name, names)
                raise WorkloadError(f"{self.name} has no `{name}`{hint}: {self.signature}")
            if name in given:
                raise WorkloadError(f"{self.name}: `{name}` is given twice: {self.signature}")
            given[name] = value
        missing = [
            name for name, default in self.parameters if default is None and name not in given
        ]
        if missing:
            raise WorkloadError(
                f"{self.name} needs {', '.join(f'`{name}`' for name in missing)} too: "
                f"{self.signature}"
            )
        bound = {
            name: _dimension(self.name, name, given.get(name, default))
            for name, default in self.parameters
        }
        if self.check is not None:
            self.check(bound)
        return bound


# Parameters that may be zero; every other one is a size, a step or a count.
_MAY_BE_ZERO = frozenset({"padding"})


def _dimension(operator: str, name: str, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise WorkloadError(f"{operator}: `{name}` has to be an integer, not {value!r}")
    number = int(value.__index__())
    least = 0 if name in _MAY_BE_ZERO else 1
    if number < least:
        raise WorkloadError(f"{operator}: `{name}` has to be at least {least}, not {number}")
    if number >= 2**31:
        raise WorkloadError(f"{operator}: `{name}` has to be below 2**31, not {number}")
    return number


def suggestion(word: str, known: list[str]) -> str:
    """`` (did you mean `x` or `y`?)`` for the names nearest to a mistyped one, or nothing."""
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f" (did you mean {' or '.join(f'`{name}`' for name in near)}?)" if near else ""
