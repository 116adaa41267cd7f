"""Simulated annealing over a model's scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.candidate import Candidate
from ..data.space import Space
from .base import Score
from .guided import Frontier, GuidedSearch, Scores, finite_scores

# Keeps the last steps, at a temperature near 0, from dividing by it (AutoTVM's value).
_COLD = 1e-5


class SimulatedAnnealing(GuidedSearch):
    """Parallel Markov chains that climb the model's scores (AutoTVM, section 3.3).

    Every step moves each chain to a neighbour, scores all of them in one call, and accepts a move
    when `rand < exp(min(gain / temperature, 1))`, with a temperature that falls linearly to 0. The
    best candidates of all steps are proposed, beside the best of many random ones, from which
    chains start too. Chains go on where the ask before left them.

    The scale of scores is arbitrary, so gains are counted in standard deviations of the scores of
    random candidates.

    With the defaults an ask scores 8,700 candidates in 54 calls. Chains are many and walks short
    because one call of a model costs as much as 100 candidates, and because a longer walk finds
    what the model is wrong about: AutoTVM's 500 steps score three times as many.

    Args:
        space: Where to search.
        seed: Seed of all draws.
        chains: Chains that walk side by side.
        steps: Steps of a walk at most.
        start_temperature: Temperature of the first step, in standard deviations of the scores of
            random candidates.
        patience: A walk ends after this many steps without a new one among the best.
        measured: Share of the chains that each walk starts from the fastest measured candidates, in
            place of the chains that score worst.
        guesses: Random candidates that are scored in each ask.
        wide: Share of the proposals that are the best of these, and not of the walk.
        start: Candidates from elsewhere: they are proposed before any at random, and the first walk
            has chains that start from them.
    """

    name = "annealing"

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        chains: int = 128,
        steps: int = 50,
        start_temperature: float = 0.1,
        patience: int = 25,
        measured: float = 0.25,
        guesses: int = 2000,
        wide: float = 0.5,
        start: Sequence[Candidate] = (),
    ) -> None:
        super().__init__(space, seed, chains, measured, guesses, wide, start)
        if min(steps, patience) < 1:
            raise ValueError("steps and patience have to be at least 1")
        if not start_temperature >= 0:
            raise ValueError(f"a temperature is 0 or more, not {start_temperature}")
        self.chains = chains
        self.steps = steps
        self.start_temperature = start_temperature
        self.patience = patience

    def _walk(
        self, states: list[Candidate], scores: Scores, score: Score, top: Frontier, spread: float
    ) -> list[Candidate]:
        idle = 0
        for step in range(self.steps):
            moved = self.space.neighbours(states, self._rng)
            moved_scores = finite_scores(score, moved)
            idle = 0 if top.offer(moved, moved_scores) else idle + 1
            temperature = self.start_temperature * (1.0 - step / self.steps) + _COLD
            gain = (moved_scores - scores) / spread
            chance = np.exp(np.minimum(gain / temperature, 1.0))
            accepted = self._rng.random(len(states)) < chance
            scores = np.where(accepted, moved_scores, scores)
            states = [
                new if taken else old
                for old, new, taken in zip(states, moved, accepted.tolist(), strict=True)
            ]
            if idle >= self.patience:
                break
        return states
