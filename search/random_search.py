"""Random search: the baseline that every other strategy has to beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.candidate import Candidate
from ..data.space import Space
from .base import Score, Trial

# A space is taken for exhausted when this many draws in a row bring nothing new.
_PATIENCE = 100


class RandomSearch:
    """Draws candidates of the space at random, never the same one twice.

    Args:
        space: Where to search.
        seed: Seed of the draws.
    """

    name = "random"

    def __init__(self, space: Space, seed: int = 0) -> None:
        self.space = space
        self.seed = seed
        self._rng = np.random.default_rng(seed)
        self._seen: set[Candidate] = set()

    def ask(self, n: int, score: Score) -> list[Candidate]:
        """Draw `n` new candidates; the scores are not used."""
        drawn: list[Candidate] = []
        idle = 0
        while len(drawn) < n and idle < _PATIENCE:
            idle += n - len(drawn)
            for candidate in self.space.sample(self._rng, n - len(drawn)):
                if candidate not in self._seen:
                    self._seen.add(candidate)
                    drawn.append(candidate)
                    idle = 0
        return drawn

    def tell(self, trials: Sequence[Trial]) -> None:
        """Remember what has been tried."""
        self._seen.update(trial.candidate for trial in trials)
