"""MetaSchedule's model on cached features: the same as what its own `update` comes to."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tvm.s_tir.meta_schedule.cost_model import xgb_model

from tensortune.costmodel.base import Samples
from tensortune.costmodel.features.schemas import STATEMENTS
from tensortune.costmodel.peer_metaschedule import MetaScheduleXGB
from tensortune.data.workload import workload

ITEMS = (workload("relu", 8, 8), workload("relu", 8, 16))


def programs(n: int, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.0, 6.0, (2 * n, STATEMENTS.width)).astype(np.float32)
    latency_s = (2.0 ** rows[:, 0]).reshape(n, 2).sum(axis=1)
    latency_s[::9] = np.inf
    groups = (np.arange(n) >= n // 2).astype(np.int64)
    return Samples(STATEMENTS, rows, np.full(n, 2, np.int64), latency_s, groups)


class Kept:
    """Gives the features that were computed before."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def extract_from(self, context: object, candidates: list[int]) -> list[object]:
        found = [self.samples.take([i]).rows for i in candidates]
        return [SimpleNamespace(numpy=lambda rows=rows: rows) for rows in found]


def test_it_is_what_an_update_with_every_workload_comes_to() -> None:
    train, test = programs(60), programs(20, seed=1)
    theirs = xgb_model.XGBModel._cls(
        num_warmup_samples=0, adaptive_training=False, num_tuning_cores=1
    )
    theirs.extractor = Kept(train)
    for group, item in enumerate(ITEMS):
        members = np.flatnonzero(train.groups == group).tolist()
        times = train.latency_s[members]
        results = [SimpleNamespace(run_secs=[t] if np.isfinite(t) else None) for t in times]
        theirs.update(SimpleNamespace(mod=item.mod), members, results)
    theirs.extractor = Kept(test)
    expected = theirs.predict(None, list(range(len(test))))
    ours = MetaScheduleXGB()
    assert not ours.predict(test).any() and ours.rounds == 0
    ours.fit(train)
    assert ours.rounds == theirs.booster.num_boosted_rounds() > 50
    np.testing.assert_array_equal(ours.predict(test), expected)
    assert len(ours.predict(test.take([]))) == 0


def test_it_learns_and_can_be_fitted_anew() -> None:
    model = MetaScheduleXGB()
    model.fit(programs(200))
    test = programs(100, seed=1)
    valid = np.isfinite(test.latency_s)
    found = np.corrcoef(model.predict(test)[valid], np.log(test.latency_s[valid]))[0, 1]
    assert found < -0.5
    once = MetaScheduleXGB()
    once.fit(programs(50, seed=3))
    model.fit(programs(50, seed=3))
    np.testing.assert_array_equal(model.predict(test), once.predict(test))


def test_rows_that_xgboost_would_refuse() -> None:
    samples = programs(30)
    samples.rows[3, 5], samples.rows[4, 6] = np.inf, np.nan
    model = MetaScheduleXGB()
    model.fit(samples)
    assert np.isfinite(model.predict(samples)).all()


@pytest.mark.skipif("tvm.s_tir.tensor_intrin.cuda" in sys.modules, reason="loaded by another test")
def test_it_does_not_wait_for_the_intrinsics_of_gpus() -> None:
    MetaScheduleXGB()
    assert "tvm.s_tir.tensor_intrin.cuda" not in sys.modules
