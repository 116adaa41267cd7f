"""Matrix products in TOPI's x86 templates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tvm import te, tir, topi

from .plan import TENSOR, Plan, tile


def _product(m: int, n: int, k: int, dtype: str, right: Callable[..., Any]) -> Plan:
    """`dense_pack`, whose second operand lies in blocks of columns.

    Args:
        m: Rows.
        n: Columns.
        k: What is summed over.
        dtype: The type.
        right: An element of the second operand, of `k` and a column.
    """

    def pack(config: Any) -> list[Any]:
        block = tile(config, "tile_x")
        columns = te.compute(
            (n // block, k, block), lambda j, r, v: right(r, j * block + v), "packed"
        )
        return [te.placeholder((m, k), name="A", dtype=dtype), columns]

    return Plan(
        "dense_pack.x86",
        ((TENSOR, (m, k), dtype), (TENSOR, (n, k), dtype), None, dtype),
        topi.x86.dense_pack,
        topi.x86.schedule_dense_pack,
        pack,
        (None, dtype),
    )


def matmul(p: dict[str, int], dtype: str) -> Plan:
    """C[m,n] = A[m,k] B[k,n]."""
    right = te.placeholder((p["k"], p["n"]), name="B", dtype=dtype)
    return _product(p["m"], p["n"], p["k"], dtype, right)


def matmul_relu(p: dict[str, int], dtype: str) -> Plan:
    """The same with a ReLU behind it in one kernel."""
    return dataclasses.replace(matmul(p, dtype), epilogue=topi.nn.relu)


def dense(p: dict[str, int], dtype: str) -> Plan:
    """C[m,n] = A[m,k] W[n,k]."""
    weight = te.placeholder((p["n"], p["k"]), name="W", dtype=dtype)
    return _product(p["m"], p["n"], p["k"], dtype, lambda r, j: weight[j, r])


def _batched(b: int, m: int, n: int, k: int, dtype: str, packed: list[Any]) -> Plan:
    """`batch_matmul` of (b, m, k) and (b, n, k).

    The template vectorises what is summed over, so this is the order that it is made for. It takes
    the second operand as (b, k, n) too, but reads it with a stride then, and is many times slower.
    """
    rest = (None, dtype, False, True)
    return Plan(
        "batch_matmul.x86",
        ((TENSOR, (b, m, k), dtype), (TENSOR, (b, n, k), dtype), *rest),
        topi.x86.batch_matmul,
        topi.x86.schedule_batch_matmul,
        lambda config: packed,
        rest,
    )


def batch_matmul(p: dict[str, int], dtype: str) -> Plan:
    """C[b,m,n] = A[b,m,k] B[b,k,n]; a batch of one is a product."""
    if p["b"] == 1:
        return matmul(p, dtype)
    b, m, n, k = p["b"], p["m"], p["n"], p["k"]
    left = te.placeholder((b, m, k), name="A", dtype=dtype)
    right = te.placeholder((b, k, n), name="B", dtype=dtype)
    turned = te.compute((b, n, k), lambda s, j, r: right[s, r, j], "turned")
    return _batched(b, m, n, k, dtype, [left, turned])


def scores(p: dict[str, int], dtype: str) -> Plan:
    """Q K^T for each head, from (batch, seq, heads, dim)."""
    batch, seq, heads, dim = p["batch"], p["seq"], p["heads"], p["dim"]

    def by_head(name: str) -> Any:
        source = te.placeholder((batch, seq, heads, dim), name=name, dtype=dtype)
        return te.compute(
            (batch * heads, seq, dim),
            lambda b, s, d: source[tir.indexdiv(b, heads), s, tir.indexmod(b, heads), d],
            f"{name}_by_head",
        )

    packed = [by_head("Q"), by_head("K")]
    return _batched(batch * heads, seq, seq, dim, dtype, packed)
