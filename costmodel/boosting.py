"""XGBoost with a gradient of one's own, the way all our models use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from ..data.host import usable_cores
from .base import Floats, ModelFileError, Samples
from .objectives import Objective
from .rows import finite, owners, totals

Array = npt.NDArray[np.float64]

# Below this many rows a second thread costs more than it brings, and very much more on a machine
# that is busy otherwise (XGBoost's threads wait for each other by spinning).
_ROWS_FOR_THREADS = 20_000


@dataclass(frozen=True)
class Trees:
    """How trees are grown.

    Attributes:
        rounds: Trees.
        max_depth: Their depth.
        learning_rate: How much of its optimum each tree contributes.
        min_child_weight: Least second derivative in a leaf.
        reg_lambda: L2 penalty on the leaves.
        column_share: Share of the columns that each tree sees.
        seed: Seed of what is drawn.
        threads: XGBoost's threads; None for one on few rows and all cores on many.
    """

    rounds: int
    max_depth: int
    learning_rate: float
    min_child_weight: float
    reg_lambda: float
    column_share: float
    seed: int
    threads: int | None

    def grow(
        self,
        samples: Samples,
        objective: Objective,
        start: xgboost.Booster | None = None,
        margin: Array | None = None,
    ) -> xgboost.Booster:
        """Grow trees towards a loss over programs, whose scores are the sums of their rows'.

        Args:
            samples: The programs; at least one row.
            objective: The loss.
            start: Trees to go on from; left as they are.
            margin: Scores that the trees' come on top of, of shape (programs,), in the order of
                `samples`; the trees don't hold them. By default 0.
        """
        rows, programs = finite(samples.rows), owners(samples)
        # A program's rows move together, so its score moves by as many times a row's step.
        together = samples.counts[programs]

        def gradient(found: Floats, _: xgboost.DMatrix) -> tuple[Array, Array]:
            total = totals(programs, found, len(samples))
            first, second = objective(total if margin is None else margin + total)
            return first[programs], second[programs] * together

        threads = thread_count(self.threads, len(rows))
        # Not a QuantileDMatrix: it hands `start` the middle of a bin in place of a feature.
        data = xgboost.DMatrix(rows, nthread=threads)
        parameters: dict[str, Any] = {
            "base_score": 0.0,
            "colsample_bytree": self.column_share,
            "disable_default_eval_metric": True,
            "lambda": self.reg_lambda,
            "learning_rate": self.learning_rate,
            "max_bin": 64,
            "max_depth": self.max_depth,
            "min_child_weight": self.min_child_weight,
            "nthread": threads,
            "seed": self.seed,
            # Else what is drawn when going on from other trees depends on what this process has
            # drawn before.
            "seed_per_iteration": True,
            "tree_method": "hist",
        }
        return xgboost.train(
            parameters,
            data,
            num_boost_round=self.rounds,
            obj=gradient,
            xgb_model=start,
        )


def thread_count(threads: int | None, rows: int) -> int:
    """As many threads as asked for, or as pay for so many rows."""
    return threads or (usable_cores() if rows >= _ROWS_FOR_THREADS else 1)


def scores(booster: xgboost.Booster, samples: Samples, threads: int | None) -> Array:
    """What the trees give each program, summed over its rows, of shape (programs,)."""
    if len(samples.rows) == 0:
        return np.zeros(len(samples))
    booster.set_param({"nthread": thread_count(threads, len(samples.rows))})
    found = booster.inplace_predict(
        finite(samples.rows), predict_type="margin", validate_features=False
    )
    return totals(owners(samples), found, len(samples))


def to_bytes(booster: xgboost.Booster) -> bytes:
    """The trees as UBJSON."""
    return bytes(booster.save_raw("ubj"))


def from_bytes(content: bytes) -> xgboost.Booster:
    """What `to_bytes` gave.

    Raises:
        ModelFileError: XGBoost can't read it.
    """
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(content))
    except xgboost.core.XGBoostError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ModelFileError(f"XGBoost can't read the trees: {reason}") from error
    return booster
