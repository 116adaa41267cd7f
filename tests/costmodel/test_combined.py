"""Models on several kinds of features: aligned, weighed alike, saved whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, ModelFileError, Samples
from tensortune.costmodel.combined import Combined, add, features_of, predict, spread
from tensortune.costmodel.features.schemas import STATEMENTS
from tensortune.costmodel.files import make_model
from tensortune.costmodel.metrics import evaluate
from tensortune.costmodel.xgb import XGBModel


def programs(n: int, seed: int = 0) -> dict[str, Samples]:
    """Each kind of features knows one half of what decides the time."""
    rng = np.random.default_rng(seed)
    halves = rng.normal(size=(2, n))
    latency_s = np.exp(halves.sum(axis=0))
    latency_s[::10] = np.inf
    groups = np.arange(n) % 4
    made = {}
    for kind, half in zip(("one", "two"), halves, strict=True):
        rows = np.zeros((n, 164), np.float32)
        rows[:, 3] = half
        made[kind] = Samples.of(STATEMENTS, list(rows), latency_s, groups)
    return made


def combined() -> Combined:
    return Combined([("one", XGBModel(rounds=20)), ("two", XGBModel("regression", rounds=20))])


def test_the_sum_ranks_better_than_its_parts() -> None:
    model, test = combined(), programs(400, seed=1)
    assert features_of(model) == ("one", "two")
    model.fit(programs(400))
    of = test["one"]

    def accuracy(scores: object) -> float:
        return evaluate(scores, of.latency_s, of.groups).mean.pairwise  # type: ignore[arg-type]

    alone = [accuracy(part.predict(test[kind])) for kind, part in model.parts]
    assert accuracy(predict(model, test)) > max(alone) + 0.1


def test_a_score_does_not_depend_on_its_company() -> None:
    model, test = combined(), programs(50, seed=1)
    model.fit(programs(200))
    some = {kind: samples.take([7, 3]) for kind, samples in test.items()}
    assert np.array_equal(model.predict(some), model.predict(test)[[7, 3]])


def test_what_is_loaded_predicts_the_same_to_the_bit(tmp_path: Path) -> None:
    model, test = combined(), programs(50, seed=1)
    model.fit(programs(200))
    model.save(tmp_path / "model", ["w"])
    loaded = Combined.load(tmp_path / "model")
    assert loaded.features == ("one", "two") and loaded.scales == model.scales
    assert np.array_equal(loaded.predict(test), model.predict(test))


def test_one_kind_of_features_is_not_enough(tmp_path: Path) -> None:
    model = combined()
    model.fit(programs(100))
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="one, two together"):
        Combined.load(tmp_path / "model", STATEMENTS)
    XGBModel().save(tmp_path / "other")
    with pytest.raises(ModelFileError, match="not `combined`"):
        Combined.load(tmp_path / "other")
    whole = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(whole[:-10])
    with pytest.raises(ModelFileError, match="damaged"):
        Combined.load(tmp_path / "model")


def test_a_spread_is_taken_within_workloads() -> None:
    samples = Samples.of(
        STATEMENTS, [np.zeros(164, np.float32)] * 5, [1.0, 2.0, 3.0, 4.0, np.inf], [0, 0, 1, 1, 1]
    )
    assert spread(np.array([0.0, 2.0, 100.0, 102.0, -1e9]), samples) == 1.0
    assert spread(np.zeros(5), samples) == 1.0  # nothing to divide by
    assert add([np.array([2.0]), np.array([3.0])], [2.0, 0.5]).tolist() == [7.0]


def test_the_kind_of_a_models_features() -> None:
    model = make_model("xgb")
    assert features_of(model) == ("statements",)
    model.fit(
        Samples.of(FeatureSchema("relations", 1, 2), [np.zeros((1, 2), np.float32)] * 2, [1.0, 2.0])
    )
    assert features_of(model) == ("relations",)
