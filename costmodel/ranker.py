"""What ranks one task's programs: a cost model, a validity model, and what was known before."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .base import CostModel, FeatureSchema, Floats, Samples
from .metrics import pairwise_accuracy
from .validity import ValidityModel
from .xgb import XGBModel

Scores = npt.NDArray[np.float64]

# With fewer valid programs there is nothing to rank by.
_FEWEST = 4


class Ranker:
    """What is known of one task's programs: how fast, whether valid, how long to compile.

    Args:
        prior: What is known of programs in general, if it was trained, and a model to train on the
            task's own: a copy of it is.
        schema: The features of the programs.
        seed: Seed of the validity model.
    """

    def __init__(self, prior: CostModel, schema: FeatureSchema, seed: int = 0) -> None:
        self.schema = schema
        self.prior = prior
        self.model = copy.deepcopy(prior)
        self.validity = ValidityModel(seed=seed)
        self.compiling = XGBModel("regression", seed=seed)
        self.features: list[Floats] = []
        self.latency_s: list[float] = []
        self.compile_s: list[float] = []
        self._usual = 0.0
        self._parts: list[tuple[CostModel, float, float, float]] = []
        self._fitted = -1

    def add(
        self,
        features: Sequence[Floats],
        latency_s: Sequence[float],
        compile_s: Sequence[float] | None = None,
    ) -> None:
        """Take in programs.

        Args:
            features: Their features.
            latency_s: Their seconds; infinity for a failure.
            compile_s: Seconds that compiling each took, if that is known; 0 where it is not.
        """
        self.features += features
        self.latency_s += latency_s
        self.compile_s += compile_s or [0.0] * len(features)

    def score(self, samples: Samples) -> Scores:
        """Scores of shape (programs,), higher is faster; fits first what is new.

        Standard deviations above the mean of the task's programs, less what makes a program a bad
        bet. The log-probability of validity is added: what fails for certain ranks below all, and
        what fails every other time loses two thirds of a standard deviation. What takes e times as
        long to compile as the median program loses one: a sixth of random programs take more than
        half of all time to compile, and hardly any of them is among the best.

        A trained prior is added with the weight `2 * accuracy - 1` (0 at chance) by which it ranks
        the task's programs, and stands alone before there are any.
        """
        self.fit()
        scores = np.zeros(len(samples))
        if not len(samples):
            return scores
        for model, centre, scale, weight in self._parts:
            scores += weight * (model.predict(samples) - centre) / scale
        if not self._parts:
            return scores
        scores += np.log(self.validity.predict(samples) + 1e-6)
        return np.asarray(scores + np.minimum(self.compiling.predict(samples) - self._usual, 0.0))

    def fit(self) -> None:
        """Learn from what was added since the last fit, which `score` does otherwise."""
        if self._fitted == len(self.latency_s):
            return
        self._fitted = len(self.latency_s)
        samples = Samples.of(self.schema, self.features, self.latency_s)
        valid = samples.take(np.isfinite(samples.latency_s))
        self._parts = [(self.prior, 0.0, 1.0, 1.0)]
        if len(valid) >= _FEWEST:
            general = self.prior.predict(valid)
            self.model.fit(samples)
            weight = 2 * pairwise_accuracy(general, valid.latency_s) - 1
            self._parts = [
                (model, float(known.mean()), float(known.std()), share)
                for model, known, share in (
                    (self.model, self.model.predict(valid), 1.0),
                    (self.prior, general, weight),
                )
                if known.std() > 0 and share > 0
            ]
        self.validity.fit(samples)
        compile_s = np.array(self.compile_s)
        compiled = replace(samples, latency_s=np.where(compile_s > 0, compile_s, np.inf))
        self.compiling.fit(compiled)
        if np.any(compile_s > 0):
            self._usual = float(np.median(self.compiling.predict(compiled)))
