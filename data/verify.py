"""Is a kernel right? Outputs against a float64 reference, with the untuned program's own error.

A tuned program may sum in another order, so its floats differ from the untuned program's. The
yardstick is therefore the same computation in float64: a program is right when it is not much
further from it than the untuned program is. Integers must agree exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ml_dtypes import finfo

from .workload import Argument

Array = npt.NDArray[Any]

# Reordering a sum changes its error by a small factor; 4 leaves room for one that halves into two
# accumulators of the narrow type. The second term is for outputs on which the untuned program
# happens to be exact: some units in the last place of the largest value.
_ERROR_FACTOR = 4.0
_ULPS = 16.0
# Without a float64 reference both programs carry an error of their own.
_ULPS_WITHOUT_REFERENCE = 256.0


@dataclass(frozen=True)
class Reference:
    """What the outputs should be.

    Attributes:
        arguments: The workload's arguments.
        untuned: Each argument after the untuned program ran on the inputs.
        exact: The same after the float64 program, or None where there is none.
    """

    arguments: tuple[Argument, ...]
    untuned: Sequence[Array]
    exact: Sequence[Array] | None

    @property
    def kind(self) -> str:
        """What outputs are compared with: `float64` or `untuned`."""
        return "untuned" if self.exact is None else "float64"

    def judge(self, outputs: Sequence[Array]) -> str | None:
        """None when the outputs are right, else what is wrong with them."""
        for position, argument in enumerate(self.arguments):
            exact = None if self.exact is None else self.exact[position]
            problem = judge_array(outputs[position], self.untuned[position], exact)
            if problem is not None:
                return f"{argument.name}: {problem}"
        return None


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether it is a float, bfloat16 and the 8-bit floats included."""
    if np.issubdtype(dtype, np.inexact):
        return True
    try:
        finfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return False
    return True


def judge_array(output: Array, untuned: Array, exact: Array | None) -> str | None:
    """Compare one argument after a run.

    Args:
        output: After the program in question.
        untuned: After the untuned program.
        exact: After the float64 program, or None.

    Returns:
        None when it is right, else what is wrong.
    """
    if output.shape != untuned.shape or output.dtype != untuned.dtype:
        return f"{output.dtype}{output.shape} instead of {untuned.dtype}{untuned.shape}"
    if output.size == 0:
        return None
    if not is_floating(output.dtype):
        wrong = int(np.count_nonzero(output != untuned))
        return f"{wrong} of {output.size} values differ" if wrong else None
    ours, theirs = output.astype(np.float64), untuned.astype(np.float64)
    finite = np.isfinite(theirs)
    same_edge = np.where(np.isnan(theirs), np.isnan(ours), ours == theirs)
    if not np.all(np.where(finite, np.isfinite(ours), same_edge)):
        return "values that are not finite, or not the ones of the untuned program"
    if not finite.any():
        return None
    truth = theirs if exact is None else exact.astype(np.float64)
    scale = float(np.abs(truth[finite]).max())
    eps = float(finfo(output.dtype).eps)  # type: ignore[no-untyped-call]
    ulp = eps * scale
    bound = (_ULPS_WITHOUT_REFERENCE if exact is None else _ULPS) * ulp
    bound += _ERROR_FACTOR * float(np.abs(theirs - truth)[finite].max())
    error = float(np.abs(ours - truth)[finite].max())
    if error <= bound:
        return None
    return f"off by {error:.3g} where {bound:.3g} is allowed"
