"""From the rows of statements to the programs that they are of."""

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


def totals(
    owner: npt.NDArray[np.int64], values: npt.NDArray[np.floating], n: int
) -> npt.NDArray[np.float64]:
    """Sums of the values of each owner, added in their order, of shape (n,)."""
    # Not `np.add.reduceat`, which gives an owner without values its neighbour's.
    return np.bincount(owner, values, n).astype(np.float64, copy=False)
