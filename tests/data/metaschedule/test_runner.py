"""The runner times in our workers: its own builder's programs, and any other's artifacts."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tvm
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder.local_builder import default_export
from tvm.script import ir as I
from tvm.script import tirx as T

from tensortune.data.metaschedule.builder import builder, failure_of
from tensortune.data.metaschedule.runner import runner
from tensortune.data.sketch_space import SketchSpace, tune_context
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, workload

from ...planted import Crash, Doubling, Half, Hang, Hog, Tripling

TARGET = cpu_target()


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Any, Any]]:
    pair = builder(memory_bytes=512 << 20), runner(run_limit_s=0.3)
    yield pair
    for part in pair:
        part.close()


def arguments(mod: Any) -> Any:
    return ms.arg_info.ArgInfo.from_entry_func(mod, True)


def measure(pair: tuple[Any, Any], mods: Sequence[Any]) -> list[Any]:
    """Build and run as the task scheduler does; removes the artifacts."""
    built = pair[0].build([ms.builder.BuilderInput(mod, TARGET) for mod in mods])
    assert not [result.error_msg for result in built if result.error_msg]
    return run(pair[1], [result.artifact_path for result in built], mods)


def run(made: Any, paths: Sequence[str], mods: Sequence[Any]) -> list[Any]:
    futures = made.run(
        [
            ms.runner.RunnerInput(path, "cpu", arguments(mod))
            for path, mod in zip(paths, mods, strict=True)
        ]
    )
    for path in paths:
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    assert all(future.done() for future in futures)
    return [future.result() for future in futures]


def kinds(results: Sequence[Any]) -> list[str | None]:
    return [None if r.error_msg is None else failure_of(r.error_msg) for r in results]


def as_metaschedule_builds(mod: Any) -> str:
    """An artifact as MetaSchedule's builder makes it, without its 15 s of start."""
    return str(default_export(tvm.compile(mod, target=TARGET).mod))


def test_a_bad_candidate_costs_itself_alone(pair: tuple[Any, Any]) -> None:
    results = measure(pair, [Doubling, Crash, Hang, Hog, Half])
    assert kinds(results) == [None, "runtime", "timeout", "runtime", None]
    assert len(results[0].run_secs) == 3 and all(float(s) > 0 for s in results[0].run_secs)
    assert all(r.run_secs is None for r in results if r.error_msg)
    assert "SIGSEGV" in results[1].error_msg


def test_only_servers_run_between_batches(pair: tuple[Any, Any]) -> None:
    measure(pair, [Doubling, Tripling, Crash])
    alive = [p for p in psutil.Process().children(recursive=True) if p.status() != "zombie"]
    assert {p.ppid() for p in alive} == {os.getpid()}


def test_the_artifacts_of_metaschedules_builder_run_as_well(pair: tuple[Any, Any]) -> None:
    mods = [Doubling, Crash, Tripling]
    results = run(pair[1], [as_metaschedule_builds(mod) for mod in mods], mods)
    assert kinds(results) == [None, "runtime", None]
    assert len(results[0].run_secs) == 3


def test_an_artifact_outlives_its_builders_worker(pair: tuple[Any, Any], tmp_path: Path) -> None:
    (built,) = pair[0].build([ms.builder.BuilderInput(Doubling, TARGET)])
    moved = str(shutil.copy(built.artifact_path, tmp_path))
    first, second = run(pair[1], [built.artifact_path, moved], [Doubling, Doubling])
    assert kinds([first, second]) == [None, None]


def test_an_artifact_that_is_not_there_costs_itself_alone(pair: tuple[Any, Any]) -> None:
    (built,) = pair[0].build([ms.builder.BuilderInput(Doubling, TARGET)])
    missing, good = run(
        pair[1], ["/nowhere/at/all/module.ll", built.artifact_path], [Doubling, Doubling]
    )
    assert failure_of(missing.error_msg) == "compile" and kinds([good]) == [None]


def test_another_device_is_refused_by_name(pair: tuple[Any, Any]) -> None:
    (future,) = pair[1].run([ms.runner.RunnerInput("x", "cuda", arguments(Doubling))])
    assert "not on cuda" in future.result().error_msg


@I.ir_module
class Gather:
    """Rows of a small table, far apart in memory: any index out of range is a crash."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((4, 1048576), "float32"),
        rows: T.Buffer((4096,), "int32"),
        B: T.Buffer((4096,), "float32"),
    ):
        T.func_attr({"tirx.noalias": True})
        for i in range(4096):
            with T.sblock("B"):
                vi = T.axis.spatial(4096, i)
                B[vi] = A[rows[vi], 0]


def test_indices_are_in_range_after_scheduling(pair: tuple[Any, Any]) -> None:
    schedule = Schedule(Gather)
    loops = schedule.split(schedule.get_loops(schedule.get_sblock("B"))[0], [None, 16])
    schedule.parallel(loops[0])
    schedule.vectorize(loops[1])
    assert kinds(measure(pair, [schedule.mod])) == [None]


def test_slow_candidates_are_cut_within_a_batch_only(pair: tuple[Any, Any]) -> None:
    fast = measure(pair, [Doubling])[0]
    alone = measure(pair, [slow_doubling()])[0]
    after = measure(pair, [Doubling, slow_doubling()])[1]
    assert len(fast.run_secs) == len(alone.run_secs) == 3
    assert len(after.run_secs) == 1


def slow_doubling() -> tvm.IRModule:
    """The same arguments as `Doubling`, and a thousand times the work."""
    a = te.placeholder((4096,), name="A")
    k = te.reduce_axis((0, 1000), name="k")
    b = te.compute((4096,), lambda i: te.max(a[(i + k) % 4096], axis=k), name="B")
    return Workload.from_module(te.create_prim_func([a, b])).mod


def endless() -> tvm.IRModule:
    """Millions of statements, by a legal schedule."""
    schedule = Schedule(slow_doubling())
    for loop in schedule.get_loops(schedule.get_sblock("B")):
        schedule.unroll(loop)
    return schedule.mod


def propose(mods: Sequence[Any]) -> Any:
    """A search strategy that proposes given modules, and remembers what it is told of them."""

    @derived_object
    class Planted(ms.search_strategy.PySearchStrategy):
        def __init__(self) -> None:
            super().__init__()
            self.left = True
            self.told: list[Any] = []

        def _initialize_with_tune_context(self, context: Any) -> None: ...
        def pre_tuning(self, *_: Any) -> None: ...
        def post_tuning(self) -> None: ...

        def generate_measure_candidates(self) -> Any:
            if not self.left:
                return None
            self.left = False
            return [
                ms.search_strategy.MeasureCandidate(Schedule(mod), arguments(mod)) for mod in mods
            ]

        def notify_runner_results(self, candidates: Any, results: Any) -> None:
            self.told += results

    return Planted()


def tune(pair: tuple[Any, Any], contexts: Sequence[Any], trials: int, folder: Path) -> Any:
    return ms.tune.tune_tasks(
        tasks=list(contexts),
        task_weights=[1.0] * len(contexts),
        work_dir=str(folder),
        max_trials_global=trials,
        num_trials_per_iter=8,
        builder=pair[0],
        runner=pair[1],
        cost_model="random",
    )


def test_metaschedule_survives_what_it_is_given(pair: tuple[Any, Any], tmp_path: Path) -> None:
    mods = [Doubling, Crash, endless(), Hang, Tripling]
    strategy = propose(mods)
    context = tune_context(Doubling, TARGET, search_strategy=strategy)
    database = tune(pair, [context], len(mods), tmp_path)
    told = kinds(strategy.told)
    assert told[2] in ("timeout", "compile")  # it runs out of time or of memory
    assert told[:2] + told[3:] == [None, "runtime", "timeout", None]
    assert len(database.get_all_tuning_records()) == len(mods)
    assert not pair[0]._shelf.programs


def test_metaschedule_tunes_several_tasks_with_one_pair(tmp_path: Path) -> None:
    pair = builder(), runner()
    tasks = [workload("matmul", 64, 64, 64), workload("softmax", 32, 32)]
    contexts = [
        tune_context(w.mod, TARGET, search_strategy=ms.search_strategy.ReplayTrace()) for w in tasks
    ]
    database = tune(pair, contexts, 16, tmp_path)
    for task in tasks:
        assert database.query_schedule(task.mod, TARGET, "main") is not None
    records = database.get_all_tuning_records()
    assert sum(float(record.run_secs[0]) < 1 for record in records) >= 12
    root = pair[0]._shelf._root
    assert root is not None and not list(root.iterdir()), "MetaSchedule removes the artifacts"
    for part in pair:
        part.close()
    assert not root.exists()


def test_it_measures_what_the_plain_measurer_measures(pair: tuple[Any, Any]) -> None:
    task = workload("matmul", 128, 128, 128)
    space = SketchSpace(task, TARGET)
    mods = [space.schedule(c).mod for c in space.sample(np.random.default_rng(1), 4)]
    results = measure(pair, mods)
    assert all(0 < float(s) < 1 for r in results for s in r.run_secs)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        runner(repeats=0)
