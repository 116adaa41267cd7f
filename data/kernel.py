"""A compiled program as a callable on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from .host import set_threads
from .target import num_cores
from .workload import Workload

Array = npt.NDArray[Any]


class Kernel:
    """A scheduled module, compiled into this process.

    Args:
        workload: What it computes.
        mod: The scheduled module, with one function `main`.
        target: The target; kernels run on its `num-cores` threads.
    """

    def __init__(self, workload: Workload, mod: tvm.IRModule, target: tvm.target.Target) -> None:
        set_threads(num_cores(target))
        self.workload = workload
        self.module = tvm.compile(mod, target=target).jit()
        self._entry = self.module["main"]

    def __call__(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """Run on the workload's inputs, in the order of its arguments.

        Args:
            *arrays: One array for each argument that is read; shapes and dtypes have to match.

        Returns:
            The output, or a tuple of the outputs; arguments that are both read and written are
            copied first and returned.

        Raises:
            ValueError: too few or too many arrays, or one of another shape or dtype.
        """
        arguments = self.workload.arguments
        wanted = [argument for argument in arguments if argument.role != "output"]
        if len(arrays) != len(wanted):
            names = ", ".join(argument.name for argument in wanted)
            raise ValueError(f"{len(wanted)} arrays are needed ({names}), not {len(arrays)}")
        given = iter(arrays)
        bound = []
        for argument in arguments:
            if argument.role == "output":
                bound.append(tvm.runtime.empty(argument.shape, argument.dtype))
                continue
            array = np.asarray(next(given), order="C")
            if array.shape != argument.shape or str(array.dtype) != argument.dtype:
                raise ValueError(
                    f"{argument.name} is {argument.dtype}{argument.shape}, "
                    f"not {array.dtype}{array.shape}"
                )
            bound.append(tvm.runtime.tensor(array))
        self._entry(*bound)
        outputs = tuple(
            tensor.numpy()
            for tensor, argument in zip(bound, arguments, strict=True)
            if argument.role != "input"
        )
        return outputs[0] if len(outputs) == 1 else outputs
