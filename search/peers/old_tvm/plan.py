"""An operator as AutoTVM tunes it: a template of TOPI's, with conversions of layouts around it.

What it takes to get into a template's layout and back is a step of its own, scheduled by TOPI's own
rule for such copies; so the kernel can be timed with it and without.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tvm import autotvm, te, topi

TENSOR = "TENSOR"


class Unsupported(Exception):
    """There is no template for the operator; the message says why."""


@dataclasses.dataclass
class Plan:
    """An operator as AutoTVM tunes it.

    Attributes:
        template: The template's name.
        task_args: The arguments of its task.
        compute: TOPI's function of tensors in the template's layout, and of `rest`.
        schedule: TOPI's schedule of the result.
        pack: For a configuration, what the kernel takes: for each argument but the output a
            placeholder of the argument's data in another shape, or a copy of it in another layout.
        rest: What `compute` takes behind the two tensors.
        epilogue: What follows on the result in the same kernel, with the arguments from the third.
        unpack: The operator's output, in any shape, from the kernel's; None where it is the same.
    """

    template: str
    task_args: tuple[Any, ...]
    compute: Callable[..., Any]
    schedule: Callable[..., Any]
    pack: Callable[[Any], list[Any]]
    rest: tuple[Any, ...]
    epilogue: Callable[..., Any] | None = None
    unpack: Callable[[Any], Any] | None = None


@dataclasses.dataclass
class Step:
    """A function of the compiled library.

    Attributes:
        name: Its name.
        schedule: Its schedule.
        tensors: Its arguments, the output last.
        converts: Whether it only converts a layout.
        buffers: For each argument the number of an argument of the operator (the output is the
            last), or of an intermediate result behind those.
    """

    name: str
    schedule: Any
    tensors: list[Any]
    converts: bool
    buffers: list[int]


def steps_of(plan: Plan, config: Any) -> list[Step]:
    """The functions that compute the operator, one after the other. Needs a current target."""
    steps: list[Step] = []
    with autotvm.task.ApplyConfig(config):
        packed = plan.pack(config)
        inputs = [
            te.placeholder(t.shape, name=f"in_{i}", dtype=t.dtype) for i, t in enumerate(packed)
        ]
        result = plan.compute(*inputs[:2], *plan.rest)
        if plan.epilogue is not None:
            result = plan.epilogue(result, *inputs[2:])
        schedule = plan.schedule([result])
    output = len(packed)  # the operator's arguments are as many as the kernel's
    buffers = list(range(output + 1))
    intermediate = output
    for i, tensor in enumerate(packed):
        if isinstance(tensor.op, te.ComputeOp):
            intermediate += 1
            buffers[i] = intermediate
            tensors = [*tensor.op.input_tensors, tensor]
            steps.append(_conversion(f"pack_{i}", tensors, [i, intermediate]))
    if plan.unpack is not None:
        intermediate += 1
        buffers[output] = intermediate
    steps.append(Step("kernel", schedule, [*inputs, result], False, buffers))
    if plan.unpack is not None:
        source = te.placeholder(result.shape, name="result", dtype=result.dtype)
        tensors = [source, plan.unpack(source)]
        steps.append(_conversion("unpack", tensors, [intermediate, output]))
    return steps


def _conversion(name: str, tensors: list[Any], buffers: list[int]) -> Step:
    return Step(name, topi.x86.schedule_injective(tensors[-1:]), tensors, True, buffers)


def tile(config: Any, name: str) -> int:
    """The innermost size of a split."""
    return int(config[name].size[-1])
