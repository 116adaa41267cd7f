"""Which of TOPI's x86 templates computes an operator."""

from __future__ import annotations

from . import convolutions, products
from .plan import Plan, Unsupported

_PLANS = {
    "matmul": products.matmul,
    "matmul_relu": products.matmul_relu,
    "dense": products.dense,
    "batch_matmul": products.batch_matmul,
    "transpose_batch_matmul": products.scores,
    "conv2d": convolutions.conv2d,
    "dilated_conv2d": convolutions.conv2d,
    "grouped_conv2d": convolutions.conv2d,
    "conv2d_bn_relu": convolutions.conv2d_bn_relu,
    "depthwise_conv2d": convolutions.depthwise,
    "transposed_conv2d": convolutions.transposed,
    "conv3d": convolutions.conv3d,
}

# Schedules of TOPI's that nothing can be tuned in, and operators that it does not have.
_REASONS = {
    name: f"TOPI's x86 schedule of {name} is fixed: there is nothing for AutoTVM to tune"
    for name in ("conv1d", "softmax", "max_pool2d", "avg_pool2d", "batch_norm", "transpose", "take")
}


def plan_of(operator: str, params: dict[str, int], dtype: str) -> Plan:
    """The plan of an operator.

    Raises:
        Unsupported: there is none.
    """
    if operator not in _PLANS:
        raise Unsupported(_REASONS.get(operator, f"TOPI has no x86 template for {operator}"))
    if dtype != "float32":
        raise Unsupported(f"AutoTVM's templates are compared in float32 only, not in {dtype}")
    return _PLANS[operator](params, dtype)
