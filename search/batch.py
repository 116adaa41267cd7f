"""From many scored candidates to the batch that is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ..data.candidate import Candidate


def select(
    candidates: Sequence[Candidate],
    scores: npt.ArrayLike,
    features: npt.ArrayLike,
    n: int,
    rng: np.random.Generator,
    *,
    epsilon: float = 0.05,
    diversity: float = 0.5,
    ratio: float = 4.0,
    fresh: Iterable[int] = (),
) -> list[int]:
    """Choose a batch: good by score, unlike one another, and a few at random.

    The good ones are picked one by one from the best `ratio * n`, each time the one with the
    largest `score + diversity * novelty` (AutoTVM, section 3.3: a submodular objective, which the
    greedy choice approximates). Scores are scaled to [0, 1] over these; novelty is the share of a
    candidate's features whose values no pick before it has.

    Args:
        candidates: What there is to choose from; equal ones count once.
        scores: Their scores, higher is faster; those that are not finite count as the lowest.
        features: Their decision features, of shape (candidates, features); NaN is a value too.
        n: Candidates in a batch.
        rng: Draws the random ones.
        epsilon: Share of the batch that is drawn at random. A fraction of a candidate is a chance.
        diversity: What a candidate that is new in every feature is worth, where 1 is the distance
            from the worst score to the best; 0 picks by score alone.
        ratio: How many times the batch is looked at for the good ones.
        fresh: Indices of candidates to draw the random ones from; by default, and when they run
            out, they are drawn from all that are left.

    Returns:
        Indices of distinct candidates, the good ones in the order of the picks, then the random
        ones; fewer than `n` when there are no more.
    """
    if not (0 <= epsilon <= 1 and diversity >= 0 and ratio >= 1):
        raise ValueError("epsilon is a share from 0 to 1, diversity 0 or more, ratio at least 1")
    values = np.asarray(scores, dtype=np.float64)
    matrix = np.asarray(features, dtype=np.float64)
    if not len(candidates) == len(values) == len(matrix):
        raise ValueError("candidates, scores and features have to be of one length")
    random = int(epsilon * n + rng.random())
    ranked = _ranked_distinct(candidates, values)
    pool = np.array(ranked[: int(np.ceil(ratio * n))], dtype=np.intp)
    chosen = [
        int(pool[i])
        for i in _greedy(_unit_scores(values[pool]), matrix[pool], n - random, diversity)
    ]
    left = sorted(set(ranked) - set(chosen))
    kin = {candidates[i] for i in fresh}
    preferred = [i for i in left if candidates[i] in kin]
    others = [i for i in left if candidates[i] not in kin]
    for group in (preferred, others):
        wanted = min(n - len(chosen), len(group))
        chosen += rng.choice(group, wanted, replace=False).tolist() if wanted > 0 else []
    return chosen


def _ranked_distinct(candidates: Sequence[Candidate], scores: npt.NDArray[np.float64]) -> list[int]:
    """Indices from the best to the worst, of equal candidates the best-scored only."""
    order = np.argsort(np.where(np.isfinite(scores), -scores, np.inf), kind="stable").tolist()
    first: dict[Candidate, int] = {}
    for i in order:
        first.setdefault(candidates[i], i)
    return list(first.values())


def _unit_scores(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scores from 0, the worst, to 1, the best; all 0 when they are equal."""
    finite = np.isfinite(scores)
    if not finite.any():
        return np.zeros_like(scores)
    low, high = scores[finite].min(), scores[finite].max()
    span = high - low
    return np.where(finite, scores - low, 0.0) / span if span > 0 else np.zeros_like(scores)


def _greedy(
    scores: npt.NDArray[np.float64],
    features: npt.NDArray[np.float64],
    n: int,
    diversity: float,
) -> list[int]:
    """Pick up to `n`, each time the best by score and novelty; the earlier one among equals."""
    codes = _value_codes(features)
    covered = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.bool_)
    columns = max(1, features.shape[1])
    left = scores.copy()
    picks: list[int] = []
    for _ in range(min(n, len(scores))):
        novelty = (~covered[codes]).sum(axis=1) / columns
        pick = int(np.argmax(left + diversity * novelty))
        left[pick] = -np.inf
        covered[codes[pick]] = True
        picks.append(pick)
    return picks


def _value_codes(features: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """A number for each distinct value of each column, no two columns sharing any."""
    codes = np.empty(features.shape, dtype=np.intp)
    start = 0
    for column in range(features.shape[1]):
        values, inverse = np.unique(features[:, column], return_inverse=True)
        codes[:, column] = inverse + start
        start += len(values)
    return codes
