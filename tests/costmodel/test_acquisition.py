"""Expected improvement is the integral that it stands for, near and far."""

import numpy as np
import pytest
from scipy import integrate, stats

from tensortune.costmodel.acquisition import (
    ACQUISITIONS,
    log_expected_improvement,
    make_acquisition,
)


def integral(mean: float, std: float, best: float) -> float:
    """The mean of max(score - best, 0)."""
    start = (best - mean) / std
    found, _ = integrate.quad(
        lambda z: (z - start) * stats.norm.pdf(z), start, max(start, 0) + 12, epsabs=0, epsrel=1e-10
    )
    return float(std * found)


@pytest.mark.parametrize("gap", [-8.0, -3.0, -1.1, -1.0, -0.9, 0.0, 0.5, 6.0])
@pytest.mark.parametrize("std", [0.02, 1.0, 5.0])
def test_it_is_the_integral(gap: float, std: float) -> None:
    mean = 3.0 + gap * std
    found = log_expected_improvement(np.array([mean]), np.array([std]), 3.0)[0]
    assert found == pytest.approx(np.log(integral(mean, std, 3.0)), rel=1e-6, abs=1e-7)


@pytest.mark.filterwarnings("error")
def test_far_below_the_best_it_still_tells_apart() -> None:
    mean = -np.geomspace(1.0, 1e6, 200)
    found = log_expected_improvement(mean, np.full(200, 0.01), 0.0)
    assert np.isfinite(found).all()
    assert np.all(np.diff(found) < 0)


@pytest.mark.filterwarnings("error")
def test_far_above_the_best_it_is_the_gap() -> None:
    found = log_expected_improvement(np.array([10.0, 1e6]), np.array([0.1, 1.0]), 0.0)
    assert found == pytest.approx(np.log([10.0, 1e6]))


@pytest.mark.filterwarnings("error")
def test_where_nothing_is_doubted_the_mean_decides() -> None:
    found = log_expected_improvement(np.array([-1.0, 0.0, 1.0, 2.0]), np.zeros(4), 0.5)
    assert np.isfinite(found).all()
    assert np.all(np.diff(found) > 0)


def test_doubt_is_worth_something() -> None:
    mean, std = np.zeros(3), np.array([0.1, 0.5, 1.0])
    for name in ("ei", "ucb"):
        assert np.all(np.diff(make_acquisition(name)(mean, std, 1.0)) > 0)
    assert make_acquisition("mean")(mean, std, 1.0).tolist() == [0, 0, 0]
    assert make_acquisition("ucb", kappa=2.0)(mean, std, 1.0) == pytest.approx(2 * std)


def test_an_unknown_one_is_refused() -> None:
    with pytest.raises(ValueError, match="mean, ei, ucb"):
        make_acquisition("thompson")
    assert list(ACQUISITIONS) == ["mean", "ei", "ucb"]
