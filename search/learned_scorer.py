"""Draft, then verify: what a tuner's candidates are scored with, learnt as it goes.

Searchers walk on decision features, which cost microseconds and no TVM; the best of what they find
is replayed and scored on statement features, which cost milliseconds and tell more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import tvm

from ..costmodel.base import CostModel, Floats, Samples
from ..costmodel.features import decisions, statements
from ..costmodel.features.schemas import STATEMENTS
from ..costmodel.validity import ValidityModel
from ..costmodel.xgb import XGBModel
from ..data.candidate import Candidate
from ..data.space import Scheduled, Space
from .base import Trial
from .scoring import Scores

# With fewer valid trials there is nothing to rank by.
_FEWEST = 4


class _Ranker:
    """Models over one kind of features: which program is faster, valid, slow to compile."""

    def __init__(self, model: CostModel, seed: int) -> None:
        self.model = model
        self.validity = ValidityModel(seed=seed)
        self.compiling = XGBModel("regression", seed=seed)
        self._centre = 0.0
        self._scale = 0.0
        self._usual = 0.0

    def fit(self, samples: Samples, compile_s: Scores) -> None:
        """Learn from trials and how long each took to compile."""
        self._scale = 0.0
        valid = samples.take(np.isfinite(samples.latency_s))
        if len(valid) >= _FEWEST:
            self.model.fit(samples)
            known = self.model.predict(valid)
            self._centre, self._scale = float(known.mean()), float(known.std())
        self.validity.fit(samples)
        compiled = replace(samples, latency_s=np.where(compile_s > 0, compile_s, np.inf))
        self.compiling.fit(compiled)
        self._usual = float(np.median(self.compiling.predict(compiled)))

    def score(self, samples: Samples) -> Scores:
        """Standard deviations above the trials' mean, less what makes a program a bad bet.

        The log-probability of validity is added: so a program that fails for certain ranks below
        all, and one that fails every other time loses two thirds of a standard deviation. And what
        takes e times as long to compile as the median trial loses one: a sixth of random programs
        take more than half of all time to compile, and hardly any of them is among the best.
        """
        if not self._scale:
            return np.zeros(len(samples))
        scores = (self.model.predict(samples) - self._centre) / self._scale
        scores += np.log(self.validity.predict(samples) + 1e-6)
        return np.asarray(scores + np.minimum(self.compiling.predict(samples) - self._usual, 0.0))


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
        self.drafts = _Ranker(XGBModel(seed=seed), seed)
        self.verifies = _Ranker(model or XGBModel(seed=seed), seed)
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
        compile_s = np.array([trial.record.compile_s for trial in self._trials])
        drafts = decisions.samples(self.space, self.identity, tried, latency_s)
        self.drafts.fit(drafts, compile_s)
        self._tried += self._extract([self.space.schedule(t.candidate) for t in trials])
        self._seen.clear()  # what was verified and not tried; the next batch brings its own
        self.verifies.fit(Samples.of(STATEMENTS, self._tried, latency_s), compile_s)

    def _extract(self, scheduled: Sequence[Scheduled]) -> list[Floats]:
        """Statement features, from memory where a candidate was verified before."""
        new = [item for item in scheduled if item.candidate not in self._seen]
        for item, rows in zip(new, statements.extract(new, self.target), strict=True):
            self._seen[item.candidate] = rows
        return [self._seen[item.candidate] for item in scheduled]
