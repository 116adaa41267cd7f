"""A cost model of ours in MetaSchedule: what `ms.tune_tir(..., cost_model=...)` takes.

MetaSchedule shares one cost model between all tasks of a network; programs of different tasks are
never compared with each other, so each task has a model of its own here.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from scipy.special import expit
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import _ffi_api as ms_ffi
from tvm.s_tir.meta_schedule.logging import get_logger, get_logging_func
from tvm.s_tir.meta_schedule.utils import shash2hex

from ..data.candidate import Candidate
from ..data.host import usable_cpus
from ..data.space import Scheduled
from .base import CostModel, Floats, ModelFileError, Samples
from .features import statements
from .features.schemas import STATEMENTS
from .files import load_model
from .model_file import ModelFile, StrPath, describe
from .ranker import Ranker

KIND = "metaschedule"

Scores = npt.NDArray[np.float64]

# MetaSchedule writes a failure down as 1e10 seconds.
_FAILED_S = 1e9

# An exception passes through TVM under its name, and comes out as a `RuntimeError` unless its name
# is known there.
for _error in (ModelFileError, FileNotFoundError, PermissionError, IsADirectoryError):
    tvm_ffi.register_error(_error)


def latency_of(result: Any) -> float:
    """Median seconds of a `RunnerResult`; infinity where it says that the program failed."""
    seconds = [float(second) for second in result.run_secs or ()]
    if result.error_msg is not None or not seconds:
        return float("inf")
    median = statistics.median(seconds)
    return median if 0 < median < _FAILED_S else float("inf")


class _Task:
    """What was measured of one task."""

    def __init__(self, prior: CostModel, seed: int) -> None:
        self.ranker = Ranker(prior, STATEMENTS, seed)
        self.programs: dict[str, None] = {}


@derived_object
class MetaScheduleModel(ms.cost_model.PyCostModel):
    """A cost model on statement features, as MetaSchedule's.

    What it predicts for MetaSchedule's own search, which takes scores for weights, is from 0 to 1,
    and 1/2 for an average program; all are equal before anything was learnt.

    Args:
        model: What ranks, on statement features; it is copied for every task. A trained one counts
            until a task has programs of its own, and after that as far as it ranks them right.
        seed: Seed of the validity models.
    """

    def __init__(self, model: CostModel, seed: int = 0) -> None:
        schema = getattr(model, "schema", None)
        if schema is not None and schema != STATEMENTS:
            raise ValueError(
                f"the model was trained on features {describe(schema)}; MetaSchedule's programs "
                f"have {describe(STATEMENTS)}: give it a model of those, or an untrained one"
            )
        self.model = model
        self.seed = seed
        self._prior = model
        self._tasks: dict[str, _Task] = {}
        _instances.append(weakref.ref(self))

    def load(self, path: str) -> None:
        """Take up what `save` wrote, or a model file of ours as the trained model.

        The tasks of what `save` wrote go on where they were; for other tasks, what was measured of
        these makes the trained model, where there is no other. What was learnt before is replaced;
        a file that can't be used changes nothing.

        Raises:
            ModelFileError: it is no model file, damaged, or of a model of something else.
            FileNotFoundError: there is no such file.
        """
        model, tasks = _read(path, self.seed)
        self.model, self._prior, self._tasks = model, model, tasks
        if tasks and not _trained(model):
            self._prior = copy.deepcopy(model)
            self._prior.fit(_samples([task.ranker for task in tasks.values()]))

    def save(self, path: str) -> None:
        """Write what was measured and the trained model, to go on from there with `load`.

        Raises:
            ValueError: the model is of a class without `save`.
        """
        _write(path, self.model, self._tasks)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn what came of candidates; a program that was learnt before is passed over."""
        task = self._task(context.mod)
        new: list[Any] = []
        latency_s: list[float] = []
        for candidate, result in zip(candidates, results, strict=True):
            program = shash2hex(candidate.sch.mod)
            if program not in task.programs:
                task.programs[program] = None
                new.append(candidate)
                latency_s.append(latency_of(result))
        task.ranker.add(_features(new, context.target), latency_s)

    def learn(self, database: Any) -> None:
        """Learn from all records of a `Database` of MetaSchedule's, before a run goes on."""
        records: dict[str, list[Any]] = {}
        for record in database.get_all_tuning_records():
            records.setdefault(shash2hex(record.workload.mod), []).append(record)
        for found in records.values():
            candidates, results = replayed(found)
            context = light_context(found[0].workload.mod, found[0].target)
            self.update(context, candidates, results)

    def predict(self, context: Any, candidates: Sequence[Any]) -> Scores:
        """Scores of shape (candidates,), above 0 and at most 1, higher is faster."""
        if not self.informed(context.mod):  # features would take seconds, and change nothing
            return np.full(len(candidates), 0.5)
        scores = self.score(context.mod, _features(candidates, context.target))
        return np.asarray(expit(scores), dtype=np.float64)

    def score(self, mod: tvm.IRModule, features: Sequence[Floats]) -> Scores:
        """What `Ranker.score` says of a task's programs.

        Args:
            mod: The task's module.
            features: Statement features, one matrix a program.
        """
        return self._task(mod).ranker.score(Samples.of(STATEMENTS, features))

    def trials(self, mod: tvm.IRModule) -> list[float]:
        """Seconds of what was learnt of a task, in that order; infinity for failures."""
        return list(self._task(mod).ranker.latency_s)

    def informed(self, mod: tvm.IRModule) -> bool:
        """Whether anything is known that tells a task's programs apart."""
        return bool(self.trials(mod)) or _trained(self._prior)

    def _task(self, mod: tvm.IRModule) -> _Task:
        name = shash2hex(mod)
        if name not in self._tasks:
            self._tasks[name] = _Task(self._prior, self.seed)
        return self._tasks[name]


def replayed(records: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The `MeasureCandidate`s and `RunnerResult`s of tuning records, without what TVM refuses."""
    candidates: list[Any] = []
    results: list[Any] = []
    for record in records:
        try:
            candidates.append(record.as_measure_candidate())
        except Exception:  # TVM raises whatever its C++ side threw: another version's trace, say
            continue
        results.append(ms.runner.RunnerResult(record.run_secs, None))
    return candidates, results


def light_context(mod: tvm.IRModule | None, target: tvm.target.Target) -> Any:
    """A `TuneContext` that says of which task programs are, and no more.

    `ms.TuneContext(...)` would import the intrinsics of every GPU first (15 s).
    """
    context = ms.TuneContext.__new__(ms.TuneContext)
    log = get_logging_func(get_logger(__name__))
    context.__init_handle_by_constructor__(
        ms_ffi.TuneContext, mod, target, None, None, "main", len(usable_cpus()), 1, log
    )
    return context


# TVM hands its own handle of a cost model to a search strategy, not the Python object.
_instances: list[weakref.ref[Any]] = []


def ours(cost_model: Any) -> Any | None:
    """The `MetaScheduleModel` behind a handle of TVM's; None when it is another's model."""
    _instances[:] = [ref for ref in _instances if ref() is not None]
    for inner in (ref() for ref in _instances):
        outer = inner._outer() if inner is not None else None
        if outer is not None and cost_model is not None and outer.same_as(cost_model):
            return inner
    return None


def _features(candidates: Sequence[Any], target: tvm.target.Target) -> list[Floats]:
    """Statement features, from the candidates' own schedules: making others takes as long again."""
    if not candidates:
        return []
    try:
        tensors = _extractor().extract_from(light_context(None, target), list(candidates))
    except Exception:  # TVM doesn't say which program it can't analyse; this one asks for each
        named = [
            Scheduled(Candidate(KIND, (i,)), candidate.sch.mod, None)
            for i, candidate in enumerate(candidates)
        ]
        return statements.extract(named, target)
    return [tensor.numpy().astype(np.float32) for tensor in tensors]


@cache
def _extractor() -> Any:
    return ms.feature_extractor.PerStoreFeature()


def _trained(model: CostModel) -> bool:
    # A model that doesn't tell is taken for untrained.
    return getattr(model, "schema", None) is not None


def _samples(rankers: Sequence[Ranker]) -> Samples:
    """The programs of several tasks, each task a group."""
    return Samples.of(
        STATEMENTS,
        [matrix for ranker in rankers for matrix in ranker.features],
        [seconds for ranker in rankers for seconds in ranker.latency_s],
        [group for group, ranker in enumerate(rankers) for _ in ranker.latency_s],
    )


def _write(path: StrPath, model: CostModel, tasks: dict[str, _Task]) -> None:
    if not hasattr(model, "save"):
        raise ValueError(
            f"a {type(model).__name__} can't be saved: it needs the methods `save(path)` and "
            "`load(path)`"
        )
    with tempfile.TemporaryDirectory() as scratch:
        inner = Path(scratch) / "model"
        model.save(inner)
        content = inner.read_bytes()
    samples = _samples([task.ranker for task in tasks.values()])
    ModelFile(
        KIND,
        {},
        STATEMENTS,
        {
            "model": content,
            "rows": samples.rows.astype("<f4").tobytes(),
            "counts": samples.counts.astype("<i8").tobytes(),
            "latency_s": samples.latency_s.astype("<f8").tobytes(),
        },
        state={"tasks": [[name, list(task.programs)] for name, task in tasks.items()]},
    ).write(path)


def _read(path: StrPath, seed: int) -> tuple[CostModel, dict[str, _Task]]:
    file = ModelFile.read(path, schema=STATEMENTS)
    if file.kind == "validity":
        raise ModelFileError(
            f"{path} holds a model of kind `validity`, which does not rank programs; "
            "a file of kind `xgb` does"
        )
    if file.kind != KIND:
        return load_model(path, STATEMENTS), {}
    try:
        return _read_parts(file, seed)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path} is damaged: {error}") from error


def _read_parts(file: ModelFile, seed: int) -> tuple[CostModel, dict[str, _Task]]:
    with tempfile.TemporaryDirectory() as scratch:
        inner = Path(scratch) / "model"
        inner.write_bytes(file.parts["model"])
        model: CostModel = load_model(inner, STATEMENTS)
    rows = np.frombuffer(file.parts["rows"], "<f4").reshape(-1, STATEMENTS.width)
    counts = np.frombuffer(file.parts["counts"], "<i8")
    latency_s = np.frombuffer(file.parts["latency_s"], "<f8").tolist()
    features = np.split(rows, np.cumsum(counts)[:-1]) if len(counts) else []
    tasks: dict[str, _Task] = {}
    start = 0
    for name, programs in file.state["tasks"]:
        end = start + len(programs)
        tasks[name] = _Task(model, seed)
        tasks[name].programs = dict.fromkeys(programs)
        tasks[name].ranker.add(features[start:end], latency_s[start:end])
        start = end
    return model, tasks
