"""What a program's score is trained towards: gradients over the scores of whole programs."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from .rows import totals

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# All pairs of a larger group cost more than they teach; each program meets this many others.
_ALL_PAIRS = 256
_PARTNERS = 128


class Objective(Protocol):
    """A loss over programs' scores."""

    def __call__(self, scores: Array) -> tuple[Array, Array]:
        """First and second derivatives of the loss, each of shape (programs,)."""


class LogSpeed:
    """Squared error on log(1 / latency), less its mean over the group.

    Held-out ranks come out better than with throughput over the group's best as the target, which
    lets a few fast programs decide and tells the others hardly apart.

    Args:
        latency_s: Finite seconds per run, of shape (programs,).
        groups: Which workload each program is of.
    """

    def __init__(self, latency_s: Array, groups: Ints) -> None:
        log = -np.log(latency_s)
        _, group, count = np.unique(groups, return_inverse=True, return_counts=True)
        self.target = log - (totals(group, log, len(count)) / count)[group]

    def __call__(self, scores: Array) -> tuple[Array, Array]:
        """See `Objective`."""
        return scores - self.target, np.ones(len(scores))


class PairwiseRank:
    """Logistic loss over pairs of a group, `log(1 + exp(-(score_fast - score_slow)))`.

    RankNet's loss (Burges et al., ICML 2005), as AutoTVM uses it (Chen et al., NeurIPS 2018,
    section 3.1). Only the order of the latencies counts, so neither their scale nor a group's.
    Each pair weighs so much that every program has about the same say, whatever its group's size.

    Args:
        latency_s: Finite seconds per run, of shape (programs,).
        groups: Pairs are made within one group.
        rng: Draws the pairs of groups that are too large for all of them.
    """

    def __init__(self, latency_s: Array, groups: Ints, rng: np.random.Generator) -> None:
        self.programs = len(latency_s)
        pairs = [_pairs(np.flatnonzero(groups == g), rng) for g in np.unique(groups)]
        first, second, weight = (np.concatenate(part) for part in zip(*pairs, strict=True))
        differ = latency_s[first] != latency_s[second]
        swap = latency_s[first] > latency_s[second]
        self.faster = np.where(swap, second, first)[differ]
        self.slower = np.where(swap, first, second)[differ]
        self.weight = weight[differ]

    def __call__(self, scores: Array) -> tuple[Array, Array]:
        """See `Objective`."""
        margin = scores[self.faster] - scores[self.slower]
        wrong = sigmoid(-margin)
        pull = self.weight * wrong
        bend = pull * (1.0 - wrong)
        n = self.programs
        gradient = totals(self.slower, pull, n) - totals(self.faster, pull, n)
        hessian = totals(self.slower, bend, n) + totals(self.faster, bend, n)
        return gradient, hessian


def _pairs(members: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Array]:
    """Pairs among some programs: both sides, and the weight of each pair."""
    n = len(members)
    if n <= _ALL_PAIRS:
        i, j = np.triu_indices(n, 1)
        return members[i], members[j], np.full(len(i), 2.0 / max(n - 1, 1))
    # Distinct offsets along a shuffled ring: as many partners for all, and no pair twice.
    ring = rng.permutation(members)
    offsets = 1 + rng.choice((n - 1) // 2, size=_PARTNERS // 2, replace=False)
    first = np.tile(ring, len(offsets))
    second = np.concatenate([np.roll(ring, -int(offset)) for offset in offsets])
    return first, second, np.full(len(first), 2.0 / _PARTNERS)


class Logistic:
    """Log loss on a yes or no, whose log-odds the scores are.

    Args:
        truth: Yes or no, of shape (programs,).
        base: Log-odds that the scores come on top of.
    """

    def __init__(self, truth: npt.NDArray[np.bool_], base: float = 0.0) -> None:
        self.truth = truth
        self.base = base

    def __call__(self, scores: Array) -> tuple[Array, Array]:
        """See `Objective`."""
        yes = sigmoid(self.base + scores)
        return yes - self.truth, yes * (1.0 - yes)


def sigmoid(scores: Array) -> Array:
    """The probability of a log-odds, which is held to what a float64 can tell from certainty."""
    return 1.0 / (1.0 + np.exp(-np.clip(scores, -30.0, 30.0)))
