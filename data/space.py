"""What every schedule space offers to searchers, models and measurers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .candidate import Candidate


@dataclass(frozen=True)
class Scheduled:
    """A candidate that was replayed and post-processed.

    Attributes:
        candidate: The canonical candidate: the decisions read back after the replay.
        mod: The scheduled `tvm.IRModule`, ready to compile.
        trace: The `tvm.s_tir.schedule.Trace` that leads from the workload's module to `mod`,
            post-processors included.
    """

    candidate: Candidate
    mod: Any
    trace: Any


class Space(Protocol):
    """The set of schedules of one workload on one target.

    Two candidates are the same schedule exactly when their canonical forms, which
    `schedule` gives, are equal. All randomness comes from the generator passed in.
    """

    @property
    def name(self) -> str:
        """The name that the space's candidates carry."""

    @property
    def size(self) -> float:
        """How many decision vectors there are, at most; 1 means that nothing can be tuned."""

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Draw `n` candidates independently (duplicates are possible)."""

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Draw about as `sample` does, in microseconds: a draw may be illegal or not canonical."""

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        """For each candidate one neighbour: a single decision moved. Not replayed."""

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        """A candidate whose decisions come from `a` or from `b`. Not replayed."""

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        """Decision features, of shape (candidates, features); NaN where one does not apply."""

    def schedule(self, candidate: Candidate) -> Scheduled:
        """Replay a candidate and run the post-processors.

        Raises:
            InvalidCandidate: it is no legal schedule of this workload.
        """
