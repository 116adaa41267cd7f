"""Our strategies behind MetaSchedule's interface, driven as its task scheduler drives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from tensortune.costmodel import pretrained
from tensortune.costmodel.metaschedule import MetaScheduleModel
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.candidate import Candidate
from tensortune.data.sketch_space import SketchSpace, tune_context
from tensortune.data.space import Space
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload
from tensortune.search.base import Score, Trial
from tensortune.search.metaschedule import MetaScheduleStrategy
from tensortune.search.random_search import RandomSearch
from tensortune.search.strategies import STRATEGIES

TARGET = cpu_target("llvm -num-cores=1")
INF = float("inf")


@cache
def space_of(operator: str = "matmul", *shape: int) -> SketchSpace:
    return SketchSpace(workload(operator, *(shape or (64, 64, 64))), TARGET)


SPACE = space_of()


def latency(space: SketchSpace, trace: Any) -> float:
    """A formula of the decisions; programs that unroll most of all fail."""
    candidate = space.find(trace)
    assert candidate is not None
    row = np.nan_to_num(space.encode([candidate])[0])
    if row[space.feature_names().index("unroll")] > 9:  # log2(1 + 512)
        return INF
    return float(1e-4 * np.exp(row @ np.linspace(-0.2, 0.3, len(row))))


def result_of(latency_s: float) -> Any:
    if latency_s == INF:
        return ms.runner.RunnerResult(None, "compile: it does not")
    return ms.runner.RunnerResult([latency_s], None)


class Run:
    """What MetaSchedule's task scheduler does for one task, with a formula for a measurement."""

    def __init__(
        self,
        strategy: Any,
        model: Any = None,
        *,
        space: SketchSpace = SPACE,
        seed: int = 1,
        database: Any = None,
        measure: Callable[[SketchSpace, Any], float] = latency,
    ) -> None:
        self.space = space
        self.model = model
        # An empty one is false.
        self.database = ms.database.MemoryDatabase() if database is None else database
        self.measure = measure
        mod = space.workload.mod
        # As in `ms.tune_tir`: made with the user's object, then cloned, strategy and all.
        self.context = tune_context(mod, TARGET, search_strategy=strategy, seed=seed).clone()
        self.search = self.context.search_strategy
        self.batches: list[list[Any]] = []
        self.latencies: list[float] = []

    def go(self, trials: int, per_iter: int = 64, spaces: Sequence[Any] | None = None) -> Run:
        if spaces is None:
            spaces = self.context.generate_design_space()
        self.search.pre_tuning(trials, per_iter, spaces, self.database, self.model)
        while (found := self.search.generate_measure_candidates()) is not None:
            results = [result_of(self.measure(self.space, one.sch.trace)) for one in found]
            self.search.notify_runner_results(found, results)
            entry = self.database.commit_workload(self.context.mod)
            for one, result in zip(found, results, strict=True):
                times = list(result.run_secs or [1e10])
                self.database.commit_tuning_record(
                    ms.database.TuningRecord(one.sch.trace, entry, times, TARGET, one.args_info)
                )
            if self.model is not None:
                self.model.update(self.context, found, results)
            self.batches.append(list(found))
            self.latencies += [
                float(result.run_secs[0]) if result.run_secs else INF for result in results
            ]
        self.search.post_tuning()
        return self

    @property
    def found(self) -> list[Any]:
        return [one for batch in self.batches for one in batch]

    @property
    def points(self) -> list[Candidate | None]:
        return [self.space.find(one.sch.trace) for one in self.found]


def programs(run: Run) -> int:
    return len({tvm_ffi.structural_hash(one.sch.mod) for one in run.found})


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_spends_its_trials_on_distinct_programs(name: str) -> None:
    run = Run(MetaScheduleStrategy(STRATEGIES[name]), MetaScheduleModel(XGBModel())).go(40)
    assert [len(batch) for batch in run.batches] == [16, 16, 8]
    assert programs(run) == 40
    for one in run.found:
        again = Schedule(SPACE.workload.mod)
        one.sch.trace.apply_to_schedule(again, remove_postproc=False)
        assert tvm_ffi.structural_equal(again.mod, one.sch.mod)
    best = run.database.query_schedule(SPACE.workload.mod, TARGET, "main")
    assert latency(SPACE, best.trace) == min(run.latencies)


def test_a_batch_is_no_larger_than_an_iteration() -> None:
    run = Run(MetaScheduleStrategy(RandomSearch, batch=12)).go(14, per_iter=5)
    assert [len(batch) for batch in run.batches] == [5, 5, 4]
    run = Run(MetaScheduleStrategy(RandomSearch, batch=12)).go(14)
    assert [len(batch) for batch in run.batches] == [12, 2]


def test_one_seed_gives_one_run() -> None:
    def points(strategy_seed: int | None, seed: int) -> list[Candidate | None]:
        strategy = MetaScheduleStrategy(STRATEGIES["annealing"], strategy_seed)
        return Run(strategy, MetaScheduleModel(XGBModel()), seed=seed).go(20).points

    first = points(None, 1)
    assert points(None, 1) == first
    assert points(None, 2) != first
    assert points(5, 1) == points(5, 2) != first


@pytest.mark.parametrize("name", ["annealing", "evolution"])
def test_our_model_leads_to_faster_programs(name: str) -> None:
    runs = [
        Run(MetaScheduleStrategy(STRATEGIES[each]), MetaScheduleModel(XGBModel())).go(64)
        for each in ("random", name)
    ]
    random, guided = (np.median(run.latencies[32:]) for run in runs)
    assert guided < 0.6 * random
    fails = [run.latencies[32:].count(INF) for run in runs]
    assert fails[0] > 3  # a quarter of the space does
    assert fails[1] < fails[0] / 2


@pytest.mark.parametrize("kind", ["xgb", "random", "none"])
def test_works_with_any_model(kind: str) -> None:
    models = {
        "xgb": lambda: ms.cost_model.XGBModel(num_warmup_samples=16, num_tuning_cores=1),
        "random": ms.cost_model.RandomModel,
        "none": lambda: None,
    }
    run = Run(MetaScheduleStrategy(STRATEGIES["annealing"]), models[kind]()).go(48)
    assert programs(run) == 48


def test_what_the_pretrained_models_know_picks_the_first_batch() -> None:
    """It is half as large, to be judged by; one seed gives one run here too."""
    known = pretrained.load()

    def run(trials: int, per_iter: int = 64) -> Run:
        model = MetaScheduleModel(XGBModel(), priors=[known.verify], draft_prior=known.draft)
        made = Run(MetaScheduleStrategy(STRATEGIES["annealing"]), model)
        return made.go(trials, per_iter=per_iter)

    first = run(24)
    assert [len(batch) for batch in first.batches] == [8, 16]
    assert programs(first) == 24
    assert run(24).points == first.points
    # Nor does it make one more call necessary, unless a call may not ask for more.
    assert [len(batch) for batch in run(56).batches] == [8, 16, 16, 16]
    assert [len(batch) for batch in run(64).batches] == [8, 19, 19, 18]
    assert [len(batch) for batch in run(64, per_iter=16).batches] == [8, 16, 16, 16, 8]


def test_a_model_of_theirs_picks_the_batch() -> None:
    asked: list[int] = []

    @derived_object
    class Loops(ms.cost_model.PyCostModel):
        """Prefers schedules with long traces."""

        def load(self, path: str) -> None: ...
        def save(self, path: str) -> None: ...
        def update(self, context: Any, candidates: Any, results: Any) -> None: ...
        def predict(self, context: Any, candidates: Any) -> np.ndarray:
            asked.append(len(candidates))
            return np.array([float(len(one.sch.trace.insts)) for one in candidates])

    lengths = [
        np.mean([len(one.sch.trace.insts) for one in run.batches[1]])
        for run in (
            Run(MetaScheduleStrategy(STRATEGIES["annealing"]), model).go(32)
            for model in (Loops(), ms.cost_model.RandomModel())
        )
    ]
    assert asked and max(asked) > 32, "drafts are several for each trial"
    assert lengths[0] > lengths[1]


@pytest.mark.parametrize("kind", ["ours", "xgb"])
def test_goes_on_from_a_work_dir(kind: str, tmp_path: Any) -> None:
    def model() -> Any:
        if kind == "ours":
            return MetaScheduleModel(XGBModel())
        return ms.cost_model.XGBModel(num_warmup_samples=16, num_tuning_cores=1)

    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    first = Run(MetaScheduleStrategy(STRATEGIES["annealing"]), model(), database=database).go(48)
    again = ms.database.JSONDatabase(work_dir=str(tmp_path))
    taken = model()
    second = Run(MetaScheduleStrategy(STRATEGIES["annealing"]), taken, database=again, seed=2)
    second.go(32)
    assert len(again) == 80
    assert not {p for p in first.points if p} & {p for p in second.points if p}
    # It starts where the first one ended: as good as that one's end from its very first batch.
    assert np.median(second.latencies[:16]) < np.median(first.latencies[:16])
    if kind == "ours":
        assert len(taken.trials(SPACE.workload.mod)) == 80
    else:
        assert taken.data_size == 80


def test_failures_teach_even_where_metaschedule_keeps_them_back() -> None:
    model = MetaScheduleModel(XGBModel())
    run = Run(MetaScheduleStrategy(STRATEGIES["annealing"]), model)
    run.model = None  # nobody but the strategy tells it
    run.search.pre_tuning(32, 16, run.context.generate_design_space(), run.database, model)
    found = run.search.generate_measure_candidates()
    results = [result_of(INF if i % 2 else 1e-3) for i in range(len(found))]
    run.search.notify_runner_results(found, results)
    assert model.trials(SPACE.workload.mod).count(INF) == 8


def test_a_run_in_which_everything_fails_goes_on() -> None:
    run = Run(
        MetaScheduleStrategy(STRATEGIES["annealing"]),
        MetaScheduleModel(XGBModel()),
        measure=lambda space, trace: INF,
    )
    assert programs(run.go(40)) == 40


def test_a_database_of_other_workloads_is_refused_and_left_alone(tmp_path: Any) -> None:
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    Run(MetaScheduleStrategy(RandomSearch), database=database).go(4)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = space_of("matmul", 96, 96, 96)
    with pytest.raises(ValueError, match="4 records of other workloads") as caught:
        Run(MetaScheduleStrategy(RandomSearch), space=other, database=database).go(4)
    assert "\n" not in str(caught.value) and "other_records=True" in str(caught.value)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    strategy = MetaScheduleStrategy(RandomSearch, other_records=True)
    assert len(Run(strategy, space=other, database=database).go(4).found) == 4


def test_one_object_serves_all_tasks_of_a_run() -> None:
    """A database that holds one task of several is the run's own."""
    strategy, model = MetaScheduleStrategy(STRATEGIES["annealing"]), MetaScheduleModel(XGBModel())
    other = space_of("softmax", 64, 64)
    database = ms.database.MemoryDatabase()
    Run(MetaScheduleStrategy(RandomSearch), database=database).go(4)
    runs = [Run(strategy, model, space=space, database=database) for space in (other, SPACE)]
    assert [programs(run.go(20)) for run in runs] == [20, 20]
    # A run of its own afterwards: the tasks of the one before don't count.
    with pytest.raises(ValueError, match="other workloads"):
        Run(strategy, model, space=space_of("matmul", 96, 96, 96), database=database).go(4)


def test_records_of_another_target_are_not_taken_up() -> None:
    database = ms.database.MemoryDatabase()
    run = Run(MetaScheduleStrategy(RandomSearch), database=database).go(4)
    elsewhere = ms.database.MemoryDatabase()
    entry = elsewhere.commit_workload(SPACE.workload.mod)
    target = cpu_target({"kind": "llvm", "mcpu": "x86-64", "num-cores": 1})
    for one in run.found:
        elsewhere.commit_tuning_record(
            ms.database.TuningRecord(one.sch.trace, entry, [1.0], target, one.args_info)
        )
    model = MetaScheduleModel(XGBModel())
    second = Run(MetaScheduleStrategy(RandomSearch), model, database=elsewhere).go(4)
    assert second.points == run.points  # the same seed, and nothing in its way
    assert len(model.trials(SPACE.workload.mod)) == 4


def test_an_empty_design_space_ends_quietly() -> None:
    run = Run(MetaScheduleStrategy(STRATEGIES["annealing"]), MetaScheduleModel(XGBModel()))
    assert run.go(8, spaces=[]).found == []


def test_a_program_without_decisions_is_tried_once() -> None:
    space = space_of("add", 64, 64)
    assert space.size == 1
    run = Run(
        MetaScheduleStrategy(STRATEGIES["annealing"]),
        MetaScheduleModel(XGBModel()),
        space=space,
        measure=lambda space, trace: 1e-3,
    )
    assert len(run.go(8).found) == 1


def test_rules_of_ones_own_are_searched() -> None:
    """The space is that of the task's generator, not of the default rules."""

    def one_split(schedule: Schedule) -> list[Schedule]:
        loops = schedule.get_loops(schedule.get_sblock("C"))
        factors = schedule.sample_perfect_tile(loops[0], n=2, max_innermost_factor=16)
        schedule.split(loops[0], factors)
        return [schedule]

    run = Run(
        MetaScheduleStrategy(STRATEGIES["annealing"]),
        measure=lambda space, trace: 1e-3,
    )
    schedules = ms.space_generator.ScheduleFn(
        one_split, sch_rules=[], postprocs=[], mutator_probs={}
    ).generate_design_space(SPACE.workload.mod)
    run.go(32, spaces=schedules)
    assert len(run.found) == 5  # 64 is split by 1, 2, 4, 8 or 16
    assert {inst.kind.name for one in run.found for inst in one.sch.trace.insts} >= {"Split"}


def test_a_strategy_of_ones_own() -> None:
    class First:
        """Draws, and keeps to the first sketch."""

        name = "first"

        def __init__(self, space: Space, seed: int) -> None:
            self.space = space
            self.rng = np.random.default_rng(seed)
            self.told = 0

        def ask(self, n: int, score: Score) -> list[Candidate]:
            return [c for c in self.space.sample(self.rng, 4 * n) if c.point[0] == 0][:n]

        def tell(self, trials: Sequence[Trial]) -> None:
            self.told += len(trials)

    made: list[First] = []

    def make(space: Space, seed: int) -> First:
        made.append(First(space, seed))
        return made[-1]

    run = Run(MetaScheduleStrategy(make)).go(12, per_iter=6)
    assert {point.point[0] for point in run.points if point} == {0}
    assert [strategy.told for strategy in made] == [12]
