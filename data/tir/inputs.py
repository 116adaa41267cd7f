"""Input arrays for running and checking a workload."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..signature import WorkloadError
from .analysis import Argument

Array = np.ndarray[Any, Any]

# An unwritten integer output shows as this byte, repeated.
POISON = 0x5A


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of a TVM dtype, `ml_dtypes`' where NumPy has none.

    Raises:
        WorkloadError: neither has one.
    """
    special = getattr(ml_dtypes, dtype, None)
    try:
        return np.dtype(special if special is not None else dtype)
    except TypeError:
        raise WorkloadError(
            f"no array can hold dtype `{dtype}`: use one that NumPy or ml_dtypes has"
        ) from None


def make_input(argument: Argument, rng: np.random.Generator) -> Array:
    """One array: random where it is read, poisoned where it is only written.

    Floats are uniform in ±[0.1, 1], or in [0.1, 1] where they have to be positive: no zeros and no
    denormals, which run at another speed. Integers are uniform in the argument's range.
    """
    dtype = numpy_dtype(argument.dtype)
    if argument.role == "output":
        return poisoned(argument.shape, dtype)
    if "float" in argument.dtype:
        values = rng.random(argument.shape, dtype=np.float32)
        values *= np.float32(0.9)
        values += np.float32(0.1)
        if argument.low is None:
            np.negative(values, out=values, where=rng.random(argument.shape, np.float32) < 0.5)
        return values.astype(dtype)
    low, high = argument.low or 0, 2 if argument.high is None else argument.high
    return rng.integers(low, high, size=argument.shape, dtype=np.int64).astype(dtype)


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array whose every element is NaN, or for integers a telling pattern."""
    if dtype.kind in "fV" or dtype.name.startswith(("bfloat", "float")):
        return np.full(shape, np.nan).astype(dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    return (
        np.frombuffer(bytes([POISON]) * dtype.itemsize, dtype)
        .repeat(int(np.prod(shape, dtype=np.int64)))
        .reshape(shape)
    )
