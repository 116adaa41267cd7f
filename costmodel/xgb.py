"""Gradient-boosted trees as a cost model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import xgboost

from .base import FeatureSchema, Samples
from .boosting import Trees, from_bytes, scores, to_bytes
from .model_file import ModelFile, StrPath, arguments_of, check_samples
from .objectives import LogSpeed, Objective, PairwiseRank

Array = npt.NDArray[np.float64]


class XGBModel:
    """Ranks programs with XGBoost; a program's score is the sum of its statements' scores.

    The sum is Ansor's (Zheng et al., OSDI 2020, section 5.2). One score of pooled features (sums
    and maxima over the statements) ranked held-out programs worse, and took longer to train.

    Programs that failed are left out of the fit: how fast they are isn't known, and whether a
    program fails is for `ValidityModel` to say.

    Args:
        objective: `rank` (pairs of programs, by which is faster) or `regression` (the
            logarithm of its speed).
        rounds: Trees that a fit grows.
        max_depth: Depth of a tree.
        learning_rate: How much of its optimum each tree contributes.
        min_child_weight: Least second derivative in a leaf.
        reg_lambda: L2 penalty on the leaves.
        column_share: Share of the columns that each tree sees.
        warm_start: Whether a fit goes on from the trees of the one before.
        seed: Seed of the columns, and of the pairs of large groups, that are drawn.
        threads: XGBoost's threads; None for one on few rows and all cores on many.
    """

    kind = "xgb"
    features = "statements"

    def __init__(
        self,
        objective: Literal["rank", "regression"] = "rank",
        *,
        rounds: int = 80,
        max_depth: int = 3,
        learning_rate: float = 0.15,
        min_child_weight: float = 0.1,
        reg_lambda: float = 1.0,
        column_share: float = 0.5,
        warm_start: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        if objective not in ("rank", "regression"):
            raise ValueError(f"`objective` is 'rank' or 'regression', not {objective!r}")
        self.objective = objective
        self.rounds = rounds
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.min_child_weight = min_child_weight
        self.reg_lambda = reg_lambda
        self.column_share = column_share
        self.warm_start = warm_start
        self.seed = seed
        self.threads = threads
        self.schema: FeatureSchema | None = None
        self._booster: xgboost.Booster | None = None
        self.trees = Trees(
            rounds=rounds,
            max_depth=max_depth,
            learning_rate=learning_rate,
            min_child_weight=min_child_weight,
            reg_lambda=reg_lambda,
            column_share=column_share,
            seed=seed,
            threads=threads,
        )

    def fit(self, samples: Samples, margin: Array | None = None) -> None:
        """Learn from measured samples.

        With `warm_start` the trees of the last fit are kept and as many are added, so an old
        sample that is to count still has to be among the new ones.

        Args:
            samples: The samples.
            margin: Scores that what is learnt comes on top of, of shape (programs,), in the order
                of `samples` (those of programs that failed are not looked at). `predict` leaves
                them out.

        Raises:
            ValueError: a warm start on features of another schema, or not as many margins as
                samples.
        """
        if margin is not None and np.shape(margin) != (len(samples),):
            raise ValueError(f"margins of shape {np.shape(margin)} for {len(samples)} samples")
        going_on = self.warm_start and self._booster is not None
        if going_on:
            check_samples(self.schema, samples)
        valid = np.isfinite(samples.latency_s)
        measured = samples.take(valid)
        self.schema = samples.schema
        if not going_on:
            self._booster = None
        if len(measured.rows) == 0:
            return
        start = None if margin is None else margin[valid]
        self._booster = self.trees.grow(measured, self._objective(measured), self._booster, start)

    def predict(self, samples: Samples) -> Array:
        """Scores of shape (programs,): higher is faster, comparable within a group.

        Raises:
            ValueError: the samples are of another schema than the model was fitted to.
        """
        check_samples(self.schema, samples)
        if self._booster is None:
            return np.zeros(len(samples))
        return scores(self._booster, samples, self.threads)

    def importance(self) -> Array:
        """Share of the loss's decrease that each feature brought, of shape (schema.width,).

        All 0 before a fit that grew trees.
        """
        width = 0 if self.schema is None else self.schema.width
        shares = np.zeros(width)
        if self._booster is not None:
            for name, gain in self._booster.get_score(importance_type="total_gain").items():
                shares[int(name.removeprefix("f"))] = gain
        total = shares.sum()
        return shares / total if total else shares

    def _objective(self, samples: Samples) -> Objective:
        if self.objective == "regression":
            return LogSpeed(samples.latency_s, samples.groups)
        rng = np.random.default_rng(self.seed)
        return PairwiseRank(samples.latency_s, samples.groups, rng)

    def save(self, path: StrPath, workloads: Sequence[str] = ()) -> None:
        """Write the model to a file, without pickle.

        Args:
            path: The file.
            workloads: Identities of the workloads that it was trained on.
        """
        parts = {} if self._booster is None else {"trees": to_bytes(self._booster)}
        ModelFile(
            self.kind, arguments_of(self), self.schema, parts, workloads=tuple(workloads)
        ).write(path)

    @classmethod
    def load(cls, path: StrPath, schema: FeatureSchema | None = None) -> XGBModel:
        """Read what `save` wrote; the predictions are the same to the last bit.

        Args:
            path: The file.
            schema: The features that the model will be given; see `ModelFile.read`.

        Raises:
            ModelFileError: it is no whole file of such a model, or of features of another schema.
        """
        file = ModelFile.read(path, cls.kind, schema)
        model = file.build(cls)
        model.schema = file.schema
        if "trees" in file.parts:
            model._booster = from_bytes(file.parts["trees"])
        return model
