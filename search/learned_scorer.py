"""Draft, then verify: what a tuner's candidates are scored with, learnt as it goes.

Searchers walk on decision features, which cost microseconds and no TVM; the best of what they find
is replayed and scored on statement features, which cost milliseconds and tell more.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from ..costmodel.base import CostModel, Floats, Samples
from ..costmodel.features import decisions, statements
from ..costmodel.features.schemas import STATEMENTS
from ..costmodel.ranker import Ranker
from ..costmodel.xgb import XGBModel
from ..data.candidate import Candidate
from ..data.space import Scheduled, Space
from .base import Trial
from .scoring import Scores


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
        self.drafts = Ranker(XGBModel(seed=seed), decisions.schema(space, identity), seed)
        self.verifies = Ranker(model or XGBModel(seed=seed), STATEMENTS, seed)
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
        tried = [trial.candidate for trial in trials]
        latency_s = [trial.record.latency_s for trial in trials]
        compile_s = [trial.record.compile_s for trial in trials]
        self.drafts.add(list(self.space.encode(tried)), latency_s, compile_s)
        programs = self._extract([self.space.schedule(candidate) for candidate in tried])
        self._seen.clear()  # what was verified and not tried; the next batch brings its own
        self.verifies.add(programs, latency_s, compile_s)
        self.drafts.fit()
        self.verifies.fit()

    def _extract(self, scheduled: Sequence[Scheduled]) -> list[Floats]:
        """Statement features, from memory where a candidate was verified before."""
        new = [item for item in scheduled if item.candidate not in self._seen]
        for item, rows in zip(new, statements.extract(new, self.target), strict=True):
            self._seen[item.candidate] = rows
        return [self._seen[item.candidate] for item in scheduled]
