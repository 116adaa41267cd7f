"""Whether a program compiles and runs at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xgboost

from .base import FeatureSchema, Samples
from .boosting import Trees, from_bytes, scores, to_bytes
from .model_file import ModelFile, StrPath, arguments_of, check_samples
from .objectives import Logistic, sigmoid


class ValidityModel:
    """The probability that a program compiles, runs and ends in time.

    So that failures teach "fails" and not "slow". The log-odds of a program are the sum of its
    statements', on top of the share of all programs that were valid.

    Args:
        rounds: Trees that a fit grows.
        max_depth: Depth of a tree.
        learning_rate: How much of its optimum each tree contributes.
        min_failures: With fewer failures (or as few successes) every program is taken for valid.
        seed: Seed of the columns that are drawn.
        threads: XGBoost's threads; None for one on few rows and all cores on many.
    """

    kind = "validity"

    def __init__(
        self,
        *,
        rounds: int = 50,
        max_depth: int = 3,
        learning_rate: float = 0.2,
        min_failures: int = 3,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.rounds = rounds
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.min_failures = min_failures
        self.seed = seed
        self.threads = threads
        self.schema: FeatureSchema | None = None
        self._booster: xgboost.Booster | None = None
        self._base = 0.0
        self.trees = Trees(
            rounds=rounds,
            max_depth=max_depth,
            learning_rate=learning_rate,
            min_child_weight=0.3,
            reg_lambda=1.0,
            column_share=0.5,
            seed=seed,
            threads=threads,
        )

    def fit(self, samples: Samples) -> None:
        """Learn from samples that were tried; what was learnt before is replaced.

        A latency of infinity is a failure, a finite one a success; samples that were not measured
        (NaN) are passed over.
        """
        self.schema = samples.schema
        self._booster = None
        tried = samples.take(~np.isnan(samples.latency_s))
        valid = np.isfinite(tried.latency_s)
        fewest = max(self.min_failures, 1)
        if min(valid.sum(), (~valid).sum()) < fewest or len(tried.rows) == 0:
            return
        self._base = float(np.log(valid.sum() / (~valid).sum()))
        self._booster = self.trees.grow(tried, Logistic(valid, self._base))

    def predict(self, samples: Samples) -> npt.NDArray[np.float64]:
        """The probability that each program is valid, of shape (programs,).

        1 for all, as long as too little was seen.

        Raises:
            ValueError: the samples are of another schema than the model was fitted to.
        """
        check_samples(self.schema, samples)
        if self._booster is None:
            return np.ones(len(samples))
        return sigmoid(self._base + scores(self._booster, samples, self.threads))

    def save(self, path: StrPath, workloads: Sequence[str] = ()) -> None:
        """Write the model to a file; see `XGBModel.save`."""
        parts = {} if self._booster is None else {"trees": to_bytes(self._booster)}
        ModelFile(
            self.kind,
            arguments_of(self),
            self.schema,
            parts,
            state={"base": self._base},
            workloads=tuple(workloads),
        ).write(path)

    @classmethod
    def load(cls, path: StrPath, schema: FeatureSchema | None = None) -> ValidityModel:
        """Read what `save` wrote; see `XGBModel.load`.

        Raises:
            ModelFileError: it is no whole file of such a model, or of features of another schema.
        """
        file = ModelFile.read(path, cls.kind, schema)
        model = file.build(cls)
        model.schema = file.schema
        model._base = file.number("base")
        if "trees" in file.parts:
            model._booster = from_bytes(file.parts["trees"])
        return model
