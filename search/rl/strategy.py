"""Strategies of the tuner that a trained policy proposes for."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Collection, Sequence

import numpy as np

from ...data.candidate import Candidate
from ...data.space import Space
from ...data.spaces import NamedSpace
from ...data.workload import WorkloadError
from ..annealing import SimulatedAnnealing
from ..base import Score, Trial
from ..guided import Frontier, Memory, best_distinct, draw_new, finite_scores
from .fine_tune import FineTuner
from .policy import Episode, Policy, PolicyFileError, shipped

# Rollouts have run dry when fewer than one in so many ends with a candidate that is new.
_DRY = 8
# Once they have: where neighbours are looked for, how many of each, and how often.
_STARTS = 32
_BRANCHING = 8
_DEPTH = 4


class PolicySearch:
    """Proposes what a policy's episodes end with, the best by the scores.

    The first of them is what the policy prefers, the others are drawn. Once something was measured,
    a share of the proposals are neighbours of what was fastest, and of what scores best; all are,
    when episodes bring little that is new any more. Where the policy can't act, candidates drawn at
    random take the place of its own, and a warning says so.

    Args:
        space: Where to search: the space that the policy acts in.
        seed: Seed of all draws.
        policy: The policy, or its file; None for the one that comes with this package.
        rollouts: Episodes that are played at once, as often as fewer than twice as many candidates
            are there as are asked for.
        near: Share of the proposals that are neighbours, once something was measured.

    Raises:
        PolicyFileError: the policy can't be used, or is for another space.
        FileNotFoundError: there is no such file.
    """

    name = "rl"

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        policy: Policy | str | os.PathLike[str] | None = None,
        rollouts: int = 64,
        near: float = 0.5,
    ) -> None:
        if rollouts < 1:
            raise ValueError(f"there is 1 rollout at least, not {rollouts}")
        if not 0 <= near <= 1:
            raise ValueError(f"near is a share from 0 to 1, not {near}")
        self.space = space
        self.seed = seed
        self.policy = load_policy(policy)
        self.rollouts = rollouts
        self.near = near
        self._rng = np.random.default_rng(seed)
        self._memory = Memory()
        first = self._roll_out()
        self._acts = bool(first)
        self._pool: dict[Candidate, None] = dict.fromkeys(first)
        self._dry = False

    def ask(self, n: int, score: Score) -> list[Candidate]:
        """The `n` best of what the policy made, and where that is not enough neighbours of it."""
        if n < 1:
            return []
        self._roll(2 * n)
        measured = self._memory.best(_STARTS // 2)
        own = n - round(self.near * n) if measured else n
        fresh = [candidate for candidate in self._pool if self._memory.is_welcome(candidate)]
        found = _best(fresh, own, score)
        if len(found) < n:
            found += self._neighbours(n - len(found), found, measured, score)
        if len(found) < n:
            taken, new = set(found), self._memory.is_new
            missing = n - len(found)
            found += draw_new(self.space, self._rng, missing, lambda c: c not in taken and new(c))
        self._memory.propose(found)
        return _best(found, n, score)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Remember what was measured."""
        self._memory.tell(trials)

    def _roll_out(self) -> list[Candidate]:
        return list(play(self.policy, self.space, self.rollouts, self._rng))

    def _roll(self, wanted: int) -> None:
        """Play episodes until so many of their candidates are welcome, or little is new."""
        while not self._dry:
            if sum(map(self._memory.is_welcome, self._pool)) >= wanted:
                return
            drawn = self._roll_out() if self._acts else self.space.sample(self._rng, self.rollouts)
            before = len(self._pool)
            self._pool.update(dict.fromkeys(drawn))
            self._dry = (len(self._pool) - before) * _DRY < self.rollouts

    def _neighbours(
        self, n: int, found: Collection[Candidate], measured: list[Candidate], score: Score
    ) -> list[Candidate]:
        """The best new candidates a few moves from what was measured and from what scores best."""
        taken = set(found)
        top = Frontier(n, lambda c: c not in taken and self._memory.is_welcome(c))
        others = [candidate for candidate in self._pool if candidate not in measured]
        states = measured + _best(others, _STARTS - len(measured), score)
        for _ in range(_DEPTH if states else 0):
            moved = self.space.neighbours(states * _BRANCHING, self._rng)
            scores = finite_scores(score, moved)
            top.offer(moved, scores)
            states = [moved[i] for i in best_distinct(moved, scores, _STARTS)]
        return [candidate for _, candidate in top.ranked()]


class FineTunedSearch(PolicySearch):
    """The same with the policy trained on by what is measured; see `FineTuner`.

    After every batch as many episodes are played again. The policy itself is left as it is.

    Args:
        space: Where to search: the space that the policy acts in.
        seed: Seed of all draws.
        policy: The policy, or its file; None for the one that comes with this package.
        rollouts: See `PolicySearch`.
        near: See `PolicySearch`.

    Raises:
        PolicyFileError: the policy can't be used, or is for another space.
        FileNotFoundError: there is no such file.
    """

    name = "rl+learning"

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        policy: Policy | str | os.PathLike[str] | None = None,
        rollouts: int = 64,
        near: float = 0.5,
    ) -> None:
        self._tuner = FineTuner(load_policy(policy))
        self._episodes: dict[Candidate, Episode] = {}
        self._speeds: dict[Candidate, float] = {}
        super().__init__(space, seed, policy=self._tuner.policy, rollouts=rollouts, near=near)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Remember what was measured, and learn from it."""
        super().tell(trials)
        for trial in trials:
            if trial.candidate in self._episodes:
                self._speeds[trial.candidate] = -math.log(trial.record.latency_s)
        self._tuner.learn(
            [self._episodes[one] for one in self._speeds], list(self._speeds.values())
        )
        if self._acts:
            self._pool.update(dict.fromkeys(self._roll_out()))

    def _roll_out(self) -> list[Candidate]:
        found = play(self.policy, self.space, self.rollouts, self._rng)
        for candidate, episode in found.items():
            self._episodes.setdefault(candidate, episode)
        return list(found)


class PolicyAnnealing(SimulatedAnnealing):
    """Simulated annealing that begins with what a policy's episodes end with.

    They are proposed first, and the first chains start from them.

    Args:
        space: Where to search: the space that the policy acts in.
        seed: Seed of all draws.
        policy: The policy, or its file; None for the one that comes with this package.
        rollouts: Episodes that are played. Half of annealing's chains start from as many.

    Raises:
        PolicyFileError: the policy can't be used, or is for another space.
        FileNotFoundError: there is no such file.
    """

    name = "rl+annealing"

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        policy: Policy | str | os.PathLike[str] | None = None,
        rollouts: int = 64,
    ) -> None:
        if rollouts < 1:
            raise ValueError(f"there is 1 rollout at least, not {rollouts}")
        self.policy = load_policy(policy)
        self.rollouts = rollouts
        # A generator of its own: the walks draw as they do without a policy.
        drawn = play(self.policy, space, rollouts, np.random.default_rng([seed, 2]))
        super().__init__(space, seed, start=list(drawn))


def load_policy(policy: Policy | str | os.PathLike[str] | None) -> Policy:
    """The policy itself, that of a file, or the one that comes with this package.

    Raises:
        PolicyFileError: the file can't be used; see `Policy.load`.
        FileNotFoundError: there is no such file.
    """
    if policy is None:
        return shipped()
    return policy if isinstance(policy, Policy) else Policy.load(policy)


def play(
    policy: Policy, space: Space, n: int, rng: np.random.Generator
) -> dict[Candidate, Episode]:
    """Episodes of the policy by what they end with; none, and a warning, where it can't act.

    Raises:
        PolicyFileError: the policy is for another space.
    """
    if not isinstance(space, NamedSpace):
        raise PolicyFileError(f"a policy acts in the spaces of this library, not in {space.name}")
    try:
        return policy.episodes(space, n, rng)
    except WorkloadError as error:
        warnings.warn(f"searched without the policy: {error}", stacklevel=3)
        return {}


def _best(candidates: list[Candidate], n: int, score: Score) -> list[Candidate]:
    """The `n` best by the scores, the best first; of equals those that come first."""
    if not candidates or n < 1:
        return []
    ranked = np.argsort(-finite_scores(score, candidates), kind="stable")
    return [candidates[i] for i in ranked[:n].tolist()]
