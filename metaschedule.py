"""Parts of ours for TVM's MetaSchedule: `ms.tune_tir` and `ms.tune_relax` take them as arguments.

    from tensortune import metaschedule as tt_ms

    ms.tune_tir(
        mod,
        target,
        work_dir,
        max_trials_global=64,
        cost_model=tt_ms.cost_model("xgb"),
        strategy=tt_ms.strategy("annealing"),
        builder=tt_ms.builder(),
        runner=tt_ms.runner(),
    )

Each takes the place of MetaSchedule's own part by itself; see `docs/metaschedule.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms

from .costmodel.base import CostModel
from .costmodel.files import make_model
from .costmodel.metaschedule import MetaScheduleModel, pretrained_model
from .costmodel.pretrained import named
from .costmodel.xgb import XGBModel
from .data.metaschedule.builder import builder
from .data.metaschedule.runner import runner
from .data.space import Space
from .data.tir.intrinsics import skip_gpu_intrinsics
from .search.base import Strategy
from .search.metaschedule import MetaScheduleStrategy
from .search.strategies import find_strategy

__all__ = ["builder", "cost_model", "runner", "skip_gpu_intrinsics", "strategy"]


def cost_model(
    model: str | PathLike[str] | CostModel = "pretrained",
    *,
    seed: int = 0,
    work_dir: str | PathLike[str] | None = None,
) -> Any:
    """A cost model for `ms.tune_tir(..., cost_model=...)`.

    Its `save(path)` writes what it learnt, as a file that this function and `load(path)` take.

    Args:
        model: `pretrained`, which has seen other workloads; `xgb`, which knows nothing yet; a
            `CostModel` of yours, or `package.module:Name` of one; or the path of a saved model.
        seed: Seed of the models.
        work_dir: A work dir to go on in: the model learns first from what its database holds. A
            strategy of ours does that by itself.

    Raises:
        ValueError: there is no model of that name, or it is of other features.
        ModelFileError: the file is no such model's, or of features of another schema.
    """
    if isinstance(model, (str, PathLike)):
        made = _named_model(model, seed)
    elif isinstance(model, type):
        raise ValueError(f"a cost model is an object, not a class: give `{model.__name__}()`")
    elif callable(getattr(model, "fit", None)) and callable(getattr(model, "predict", None)):
        made = MetaScheduleModel(model, seed)
    else:
        raise ValueError(
            "a cost model has the methods `fit(samples)` and `predict(samples)`; "
            f"{model!r:.60} has not"
        )
    if work_dir is not None and Path(work_dir, "database_workload.json").exists():
        made.learn(ms.database.JSONDatabase(work_dir=str(work_dir)))
    return made


def _named_model(name: str | PathLike[str], seed: int) -> Any:
    found = named(str(name))
    if found is not None:
        return pretrained_model(found, seed)
    if not Path(name).is_file():
        return cost_model(make_model(name, seed), seed=seed)
    made = MetaScheduleModel(XGBModel(seed=seed), seed)
    made.load(str(name))
    return made


def strategy(
    strategy: str | Callable[[Space, int], Strategy] = "annealing",
    *,
    seed: int | None = None,
    batch: int = 16,
    other_records: bool = False,
) -> Any:
    """A search strategy for `ms.tune_tir(..., strategy=...)`.

    When the work dir's database holds records of what is tuned already, the strategy and the cost
    model learn from them first, and they are not measured again.

    Args:
        strategy: `annealing`, `evolution` or `random`; a class (or function) of yours that makes a
            `Strategy` from a space and a seed, or `package.module:Name` of one.
        seed: The seed; by default it follows from that of `ms.tune_tir`.
        batch: Trials between two calls of the strategy, where `num_trials_per_iter` is not less:
            the model learns after each. A few more after a small first batch.
        other_records: Whether the work dir's database may hold records of other workloads only,
            which is an error by default.

    Raises:
        ValueError: there is no such strategy, or the batch is empty.
    """
    make = find_strategy(strategy) if isinstance(strategy, str) else strategy
    if not callable(make):
        raise ValueError(
            f"a {type(make).__name__} makes no strategy: give its class, or a function of a space "
            "and a seed"
        )
    return MetaScheduleStrategy(make, seed, batch, other_records)
