"""Learns a task's programs, keeps failures apart, and trusts a prior as far as it ranks right."""

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, Samples
from tensortune.costmodel.metrics import pairwise_accuracy
from tensortune.costmodel.ranker import Ranker
from tensortune.costmodel.xgb import XGBModel

SCHEMA = FeatureSchema("made-up", 1, 6)


def problem(n: int, seed: int, sign: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Programs whose seconds three features decide; of those with a small last one, most fail."""
    rng = np.random.default_rng(seed)
    rows = rng.random((n, SCHEMA.width)).astype(np.float32)
    latency_s = 1e-3 * np.exp(sign * (2 * rows[:, 0] - rows[:, 1] + rows[:, 2]))
    return rows, np.where(rows[:, 5] < 0.2, np.inf, latency_s)


def trained(sign: float) -> XGBModel:
    rows, latency_s = problem(300, 9, sign)
    model = XGBModel()
    model.fit(Samples.of(SCHEMA, list(rows), latency_s))
    return model


def accuracy(ranker: Ranker) -> float:
    rows, latency_s = problem(200, 1)
    valid = np.isfinite(latency_s)
    scores = ranker.score(Samples.of(SCHEMA, list(rows)))
    return pairwise_accuracy(scores[valid], latency_s[valid])


def learn(ranker: Ranker, n: int) -> Ranker:
    rows, latency_s = problem(n, 2)
    ranker.add(list(rows), latency_s.tolist())
    return ranker


def test_knows_nothing_at_first() -> None:
    assert accuracy(Ranker(XGBModel(), SCHEMA)) == 0.5


@pytest.mark.parametrize("step", [100, 10])
def test_learns_all_at_once_or_bit_by_bit(step: int) -> None:
    rows, latency_s = problem(100, 2)
    ranker = Ranker(XGBModel(), SCHEMA)
    for start in range(0, 100, step):
        ranker.add(list(rows[start : start + step]), latency_s[start : start + step].tolist())
        ranker.score(Samples.of(SCHEMA, []))
    assert accuracy(ranker) == accuracy(learn(Ranker(XGBModel(), SCHEMA), 100)) > 0.85


def test_what_fails_ranks_below_the_rest() -> None:
    rows, latency_s = problem(200, 1)
    scores = learn(Ranker(XGBModel(), SCHEMA), 100).score(Samples.of(SCHEMA, list(rows)))
    failing = ~np.isfinite(latency_s)
    assert np.median(scores[failing]) < scores[~failing].min() + np.std(scores[~failing])
    assert scores[failing].mean() < scores[~failing].mean() - 1


def test_with_failures_only_it_still_scores() -> None:
    rows, _ = problem(20, 2)
    ranker = Ranker(XGBModel(), SCHEMA)
    ranker.add(list(rows), [float("inf")] * 20)
    assert np.ptp(ranker.score(Samples.of(SCHEMA, list(rows)))) == 0


def test_a_prior_counts_as_far_as_it_ranks_right() -> None:
    right, wrong = trained(1.0), trained(-1.0)
    assert accuracy(Ranker(right, SCHEMA)) > 0.85
    assert accuracy(Ranker(wrong, SCHEMA)) < 0.15, "nothing says yet that it is wrong"
    few = accuracy(learn(Ranker(XGBModel(), SCHEMA), 12))
    assert accuracy(learn(Ranker(right, SCHEMA), 12)) > few
    assert accuracy(learn(Ranker(wrong, SCHEMA), 12)) == few
    rows, _ = problem(50, 3)
    samples = Samples.of(SCHEMA, list(rows))
    before = right.predict(samples)
    learn(Ranker(right, SCHEMA), 50).score(samples)
    assert (right.predict(samples) == before).all(), "the prior itself learns nothing"
