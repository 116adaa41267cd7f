"""The model that pays: fits to measured programs, and how far they are from what is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...costmodel.base import CostModel, Samples
from ...costmodel.metrics import pairwise_accuracy
from ...costmodel.xgb import XGBModel
from ...data.loop_space import LoopSpace
from ...data.record import Record
from ...data.target import num_cores
from .config import Rounds
from .nest_features import SCHEMA, features, nest_of
from .speed import NestSpeed
from .tuning_env import Spaces

Ints = npt.NDArray[np.int64]

# Latencies nearer than this, as a share, are no different to what is measured.
_NOISE = 0.03
# One in so many of the workloads is left out of a fit that is judged by them.
_FOLDS = 5


@dataclass(frozen=True)
class Judged:
    """How far a model is from what was measured.

    Attributes:
        programs: Programs that it is judged by.
        pairwise: Share of the pairs of one workload's programs that it ranks as measured.
        log_rmse: Root mean square error of the logarithm of the speed, over all of them.
        top1: Speed of the one that it ranks first, over that of the fastest; mean over workloads.
    """

    programs: int
    pairwise: float
    log_rmse: float
    top1: float


@dataclass(frozen=True)
class Fitted:
    """A fit to measured programs.

    Attributes:
        speed: What it pays.
        held_out: A fit to four fifths of the workloads, judged by the others; None with fewer than
            five of them.
        programs: Programs that it was fitted to.
    """

    speed: NestSpeed
    held_out: Judged | None
    programs: int


def fit(
    records: Sequence[Record], spaces: Spaces[LoopSpace], settings: Rounds, seed: int
) -> Fitted:
    """Fit a model of the logarithm of speed.

    Args:
        records: Measured programs; those of workloads that are not among the spaces are left out.
        spaces: The spaces of the workloads.
        settings: How the model is fitted.
        seed: Seed of the columns that each tree sees.

    Raises:
        ValueError: no program ran.
    """
    samples, owners = samples_of(records, spaces)
    if not len(samples):
        raise ValueError(
            "no program of the workloads has run, so there is nothing to learn from: see the "
            "failures in the records, and whether `tensortune doctor` finds something"
        )
    held_out = None
    if len(np.unique(owners)) >= _FOLDS:
        out = owners % _FOLDS == 0
        part = _model(settings, seed)
        part.fit(samples.take(~out))
        held_out = judge(part, samples.take(out), owners[out])
    model = _model(settings, seed)
    model.fit(samples)
    return Fitted(NestSpeed(model, num_cores(spaces.target)), held_out, len(samples))


def samples_of(records: Sequence[Record], spaces: Spaces[LoopSpace]) -> tuple[Samples, Ints]:
    """Features of programs, with seconds per iteration of the nest as their latency.

    What failed counts as slow as the slowest of its workload: a policy would seek it out otherwise.
    All are one group, for a model of the speed itself tells shapes apart as well.

    Returns:
        The samples, in an order that does not depend on that of the records, and of which workload
        each is.
    """
    threads = num_cores(spaces.target)
    places = {workload.key: place for place, workload in enumerate(spaces.workloads)}
    slowest: dict[str, float] = {}
    for record in records:
        if record.valid:
            slowest[record.workload] = max(slowest.get(record.workload, 0.0), record.latency_s)
    known = [r for r in records if r.workload in slowest and r.workload in places]
    known.sort(key=lambda r: (r.batch, places[r.workload], str(r.candidate)))
    rows, seconds = [], []
    for record in known:
        frame = spaces.of(spaces.workloads[places[record.workload]]).frame
        rows.append(np.array(features(nest_of(frame, record.candidate), threads), np.float32))
        latency_s = record.latency_s if record.valid else slowest[record.workload]
        seconds.append(latency_s / math.prod(frame.extents))
    owners = np.array([places[record.workload] for record in known], dtype=np.int64)
    return Samples.of(SCHEMA, rows, seconds), owners


def judge(model: CostModel, samples: Samples, owners: Ints) -> Judged:
    """How far a model is from what was measured.

    Args:
        model: A fitted model.
        samples: Programs, all of which ran.
        owners: Of which workload each is.
    """
    scores = model.predict(samples)
    latency_s = samples.latency_s
    pairs, top = [], []
    for owner in np.unique(owners):
        own = owners == owner
        pairs.append(pairwise_accuracy(scores[own], latency_s[own], _NOISE))
        top.append(latency_s[own].min() / latency_s[own][np.argmax(scores[own])])
    off = scores + np.log(latency_s)  # but for a constant
    return Judged(
        len(samples),
        float(np.nanmean(pairs)) if np.isfinite(pairs).any() else math.nan,
        float(np.std(off)),
        float(np.mean(top)),
    )


def to_json(judgement: Judged | None) -> dict[str, Any] | None:
    """A judgement as JSON; NaN as None."""
    if judgement is None:
        return None
    return {k: None if v != v else v for k, v in asdict(judgement).items()}


def _model(settings: Rounds, seed: int) -> XGBModel:
    return XGBModel(
        "regression",
        rounds=settings.trees,
        max_depth=settings.depth,
        learning_rate=settings.learning_rate,
        min_child_weight=2.0,
        seed=seed,
        threads=1,
    )
