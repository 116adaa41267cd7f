"""A global model helps as far as it ranks a task's programs right, and its scores stay in place."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, ModelFileError, Samples
from tensortune.costmodel.metrics import pairwise_accuracy
from tensortune.costmodel.transfer import Blend, GlobalLocal, corrects, trust
from tensortune.costmodel.xgb import XGBModel

SCHEMA = FeatureSchema("made-up", 1, 6)


def problem(n: int, seed: int, local: float = 0.0, groups: int = 1) -> Samples:
    """Programs of one to three statements, in some workloads, of which one in seven fails.

    The first two columns decide the time everywhere; the third one does in a task of its own, as
    far as `local` says. The last column numbers the programs.
    """
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, n)
    rows = rng.random((int(counts.sum()), SCHEMA.width)).astype(np.float32)
    programs = np.repeat(np.arange(n), counts)
    rows[:, 5] = programs
    log = np.bincount(programs, 2 * rows[:, 0] - rows[:, 1] + local * rows[:, 2])
    group = rng.integers(0, groups, n)
    latency_s = 1e-3 * np.exp(log + group)
    return Samples(SCHEMA, rows, counts, np.where(np.arange(n) % 7 == 3, np.inf, latency_s), group)


def fitted(sign: float = 1.0) -> XGBModel:
    """What was learnt of other workloads; with a sign of -1 from labels turned upside down."""
    samples = problem(400, 99, groups=4)
    model = XGBModel()
    model.fit(replace(samples, latency_s=samples.latency_s**sign) if sign > 0 else flipped(samples))
    return model


def flipped(samples: Samples) -> Samples:
    valid = np.isfinite(samples.latency_s)
    return replace(samples, latency_s=np.where(valid, 1e-6 / samples.latency_s, np.inf))


def accuracy(model: GlobalLocal | XGBModel, local: float) -> float:
    test = problem(300, 7, local)
    valid = np.isfinite(test.latency_s)
    return pairwise_accuracy(model.predict(test)[valid], test.latency_s[valid])


class Numbered:
    """A global model that says of each program what its number stands for."""

    schema = SCHEMA

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def fit(self, samples: Samples) -> None:
        raise AssertionError("the global model is frozen")

    def predict(self, samples: Samples) -> np.ndarray:
        return self.scores[numbers(samples)]


class Ledger:
    """A local model that keeps what it is fitted with, and corrects nothing."""

    objective = "regression"
    kept: tuple[Samples, np.ndarray | None]

    def fit(self, samples: Samples, margin: np.ndarray | None = None) -> None:
        self.kept = (samples, margin)

    def predict(self, samples: Samples) -> np.ndarray:
        return np.zeros(len(samples))


def numbers(samples: Samples) -> np.ndarray:
    """Which program of `problem` each program is, by its own rows."""
    starts = np.cumsum(samples.counts) - samples.counts
    return samples.rows[starts, 5].astype(np.int64)


@pytest.mark.parametrize("seed", range(5))
def test_global_scores_stay_with_their_programs(seed: int) -> None:
    samples = problem(120, 3, groups=3)
    rng = np.random.default_rng(seed)
    noise = 0.1 * rng.standard_normal(len(samples))
    scores = np.where(np.isfinite(samples.latency_s), noise - np.log(samples.latency_s), 1e6)
    shuffled = samples.take(rng.permutation(len(samples)))
    assert not np.array_equal(numbers(shuffled), np.arange(len(shuffled)))
    model = GlobalLocal(Numbered(scores), Ledger())
    model.fit(shuffled)
    given, margin = model._correction.kept
    assert given is shuffled
    assert margin is not None and model.blend is not None
    expected = model.blend.margin(scores[numbers(shuffled)][:, None])
    assert np.array_equal(margin, expected)
    valid = np.isfinite(shuffled.latency_s)
    # And the scores are those of the same programs as the latencies.
    for group in range(3):
        member = valid & (shuffled.groups == group)
        assert np.corrcoef(margin[member], -np.log(shuffled.latency_s[member]))[0, 1] > 0.98


@pytest.mark.parametrize("objective", ["rank", "regression"])
@pytest.mark.parametrize("n", [200, 700])
def test_nothing_is_left_to_learn_on_top_of_the_truth(objective: str, n: int) -> None:
    """Of 700 programs in a group the pairs are drawn, from a shuffled ring of them."""
    samples = problem(n, 3).take(np.random.default_rng(0).permutation(n))
    log = np.where(np.isfinite(samples.latency_s), -np.log(samples.latency_s), 1e6)
    valid = np.isfinite(samples.latency_s)
    truth = (log - log[valid].mean()) * (20.0 if objective == "rank" else 1.0)
    scrambled = truth.copy()
    scrambled[valid] = np.random.default_rng(1).permutation(truth[valid])
    spread = {}
    for name, margin in (("none", None), ("right", truth), ("scrambled", scrambled)):
        model = XGBModel(objective)  # type: ignore[arg-type]
        model.fit(samples, margin)
        spread[name] = float(model.predict(samples)[valid].std())
    # Pairs that are nearly equal leave the rank objective a little.
    assert spread["right"] < (0.2 if objective == "rank" else 0.05) * spread["none"]
    assert spread["scrambled"] > 4 * spread["right"]


def test_no_margin_is_a_margin_of_zero() -> None:
    samples = problem(100, 0)
    first, second = XGBModel(), XGBModel()
    first.fit(samples)
    second.fit(samples, np.zeros(100))
    assert np.array_equal(first.predict(samples), second.predict(samples))
    with pytest.raises(ValueError, match="99"):
        first.fit(samples, np.zeros(99))


def test_shuffling_the_samples_changes_nothing() -> None:
    """But for the order in which gradients are summed."""
    samples, test = problem(80, 3, 1.0, groups=2), problem(50, 8, 1.0)
    found = []
    for seed in (None, 0, 1):
        order = np.arange(80) if seed is None else np.random.default_rng(seed).permutation(80)
        model = GlobalLocal(fitted())
        model.fit(samples.take(order))
        found.append(model.predict(test))
    spread = found[0].std()
    assert np.abs(found[1] - found[0]).max() < 0.05 * spread
    assert np.abs(found[2] - found[0]).max() < 0.05 * spread


@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_with_few_samples_it_beats_both_parts(objective: str) -> None:
    general = fitted()
    wins = 0
    for seed in range(5):
        samples = problem(40, 20 + seed, 1.5)
        local = XGBModel(objective)  # type: ignore[arg-type]
        both = GlobalLocal(general, local)
        both.fit(samples)
        alone = XGBModel(objective)  # type: ignore[arg-type]
        alone.fit(samples)
        best = max(accuracy(general, 1.5), accuracy(alone, 1.5))
        wins += accuracy(both, 1.5) > best
    assert wins >= 4


def test_before_a_fit_it_is_the_global_model() -> None:
    general, test = fitted(), problem(50, 1)
    assert np.array_equal(GlobalLocal(general).predict(test), general.predict(test))


def test_a_misleading_global_model_counts_for_nothing() -> None:
    samples, test = problem(16, 4), problem(100, 5)
    local, model = XGBModel(), GlobalLocal(fitted(-1.0))
    model.fit(samples)
    local.fit(samples)
    assert model.blend is not None and model.blend.trust.tolist() == [0.0]
    assert np.array_equal(model.predict(test), local.predict(test))


def test_the_global_model_is_left_alone() -> None:
    general, test = fitted(), problem(50, 1)
    before = general.predict(test)
    GlobalLocal(general).fit(problem(60, 2, 1.0))
    assert np.array_equal(general.predict(test), before)


def test_the_same_samples_are_the_same_model() -> None:
    test, found = problem(50, 1), []
    for _ in range(2):
        model = GlobalLocal(fitted())
        model.fit(problem(60, 2, 1.0))
        found.append(model.predict(test))
    assert np.array_equal(*found)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_with_hardly_any_samples_it_says_something(n: int) -> None:
    model = GlobalLocal(fitted())
    model.fit(problem(n, 2))
    assert np.isfinite(model.predict(problem(10, 1))).all()


def test_trust_is_zero_for_what_knows_nothing() -> None:
    rng = np.random.default_rng(0)
    found = [trust(rng.random(16), rng.random(16), np.zeros(16, np.int64)) for _ in range(400)]
    # One standard error above chance is reached by 16% of all that know nothing; of 400 draws the
    # share has a standard deviation of 2%.
    assert 0.10 < np.mean(np.array(found) > 0) < 0.22
    assert np.mean(found) < 0.05


def test_trust_grows_with_what_is_known() -> None:
    rng = np.random.default_rng(0)
    speed = rng.standard_normal(2000)
    scores = speed + rng.standard_normal(2000)  # a correlation of 0.7
    group = np.zeros(2000, np.int64)
    found = [
        np.mean(
            [
                trust(scores[i : i + n], np.exp(-speed[i : i + n]), group[:n])
                for i in range(0, 2000, n)
            ]
        )
        for n in (10, 40, 200)
    ]
    assert 0.3 < found[0] < found[1] < found[2] < 0.7
    assert trust(-scores, np.exp(-speed), group) == 0
    assert trust(np.full(20, np.nan), np.exp(-speed[:20]), group[:20]) == 0
    assert trust(np.ones(20), np.exp(-speed[:20]), group[:20]) == 0


def test_trust_is_within_groups() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 50)
    latency_s = np.exp(10.0 * group + rng.standard_normal(100))
    assert trust(-10.0 * group + rng.standard_normal(100), latency_s, group) < 0.3
    assert trust(10.0 * group - np.log(latency_s), latency_s, group) > 0.9


def test_models_weigh_as_far_as_they_are_trusted() -> None:
    rng = np.random.default_rng(0)
    speed = rng.standard_normal(60)
    known = np.stack([speed, -speed, 100 * (speed + rng.standard_normal(60))], axis=1)
    blend = Blend.fitted(known, np.exp(-speed), np.zeros(60, np.int64))
    weight = blend.factor * known.std(axis=0)
    assert weight[1] == 0
    assert weight[0] > weight[2] > 0
    known[:, 1] = np.nan
    assert np.isfinite(blend.margin(known)).all(), "what does not count is not looked at"


def test_other_features_are_refused() -> None:
    general, samples = fitted(), problem(20, 0)
    model = GlobalLocal(general)
    other = replace(samples, schema=replace(SCHEMA, version=2))
    with pytest.raises(ValueError, match=r"version 1.*version 2"):
        model.fit(other)
    with pytest.raises(ValueError, match=r"version 1.*version 2"):
        model.predict(other)


@pytest.mark.parametrize("n", [None, 60])
def test_a_saved_model_predicts_the_same_to_the_bit(n: int | None, tmp_path: Path) -> None:
    model, test = GlobalLocal(fitted(), XGBModel(rounds=20), doubt=0.5), problem(80, 1)
    if n is not None:
        model.fit(problem(n, 2, 1.0))
    model.save(tmp_path / "model", workloads=["abc"])
    loaded = GlobalLocal.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(test), model.predict(test))
    for each in (model, loaded):
        each.fit(problem(30, 5, 1.0))
    assert np.array_equal(loaded.predict(test), model.predict(test))
    with pytest.raises(ModelFileError, match="version"):
        GlobalLocal.load(tmp_path / "model", replace(SCHEMA, version=2))


def test_a_global_model_of_the_users_own_will_do() -> None:
    samples = problem(40, 0)
    scores = np.where(np.isfinite(samples.latency_s), -np.log(samples.latency_s), 0.0)
    model = GlobalLocal(Numbered(scores))
    model.fit(samples)
    valid = np.isfinite(samples.latency_s)
    assert pairwise_accuracy(model.predict(samples)[valid], samples.latency_s[valid]) > 0.95
    with pytest.raises(ValueError, match="save"):
        model.save("nowhere")


def test_what_can_be_corrected_with() -> None:
    assert corrects(XGBModel())
    assert not corrects(Numbered(np.zeros(1)))


class Tuned(Numbered):
    """Fine-tuning adds to each score what the samples say."""

    def fine_tune(self, samples: Samples) -> None:
        valid = np.isfinite(samples.latency_s)
        self.scores = self.scores.copy()
        self.scores[numbers(samples)[valid]] -= np.log(samples.latency_s[valid])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_copy_is_fine_tuned_if_it_is_trusted(sign: float) -> None:
    samples = problem(40, 0, 2.0)
    valid = np.isfinite(samples.latency_s)
    scores = sign * np.random.default_rng(0).normal(-np.log(problem(40, 0).latency_s), 0.3)
    scores = np.where(np.isfinite(scores), scores, 0.0)
    general = Tuned(scores)
    model = GlobalLocal(general, Ledger(), fine_tune=True)
    model.fit(samples)
    assert general.scores is scores
    found = model.predict(samples)[valid]
    if sign > 0:
        assert pairwise_accuracy(found, samples.latency_s[valid]) > pairwise_accuracy(
            scores[valid], samples.latency_s[valid]
        )
    else:
        assert not found.any()


def test_fine_tuning_needs_a_model_that_can() -> None:
    with pytest.raises(ValueError, match="fine_tune"):
        GlobalLocal(fitted(), fine_tune=True)


def test_a_tree_gru_is_fine_tuned() -> None:
    pytest.importorskip("torch")
    model_of = import_module("tensortune.costmodel.treegru").TreeGRU

    def trees(n: int, seed: int, local: float) -> Samples:
        samples = problem(n, seed, local)
        # The first column says how far above the parent is: every program is a chain.
        depth = np.concatenate([np.minimum(np.arange(count), 1) for count in samples.counts])
        rows = np.concatenate([depth[:, None], samples.rows[:, :5]], axis=1).astype(np.float32)
        return replace(samples, rows=rows)

    general = model_of(embedding=32, hidden=32, epochs=15, learning_rate=3e-3)
    general.fit(trees(300, 99, 0.0))
    test = trees(200, 7, 1.5)
    valid = np.isfinite(test.latency_s)
    before, found = general.predict(test), {}
    for name, tuned in (("frozen", False), ("tuned", True)):
        model = GlobalLocal(general, fine_tune=tuned)
        model.fit(trees(60, 20, 1.5))
        found[name] = pairwise_accuracy(model.predict(test)[valid], test.latency_s[valid])
    assert np.array_equal(general.predict(test), before)
    alone = pairwise_accuracy(before[valid], test.latency_s[valid])
    assert min(found.values()) > alone
    assert found["frozen"] != found["tuned"]
