"""Draft, then verify: what a tuner's candidates are scored with, learnt as it goes.

Searchers walk on decision features, which cost microseconds and no TVM; the best of what they find
is replayed and scored on statement features, which cost milliseconds and tell more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import tvm

from ..costmodel.base import CostModel, Floats, Samples
from ..costmodel.features import decisions, statements
from ..costmodel.features.schemas import STATEMENTS
from ..costmodel.validity import ValidityModel
from ..costmodel.xgb import XGBModel
from ..data.candidate import Candidate
from ..data.space import Scheduled, Space
from .base import Trial

Scores = npt.NDArray[np.float64]

# With fewer valid trials there is nothing to rank by.
_FEWEST = 4


class Scorer(Protocol):
    """Scores candidates before they are measured, and learns from what was measured."""

    def draft(self, candidates: Sequence[Candidate]) -> Scores:
        """Scores from the decisions alone; all equal while nothing was learnt."""

    def verify(self, scheduled: Sequence[Scheduled]) -> Scores:
        """Scores from the scheduled programs; all equal while nothing was learnt."""

    def learn(self, trials: Sequence[Trial]) -> None:
        """Take in trials, and fit what scores to all of them so far."""


class NoScorer:
    """Knows nothing: every score is 0."""

    def draft(self, candidates: Sequence[Candidate]) -> Scores:
        """Zeros."""
        return np.zeros(len(candidates))

    def verify(self, scheduled: Sequence[Scheduled]) -> Scores:
        """Zeros."""
        return np.zeros(len(scheduled))

    def learn(self, trials: Sequence[Trial]) -> None:
        """Nothing to learn."""


class _Ranker:
    """A cost model with a validity model beside it, over one kind of features."""

    def __init__(self, model: CostModel, validity: ValidityModel) -> None:
        self.model = model
        self.validity = validity
        self._centre = 0.0
        self._scale = 0.0

    def fit(self, samples: Samples) -> None:
        self._scale = 0.0
        valid = samples.take(np.isfinite(samples.latency_s))
        if len(valid) >= _FEWEST:
            self.model.fit(samples)
            known = self.model.predict(valid)
            self._centre, self._scale = float(known.mean()), float(known.std())
        self.validity.fit(samples)

    def score(self, samples: Samples) -> Scores:
        """Standard deviations above the trials' mean, plus the log-probability of validity.

        So a program that fails for certain ranks below all, and one that fails every other time
        loses two thirds of a standard deviation.
        """
        if not self._scale:
            return np.zeros(len(samples))
        scores = (self.model.predict(samples) - self._centre) / self._scale
        return np.asarray(scores + np.log(self.validity.predict(samples) + 1e-6))


class LearnedScorer:
    """A draft model on decisions and a verifying model on statements, both learning online.

    Args:
        space: The space of the candidates.
        identity: What the space is of (the workload's identity).
        target: The target that the programs are scheduled for.
        model: Cost model on statement features; None for the default.
        seed: Seed of the default models.
    """

    def __init__(
        self,
        space: Space,
        identity: str,
        target: tvm.target.Target,
        *,
        model: CostModel | None = None,
        seed: int = 0,
    ) -> None:
        self.space = space
        self.identity = identity
        self.target = target
        self.drafts = _Ranker(XGBModel(seed=seed), ValidityModel(seed=seed))
        self.verifies = _Ranker(model or XGBModel(seed=seed), ValidityModel(seed=seed))
        self._trials: list[Trial] = []
        self._tried: list[Floats] = []
        self._seen: dict[Candidate, Floats] = {}

    def draft(self, candidates: Sequence[Candidate]) -> Scores:
        """See `Scorer.draft`."""
        return self.drafts.score(decisions.samples(self.space, self.identity, candidates))

    def verify(self, scheduled: Sequence[Scheduled]) -> Scores:
        """See `Scorer.verify`: the sum of both models' scores.

        Each sees what the other does not. On held-out records of one workload the sum ranks pairs
        1.5 to 2.5 points better than either (see `docs/models.md`).
        """
        programs = self.verifies.score(Samples.of(STATEMENTS, self._extract(scheduled)))
        return programs + self.draft([item.candidate for item in scheduled])

    def learn(self, trials: Sequence[Trial]) -> None:
        """See `Scorer.learn`."""
        self._trials += trials
        tried = [trial.candidate for trial in self._trials]
        latency_s = [trial.record.latency_s for trial in self._trials]
        self.drafts.fit(decisions.samples(self.space, self.identity, tried, latency_s))
        self._tried += self._extract([self.space.schedule(t.candidate) for t in trials])
        self._seen.clear()  # what was verified and not tried; the next batch brings its own
        self.verifies.fit(Samples.of(STATEMENTS, self._tried, latency_s))

    def _extract(self, scheduled: Sequence[Scheduled]) -> list[Floats]:
        """Statement features, from memory where a candidate was verified before."""
        new = [item for item in scheduled if item.candidate not in self._seen]
        for item, rows in zip(new, statements.extract(new, self.target), strict=True):
            self._seen[item.candidate] = rows
        return [self._seen[item.candidate] for item in scheduled]
