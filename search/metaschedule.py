"""A search strategy of ours in MetaSchedule: what `ms.tune_tir(..., strategy=...)` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.logging import get_logger
from tvm.s_tir.meta_schedule.utils import shash2hex

from ..data.sketch_space import SketchSpace
from ..data.space import Space
from ..data.workload import CUSTOM, Workload
from .base import Strategy
from .task_search import Task, TaskSearch

MakeStrategy = Callable[[Space, int], Strategy]

_log = get_logger(__name__)


@dataclass
class _Run:
    """The tasks that are tuned together: one strategy object is given to all, and cloned for each.

    Attributes:
        mods: Their modules, by hash.
        begun: Whether a search of one of them has begun, after which a new task is of a new run.
    """

    mods: dict[str, Any] = field(default_factory=dict)
    begun: bool = False


@derived_object
class MetaScheduleStrategy(ms.search_strategy.PySearchStrategy):
    """A strategy of ours, as MetaSchedule's. It searches the space that the task's rules generate.

    Args:
        make: Makes the strategy from a space and a seed.
        seed: The seed; by default each task's own random state.
        batch: Trials between two calls of the strategy, if the run's `num_trials_per_iter` is not
            less; a few more after a small first batch.
        other_records: Whether the database may hold records of other workloads only.
        run: The tasks that are tuned together; for clones.
    """

    def __init__(
        self,
        make: MakeStrategy,
        seed: int | None = None,
        batch: int = 16,
        other_records: bool = False,
        run: _Run | None = None,
    ) -> None:
        if batch < 1:
            raise ValueError(f"a batch is of at least 1 trial, not {batch}")
        self.make = make
        self.seed = seed
        self.batch = batch
        self.other_records = other_records
        self._run = run or _Run()
        self._task: Task | None = None
        self._search: TaskSearch | None = None

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Note the task. Called for every task on the object the user made, and on its clones."""
        if self._run.begun:
            self._run = _Run()
        if context.mod is not None:
            self._task = Task.of(context)
            self._run.mods[shash2hex(context.mod)] = context.mod

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Any],
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Take up what the database holds of the task, and get ready to search.

        Raises:
            ValueError: the database holds other workloads' records only; nothing was changed.
        """
        self._run.begun = True
        task = self._task
        if task is None:
            raise ValueError("the strategy has no task: give its `TuneContext` a module")
        if not self.other_records:
            _check_database(database, self._run.mods.values())
        self._search = None
        if not design_spaces:
            _log.warning("%s has an empty design space: there is nothing to tune", task.name)
            return
        try:
            space = _space(task, design_spaces)
        # A space of the user's own rules may hold what ours can't read; the other tasks go on.
        except Exception as error:
            _log.warning("%s is not tuned: its design space can't be read: %s", task.name, error)
            return
        seed = task.seed if self.seed is None else self.seed
        search = TaskSearch(task, space, self.make(space, seed), cost_model, seed)
        search.take_up(database)
        search.allow(max_trials, self.batch, num_trials_per_iter)
        self._search = search

    def post_tuning(self) -> None:
        """Let go of the space and of what was learnt."""
        self._search = None

    def generate_measure_candidates(self) -> list[Any] | None:
        """The next batch; None when the trials are spent, or nothing new is left."""
        return None if self._search is None else self._search.propose() or None

    def notify_runner_results(self, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn what came of the batch."""
        if self._search is not None:
            self._search.learn(candidates, results)

    def clone(self) -> Any:
        """A strategy with the same settings, for another task of the run."""
        return MetaScheduleStrategy(self.make, self.seed, self.batch, self.other_records, self._run)


def _space(task: Task, design_spaces: Sequence[Any]) -> SketchSpace:
    # Made by hand: what MetaSchedule tunes is its module as it stands, not the normal form of it.
    key = f"{CUSTOM}:{task.name}@{shash2hex(task.mod)}"
    workload = Workload(key, CUSTOM, (), "", task.mod)
    return SketchSpace(workload, task.target, sketches=design_spaces, postprocs=task.postprocs)


def _check_database(database: Any, mods: Any) -> None:
    """Raise when a database holds records, and none of what is to be tuned.

    Raises:
        ValueError: see above.
    """
    try:
        held = 0 if database is None else len(database)
        strange = held > 0 and not any(database.has_workload(mod) for mod in mods)
    except Exception:  # some kinds of databases can only be queried, and say so in C++
        return
    if strange:
        raise ValueError(
            f"the work dir's database holds {held} records of other workloads and none of what is "
            "to be tuned: choose another `work_dir`, or add to this one with "
            "`strategy(..., other_records=True)`"
        )
