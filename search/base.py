"""The contract of a search strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..data.candidate import Candidate
from ..data.record import Record

Score = Callable[[Sequence[Candidate]], npt.NDArray[np.float64]]
"""Scores of candidates, in their order; higher is faster, comparable within a workload."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate that was handed to the measurer, and what came of it."""

    candidate: Candidate
    record: Record


class Strategy(Protocol):
    """Proposes candidates. Owns its random generator; never measures, never sees a model."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    def ask(self, n: int, score: Score) -> list[Candidate]:
        """Propose up to `n` distinct candidates that were not told yet, the best first.

        Fewer than `n`, or none, when the space has no more to offer.
        """

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn what came of the candidates of a batch, failures included."""
