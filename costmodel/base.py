"""The contract of a cost model, and the samples it learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class ModelFileError(ValueError):
    """A model file that can't be used; the message names what it is and what was wanted."""


@dataclass(frozen=True)
class FeatureSchema:
    """What the columns of a feature matrix mean.

    A model remembers the schema that it was trained on and refuses another.

    Attributes:
        name: Kind of features: `statements`, `decisions`, ...
        version: Raised whenever a column changes its meaning.
        width: Columns a row.
        space: For decision features, what the columns are of (they differ from one workload's
            space to the next); empty for features that all programs share.
    """

    name: str
    version: int
    width: int
    space: str = ""


@dataclass(frozen=True)
class Samples:
    """Programs with their features and, for training, what was measured.

    A program has one row of features or several (one a statement).

    Attributes:
        schema: What the columns mean.
        rows: Features, of shape (rows, schema.width).
        counts: How many consecutive rows each program has, of shape (programs,).
        latency_s: Seconds per run, of shape (programs,); infinity for a program that failed, NaN
            for one that was not measured.
        groups: Which workload each program is of, of shape (programs,). Scores are compared
            within a group only.
    """

    schema: FeatureSchema
    rows: Floats
    counts: npt.NDArray[np.int64]
    latency_s: npt.NDArray[np.float64]
    groups: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.rows.shape[1] != self.schema.width:
            raise ValueError(
                f"rows of shape {self.rows.shape} do not fit a schema of "
                f"{self.schema.width} columns"
            )
        if int(self.counts.sum()) != len(self.rows):
            raise ValueError(f"{self.counts.sum()} rows are counted, {len(self.rows)} are there")
        if not len(self.counts) == len(self.latency_s) == len(self.groups):
            raise ValueError("counts, latency_s and groups have to be of one length")

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def of(
        cls,
        schema: FeatureSchema,
        features: Sequence[Floats],
        latency_s: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
    ) -> Samples:
        """Samples from one matrix (or vector) of features a program."""
        matrices = [np.atleast_2d(np.asarray(f, dtype=np.float32)) for f in features]
        n = len(matrices)
        return cls(
            schema,
            np.concatenate(matrices) if n else np.empty((0, schema.width), np.float32),
            np.array([len(m) for m in matrices], dtype=np.int64),
            np.full(n, np.nan) if latency_s is None else np.asarray(latency_s, dtype=np.float64),
            np.zeros(n, np.int64) if groups is None else np.asarray(groups, dtype=np.int64),
        )

    def take(self, programs: npt.ArrayLike) -> Samples:
        """The samples of some programs, by index or by a mask, in that order."""
        asked = np.asarray(programs)
        # An empty list comes as an array of floats.
        chosen = np.arange(len(self))[asked if asked.size else asked.astype(np.int64)]
        counts = self.counts[chosen]
        starts = (np.cumsum(self.counts) - self.counts)[chosen]
        before = np.cumsum(counts) - counts
        index = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
        return Samples(
            self.schema,
            self.rows[index],
            counts,
            self.latency_s[chosen],
            self.groups[chosen],
        )


class CostModel(Protocol):
    """Predicts which program is faster."""

    def fit(self, samples: Samples) -> None:
        """Learn from measured samples, failures included; what was learnt before is replaced."""

    def predict(self, samples: Samples) -> npt.NDArray[np.float64]:
        """Scores of shape (programs,): higher is faster, comparable within a group.

        Before any `fit` all scores are equal.
        """
