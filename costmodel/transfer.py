"""Transfer: what was learnt of other workloads, and a correction learnt on a task's own programs.

AutoTVM predicts with the sum of a global model, trained on other workloads, and a local one (Chen
et al., NeurIPS 2018, section 4). Here the local model is fitted to what the global one leaves over:
its scores start from the global scores of the same programs, in the same order. How much the global
scores count is measured on the task's own programs, and where they rank these no better than chance
they count for nothing.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from .base import CostModel, FeatureSchema, ModelFileError, Samples
from .ensemble import packed, unpacked
from .model_file import ModelFile, StrPath, check_samples
from .rows import totals
from .xgb import XGBModel

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Of Spearman's correlation in Fisher's z, times the number of programs less 3 (Fieller, Hartley
# and Pearson, Biometrika 1957).
_VARIANCE = 1.06
# A correlation is taken for this at most: its log-odds grow without a bound.
_SUREST = 0.95
# The normal distribution function is nearly the logistic one of so many times its argument.
_LOGISTIC = 1.702
# What a trusted model knows is worth as many measured programs as this: a correction learnt of
# so many counts half, since half of what it has learnt is noise.
_WORTH = 48


class Corrects(CostModel, Protocol):
    """A cost model that can be fitted on top of other scores."""

    @property
    def objective(self) -> str:
        """`rank`, scores are log-odds of being faster, or `regression`, logarithms of speed."""

    def fit(self, samples: Samples, margin: Array | None = None) -> None:
        """Learn what `margin`, of shape (programs,), leaves over; see `XGBModel.fit`."""


def corrects(model: CostModel) -> TypeGuard[Corrects]:
    """Whether a model can be fitted on top of other scores."""
    return hasattr(model, "objective") and "margin" in inspect.signature(model.fit).parameters


def trained(model: CostModel) -> bool:
    """Whether a model was fitted; one that does not tell by its `schema` is taken for untrained."""
    return getattr(model, "schema", None) is not None


def trust(scores: Array, latency_s: Array, groups: Ints, doubt: float = 1.0) -> float:
    """How far a model may be trusted to rank programs that it wasn't trained on.

    Spearman's rank correlation of its scores with speed, within groups, less `doubt` standard
    errors (in Fisher's z). Of few programs a model that knows nothing ranks many right by luck: of
    16, it has a correlation above 0.27 once in six times.

    Args:
        scores: What the model says, of shape (programs,).
        latency_s: Finite seconds per run.
        groups: Which workload each program is of.
        doubt: Standard errors that are taken off.

    Returns:
        From 0, no better than chance for all one knows, to below 1.
    """
    found, free = _correlation(scores, latency_s, groups)
    if free < 1:
        return 0.0
    return max(0.0, float(np.tanh(np.arctanh(found) - doubt * np.sqrt(_VARIANCE / free))))


@dataclass(frozen=True)
class Blend:
    """How the scores of frozen models become one margin, which a local model is fitted on.

    Attributes:
        trust: How far each model is trusted, of shape (models,); see `trust`.
        centre: What is taken off each model's scores.
        factor: What they are multiplied with then; 0 for a model that is not trusted.
        share: How much the local model's scores count on top.
    """

    trust: Array
    centre: Array
    factor: Array
    share: float = 1.0

    @classmethod
    def fitted(
        cls,
        known: Array,
        latency_s: Array,
        groups: Ints,
        unit: float | None = None,
        doubt: float = 1.0,
    ) -> Blend:
        """Measure on a task's programs how much frozen models' scores say of them.

        Each model weighs as much as it is trusted, in standard deviations of its scores. Their sum
        is scaled to what its correlation with speed stands for.

        Args:
            known: The models' scores, of shape (programs, models).
            latency_s: Finite seconds per run, of shape (programs,).
            groups: Which workload each program is of.
            unit: Standard deviation of what is learnt on top; None if that is the log-odds of
                being the faster of two.
            doubt: See `trust`.
        """
        models = known.shape[1]
        trusts = np.array([trust(known[:, m], latency_s, groups, doubt) for m in range(models)])
        centre, factor = np.zeros(models), np.zeros(models)
        inner = np.zeros(len(known))
        for m in np.flatnonzero(trusts):
            centre[m] = known[:, m].mean()
            apart = within(known[:, m], groups)
            factor[m] = trusts[m] / apart.std()
            inner += factor[m] * apart
        if not factor.any():
            return cls(trusts, centre, factor)
        found, _ = _correlation(inner, latency_s, groups)
        factor *= (_log_odds(found) if unit is None else found * unit) / inner.std()
        return cls(trusts, centre, factor, len(known) / (len(known) + _WORTH))

    @classmethod
    def equal(cls, known: Array) -> Blend:
        """Every model that tells programs apart counts the same, in standard deviations.

        For want of measurements. Scores that are not finite are left out.
        """
        models = known.shape[1]
        centre, factor = np.zeros(models), np.zeros(models)
        for m in range(models):
            finite = known[np.isfinite(known[:, m]), m]
            if len(finite) and np.ptp(finite) > 0:
                centre[m], factor[m] = finite.mean(), 1.0 / finite.std()
        factor /= max(1, int(np.count_nonzero(factor)))
        return cls(np.ones(models), centre, factor)

    @property
    def counts(self) -> bool:
        """Whether any model counts."""
        return bool(self.factor.any())

    def margin(self, known: Array) -> Array:
        """The margins of programs, from their scores of shape (programs, models)."""
        total = np.zeros(len(known))
        for m in np.flatnonzero(self.factor):
            total += self.factor[m] * (known[:, m] - self.centre[m])
        return total

    def corrected(self, known: Array, correction: Array) -> Array:
        """The margins and what was learnt on top of them, of shape (programs,)."""
        return self.margin(known) + self.share * correction if self.counts else correction


class GlobalLocal:
    """A frozen global model, and a local correction fitted on top of its scores.

    Args:
        general: The trained global model; nothing changes it.
        local: What learns the correction; by default an `XGBModel`. A copy of it is fitted.
        fine_tune: Train a copy of the global model on (by its method `fine_tune(samples)`), if it
            is trusted, and correct that one.
        doubt: See `trust`.
    """

    kind = "global-local"

    def __init__(
        self,
        general: CostModel,
        local: Corrects | None = None,
        *,
        fine_tune: bool = False,
        doubt: float = 1.0,
    ) -> None:
        if fine_tune and not hasattr(general, "fine_tune"):
            raise ValueError(
                f"a {type(general).__name__} can't be fine-tuned: it needs the method "
                "`fine_tune(samples)`; without `fine_tune` it is left as it is"
            )
        self.general = general
        self.local = XGBModel() if local is None else local
        self.fine_tune = fine_tune
        self.doubt = doubt
        self.schema: FeatureSchema | None = getattr(general, "schema", None)
        self.blend: Blend | None = None
        self._tuned = general
        self._correction: Corrects = copy.deepcopy(self.local)

    def fit(self, samples: Samples) -> None:
        """Learn the correction from measured samples; the one before is replaced.

        Raises:
            ValueError: samples of other features than the global model's.
        """
        check_samples(getattr(self.general, "schema", None), samples)
        self.schema = samples.schema
        valid = np.isfinite(samples.latency_s)
        measured = samples.take(valid)
        known = self.general.predict(samples)[:, None]  # one row a program of `samples`, failed too
        self.blend = Blend.fitted(
            known[valid],
            measured.latency_s,
            measured.groups,
            unit_of(self.local, measured),
            self.doubt,
        )
        self._tuned = self.general
        if self.fine_tune and self.blend.counts:
            tuned: Any = copy.deepcopy(self.general)
            tuned.fine_tune(samples)
            self._tuned = tuned
            known = tuned.predict(samples)[:, None]
        self._correction = copy.deepcopy(self.local)
        self._correction.fit(samples, self.blend.margin(known) if self.blend.counts else None)

    def predict(self, samples: Samples) -> Array:
        """Scores of shape (programs,): higher is faster, comparable within a group.

        Before a fit they are the global model's.

        Raises:
            ValueError: samples of other features than the global model's.
        """
        check_samples(self.schema, samples)
        if self.blend is None:
            return self.general.predict(samples)
        known = self._tuned.predict(samples)[:, None]
        return self.blend.corrected(known, self._correction.predict(samples))

    def save(self, path: StrPath, workloads: Sequence[str] = ()) -> None:
        """Write the model to a file, the global one included; see `XGBModel.save`.

        Raises:
            ValueError: one of the models is of a class without `save`.
        """
        parts = {"general": packed(self.general), "local": packed(self.local)}
        state: dict[str, Any] = {}
        if self.blend is not None:
            names = ("trust", "centre", "factor")
            state = {name: getattr(self.blend, name).tolist() for name in names}
            state["share"] = self.blend.share
            parts["correction"] = packed(self._correction)
        if self._tuned is not self.general:
            parts["tuned"] = packed(self._tuned)
        arguments = {"fine_tune": self.fine_tune, "doubt": self.doubt}
        ModelFile(
            self.kind, arguments, self.schema, parts, state=state, workloads=tuple(workloads)
        ).write(path)

    @classmethod
    def load(cls, path: StrPath, schema: FeatureSchema | None = None) -> GlobalLocal:
        """Read what `save` wrote; see `XGBModel.load`.

        Raises:
            ModelFileError: it is no whole file of such a model, or of features of another schema.
        """
        file = ModelFile.read(path, cls.kind, schema)
        try:
            general, local = unpacked(file.parts["general"]), unpacked(file.parts["local"])
            model = cls(general, local, **file.arguments)
            model.schema = file.schema
            if "correction" in file.parts:
                names = ("trust", "centre", "factor")
                found = [np.array(file.state[name], dtype=np.float64) for name in names]
                model.blend = Blend(found[0], found[1], found[2], file.number("share"))
                model._correction = unpacked(file.parts["correction"])
            if "tuned" in file.parts:
                model._tuned = unpacked(file.parts["tuned"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"{path} is damaged: {error}") from error
        return model


def unit_of(local: Corrects, measured: Samples) -> float | None:
    """The standard deviation of what a model learns of valid samples; None for log-odds."""
    if local.objective == "rank":
        return None
    return float(within(np.log(measured.latency_s), measured.groups).std()) if len(measured) else 0


def within(values: Array, groups: Ints) -> Array:
    """Values less the mean of their group."""
    _, group, count = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(values - (totals(group, values, len(count)) / count)[group])


def _correlation(scores: Array, latency_s: Array, groups: Ints) -> tuple[float, int]:
    """Spearman's rank correlation with speed within groups, and its degrees of freedom.

    0 for scores that are not all finite.
    """
    right, programs, free = 0.0, 0, -2
    for group in np.unique(groups) if np.isfinite(scores).all() else ():
        member = groups == group
        rank, truth = _ranks(scores[member]), _ranks(-latency_s[member])
        spread = float(rank.std() * truth.std())
        if spread > 0:
            right += float((rank - rank.mean()) @ (truth - truth.mean())) / spread
            programs += int(member.sum())
            free += int(member.sum()) - 1
    found = right / programs if programs else 0.0
    return min(max(found, -0.999), 0.999), free


def _log_odds(correlation: float) -> float:
    """Log-odds that of two programs the one with the higher score is faster.

    For scores one standard deviation apart, in the normal model: speed has that correlation with
    the scores, so what decides is their difference against the rest's, of both programs.
    """
    known = min(correlation, _SUREST)
    return float(_LOGISTIC * known / np.sqrt(2.0 * (1.0 - known**2)))


def _ranks(values: Array) -> Array:
    """Ranks from 1, of equal values their mean, as `scipy.stats.rankdata` says: it loads 0.4 s."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[place], dtype=np.float64)
