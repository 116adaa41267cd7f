from __future__ import annotations

import numpy as np
import pytest

from tensortune.costmodel import objectives
from tensortune.costmodel.objectives import Logistic, LogSpeed, PairwiseRank

RNG = np.random.default_rng(0)
LATENCY = RNG.lognormal(size=40)
GROUPS = RNG.integers(0, 3, 40) * 10**12
SCORES = RNG.normal(size=40)


def rank(latency: np.ndarray, groups: np.ndarray) -> PairwiseRank:
    return PairwiseRank(latency, groups, np.random.default_rng(0))


def rank_loss(scores: np.ndarray) -> float:
    loss = 0.0
    for group in set(GROUPS.tolist()):
        members = np.flatnonzero(group == GROUPS)
        for i in members:
            for j in members:
                if LATENCY[i] < LATENCY[j]:
                    weight = 2.0 / (len(members) - 1)
                    loss += weight * float(np.log1p(np.exp(scores[j] - scores[i])))
    return loss


def test_rank_gradient_is_that_of_the_loss() -> None:
    gradient, hessian = rank(LATENCY, GROUPS)(SCORES)
    for i in range(0, 40, 7):
        step = np.zeros(40)
        step[i] = 1e-4
        up, down, here = (rank_loss(SCORES + s) for s in (step, -step, np.zeros(40)))
        assert gradient[i] == pytest.approx((up - down) / 2e-4, rel=1e-4)
        assert hessian[i] == pytest.approx((up + down - 2 * here) / 1e-8, rel=1e-2)


def test_rank_looks_at_the_order_only() -> None:
    first = rank(LATENCY, GROUPS)(SCORES)
    second = rank(LATENCY**3 * 1e-6, GROUPS)(SCORES)
    assert np.allclose(first, second)


def test_rank_of_equal_programs_pulls_nowhere() -> None:
    gradient, hessian = rank(np.ones(5), np.zeros(5, np.int64))(np.arange(5.0))
    assert not gradient.any()
    assert not hessian.any()


def test_pairs_of_a_large_group_are_drawn_without_repeats() -> None:
    n = 1000
    latency = np.random.default_rng(1).permutation(n) + 1.0
    objective = PairwiseRank(latency, np.zeros(n, np.int64), np.random.default_rng(0))
    low = np.minimum(objective.faster, objective.slower)
    high = np.maximum(objective.faster, objective.slower)
    assert len(set(zip(low.tolist(), high.tolist(), strict=True))) == len(low)
    assert (latency[objective.faster] < latency[objective.slower]).all()
    met = np.bincount(low, minlength=n) + np.bincount(high, minlength=n)
    assert set(met.tolist()) == {128}


@pytest.mark.parametrize("n", [257, 258, 300])
def test_just_over_the_limit_there_are_still_distinct_pairs(n: int) -> None:
    objective = rank(np.arange(1.0, n + 1), np.zeros(n, np.int64))
    pairs = {tuple(sorted(p)) for p in zip(objective.faster, objective.slower, strict=True)}
    assert len(pairs) == len(objective.faster) == n * 64


def test_every_program_has_about_the_same_say() -> None:
    latency = np.random.default_rng(1).lognormal(size=620)
    groups = np.repeat([0, 1], [20, 600])
    gradient, _ = rank(latency, groups)(np.zeros(620))
    small, large = np.abs(gradient[:20]).mean(), np.abs(gradient[20:]).mean()
    # Both are means of the same distribution; of 20 draws, within a third or so.
    assert small == pytest.approx(large, rel=0.5)


def test_log_speed_is_centred_in_each_group() -> None:
    objective = LogSpeed(LATENCY, GROUPS)
    for group in set(GROUPS.tolist()):
        assert objective.target[group == GROUPS].mean() == pytest.approx(0.0, abs=1e-12)
    gradient, hessian = objective(objective.target)
    assert not gradient.any()
    assert (hessian == 1.0).all()


def test_logistic_gradient_is_that_of_the_loss() -> None:
    truth = SCORES > 0.3
    gradient, hessian = Logistic(truth, 0.7)(SCORES)

    def loss(score: float, yes: bool) -> float:
        return float(np.log1p(np.exp(-score - 0.7 if yes else score + 0.7)))

    for i in range(5):
        up, down, here = (loss(SCORES[i] + s, bool(truth[i])) for s in (1e-4, -1e-4, 0.0))
        assert gradient[i] == pytest.approx((up - down) / 2e-4, rel=1e-4)
        assert hessian[i] == pytest.approx((up + down - 2 * here) / 1e-8, rel=1e-2)


@pytest.mark.filterwarnings("error")
def test_sigmoid_of_anything_is_a_probability() -> None:
    found = objectives.sigmoid(np.array([-np.inf, -1e300, 0.0, 1e300, np.inf]))
    assert found[2] == 0.5
    assert ((found >= 0) & (found <= 1)).all()
