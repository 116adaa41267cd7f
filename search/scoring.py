"""What a tuner's candidates are scored with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..data.candidate import Candidate
from ..data.space import Scheduled
from .base import Trial

Scores = npt.NDArray[np.float64]


class Scorer(Protocol):
    """Scores candidates before they are measured, and learns from what was measured.

    Attributes:
        informed: Whether it knows something before the first trial.
        misled: Whether that ranks what was measured the wrong way round.
    """

    informed: bool

    @property
    def misled(self) -> bool:
        """See above."""

    def draft(self, candidates: Sequence[Candidate]) -> Scores:
        """Scores from the decisions alone; all equal while nothing was learnt."""

    def verify(self, scheduled: Sequence[Scheduled]) -> Scores:
        """Scores from the scheduled programs; all equal while nothing was learnt."""

    def learn(self, trials: Sequence[Trial]) -> None:
        """Take in trials, and fit what scores to all of them so far."""


class NoScorer:
    """Knows nothing: every score is 0."""

    informed = False
    misled = False

    def draft(self, candidates: Sequence[Candidate]) -> Scores:
        """Zeros."""
        return np.zeros(len(candidates))

    def verify(self, scheduled: Sequence[Scheduled]) -> Scores:
        """Zeros."""
        return np.zeros(len(scheduled))

    def learn(self, trials: Sequence[Trial]) -> None:
        """Nothing to learn."""
