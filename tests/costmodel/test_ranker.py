"""Learns a task's programs, keeps failures apart, and trusts a prior as far as it ranks right."""

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, Samples
from tensortune.costmodel.ensemble import BootstrapEnsemble
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


def test_a_prior_at_chance_counts_for_nothing() -> None:
    rng = np.random.default_rng(0)
    found = []
    for seed in range(5):
        rows, latency_s = problem(16, seed)
        ranker = Ranker(XGBModel(), SCHEMA)
        ranker.add(list(rows), latency_s.tolist(), known=rng.standard_normal((16, 20)))
        found += ranker.trust[1:]
    # By luck one in six has a standard error to spare: 84 of 100 are 0, with a deviation of 3.7.
    assert np.sum(np.equal(found, 0)) >= 70
    assert np.mean(found) < 0.06


def test_a_good_prior_is_trusted_the_more_the_longer_it_is_right() -> None:
    prior = trained(1.0)
    found = []
    for n in (10, 100):
        rankers = [Ranker(prior, SCHEMA) for _ in range(5)]
        for seed, ranker in enumerate(rankers):
            rows, latency_s = problem(n, 10 + seed)
            noise = np.exp(0.5 * np.random.default_rng(seed).standard_normal(n))
            ranker.add(list(rows), (latency_s * noise).tolist())
        found.append(np.mean([ranker.trust[0] for ranker in rankers]))
    assert 0.2 < found[0] < found[1] < 1
    assert learn(Ranker(trained(-1.0), SCHEMA), 10).trust == [0.0]
    assert learn(Ranker(XGBModel(), SCHEMA), 10).trust == [0.0], "one that was not trained"


def test_a_prior_stands_alone_until_it_can_be_judged() -> None:
    rows, latency_s = problem(4, 2)
    for sign in (1.0, -1.0):
        ranker = Ranker(trained(sign), SCHEMA)
        before = accuracy(ranker)
        ranker.add(list(rows), latency_s.tolist())
        assert ranker.trust == []
        assert accuracy(ranker) == before


def test_when_all_that_a_prior_picks_fails_it_is_heard_no_more() -> None:
    rows, _ = problem(20, 2)
    ranker = Ranker(trained(1.0), SCHEMA)
    assert np.ptp(ranker.score(Samples.of(SCHEMA, list(rows)))) > 0
    ranker.add(list(rows), [float("inf")] * 20)
    assert np.ptp(ranker.score(Samples.of(SCHEMA, list(rows)))) == 0


def test_a_prior_earns_it_back() -> None:
    """Wrong about the first programs, right about those that come after."""
    ranker = Ranker(trained(1.0), SCHEMA)
    rows, latency_s = problem(16, 2)
    ranker.add(list(rows), np.where(np.isfinite(latency_s), 1e-6 / latency_s, np.inf).tolist())
    assert ranker.trust == [0.0]
    rows, latency_s = problem(150, 3)
    ranker.add(list(rows), latency_s.tolist())
    assert ranker.trust[0] > 0.3


def test_priors_on_other_features_are_handed_in() -> None:
    rows, latency_s = problem(12, 2)
    test, truth = problem(200, 1)
    valid = np.isfinite(truth)
    samples = Samples.of(SCHEMA, list(test))
    right, wrong = trained(1.0), trained(-1.0)

    def known(matrix: np.ndarray) -> np.ndarray:
        of = Samples.of(SCHEMA, list(matrix))
        return np.stack([wrong.predict(of), 1e3 * right.predict(of)], axis=1)

    ranker = Ranker(XGBModel(), SCHEMA)
    opening = ranker.score(samples, known(test))
    assert np.ptp(opening) < 1e-3 < np.ptp(right.predict(samples)), (
        "they cancel, whatever the scale"
    )
    ranker.add(list(rows), latency_s.tolist(), known=known(rows))
    found = pairwise_accuracy(ranker.score(samples, known(test))[valid], truth[valid])
    assert ranker.trust[:2] == [0.0, 0.0]
    assert ranker.trust[2] > 0.3
    assert found > accuracy(learn(Ranker(XGBModel(), SCHEMA), 12))


class Own:
    """A model of a user's own, which can't be fitted on top of others."""

    def fit(self, samples: Samples) -> None:
        valid = np.isfinite(samples.latency_s)
        self.weights = np.linalg.lstsq(samples.rows[valid], -np.log(samples.latency_s[valid]))[0]

    def predict(self, samples: Samples) -> np.ndarray:
        return samples.rows @ getattr(self, "weights", np.zeros(SCHEMA.width))


def test_a_model_of_ones_own_is_added_to_what_is_known() -> None:
    rows, latency_s = problem(12, 2)
    test, truth = problem(200, 1)
    valid = np.isfinite(truth)
    samples, prior = Samples.of(SCHEMA, list(test)), trained(1.0)
    found = []
    for informed in (False, True):
        ranker = Ranker(Own(), SCHEMA)

        def known(of: Samples, informed: bool = informed) -> np.ndarray | None:
            return prior.predict(of)[:, None] if informed else None

        ranker.add(list(rows), latency_s.tolist(), known=known(Samples.of(SCHEMA, list(rows))))
        assert isinstance(ranker.model, Own)
        found.append(pairwise_accuracy(ranker.score(samples, known(samples))[valid], truth[valid]))
    assert found[1] > found[0]


def test_a_trained_model_is_corrected_by_a_small_one() -> None:
    prior = XGBModel(rounds=300, max_depth=7, warm_start=True)
    rows, latency_s = problem(300, 9)
    prior.fit(Samples.of(SCHEMA, list(rows), latency_s))
    ranker = learn(Ranker(prior, SCHEMA), 12)
    assert isinstance(ranker.model, XGBModel)
    assert (ranker.model.rounds, ranker.model.warm_start) == (80, False)
    assert ranker.model is not ranker.prior


def test_a_model_that_doubts_says_how_much() -> None:
    test, truth = problem(200, 1)
    samples, valid = Samples.of(SCHEMA, list(test)), np.isfinite(truth)
    ranker = learn(Ranker(BootstrapEnsemble(), SCHEMA), 60)
    mean, std = ranker.distribution(samples)
    assert pairwise_accuracy(mean[valid], truth[valid]) > 0.8
    assert (std > 0).all()
    assert np.abs(ranker.measured.mean()) < 1e-9
    assert ranker.measured.std() == pytest.approx(1.0)
    assert len(ranker.measured) == np.isfinite(problem(60, 2)[1]).sum()
    sure, none = learn(Ranker(XGBModel(), SCHEMA), 60).distribution(samples)
    assert not none.any()
    assert sure.std() == pytest.approx(mean.std(), rel=0.5)


def test_scores_are_speed_and_what_else_there_is() -> None:
    rows, latency_s = problem(100, 2)
    ranker = Ranker(XGBModel(), SCHEMA)
    ranker.add(list(rows), latency_s.tolist(), np.where(rows[:, 4] > 0.5, 0.1, 1.0).tolist())
    samples = Samples.of(SCHEMA, list(problem(200, 1)[0]))
    speed, _ = ranker.distribution(samples)
    bonus = ranker.bonus(samples)
    assert ranker.score(samples) == pytest.approx(speed + bonus)
    assert bonus.max() < 1e-5
    assert bonus[samples.rows[:, 5] < 0.15].mean() < bonus.mean() - 0.5, "what fails"
    assert bonus[samples.rows[:, 4] < 0.4].mean() < bonus.mean() - 0.3, "what compiles slowly"
