"""A cost model of ours in MetaSchedule: what `ms.tune_tir(..., cost_model=...)` takes.

MetaSchedule shares one cost model between all tasks of a network; programs of different tasks are
never compared with each other, so each task has a model of its own here.
"""

from __future__ import annotations

import copy
import statistics
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

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
from ..data.metaschedule.builder import compile_seconds
from ..data.space import Scheduled
from .base import CostModel, Floats, ModelFileError, Samples
from .features import loops, relations, statements
from .features.schemas import STATEMENTS
from .metaschedule_file import KIND, Held, TaskModel, read, samples_of, write
from .model_file import describe
from .pretrained import Pretrained
from .priors import SCHEMAS, kinds_of, listed, said
from .transfer import trained
from .xgb import XGBModel

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


@derived_object
class MetaScheduleModel(ms.cost_model.PyCostModel):
    """A cost model of ours, as MetaSchedule's.

    What it predicts for MetaSchedule's own search, which takes scores for weights, is from 0 to 1,
    and 1/2 for an average program; all are equal before anything was learnt.

    Args:
        model: What ranks a task's programs, on statement features; a copy of it is trained for
            every task. A trained model counts until a task has programs of its own, and after that
            as far as it ranks them right; it may be on loop or relation features, or on several
            kinds, and an `XGBModel` is trained beside it then.
        seed: Seed of the models made here.
        priors: Further trained models, which count in the same way.
        draft_prior: A trained model on the decision features that all workloads share
            (`features.general`), for a strategy of ours.

    Raises:
        ValueError: a model takes other features, or an untrained one no statement features.
    """

    def __init__(
        self,
        model: CostModel,
        seed: int = 0,
        *,
        priors: Sequence[Any] = (),
        draft_prior: CostModel | None = None,
    ) -> None:
        self.seed = seed
        self.draft_prior = draft_prior
        self._take(*_sorted(model, priors, seed))
        _instances.append(weakref.ref(self))

    def _take(self, model: CostModel, priors: Sequence[Any]) -> None:
        self.model = self._prior = model
        self.priors = list(priors)
        self._tasks: dict[str, TaskModel] = {}
        # What a strategy of ours had scored, for when it is learnt: by the programs' hashes.
        self._seen: dict[str, _Seen] = {}

    def load(self, path: str) -> None:
        """Take up what `save` wrote, or a model file of ours as the trained model.

        The tasks of what `save` wrote go on where they were; for other tasks, what was measured of
        these makes the trained model, where there is no other. What was learnt before is replaced;
        a file that can't be used changes nothing.

        Raises:
            ModelFileError: it is no model file, damaged, or of a model of something else.
            FileNotFoundError: there is no such file.
        """
        held = read(path, self.seed)
        self._take(held.model, held.priors)
        self.draft_prior, self._tasks = held.draft_prior, dict(held.tasks)
        if held.tasks and not trained(held.model):
            self._prior = copy.deepcopy(held.model)
            self._prior.fit(samples_of(held.tasks))

    def save(self, path: str) -> None:
        """Write what was measured and the trained model, to go on from there with `load`.

        Raises:
            ValueError: a model is of a class without `save`.
        """
        write(path, Held(self.model, self._tasks, self.priors, self.draft_prior))

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn what came of candidates; a program that was learnt before is passed over."""
        task = self._task(context.mod)
        new: dict[str, Any] = {}
        latency_s: list[float] = []
        for candidate, result in zip(candidates, results, strict=True):
            program = shash2hex(candidate.sch.mod)
            if program not in task.programs and program not in new:
                new[program] = candidate
                latency_s.append(latency_of(result))
        seen = self._look(new, context.target)
        compile_s = [compile_seconds(program) for program in seen]
        rows = [one.rows for one in seen.values()]
        task.add(list(seen), rows, latency_s, compile_s, _known(seen))
        self._seen.clear()

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
        rows = _features(candidates, context.target)
        known = self._said([candidate.sch.mod for candidate in candidates], rows, context.target)
        scores = self._task(context.mod).ranker.score(Samples.of(STATEMENTS, rows), known)
        return np.asarray(expit(scores), dtype=np.float64)

    def score(
        self, mod: tvm.IRModule, target: tvm.target.Target, scheduled: Mapping[str, Scheduled]
    ) -> Scores:
        """What `Ranker.score` says of a task's programs.

        Args:
            mod: The task's module.
            target: Its target.
            scheduled: The programs by their hashes (`shash2hex`), which they are known by when they
                are learnt.
        """
        new = {name: one for name, one in scheduled.items() if name not in self._seen}
        rows = statements.extract(list(new.values()), target)
        said = self._said([one.mod for one in new.values()], rows, target)
        self._note(list(new), rows, said)
        seen = {name: self._seen[name] for name in scheduled}
        found = Samples.of(STATEMENTS, [one.rows for one in seen.values()])
        return self._task(mod).ranker.score(found, _known(seen))

    def misled(self, mod: tvm.IRModule) -> bool | None:
        """Whether what was known before ranks a task's programs the wrong way round.

        None where nothing was.
        """
        ranker = self._task(mod).ranker
        return ranker.misled if ranker.told else None

    def trials(self, mod: tvm.IRModule) -> list[float]:
        """Seconds of what was learnt of a task, in that order; infinity for failures."""
        return list(self._task(mod).ranker.latency_s)

    def informed(self, mod: tvm.IRModule) -> bool:
        """Whether anything is known that tells a task's programs apart."""
        return bool(self.trials(mod) or self.priors) or trained(self._prior)

    def _task(self, mod: tvm.IRModule) -> TaskModel:
        name = shash2hex(mod)
        if name not in self._tasks:
            self._tasks[name] = TaskModel(self._prior, self.seed)
        return self._tasks[name]

    def _look(self, candidates: Mapping[str, Any], target: tvm.target.Target) -> dict[str, _Seen]:
        """What there is to learn of `MeasureCandidate`s by the programs' hashes."""
        new = {name: one for name, one in candidates.items() if name not in self._seen}
        rows = _features(list(new.values()), target)
        self._note(list(new), rows, self._said([one.sch.mod for one in new.values()], rows, target))
        return {name: self._seen[name] for name in candidates}

    def _note(self, names: Sequence[str], rows: Sequence[Floats], said: Scores | None) -> None:
        for i, name in enumerate(names):
            self._seen[name] = _Seen(rows[i], None if said is None else said[i])

    def _said(
        self, mods: Sequence[Any], rows: Sequence[Floats], target: tvm.target.Target
    ) -> Scores | None:
        """What the priors say of programs with these statement features."""
        if not self.priors or not mods:
            return None
        found = {"statements": Samples.of(STATEMENTS, rows)}
        if {kind for model in self.priors for kind in kinds_of(model)} - {"statements"}:
            found["loops"] = loops.samples(_named(mods), target)
            found["relations"] = relations.of(found["loops"])
        return said(self.priors, found)


class _Seen(NamedTuple):
    """What was computed of a program: its statement features, and what the priors say."""

    rows: Floats
    said: Scores | None


def _known(seen: Mapping[str, _Seen]) -> Scores | None:
    """What the priors say, of shape (programs, priors)."""
    found = [one.said for one in seen.values() if one.said is not None]
    return np.stack(found) if found else None


def _sorted(model: CostModel, priors: Sequence[Any], seed: int) -> tuple[CostModel, list[Any]]:
    """What is to be trained, and what was trained before on other features than statements.

    Raises:
        ValueError: a model takes other features, or an untrained one no statement features.
    """
    schema = getattr(model, "schema", None)
    if schema is not None and schema != SCHEMAS.get(schema.name):
        raise ValueError(
            f"the model was trained on features {describe(schema)}; MetaSchedule's programs "
            f"have {', '.join(map(describe, SCHEMAS.values()))}: give it a model of those, or an "
            "untrained one"
        )
    found = listed(priors)
    kinds = kinds_of(model)
    if kinds == ("statements",):
        return model, found
    if not trained(model) and len(kinds) == 1:
        raise ValueError(
            f"an untrained model on the features `{kinds[0]}` can't learn here: MetaSchedule's "
            f"programs are learnt by {describe(STATEMENTS)}"
        )
    return XGBModel(seed=seed), [model, *found]


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
        return statements.extract(_named([one.sch.mod for one in candidates]), target)
    return [tensor.numpy().astype(np.float32) for tensor in tensors]


@cache
def _extractor() -> Any:
    return ms.feature_extractor.PerStoreFeature()


def _named(mods: Sequence[Any]) -> list[Scheduled]:
    return [Scheduled(Candidate(KIND, (i,)), mod, None) for i, mod in enumerate(mods)]


def pretrained_model(found: Pretrained, seed: int) -> MetaScheduleModel:
    """A model that starts from the pretrained ones, and trusts them as far as they prove right."""
    priors = [] if found.verify is None else [found.verify]
    return MetaScheduleModel(XGBModel(seed=seed), seed, priors=priors, draft_prior=found.draft)
