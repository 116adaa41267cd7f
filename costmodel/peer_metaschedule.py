"""MetaSchedule's own cost model, trained on a dataset, to be compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm.s_tir.meta_schedule.cost_model import xgb_model

from .base import Floats, Samples
from .boosting import thread_count
from .features.schemas import STATEMENTS
from .rows import finite

Array = npt.NDArray[np.float64]

# What it notes for a program that failed.
_FAILED_S = 1e10


class MetaScheduleXGB:
    """`ms.cost_model.XGBModel` as TVM ships it: its features, loss, parameters, early stopping.

    What is called is its `_train` and `_predict`, on groups of the class that its `update` fills.
    The rest of `update` and `predict` is replaced by what they would do:

    - Features are those that were computed before, by the same extractor, so that nothing is
      replayed. A group is a workload on one target and host, not a structural hash.
    - It is trained once, on all groups. `update` after each workload ends with a model of the last
      time that the data had grown by a fifth, so it may not have seen the last workloads at all.
    - Nothing is predicted at random for want of 100 samples.
    - Threads are as many as our own models take, where it would take one a physical core.

    A program that failed counts as one of 1e10 seconds there, as it does in MetaSchedule.

    Args:
        seed: Taken as the other models', and left alone: it draws nothing with its default
            parameters.
    """

    features = STATEMENTS.name

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._model = _new(0)

    def fit(self, samples: Samples) -> None:
        """Learn from measured samples; what was learnt before is replaced."""
        self._model = _new(len(samples.rows))
        programs, costs = _matrices(samples), _costs(samples)
        ordered: list[Floats] = []
        speeds: list[Floats] = []
        for number in dict.fromkeys(samples.groups.tolist()):
            members = np.flatnonzero(samples.groups == number)
            group = xgb_model.FeatureGroup(
                str(number), [programs[i] for i in members], costs[members]
            )
            self._model.data[group.group_hash] = group
            self._model.data_size += len(members)
            ordered += group.features
            speeds.append(group.min_cost / group.costs)
        self._model.last_train_size = self._model.data_size
        if ordered:
            self._model._train(xs=ordered, ys=np.concatenate(speeds))

    def predict(self, samples: Samples) -> Array:
        """Scores of shape (programs,): higher is faster; all equal before any `fit`."""
        if self._model.booster is None or not len(samples):
            return np.zeros(len(samples))
        found = self._model._predict(xs=_matrices(samples))
        return np.asarray(found, dtype=np.float64)

    @property
    def rounds(self) -> int:
        """Trees that were grown before it stopped."""
        booster = self._model.booster
        return 0 if booster is None else int(booster.num_boosted_rounds())


def _new(rows: int) -> Any:
    # The class that it derives TVM's object from: nothing here calls it from C++.
    return xgb_model.XGBModel._cls(num_warmup_samples=0, num_tuning_cores=thread_count(None, rows))


def _matrices(samples: Samples) -> list[Floats]:
    return np.split(finite(samples.rows), np.cumsum(samples.counts)[:-1])


def _costs(samples: Samples) -> Floats:
    known = np.isfinite(samples.latency_s)
    return np.where(known, samples.latency_s, _FAILED_S).astype(np.float32)
