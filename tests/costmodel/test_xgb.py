from __future__ import annotations

import time

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, Samples
from tensortune.costmodel.metrics import pairwise_accuracy
from tensortune.costmodel.xgb import XGBModel

SCHEMA = FeatureSchema("made-up", 1, 6)


def programs(n: int, seed: int = 0, scale: float = 1.0) -> Samples:
    """Programs of two statements; the first column of each decides its share of the time."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.0, 6.0, (2 * n, 6)).astype(np.float32)
    latency = scale * (2.0 ** rows[:, 0]).reshape(n, 2).sum(axis=1)
    counts = np.full(n, 2, dtype=np.int64)
    return Samples(SCHEMA, rows, counts, latency, np.zeros(n, np.int64))


def accuracy(model: XGBModel, samples: Samples) -> float:
    return pairwise_accuracy(model.predict(samples), samples.latency_s)


@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_a_workloads_scale_does_not_reach_the_model(objective: str) -> None:
    first, second = XGBModel(objective), XGBModel(objective)  # type: ignore[arg-type]
    first.fit(programs(100))
    second.fit(programs(100, scale=2.0**-12))
    test = programs(50, seed=1)
    assert np.allclose(first.predict(test), second.predict(test), atol=1e-4)


def test_a_warm_start_goes_on_from_the_trees_that_are_there() -> None:
    first, second = programs(200), programs(200, seed=1)
    cold, warm = XGBModel(rounds=10), XGBModel(rounds=10, warm_start=True)
    for model in (cold, warm):
        model.fit(first)
        model.fit(second)
    once = XGBModel(rounds=10)
    once.fit(first)
    test = programs(200, seed=2)
    assert not np.array_equal(warm.predict(test), cold.predict(test))
    # Twice the trees on twice the data, of a problem that ten small trees can't hold.
    assert accuracy(warm, test) > max(accuracy(cold, test), accuracy(once, test))


def test_a_warm_start_on_nothing_new_keeps_the_model() -> None:
    model = XGBModel(warm_start=True)
    model.fit(programs(100))
    test = programs(50, seed=1)
    before = model.predict(test)
    model.fit(programs(100).take([]))
    assert np.array_equal(model.predict(test), before)


def test_a_warm_start_goes_on_with_the_very_trees_of_a_file(tmp_path: object) -> None:
    model = XGBModel(warm_start=True)
    model.fit(programs(100))
    path = f"{tmp_path}/model"
    model.save(path)
    loaded = XGBModel.load(path)
    for one in (model, loaded):
        one.fit(programs(100, seed=1))
    test = programs(50, seed=2)
    assert np.array_equal(model.predict(test), loaded.predict(test))


def test_a_warm_start_refuses_other_features() -> None:
    model = XGBModel(warm_start=True)
    model.fit(programs(20))
    other = Samples.of(FeatureSchema("other", 1, 6), [np.zeros((1, 6))], [1.0])
    with pytest.raises(ValueError, match=r"`made-up`.*`other`"):
        model.fit(other)


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(ValueError, match="luck"):
        XGBModel("luck")  # type: ignore[arg-type]


def test_a_refit_takes_fractions_of_a_second() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.0, 30.0, (1000, 164)).astype(np.float32)
    counts, groups = np.full(400, 2, np.int64), np.zeros(400, np.int64)
    schema = FeatureSchema("statements", 1, 164)
    samples = Samples(schema, rows[:800], counts, rng.lognormal(size=400), groups)
    model = XGBModel()
    model.fit(samples)
    start = time.process_time()
    model.fit(samples)
    # 0.2 s of one core on the machine that it was written on.
    assert time.process_time() - start < 2.0
