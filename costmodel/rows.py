"""From the rows of statements to what a model is trained on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .base import Floats, Samples


def owners(samples: Samples) -> npt.NDArray[np.int64]:
    """Which program each row is of, of shape (rows,)."""
    return np.repeat(np.arange(len(samples)), samples.counts)


def finite(rows: Floats) -> Floats:
    """The rows with NaN for infinity, which XGBoost refuses; unchanged where there is none."""
    bad = np.isinf(rows)
    return np.where(bad, np.float32(np.nan), rows) if bad.any() else rows


def pooled(samples: Samples) -> Floats:
    """One row a program, of shape (programs, 2 * width + 1).

    The features are logarithms of counts, `log2(1 + count)`: pooled are the counts' sum, as a
    logarithm again, and the largest one; the last column is the number of statements.
    """
    rows = finite(samples.rows)
    n, width = len(samples), samples.schema.width
    out = np.full((n, 2 * width + 1), np.nan, dtype=np.float32)
    out[:, -1] = samples.counts
    filled = np.flatnonzero(samples.counts)
    if len(filled):
        starts = (np.cumsum(samples.counts) - samples.counts)[filled]
        # In float64 sums of up to 2**100 keep; a NaN makes its program's column NaN.
        counts = np.exp2(np.minimum(rows.astype(np.float64), 100.0))
        total = np.add.reduceat(counts, starts, axis=0) - (samples.counts[filled] - 1)[:, None]
        out[filled, :width] = np.log2(np.maximum(total, 1e-30))
        out[filled, width:-1] = np.maximum.reduceat(rows, starts, axis=0)
    return out


def totals(
    owner: npt.NDArray[np.int64], values: npt.NDArray[np.floating], n: int
) -> npt.NDArray[np.float64]:
    """Sums of the values of each owner, added in their order, of shape (n,)."""
    # Not `np.add.reduceat`, which gives an owner without values its neighbour's.
    return np.bincount(owner, values, n).astype(np.float64, copy=False)
