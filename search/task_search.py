"""The search of one of MetaSchedule's tasks with a strategy of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.utils import shash2hex

from ..costmodel.base import CostModel
from ..costmodel.features import decisions, general
from ..costmodel.metaschedule import latency_of, light_context, ours, replayed
from ..costmodel.ranker import Ranker
from ..costmodel.xgb import XGBModel
from ..data.candidate import Candidate, InvalidCandidate
from ..data.host import usable_cpus
from ..data.metaschedule.builder import compile_seconds, failure_of
from ..data.record import Record
from ..data.sketch_space import SketchSpace
from ..data.space import Scheduled
from ..data.target import target_string
from .base import Strategy, Trial
from .proposer import Proposer
from .random_search import RandomSearch
from .scoring import Scorer

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """What a search has to know of a `TuneContext`.

    The context itself is not kept: it holds its strategy, and the two would keep each other alive.

    Attributes:
        name: The task's name.
        mod: Its module.
        target: Its target.
        postprocs: The post-processors of its space.
        seed: Its random state.
    """

    name: str
    mod: tvm.IRModule
    target: tvm.target.Target
    postprocs: tuple[Any, ...]
    seed: int

    @classmethod
    def of(cls, context: Any) -> Task:
        """The task of a context."""
        generator = context.space_generator
        postprocs = () if generator is None else tuple(generator.postprocs or ())
        return cls(
            context.task_name, context.mod, context.target, postprocs, int(context.rand_state)
        )


class TaskSearch:
    """The search of one task.

    Args:
        task: The task.
        space: Its space.
        strategy: What proposes.
        cost_model: MetaSchedule's handle of a cost model, ours or not, or None.
        seed: Seed of everything but the strategy.
    """

    def __init__(
        self, task: Task, space: SketchSpace, strategy: Strategy, cost_model: Any, seed: int
    ) -> None:
        self.task = task
        self.space = space
        self._context = light_context(task.mod, task.target)
        self._ours = ours(cost_model)
        self._theirs: Any = cost_model if self._ours is None else None
        scorer: Scorer | None = None
        # Random search takes no guidance.
        if cost_model is not None and not isinstance(strategy, RandomSearch):
            scorer = _Scorer(space, self._ours, task.mod, self._verify, seed)
        self._proposer = Proposer(
            space,
            strategy,
            scorer=scorer,
            seed=seed,
            informed=scorer is not None and scorer.informed,
            program=self._program,
        )
        self._programs: dict[Candidate, str] = {}
        self._made: dict[Candidate, Any] = {}
        self._pending: list[Scheduled] = []
        self._tried = 0
        self._left = 0
        self._batch = 0
        self._most = 0
        self._calls = 0

    def allow(self, trials: int, batch: int, most: int) -> None:
        """Set how many trials there are.

        Args:
            trials: All of them.
            batch: As many between two calls, and somewhat more where a small first batch would
                make one more call necessary.
            most: Never more between two calls.
        """
        self._left = trials
        self._batch = min(batch, most)
        self._most = most
        self._calls = -(-trials // self._batch)

    def take_up(self, database: Any) -> None:
        """Learn what a database holds of the task."""
        records = _records(database, self.task)
        if not records:
            return
        model = self._ours or self._theirs
        if model is not None:
            model.update(self._context, *replayed(records))
        trials: dict[Candidate, Trial] = {}
        for record in records:
            candidate = self.space.find(record.trace)
            if candidate is None:
                continue
            try:
                candidate = self.space.schedule(candidate).candidate
            except InvalidCandidate:
                continue
            trials[candidate] = self._trial(
                candidate, ms.runner.RunnerResult(record.run_secs, None)
            )
        self._tell(list(trials.values()))

    def propose(self) -> list[Any]:
        """The next batch of `MeasureCandidate`s; empty when there are no more."""
        # Asked for more than there is, a strategy would look for it in vain, for seconds.
        new = max(0.0, self.space.size - self._tried)
        spread = -(-self._left // max(1, self._calls))
        wanted = int(min(max(self._batch, spread), self._most, self._left, new))
        self._calls -= 1
        self._pending = self._proposer.propose(wanted) if wanted else []
        self._left -= len(self._pending)
        batch = self._candidates(self._pending)
        self._made.clear()
        return batch

    def learn(self, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn what came of the batch.

        A model of ours is told of it here, since MetaSchedule's callback keeps programs that did
        not compile from the model; another's is left to the callback.
        """
        if self._ours is not None:
            self._ours.update(self._context, candidates, results)
        told = zip(self._pending, results, strict=True)
        self._tell(
            [
                self._trial(one.candidate, result, compile_seconds(self._program(one)))
                for one, result in told
            ]
        )
        self._pending = []

    def _tell(self, trials: Sequence[Trial]) -> None:
        self._tried += len(trials)
        self._proposer.tell(trials)

    def _trial(self, candidate: Candidate, result: Any, compile_s: float = 0.0) -> Trial:
        latency_s = latency_of(result)
        valid = latency_s < float("inf")
        message = str(result.error_msg or "")
        record = Record(
            workload=self.space.workload.key,
            identity=self.space.workload.key,
            target=target_string(self.task.target),
            candidate=candidate,
            repeats=tuple(float(second) for second in result.run_secs) if valid else (),
            failure=None if valid else failure_of(message),
            detail="" if valid else message,
            compile_s=compile_s,
        )
        return Trial(candidate, record)

    def _candidates(self, scheduled: Sequence[Scheduled]) -> list[Any]:
        """The programs as MetaSchedule's; replays are TVM's own code, and threads share them."""
        with ThreadPoolExecutor(len(usable_cpus())) as threads:
            return list(threads.map(self._candidate, scheduled))

    def _candidate(self, scheduled: Scheduled) -> Any:
        """The program as MetaSchedule's: a schedule with its whole trace."""
        if scheduled.candidate not in self._made:
            schedule = Schedule(self.task.mod, seed=1, error_render_level="none")
            scheduled.trace.apply_to_schedule(schedule, remove_postproc=False)
            info = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
            self._made[scheduled.candidate] = ms.MeasureCandidate(schedule, info)
        return self._made[scheduled.candidate]

    def _program(self, scheduled: Scheduled) -> str:
        """The hash of a program."""
        found = self._programs.get(scheduled.candidate)
        if found is None:
            found = self._programs[scheduled.candidate] = shash2hex(scheduled.mod)
        return found

    def _verify(self, scheduled: Sequence[Scheduled], drafted: Scores) -> Scores:
        """The user's model on programs.

        The score of the draft is added to ours: each sees what the other does not, and both are in
        standard deviations (see `LearnedScorer`). What another model's scores mean isn't known.
        """
        if self._ours is not None:
            programs = {self._program(one): one for one in scheduled}
            scores = self._ours.score(self.task.mod, self.task.target, programs)
            return np.asarray(scores + drafted)
        return np.asarray(self._theirs.predict(self._context, self._candidates(scheduled)))


class _Scorer:
    """Drafts are scored by a model of their decisions, learnt here; programs by the user's.

    Args:
        space: The space of the candidates.
        model: The user's model if it is ours, or None.
        mod: The task's module.
        verify: Scores programs, given the scores of their drafts.
        seed: Seed of the model of drafts.
    """

    def __init__(
        self,
        space: SketchSpace,
        model: Any | None,
        mod: tvm.IRModule,
        verify: Callable[[Sequence[Scheduled], Scores], Scores],
        seed: int,
    ) -> None:
        self._space = space
        self._model = model
        self._mod = mod
        self._verify = verify
        schema = decisions.schema(space, space.workload.key)
        self._drafts = Ranker(XGBModel(seed=seed), schema, seed)
        self._prior = None if model is None else _readable(model.draft_prior, space)
        self.informed = model is not None and (self._prior is not None or bool(model.informed(mod)))

    @property
    def misled(self) -> bool:
        """See `Scorer`: each of the models that has something to go by has to be."""
        found = [self._drafts.misled] if self._drafts.told else []
        if self._model is not None:
            found += [one for one in (self._model.misled(self._mod),) if one is not None]
        return bool(found) and all(found)

    def draft(self, candidates: Sequence[Candidate]) -> Scores:
        """See `Scorer.draft`."""
        samples = decisions.samples(self._space, self._space.workload.key, candidates)
        return self._drafts.score(samples, self._known(candidates))

    def _known(self, candidates: Sequence[Candidate]) -> Scores | None:
        if self._prior is None:
            return None
        return self._prior.predict(general.samples(self._space, candidates))[:, None]

    def verify(self, scheduled: Sequence[Scheduled]) -> Scores:
        """See `Scorer.verify`."""
        return self._verify(scheduled, self.draft([one.candidate for one in scheduled]))

    def learn(self, trials: Sequence[Trial]) -> None:
        """See `Scorer.learn`."""
        self._drafts.add(
            list(self._space.encode([trial.candidate for trial in trials])),
            [trial.record.latency_s for trial in trials],
            [trial.record.compile_s for trial in trials],
            known=self._known([trial.candidate for trial in trials]),
        )


def _readable(prior: CostModel | None, space: SketchSpace) -> CostModel | None:
    """A model of decisions, where a space's candidates have the features that it takes."""
    if prior is None:
        return None
    try:
        general.samples(space, [])
    except Exception:  # a space of the user's own rules may hold what ours can't read
        return None
    return prior


def _records(database: Any, task: Task) -> list[Any]:
    """The records of a task, for its target, failures included."""
    if database is None:
        return []
    try:
        if not database.has_workload(task.mod):
            return []
        entry = database.commit_workload(task.mod)  # the one that is there
        records = database.get_all_tuning_records()
    except Exception:  # some kinds of databases can only be queried, and say so in C++
        return []
    target = target_string(task.target)
    return [
        record
        for record in records
        if record.workload.same_as(entry)
        and record.target is not None
        and target_string(record.target) == target
    ]
