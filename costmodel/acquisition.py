"""What a candidate is worth measuring, from what is expected of it and how sure that is.

Scores are in any one unit in which higher is faster; `mean` and `std` have to share it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, ndtr

Array = npt.NDArray[np.float64]

Acquisition = Callable[[Array, Array, float], Array]
"""From mean, standard deviation and the best so far to what each candidate is worth."""

# Standard deviations below this are taken for it, in the unit of the scores: what the members of an
# ensemble agree on to the last digit isn't certain.
_SUREST = 1e-3


def mean(expected: Array, std: Array, best: float) -> Array:
    """What is expected, however sure that is."""
    return expected


def upper_confidence_bound(
    expected: Array, std: Array, best: float, *, kappa: float = 1.0
) -> Array:
    """What a candidate may well reach (Srinivas et al., ICML 2010).

    Args:
        expected: Expected scores, of shape (candidates,).
        std: Their standard deviations.
        best: Not looked at.
        kappa: Standard deviations that are added.
    """
    return expected + kappa * std


def log_expected_improvement(expected: Array, std: Array, best: float) -> Array:
    """The logarithm of how much better than the best so far a candidate is on average.

    Expected improvement (Jones et al., 1998) of most candidates is next to nothing; the logarithm
    still tells them apart (Ament et al., NeurIPS 2023), and takes the log-probability of validity
    as a summand: improvement comes of valid candidates only.

    Args:
        expected: Expected scores, of shape (candidates,).
        std: Their standard deviations.
        best: The best score so far.
    """
    sure = np.maximum(std, _SUREST)
    gap = (expected - best) / sure
    return np.asarray(np.log(sure) + _log_gain(gap))


def _log_gain(gap: Array) -> Array:
    """log(density(gap) + gap * distribution(gap)), of the standard normal distribution."""
    near = np.maximum(gap, -1.0)
    usual = np.log(np.exp(-0.5 * near**2) / np.sqrt(2 * np.pi) + near * ndtr(near))
    # Far below both summands are tiny and nearly cancel. With erfcx, which is the tail without its
    # exponential: 1 + gap * tail / density, and 1 / gap**2 where even that cancels.
    far = np.minimum(gap, -1.0)
    rest = 1.0 + far * np.sqrt(np.pi / 2) * erfcx(-far / np.sqrt(2))
    rest = np.where(far < -1e4, far**-2.0, rest)
    tail = -0.5 * far**2 - 0.5 * np.log(2 * np.pi) + np.log(np.maximum(rest, 1e-300))
    return np.asarray(np.where(gap > -1.0, usual, tail))


ACQUISITIONS: dict[str, Acquisition] = {
    "mean": mean,
    "ei": log_expected_improvement,
    "ucb": upper_confidence_bound,
}


def make_acquisition(name: str, kappa: float = 1.0) -> Acquisition:
    """An acquisition by its name: `mean`, `ei` or `ucb`.

    Args:
        name: The name.
        kappa: Of `ucb`: standard deviations that are added to the mean.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in ACQUISITIONS:
        known = ", ".join(ACQUISITIONS)
        raise ValueError(f"there is no acquisition `{name}`; there are {known}")
    return partial(upper_confidence_bound, kappa=kappa) if name == "ucb" else ACQUISITIONS[name]
