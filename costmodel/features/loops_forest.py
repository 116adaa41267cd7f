"""The nodes of several programs' loop trees, from their loop features, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base import Floats
from ..rows import totals
from .schemas import LOOP_BUFFERS, LOOP_WORK, loop_names

Array = npt.NDArray[np.float64]
_AT = {name: i for i, name in enumerate(loop_names())}
_WORK = [_AT[name] for name in LOOP_WORK]

LINE = 6.0
"""log2 of the bytes of a cache line."""


@dataclass(frozen=True)
class Forest:
    """The nodes of several programs.

    Attributes:
        rows: Their loop features, of shape (nodes, `LOOPS.width`); zeros for NaN.
        starts: Where each program begins.
        owner: The program of each node.
        parent: The node around each; itself for a root.
        root: Whether a node is a root.
        leaf: Whether it is a statement.
        times: How often it runs.
        work: What one run does, by the columns of `LOOP_WORK`.
        weight: What a statement does in all; 0 for a loop.
        whole: The weight of each program.
    """

    rows: Array
    starts: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]
    parent: npt.NDArray[np.int64]
    root: npt.NDArray[np.bool_]
    leaf: npt.NDArray[np.bool_]
    times: Array
    work: Array
    weight: Array
    whole: Array

    def column(self, name: str) -> Array:
        """A column of the nodes."""
        found: Array = self.rows[:, _AT[name]]
        return found

    def buffers(self, name: str) -> Array:
        """A column of the buffers, of shape (nodes, `LOOP_BUFFERS`)."""
        found: Array = self.rows[:, [_AT[f"buffer {i}: {name}"] for i in range(LOOP_BUFFERS)]]
        return found

    def total(self, values: npt.NDArray[Any]) -> Array:
        """Sums over the nodes of each program."""
        return totals(self.owner, values.astype(np.float64), len(self.starts))

    def most(self, values: npt.NDArray[Any]) -> Array:
        """The greatest value of the nodes of each program, by column."""
        return np.asarray(np.maximum.reduceat(values, self.starts), dtype=np.float64)

    def share(self, values: npt.NDArray[Any]) -> Array:
        """The mean over the statements of each program, by their weight."""
        return np.asarray(self.total(self.weight * values) / np.maximum(self.whole, 1))


def forest_of(rows: Floats, counts: npt.NDArray[np.int64]) -> Forest:
    """The nodes of programs.

    Args:
        rows: Loop features, of shape (rows, `LOOPS.width`), with the programs one after the other.
        counts: How many rows each program has, at least one, of shape (programs,).
    """
    numbers = np.nan_to_num(rows.astype(np.float64))
    up = numbers[:, 0].astype(np.int64)
    owner = np.repeat(np.arange(len(counts)), counts)
    leaf = numbers[:, _AT["statement"]] > 0
    times = np.exp2(numbers[:, _AT["top-down"]] - numbers[:, _AT["length"]])
    work = np.exp2(numbers[:, _WORK]) - 1
    # One more, so that no statement weighs nothing.
    weight = times * leaf * (1 + work.sum(axis=1))
    return Forest(
        rows=numbers,
        starts=np.cumsum(counts) - counts,
        owner=owner,
        parent=np.arange(len(rows)) - up,
        root=up == 0,
        leaf=leaf,
        times=times,
        work=work,
        weight=weight,
        whole=totals(owner, weight, len(counts)),
    )
