from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from tensortune.costmodel import metrics
from tensortune.costmodel.metrics import evaluate

LATENCY = np.random.default_rng(0).lognormal(size=90)
GROUPS = np.repeat([3, 7, 8], 30)


def test_perfect_scores() -> None:
    mean = evaluate(-np.log(LATENCY), LATENCY, GROUPS).mean
    assert (mean.pairwise, mean.recall, mean.top1, mean.top5) == (1.0, 1.0, 1.0, 1.0)
    assert mean.kendall == pytest.approx(1.0)
    assert mean.spearman == pytest.approx(1.0)


def test_reversed_scores() -> None:
    mean = evaluate(LATENCY, LATENCY, GROUPS, k=5).mean
    assert (mean.pairwise, mean.recall) == (0.0, 0.0)
    assert mean.kendall == pytest.approx(-1.0)
    assert mean.spearman == pytest.approx(-1.0)


def test_scores_that_are_all_equal_are_chance() -> None:
    mean = evaluate(np.zeros(90), LATENCY, GROUPS, k=6).mean
    assert (mean.pairwise, mean.kendall, mean.spearman) == (0.5, 0.0, 0.0)
    assert mean.recall == pytest.approx(6 / 30)


def test_ties_are_broken_by_expectation() -> None:
    latency = np.array([4.0, 1.0, 2.0, 8.0, 3.0])
    scores = np.array([9.0, 1.0, 1.0, 1.0, 0.0])
    # The top 2 are the first program and one of the three that tie.
    best = [min(4.0, latency[i]) for i in (1, 2, 3)]
    assert metrics.top_score(scores, latency, 2) == pytest.approx(1.0 / np.mean(best))
    assert metrics.recall_at(scores, latency, 2) == pytest.approx(2 / 3 / 2)
    pairs = [min(latency[list(pair)]) for pair in combinations(range(5), 2)]
    assert metrics.top_score(np.zeros(5), latency, 2) == pytest.approx(1.0 / np.mean(pairs))


def test_pairwise_accuracy_counts_ties_half_and_skips_the_near() -> None:
    latency = np.array([1.0, 1.01, 2.0])
    assert metrics.pairwise_accuracy(np.array([1.0, 2.0, 0.0]), latency) == pytest.approx(2 / 3)
    assert metrics.pairwise_accuracy(np.array([1.0, 2.0, 0.0]), latency, 0.05) == 1.0
    assert metrics.pairwise_accuracy(np.array([1.0, 2.0, 1.0]), latency, 0.05) == 0.75
    # The larger noise of the two decides.
    noise = np.array([0.0, 0.0, 1.5])
    assert metrics.pairwise_accuracy(np.array([1.0, 2.0, 3.0]), latency, noise) == 0.0
    assert math.isnan(metrics.pairwise_accuracy(np.zeros(3), latency, 5.0))


def test_pairwise_accuracy_of_many_is_that_of_all_pairs() -> None:
    rng = np.random.default_rng(1)
    latency, scores = rng.lognormal(size=1100), rng.integers(0, 50, 1100).astype(float)
    faster = latency[:, None] < latency[None, :]
    ahead = scores[:, None] - scores[None, :]
    expected = ((ahead > 0)[faster].sum() + 0.5 * (ahead == 0)[faster].sum()) / faster.sum()
    assert metrics.pairwise_accuracy(scores, latency) == pytest.approx(expected)


def test_failures_and_unmeasured_programs_are_left_out() -> None:
    scores = np.append(-LATENCY, [100.0, 200.0])
    latency, groups = np.append(LATENCY, [np.inf, np.nan]), np.append(GROUPS, [3, 99])
    assert evaluate(scores, latency, groups) == evaluate(-LATENCY, LATENCY, GROUPS)


def test_the_scale_of_scores_and_latencies_does_not_matter() -> None:
    scores = np.random.default_rng(2).normal(size=90) - LATENCY
    scaled = LATENCY * np.repeat([1.0, 1e-3, 1e-6], 30)
    first, second = evaluate(scores, LATENCY, GROUPS), evaluate(7 * scores - 3, scaled, GROUPS)
    for name in metrics.NAMES:
        assert getattr(first.mean, name) == pytest.approx(getattr(second.mean, name)), name


def test_top_scores_are_weighted_sums_of_latencies() -> None:
    latency = np.array([1.0, 2.0, 10.0, 15.0])
    groups = np.array([0, 0, 1, 1])
    scores = np.array([0.0, 1.0, 0.0, 1.0])
    found = evaluate(scores, latency, groups, weights={0: 3.0, 1: 1.0})
    assert found.mean.top1 == pytest.approx((3 * 1 + 10) / (3 * 2 + 15))
    assert found.mean.top5 == 1.0
    # By default both workloads count the same: 1 / mean(2, 1.5).
    assert evaluate(scores, latency, groups).mean.top1 == pytest.approx(1 / 1.75)


def test_rmse_is_of_the_throughput_after_the_best_line() -> None:
    speed = LATENCY.min() / LATENCY
    assert metrics.line_rmse(5 * speed + 2, speed) == pytest.approx(0.0, abs=1e-12)
    assert metrics.line_rmse(np.zeros(90), speed) == pytest.approx(float(np.std(speed)))


def test_intervals_hold_the_mean_and_follow_the_seed() -> None:
    scores = np.random.default_rng(3).normal(size=90) - LATENCY
    first = evaluate(scores, LATENCY, GROUPS, seed=1)
    assert first == evaluate(scores, LATENCY, GROUPS, seed=1)
    for name in metrics.NAMES:
        low, mean, high = (getattr(part, name) for part in (first.low, first.mean, first.high))
        assert low <= mean <= high
    assert set(first.workloads) == {3, 7, 8}
    one = evaluate(scores[:30], LATENCY[:30])
    assert one.low == one.mean == one.high


def test_json_has_every_metric_with_its_interval() -> None:
    found = evaluate(-LATENCY, LATENCY, GROUPS).to_json()
    keys = ("pairwise", "kendall", "spearman", "recall10", "top1", "top5", "rmse")
    assert set(found) == {*keys, *(f"{key}_ci95" for key in keys)}


def test_workloads_with_one_program_do_not_spoil_the_mean() -> None:
    found = evaluate([1.0, 2.0, 5.0], [2.0, 1.0, 1.0], [0, 0, 1])
    assert found.mean.pairwise == 1.0
    assert math.isnan(found.workloads[1].pairwise)


def test_nothing_to_judge_by() -> None:
    with pytest.raises(ValueError, match="latency"):
        evaluate([1.0], [np.inf])
    with pytest.raises(ValueError, match="2 scores"):
        evaluate([1.0, 2.0], [1.0])


def test_noise_is_that_of_the_median() -> None:
    rng = np.random.default_rng(4)
    repeats = np.exp(0.1 * rng.standard_normal((400, 9)))
    noise = metrics.measured_noise(repeats.tolist())
    # Over 400 programs the mean of the estimates is within a few percent of what medians vary by.
    assert noise.mean() == pytest.approx(float(np.std(np.log(np.median(repeats, axis=1)))), rel=0.1)
    assert metrics.measured_noise([[1.0], [1.0, 1.2], [1.0, 1.2]])[0] == pytest.approx(
        metrics.measured_noise([[1.0, 1.2]])[0]
    )
    assert metrics.measured_noise([[1.0], []]).tolist() == [0.0, 0.0]


def test_noise_ceiling() -> None:
    rng = np.random.default_rng(5)
    true = rng.lognormal(sigma=0.3, size=60)
    groups = np.repeat([0, 1], 30)

    def ceiling(noise: float) -> float:
        times = true[:, None] * np.exp(noise * rng.standard_normal((60, 3)))
        return metrics.noise_ceiling([*times.tolist()], groups)

    assert ceiling(0.0) == 1.0
    assert 0.7 < ceiling(0.1) < 0.98
    # Noise of a hundred times the programs' spread leaves chance: 0.5, with a deviation of 0.04.
    assert 0.35 < ceiling(30.0) < 0.65
    assert math.isnan(metrics.noise_ceiling([[1.0], [2.0]], [0, 0]))
