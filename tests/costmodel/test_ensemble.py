"""The members disagree where little was measured, and a saved ensemble is the same to the bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, ModelFileError, Samples
from tensortune.costmodel.ensemble import BootstrapEnsemble
from tensortune.costmodel.metrics import pairwise_accuracy
from tensortune.costmodel.transfer import corrects
from tensortune.costmodel.xgb import XGBModel

SCHEMA = FeatureSchema("made-up", 1, 5)


def problem(n: int, seed: int, groups: int = 2, noise: float = 0.1) -> Samples:
    """Programs of one or two statements in some workloads, of which one in five fails."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 3, n)
    rows = rng.random((int(counts.sum()), SCHEMA.width)).astype(np.float32)
    programs = np.repeat(np.arange(n), counts)
    log = np.bincount(programs, 2 * rows[:, 0] - rows[:, 1]) + noise * rng.standard_normal(n)
    failed = np.arange(n) % 5 == 2
    return Samples(
        SCHEMA,
        rows,
        counts,
        np.where(failed, np.inf, 1e-3 * np.exp(log)),
        rng.integers(0, groups, n) if groups > 1 else np.zeros(n, np.int64),
    )


def fitted(n: int = 80, **options: object) -> BootstrapEnsemble:
    small = {"member": XGBModel("regression", rounds=30, learning_rate=0.3), "size": 5}
    model = BootstrapEnsemble(**(small | options))  # type: ignore[arg-type]
    model.fit(problem(n, 1))
    return model


@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_it_learns_to_rank(objective: str) -> None:
    test = problem(200, 2, groups=1)
    valid = np.isfinite(test.latency_s)
    scores = fitted(member=XGBModel(objective)).predict(test)  # type: ignore[arg-type]
    assert pairwise_accuracy(scores[valid], test.latency_s[valid]) > 0.77


def test_it_is_surer_of_more_samples() -> None:
    test = problem(100, 2)
    few, many = (fitted(n).predict_distribution(test)[1].mean() for n in (25, 400))
    assert 0 < many < 0.7 * few


def test_its_doubt_is_about_as_large_as_its_error() -> None:
    samples, test = problem(80, 1, groups=1), problem(300, 2, groups=1)
    model = BootstrapEnsemble(size=8)
    model.fit(samples)
    valid = np.isfinite(test.latency_s)
    mean, std = (part[valid] for part in model.predict_distribution(test))
    log = -np.log(test.latency_s[valid])
    error = np.abs(mean - mean.mean() - log + log.mean())
    # What all members get wrong alike doesn't show, so the errors are the larger ones.
    assert 0.2 < np.median(std) / np.median(error) < 2
    assert np.corrcoef(std, error)[0, 1] > 0


def test_before_a_fit_nothing_is_known() -> None:
    mean, std = BootstrapEnsemble().predict_distribution(problem(10, 0))
    assert not mean.any()
    assert not std.any()


def test_the_same_seed_is_the_same_ensemble() -> None:
    test = problem(50, 2)
    assert np.array_equal(fitted(seed=3).predict(test), fitted(seed=3).predict(test))
    assert not np.array_equal(fitted(seed=3).predict(test), fitted(seed=4).predict(test))


def test_a_program_is_scored_alike_alone_and_among_others() -> None:
    model, test = fitted(size=9), problem(40, 2)
    mean, std = model.predict_distribution(test)
    for i in range(10):
        alone = model.predict_distribution(test.take([i]))
        assert (alone[0][0], alone[1][0]) == (mean[i], std[i])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "samples",
    [
        problem(0, 0),
        problem(1, 0),
        replace(problem(12, 0), latency_s=np.full(12, np.inf)),
        replace(problem(12, 0), latency_s=np.full(12, np.nan)),
        replace(problem(12, 0), groups=np.arange(12)),
    ],
    ids=["nothing", "one", "failures", "unmeasured", "groups of one"],
)
def test_awkward_samples_are_survived(samples: Samples) -> None:
    model = BootstrapEnsemble()
    model.fit(samples)
    for part in model.predict_distribution(problem(9, 3)):
        assert np.isfinite(part).all()


def test_each_draw_holds_as_many_of_every_group() -> None:
    seen: list[Samples] = []

    class Watching(XGBModel):
        def fit(self, samples: Samples, margin: np.ndarray | None = None) -> None:
            seen.append(samples)

    samples = problem(60, 1, groups=3)
    BootstrapEnsemble(Watching(), size=5).fit(samples)
    assert len(seen) == 5
    for drawn in seen:
        for group in range(3):
            for valid in (True, False):
                counts = [
                    int(((s.groups == group) & (np.isfinite(s.latency_s) == valid)).sum())
                    for s in (samples, drawn)
                ]
                assert counts[0] == counts[1]


def test_margins_go_with_their_programs() -> None:
    samples, test = problem(200, 1, groups=1), problem(50, 2, groups=1)
    log = np.where(np.isfinite(samples.latency_s), -np.log(samples.latency_s), 1e6)
    margin = log - log[np.isfinite(samples.latency_s)].mean()
    model = BootstrapEnsemble()
    assert corrects(model)
    model.fit(samples)
    usual = model.predict(test).std()
    model.fit(samples, margin)
    assert model.predict(test).std() < 0.2 * usual


@pytest.mark.parametrize("trained", [False, True])
def test_a_saved_ensemble_is_the_same_to_the_bit(trained: bool, tmp_path: Path) -> None:
    model = BootstrapEnsemble(XGBModel("regression", rounds=20), size=5, seed=7)
    if trained:
        model.fit(problem(80, 1))
    model.save(tmp_path / "model", workloads=["abc"])
    loaded = BootstrapEnsemble.load(tmp_path / "model")
    test = problem(40, 2)
    for first, second in zip(
        loaded.predict_distribution(test), model.predict_distribution(test), strict=True
    ):
        assert np.array_equal(first, second)
    for each in (model, loaded):
        each.fit(problem(50, 3))
    assert np.array_equal(loaded.predict(test), model.predict(test))
    if trained:
        with pytest.raises(ModelFileError, match="version"):
            BootstrapEnsemble.load(tmp_path / "model", replace(SCHEMA, version=2))


def test_other_features_are_refused() -> None:
    other = replace(problem(5, 0), schema=replace(SCHEMA, version=2))
    with pytest.raises(ValueError, match=r"version 1.*version 2"):
        fitted().predict(other)


def test_one_member_is_no_ensemble() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        BootstrapEnsemble(size=1)


def test_members_that_cannot_be_saved_are_named() -> None:
    class Own:
        def fit(self, samples: Samples) -> None: ...

        def predict(self, samples: Samples) -> np.ndarray:
            return np.zeros(len(samples))

    with pytest.raises(ValueError, match=r"Own.*save"):
        BootstrapEnsemble(Own()).save("nowhere")
