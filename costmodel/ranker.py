"""What ranks one task's programs: a cost model, a validity model, and what was known before."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import CostModel, FeatureSchema, Floats, Samples
from .transfer import Blend, corrects, trained, trust, unit_of
from .validity import ValidityModel
from .xgb import XGBModel

Scores = npt.NDArray[np.float64]

# With fewer valid programs there is nothing to rank by.
_FEWEST = 4
# And with fewer tried ones nothing to judge by what was known before.
_JURY = 8


class Ranker:
    """What is known of one task's programs: how fast, whether valid, how long to compile.

    What was known before the task's first program comes from priors: `prior`, and others whose
    scores the caller passes in as `known`. They stand alone for the first few programs. Then they
    count as far as they rank the task's own programs right, less a standard error (see
    `transfer.trust`): one that is no better than chance counts for nothing, until it earns it. What
    counts is a margin that the task's own model is fitted on top of.

    Args:
        prior: What is known of programs in general, if it was trained; else the model to train on
            the task's own: a copy of it is. On top of a trained one an `XGBModel` is.
        schema: The features of the programs.
        seed: Seed of the models made here.
        doubt: Standard errors by which a prior has to rank better than chance.
    """

    def __init__(
        self, prior: CostModel, schema: FeatureSchema, seed: int = 0, doubt: float = 1.0
    ) -> None:
        self.schema = schema
        self.prior = prior
        self.doubt = doubt
        self.model = XGBModel(seed=seed) if trained(prior) else copy.deepcopy(prior)
        self.validity = ValidityModel(seed=seed)
        self.compiling = XGBModel("regression", seed=seed)
        self.features: list[Floats] = []
        self.latency_s: list[float] = []
        self.compile_s: list[float] = []
        self._known: list[Scores] = []
        self._opening: Blend | None = None
        self._blend: Blend | None = None
        self._speeds: Scores = np.empty(0)
        self._centre = 0.0
        self._spread = 0.0
        self._usual = 0.0
        self._fitted = -1

    @property
    def trust(self) -> list[float]:
        """How far each prior is trusted, from 0 to 1: `prior`, then those of `known`.

        Empty as long as they can't be judged.
        """
        self.fit()
        return [] if self._blend is None else self._blend.trust.tolist()

    @property
    def told(self) -> bool:
        """Whether a prior tells the programs taken in apart."""
        return len(self._telling()) > 0

    @property
    def misled(self) -> bool:
        """Whether every prior that says something would be trusted if it said the opposite.

        What failed counts as slower than all that ran. False as long as they can't be judged.
        """
        telling = self._telling()
        if len(self.latency_s) < _JURY or not len(telling):
            return False
        latency_s = np.array(self.latency_s)
        group = np.zeros(len(latency_s), np.int64)
        return all(trust(-says, latency_s, group, self.doubt) > 0 for says in telling)

    @property
    def measured(self) -> Scores:
        """Speeds of the valid programs taken in, as `distribution` has them."""
        self.fit()
        return self._speeds

    def add(
        self,
        features: Sequence[Floats],
        latency_s: Sequence[float],
        compile_s: Sequence[float] | None = None,
        known: Scores | None = None,
    ) -> None:
        """Take in programs.

        Args:
            features: Their features.
            latency_s: Their seconds; infinity for a failure.
            compile_s: Seconds that compiling each took, if that is known; 0 where it is not.
            known: What priors on other features say of them, of shape (programs, priors).
        """
        if not features:
            return
        self._known.append(self._all_known(Samples.of(self.schema, features), known))
        self.features += features
        self.latency_s += latency_s
        self.compile_s += compile_s or [0.0] * len(features)

    def score(self, samples: Samples, known: Scores | None = None) -> Scores:
        """Scores of shape (programs,), higher is faster; fits first what is new.

        The speed, as `distribution` has it, and `bonus`.

        Args:
            samples: The programs.
            known: What priors on other features say of them, of shape (programs, priors).
        """
        valid, compiling = self._besides(samples)
        return self.distribution(samples, known)[0] + valid + compiling

    def distribution(self, samples: Samples, known: Scores | None = None) -> tuple[Scores, Scores]:
        """Expected speed and its standard deviation, each of shape (programs,).

        In standard deviations above the mean of the task's programs; before there are any, of the
        first programs asked for. The standard deviation is 0 unless the task's model says how sure
        it is (by `predict_distribution`).
        """
        self.fit()
        zeros = np.zeros(len(samples))
        if not len(samples):
            return zeros, zeros
        if self._spread == 0:
            return self._unmeasured(samples, known), zeros
        model: Any = self.model
        std = zeros
        if hasattr(model, "predict_distribution"):
            mean, std = model.predict_distribution(samples)
        else:
            mean = model.predict(samples)
        if self._blend is not None and self._blend.counts:
            mean = self._blend.corrected(self._all_known(samples, known), mean)
        return (mean - self._centre) / self._spread, std / self._spread

    def bonus(self, samples: Samples) -> Scores:
        """What else there is to say of programs, of shape (programs,); nothing speaks for one.

        The log-probability of validity: what fails for certain ranks below all, and what fails
        every other time loses two thirds of a standard deviation. And what takes e times as long to
        compile as the median program loses one: a sixth of random programs take more than half of
        all time to compile, and hardly any of them is among the best.
        """
        valid, compiling = self._besides(samples)
        return valid + compiling

    def fit(self) -> None:
        """Learn from what was added since the last fit, which `score` does otherwise."""
        if self._fitted == len(self.latency_s):
            return
        self._fitted = len(self.latency_s)
        samples = Samples.of(self.schema, self.features, self.latency_s)
        self._fit_speed(samples)
        self.validity.fit(samples)
        compile_s = np.array(self.compile_s)
        compiled = replace(samples, latency_s=np.where(compile_s > 0, compile_s, np.inf))
        self.compiling.fit(compiled)
        if np.any(compile_s > 0):
            self._usual = float(np.median(self.compiling.predict(compiled)))

    def _besides(self, samples: Samples) -> tuple[Scores, Scores]:
        """The summands of `bonus`."""
        self.fit()
        if not len(samples):
            return np.zeros(0), np.zeros(0)
        valid = np.log(self.validity.predict(samples) + 1e-6)
        return valid, np.minimum(self.compiling.predict(samples) - self._usual, 0.0)

    def _fit_speed(self, samples: Samples) -> None:
        valid = np.isfinite(samples.latency_s)
        measured = samples.take(valid)
        self._blend, self._speeds, self._spread = None, np.zeros(len(measured)), 0.0
        if len(measured) < _FEWEST:
            return
        known = np.concatenate(self._known)
        if len(samples) < _JURY and self._open(known).counts:
            return
        self._blend = self._fit_model(samples, valid, known)
        found = self._blend.corrected(known[valid], self.model.predict(measured))
        self._centre, self._spread = float(found.mean()), float(found.std())
        if self._spread > 0:
            self._speeds = (found - self._centre) / self._spread

    def _fit_model(self, samples: Samples, valid: npt.NDArray[np.bool_], known: Scores) -> Blend:
        """Judge the priors and fit the task's model, on top of them where it can be."""
        measured = samples.take(valid)
        truth = (measured.latency_s, measured.groups)
        if not corrects(self.model):
            self.model.fit(samples)
            unit = float(self.model.predict(measured).std()) or 1.0
            return Blend.fitted(known[valid], *truth, unit, self.doubt)
        blend = Blend.fitted(known[valid], *truth, unit_of(self.model, measured), self.doubt)
        self.model.fit(samples, blend.margin(known) if blend.counts else None)
        return blend

    def _unmeasured(self, samples: Samples, known: Scores | None) -> Scores:
        """What the priors say alone; zeros when enough was tried and nothing can be said."""
        if len(self.latency_s) >= _JURY:
            return np.zeros(len(samples))
        found = self._all_known(samples, known)
        return self._open(found).margin(found)

    def _open(self, known: Scores) -> Blend:
        """How priors count that can't be judged, by the first programs that they tell apart."""
        if self._opening is None or not self._opening.counts:
            self._opening = Blend.equal(known)
        return self._opening

    def _telling(self) -> list[Scores]:
        """What each prior says of the programs, those left out that say the same of all."""
        if not self._known:
            return []
        known = np.concatenate(self._known)
        return [says for says in known.T if np.ptp(says) > 0]

    def _all_known(self, samples: Samples, known: Scores | None) -> Scores:
        """What each prior says, of shape (programs, priors)."""
        own = np.asarray(self.prior.predict(samples), dtype=np.float64)[:, None]
        return own if known is None else np.concatenate([own, known], axis=1)
