"""Draft, then verify: what a tuner's candidates are scored with, learnt as it goes.

Searchers walk on decision features, which cost microseconds and no TVM; the best of what they find
is replayed and scored on statement features, which cost milliseconds and tell more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

from ..costmodel.acquisition import make_acquisition
from ..costmodel.base import CostModel, Floats, Samples
from ..costmodel.ensemble import BootstrapEnsemble
from ..costmodel.features import decisions, general, loops, relations, statements
from ..costmodel.priors import SCHEMAS, kinds_of, listed, said
from ..costmodel.ranker import Ranker
from ..costmodel.transfer import trained
from ..costmodel.xgb import XGBModel
from ..data.candidate import Candidate
from ..data.space import Scheduled, Space
from .base import Trial
from .scoring import Scores


class LearnedScorer:
    """A draft model on decisions and a verifying model on statements, both learning online.

    Priors are models that were trained before, on other workloads. They score the first batch,
    and go on counting as far as they rank what was measured right (see `Ranker`).

    Args:
        space: The space of the candidates.
        identity: What the space is of (the workload's identity).
        target: The target that the programs are scheduled for.
        model: Cost model on features of programs, to be trained; None for the default. A trained
            one is taken for a prior. Which features a model takes is the name of its `schema`, or
            else its `features`: `statements` (those of a model that does not say), `loops` or
            `relations`.
        prior: A trained model on features of programs, or several. It may have a tuple of
            `features`, and its `predict` then takes samples by the name of their features.
        draft_prior: A trained model on the decision features that all workloads share
            (`features.general`); it is not used in a space of the user's own, which has none.
        acquisition: What programs are worth measuring by, from how sure the model is: `ei` (the
            logarithm of expected improvement) or `ucb` (upper confidence bound). By default, or
            for `mean`, by the speed expected. With the others a model that does not say how sure
            it is gets trained several times, as a `BootstrapEnsemble`.
        seed: Seed of the default models.

    Raises:
        ValueError: a prior takes other features, or there is no such acquisition.
    """

    def __init__(
        self,
        space: Space,
        identity: str,
        target: tvm.target.Target,
        *,
        model: CostModel | None = None,
        prior: Any | Sequence[Any] | None = None,
        draft_prior: CostModel | None = None,
        acquisition: str | None = None,
        seed: int = 0,
    ) -> None:
        self.space = space
        self.identity = identity
        self.target = target
        self.draft_prior = draft_prior if general.reads(space) else None
        self.priors = listed(prior)
        if model is not None and (trained(model) or len(kinds_of(model)) > 1):
            self.priors, model = [*listed(model), *self.priors], None
        self.informed = bool(self.priors or self.draft_prior is not None)
        self._drafts = Ranker(XGBModel(seed=seed), decisions.schema(space, identity), seed)
        self._acquire = None
        if acquisition not in (None, "mean"):
            self._acquire = make_acquisition(acquisition)
            model = _doubting(model, seed)
        (self._kind,) = ("statements",) if model is None else kinds_of(model)
        self._verifies = Ranker(model or XGBModel(seed=seed), SCHEMAS[self._kind], seed)
        self._seen: dict[str, dict[Candidate, Floats]] = {kind: {} for kind in SCHEMAS}
        self._said: dict[Candidate, Scores] = {}

    @property
    def drafts(self) -> Ranker:
        """The model of decisions, fitted to all that was learnt."""
        self._drafts.fit()
        return self._drafts

    @property
    def verifies(self) -> Ranker:
        """The model of programs, fitted to all that was learnt."""
        self._verifies.fit()
        return self._verifies

    @property
    def misled(self) -> bool:
        """See `Scorer`: each of the models that has something to go by has to be."""
        known = [one for one in (self._drafts, self._verifies) if one.told]
        return bool(known) and all(one.misled for one in known)

    def draft(self, candidates: Sequence[Candidate]) -> Scores:
        """See `Scorer.draft`."""
        return self.drafts.score(self._decisions(candidates), self._draft_known(candidates))

    def verify(self, scheduled: Sequence[Scheduled]) -> Scores:
        """See `Scorer.verify`: the sum of both models' scores.

        Each sees what the other does not. On held-out records of one workload the sum ranks pairs
        1.5 to 2.5 points better than either (see `docs/models.md`).
        """
        candidates = [item.candidate for item in scheduled]
        programs, known = self._samples(self._kind, scheduled), self._known(scheduled)
        if self._acquire is None or not len(self.verifies.measured):
            return self.verifies.score(programs, known) + self.draft(candidates)
        drafts, draft_known = self._decisions(candidates), self._draft_known(candidates)
        mean, std = self.verifies.distribution(programs, known)
        mean = mean + self.drafts.distribution(drafts, draft_known)[0]
        best = float((self.verifies.measured + self.drafts.measured).max())
        # The draft is taken to be as unsure as the program's model, and wrong where that is.
        worth = self._acquire(mean, 2 * std, best)
        return worth + self.verifies.bonus(programs) + self.drafts.bonus(drafts)

    def learn(self, trials: Sequence[Trial]) -> None:
        """See `Scorer.learn`. The models are fitted when they are asked next."""
        tried = [trial.candidate for trial in trials]
        latency_s = [trial.record.latency_s for trial in trials]
        compile_s = [trial.record.compile_s for trial in trials]
        encoded = list(self.space.encode(tried))
        self._drafts.add(encoded, latency_s, compile_s, self._draft_known(tried))
        replayed = [self.space.schedule(candidate) for candidate in tried]
        programs = self._extract(self._kind, replayed)
        self._verifies.add(programs, latency_s, compile_s, self._known(replayed))
        # What was verified and not tried: the next batch brings its own.
        self._said.clear()
        for seen in self._seen.values():
            seen.clear()

    def _decisions(self, candidates: Sequence[Candidate]) -> Samples:
        return decisions.samples(self.space, self.identity, candidates)

    def _draft_known(self, candidates: Sequence[Candidate]) -> Scores | None:
        """What the prior on decisions says, of shape (candidates, 1)."""
        if self.draft_prior is None:
            return None
        return self.draft_prior.predict(general.samples(self.space, candidates))[:, None]

    def _samples(self, kind: str, scheduled: Sequence[Scheduled]) -> Samples:
        """Programs with their features of one kind."""
        return Samples.of(SCHEMAS[kind], self._extract(kind, scheduled))

    def _extract(self, kind: str, scheduled: Sequence[Scheduled]) -> list[Floats]:
        """Features of one kind, from memory where a candidate was verified before."""
        seen = self._seen[kind]
        new = [item for item in scheduled if item.candidate not in seen]
        if kind == "statements":
            found = statements.extract(new, self.target)
        elif kind == "loops":
            found = loops.extract(new, self.target)
        else:
            found = list(relations.of(self._samples("loops", new)).rows[:, None])
        for item, rows in zip(new, found, strict=True):
            seen[item.candidate] = rows
        return [seen[item.candidate] for item in scheduled]

    def _known(self, scheduled: Sequence[Scheduled]) -> Scores | None:
        """What the priors say of programs, of shape (programs, priors), from memory as above."""
        if not self.priors:
            return None
        new = [item for item in scheduled if item.candidate not in self._said]
        if new:
            wanted = {kind for model in self.priors for kind in kinds_of(model)}
            found = {kind: self._samples(kind, new) for kind in sorted(wanted)}
            scores = said(self.priors, found)
            self._said.update(zip((item.candidate for item in new), scores, strict=True))
        rows = [self._said[item.candidate] for item in scheduled]
        return np.array(rows).reshape(len(rows), len(self.priors))


def _doubting(model: CostModel | None, seed: int) -> CostModel:
    """A model that says how sure it is."""
    if model is not None and hasattr(model, "predict_distribution"):
        return model
    return BootstrapEnsemble(model, seed=seed)
