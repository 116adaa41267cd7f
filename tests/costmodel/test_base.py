from __future__ import annotations

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, Samples

SCHEMA = FeatureSchema("made-up", 1, 2)
FEATURES = [np.full((n, 2), 10 * i, np.float32) for i, n in enumerate((2, 0, 1, 3))]
SAMPLES = Samples.of(SCHEMA, FEATURES, [1.0, 2.0, 3.0, np.inf], [0, 0, 1, 1])


def test_of() -> None:
    assert SAMPLES.counts.tolist() == [2, 0, 1, 3]
    assert SAMPLES.rows[:, 0].tolist() == [0, 0, 20, 30, 30, 30]
    assert len(Samples.of(SCHEMA, [])) == 0


def test_take_by_index_keeps_the_order_asked_for() -> None:
    taken = SAMPLES.take([3, 1, 0, 3])
    assert taken.rows[:, 0].tolist() == [30, 30, 30, 0, 0, 30, 30, 30]
    assert taken.counts.tolist() == [3, 0, 2, 3]
    assert taken.latency_s.tolist() == [np.inf, 2.0, 1.0, np.inf]
    assert taken.groups.tolist() == [1, 0, 0, 1]


def test_take_by_mask() -> None:
    taken = SAMPLES.take(np.isfinite(SAMPLES.latency_s))
    assert taken.counts.tolist() == [2, 0, 1]
    assert taken.rows[:, 0].tolist() == [0, 0, 20]


@pytest.mark.parametrize("nothing", [[], np.array([], np.int64), np.zeros(4, bool)])
def test_take_nothing(nothing: object) -> None:
    taken = SAMPLES.take(nothing)
    assert len(taken) == 0
    assert taken.rows.shape == (0, 2)


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        Samples.of(SCHEMA, [np.zeros((1, 3), np.float32)])
    with pytest.raises(ValueError, match="counted"):
        Samples(SCHEMA, SAMPLES.rows, SAMPLES.counts[:2], np.ones(2), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="one length"):
        Samples.of(SCHEMA, FEATURES, [1.0])
