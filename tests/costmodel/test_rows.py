from __future__ import annotations

import numpy as np

from tensortune.costmodel import rows
from tensortune.costmodel.base import FeatureSchema, Samples

SCHEMA = FeatureSchema("made-up", 1, 2)


def test_infinities_become_nan_in_a_copy() -> None:
    given = np.array([[np.inf, 1.0], [-np.inf, np.nan]], np.float32)
    found = rows.finite(given)
    assert np.array_equal(found, [[np.nan, 1.0], [np.nan, np.nan]], equal_nan=True)
    assert np.isinf(given).sum() == 2
    clean = np.ones((2, 2), np.float32)
    assert rows.finite(clean) is clean


def test_totals_of_owners_without_values_are_zero() -> None:
    assert rows.totals(np.array([0, 2, 2]), np.array([1.0, 2.0, 3.0]), 4).tolist() == [1, 0, 5, 0]
    assert rows.totals(np.array([], np.int64), np.array([]), 2).tolist() == [0, 0]


def test_owners() -> None:
    samples = Samples.of(SCHEMA, [np.zeros((n, 2), np.float32) for n in (2, 0, 1)])
    assert rows.owners(samples).tolist() == [0, 0, 2]
