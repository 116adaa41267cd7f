"""Evolutionary search over a model's scores."""

from __future__ import annotations

import numpy as np

from ..data.candidate import Candidate
from ..data.space import Space
from .base import Score
from .guided import Frontier, GuidedSearch, Scores, best_distinct, finite_scores


class Evolution(GuidedSearch):
    """A population that mutates and mates by the model's scores (as MetaSchedule's search does).

    Each generation keeps its elite and fills up with children. A child is the neighbour of one of
    the generation, or a crossover of two. Parents are drawn without regard to their scores: the
    elite is preference enough, and more of it found less (on softmax, whose nine sketches die out,
    by up to 0.2 standard deviations of the scores). The best candidates of all generations are
    proposed. The population lives on in the next ask.

    With the defaults an ask scores 3,200 candidates in 8 calls.

    Args:
        space: Where to search.
        seed: Seed of all draws.
        population: Candidates in a generation.
        generations: Generations in a walk.
        mutation: Share of the children that are mutations; the rest are crossovers.
        elite: Share of the population that survives into the next generation.
        measured: Share of the first generation that is the fastest measured candidates, in place
            of those that score worst.
        guesses: Random candidates that are scored in each ask.
        wide: Share of the proposals that are the best of these, and not of the generations.
    """

    name = "evolution"

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        population: int = 256,
        generations: int = 5,
        mutation: float = 0.85,
        elite: float = 0.25,
        measured: float = 0.25,
        guesses: int = 2000,
        wide: float = 0.5,
    ) -> None:
        super().__init__(space, seed, population, measured, guesses, wide)
        if generations < 1:
            raise ValueError(f"there is at least 1 generation, not {generations}")
        if not (0 <= mutation <= 1 and 0 <= elite < 1):
            raise ValueError("mutation is a share from 0 to 1, elite from 0 to below 1")
        self.population = population
        self.generations = generations
        self.mutation = mutation
        self.elite = elite

    def _walk(
        self, states: list[Candidate], scores: Scores, score: Score, top: Frontier, spread: float
    ) -> list[Candidate]:
        survivors = int(self.elite * self.population)
        for _ in range(self.generations):
            best = best_distinct(states, scores, survivors)
            children = self._children(states, self.population - len(best))
            child_scores = finite_scores(score, children)
            top.offer(children, child_scores)
            states = [states[i] for i in best] + children
            scores = np.concatenate([scores[best], child_scores])
        return states

    def _children(self, states: list[Candidate], n: int) -> list[Candidate]:
        mutations = int((self._rng.random(n) < self.mutation).sum())
        pairs = self._rng.integers(len(states), size=(n, 2)).tolist()
        children = self.space.neighbours([states[a] for a, _ in pairs[:mutations]], self._rng)
        children += [
            self.space.crossover(states[a], states[b], self._rng) for a, b in pairs[mutations:]
        ]
        return children
