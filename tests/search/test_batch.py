"""The batch: good, varied, and partly random."""

import numpy as np
import numpy.typing as npt
import pytest

from tensortune.data.candidate import Candidate
from tensortune.search.batch import select


def candidates(n: int) -> list[Candidate]:
    return [Candidate("test", (i,)) for i in range(n)]


def grid(n: int, columns: int = 4, seed: int = 0) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).integers(0, 8, (n, columns)).astype(np.float64)


def pick(
    scores: npt.ArrayLike,
    features: npt.ArrayLike,
    n: int,
    seed: int = 0,
    *,
    epsilon: float = 0.0,
    diversity: float = 0.0,
    ratio: float = 4.0,
    fresh: tuple[int, ...] = (),
) -> list[int]:
    scores = np.asarray(scores)
    return select(
        candidates(len(scores)),
        scores,
        features,
        n,
        np.random.default_rng(seed),
        epsilon=epsilon,
        diversity=diversity,
        ratio=ratio,
        fresh=fresh,
    )


def test_without_diversity_or_chance_the_best_come_in_order() -> None:
    scores = np.random.default_rng(0).normal(size=50)
    assert pick(scores, grid(50), 8) == np.argsort(-scores)[:8].tolist()


def test_equal_candidates_are_picked_once() -> None:
    repeated = candidates(3) * 4
    scores = np.arange(12.0)
    for n in (2, 3, 12):
        for epsilon in (0.0, 0.5, 1.0):
            chosen = select(
                repeated, scores, np.zeros((12, 1)), n, np.random.default_rng(0), epsilon=epsilon
            )
            assert len(chosen) == min(n, 3)
            assert len({repeated[i] for i in chosen}) == len(chosen)


def test_diversity_is_traded_against_scores() -> None:
    # Two of the three best are alike in all they decide.
    scores = [1.0, 0.9, 0.6, 0.0]
    features = [[1, 1], [1, 1], [2, 2], [3, 3]]
    assert pick(scores, features, 2, diversity=0.0) == [0, 1]
    assert pick(scores, features, 2, diversity=0.2) == [0, 1]
    assert pick(scores, features, 2, diversity=0.5) == [0, 2]
    assert pick(scores, features, 3, diversity=2.0) == [0, 2, 3]


def test_diversity_covers_more_values() -> None:
    scores, features = np.random.default_rng(1).normal(size=200), grid(200)

    def covered(diversity: float) -> int:
        chosen = features[pick(scores, features, 12, diversity=diversity)]
        return sum(len(np.unique(column)) for column in chosen.T)

    assert covered(0.0) < covered(0.5) <= covered(5.0)


def test_the_scale_of_scores_does_not_matter() -> None:
    scores, features = np.random.default_rng(1).normal(size=100), grid(100)
    first = pick(scores, features, 12, diversity=0.3)
    assert pick(scores * 2.0**20, features, 12, diversity=0.3) == first
    assert pick(scores * 2.0**-20, features, 12, diversity=0.3) == first


def test_only_the_best_are_looked_at() -> None:
    scores = -np.arange(100.0)
    features = np.arange(100.0).reshape(-1, 1)
    features[:20] = 0.0
    assert max(pick(scores, features, 4, diversity=100.0, ratio=2.0)) < 8
    assert max(pick(scores, features, 4, diversity=100.0, ratio=20.0)) >= 20


def test_features_that_do_not_apply_are_a_value_like_another() -> None:
    features = np.array([[np.nan], [np.nan], [1.0]])
    assert pick([1.0, 0.9, 0.0], features, 2, diversity=2.0) == [0, 2]


@pytest.mark.parametrize("fresh", [(), tuple(range(100, 120))])
def test_a_share_is_random(fresh: tuple[int, ...]) -> None:
    """Of 200 batches of 16 with 5%, 160 candidates are expected, with a deviation of 5.7."""
    scores = -np.arange(120.0)
    random = 0
    for seed in range(200):
        chosen = pick(scores, grid(120), 16, seed, epsilon=0.05, fresh=fresh)
        assert len(set(chosen)) == 16
        extra = [i for i in chosen if i >= 15]
        if fresh:
            assert set(extra) <= {15, *fresh}
        random += len(set(extra) - {15})
    assert 130 <= random <= 190


def test_all_of_a_batch_may_be_random() -> None:
    picks = [pick(np.arange(100.0), grid(100), 10, seed, epsilon=1.0) for seed in range(50)]
    assert all(len(set(chosen)) == 10 for chosen in picks)
    assert 40 < np.mean(picks) < 60


def test_others_stand_in_when_the_fresh_run_out() -> None:
    chosen = pick(-np.arange(20.0), grid(20), 8, epsilon=0.5, fresh=(18, 19))
    assert len(set(chosen)) == 8
    assert {18, 19} <= set(chosen)


def test_the_generator_makes_the_choice() -> None:
    scores, features = np.random.default_rng(0).normal(size=60), grid(60)
    first = pick(scores, features, 16, 3, epsilon=0.3)
    assert pick(scores, features, 16, 3, epsilon=0.3) == first
    assert pick(scores, features, 16, 4, epsilon=0.3) != first


def test_inputs_are_left_alone() -> None:
    scores, features = np.random.default_rng(0).normal(size=60), grid(60)
    scores.flags.writeable = features.flags.writeable = False
    pick(scores, features, 16, epsilon=0.3, diversity=0.5)


@pytest.mark.parametrize("n", [0, 1, 5, 50])
def test_as_many_as_there_are(n: int) -> None:
    assert len(pick(np.zeros(5), grid(5), n, epsilon=0.2)) == min(n, 5)


def test_nothing_to_choose_from() -> None:
    assert pick([], np.empty((0, 3)), 4, epsilon=0.5) == []


def test_scores_that_are_no_numbers_come_last() -> None:
    scores = [np.nan, 1.0, -np.inf, 2.0, np.inf]
    assert pick(scores, np.zeros((5, 1)), 2) == [3, 1]
    assert len(pick([np.nan] * 3, np.zeros((3, 1)), 2)) == 2


@pytest.mark.parametrize("wrong", [{"epsilon": 1.5}, {"diversity": -1.0}, {"ratio": 0.5}])
def test_options_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="epsilon is"):
        pick([1.0], [[0.0]], 1, **wrong)  # type: ignore[arg-type]


def test_lengths_have_to_agree() -> None:
    with pytest.raises(ValueError, match="one length"):
        select(candidates(2), [1.0], [[0.0], [1.0]], 1, np.random.default_rng(0))
