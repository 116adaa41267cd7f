"""The builder compiles in our workers: bad candidates cost themselves, and nothing stays behind."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.utils import shash2hex

from tensortune.data.metaschedule import builder as module
from tensortune.data.metaschedule.builder import (
    builder,
    compile_seconds,
    failure_message,
    failure_of,
    take,
)
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload

from ...planted import Doubling, Tripling, endless_compile


def build(made: Any, *mods: Any, target: Any = None) -> list[Any]:
    target = target or cpu_target("llvm -num-cores=1")
    return list(made.build([ms.builder.BuilderInput(mod, target) for mod in mods]))


def run_elsewhere(path: str, mod: Any) -> Any:
    """Load and run an artifact in MetaSchedule's own runner, in another process."""
    arguments = ms.arg_info.ArgInfo.from_entry_func(mod, False)
    local = ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(3, 2, 1))
    (future,) = local.run([ms.runner.RunnerInput(path, "cpu", arguments)])
    return future.result()


def alive() -> set[int]:
    """Our children and theirs."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if child.status() != "zombie"}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder that nobody else writes to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def made() -> Iterator[Any]:
    made = builder()
    yield made
    made.close()


def unparsable() -> tvm.IRModule:
    """A module that TVM refuses to lower: a load of a buffer that is nowhere defined."""
    stray = tvm.tirx.decl_buffer((4096,), "float32", "stray")
    function = Doubling["main"]
    store = tvm.tirx.BufferStore(stray, tvm.tirx.const(1.0, "float32"), [0])
    return tvm.IRModule({"main": function.with_body(tvm.tirx.SeqStmt([store, function.body]))})


def test_each_artifact_has_a_folder_of_its_own_and_runs_in_metaschedules_runner(made: Any) -> None:
    results = build(made, Doubling, Tripling)
    assert [result.error_msg for result in results] == [None, None]
    folders = [os.path.dirname(result.artifact_path) for result in results]
    assert len(set(folders)) == 2
    result = run_elsewhere(results[0].artifact_path, Doubling)
    assert result.error_msg is None and len(result.run_secs) == 2
    assert all(float(seconds) > 0 for seconds in result.run_secs)


def test_an_artifact_computes_what_the_module_says(made: Any) -> None:
    (result,) = build(made, Doubling)
    library = tvm.runtime.load_module(result.artifact_path)
    given = np.arange(4096, dtype="float32")
    arguments = [tvm.runtime.tensor(given), tvm.runtime.empty((4096,), "float32")]
    library["main"](*arguments)
    np.testing.assert_array_equal(arguments[1].numpy(), 2 * given)


def test_how_long_compiling_took_is_told_by_the_program(made: Any) -> None:
    build(made, Doubling, unparsable())
    assert compile_seconds(shash2hex(Doubling)) > 0
    assert compile_seconds("a program that nobody has compiled") == 0


def test_a_bad_candidate_costs_itself_alone(made: Any) -> None:
    build(made, Doubling, Tripling)  # sets the deadline
    results = build(made, Doubling, endless_compile(), unparsable(), Tripling)
    kinds = [None if r.error_msg is None else failure_of(r.error_msg) for r in results]
    assert kinds == [None, "timeout", "compile", None]
    assert [r.artifact_path is None for r in results] == [False, True, True, False]


def test_several_functions_are_refused_one_candidate_at_a_time(made: Any) -> None:
    double = tvm.IRModule({"main": Doubling["main"], "other": Tripling["main"]})
    good, bad = build(made, Doubling, double)
    assert good.error_msg is None
    assert failure_of(bad.error_msg) == "compile"


def test_a_removed_folder_ends_its_worker() -> None:
    before = alive()
    made = builder()
    (result,) = build(made, Doubling)
    assert len(alive() - before) == 2  # the server and the worker
    shutil.rmtree(os.path.dirname(result.artifact_path))
    deadline = time.monotonic() + 30
    while len(alive() - before) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(alive() - before) == 1, "it looks now and then"
    (other,) = build(made, Doubling)
    assert take(result.artifact_path) is None, "the next batch forgets it"
    assert take(other.artifact_path) is not None
    made.close()


def test_nothing_is_left_after_close(temporary: Path) -> None:
    before = alive()
    made = builder()
    build(made, Doubling)
    assert len(list(temporary.iterdir())) == 1 and len(alive() - before) == 2
    made.close()
    assert not list(temporary.iterdir()) and alive() == before
    assert build(made, Doubling)[0].error_msg is None, "it can be used again"
    made.close()
    assert not list(temporary.iterdir()) and alive() == before


def test_nothing_is_left_of_a_builder_that_is_forgotten(temporary: Path) -> None:
    before = alive()
    made = builder()
    build(made, Doubling)
    del made
    gc.collect()
    assert not list(temporary.iterdir()) and alive() == before


def test_nothing_is_left_when_python_ends(tmp_path: Path) -> None:
    script = (
        "import psutil; from tvm.s_tir import meta_schedule as ms;"
        "from tensortune.data.metaschedule.builder import builder;"
        "from tensortune.data.target import cpu_target; from tvm import te, IRModule;"
        "x = te.placeholder((16,), name='x'); y = te.compute((16,), lambda i: x[i] + 1.0);"
        "mod = IRModule({'main': te.create_prim_func([x, y])}); made = builder();"
        "print(made.build([ms.builder.BuilderInput(mod, cpu_target())])[0].artifact_path);"
        "print(*[p.pid for p in psutil.Process().children(recursive=True)])"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    path, pids = done.stdout.splitlines()
    assert path.startswith(str(tmp_path)) and len(pids.split()) == 2
    assert not list(tmp_path.iterdir())
    assert not any(psutil.pid_exists(int(pid)) for pid in pids.split())


def test_each_target_gets_its_own_number_of_threads() -> None:
    before = alive()
    made = builder()
    counts = (1, len(os.sched_getaffinity(0)), 1)
    for cores in counts:
        (result,) = build(made, Doubling, target=cpu_target({"kind": "llvm", "num-cores": cores}))
        take(result.artifact_path).built.close()
    servers = [psutil.Process(pid) for pid in alive() - before]
    threads = sorted(int(server.environ()["TVM_NUM_THREADS"]) for server in servers)
    made.close()
    assert threads == sorted(set(counts))


def test_a_target_that_does_not_run_here_is_refused(made: Any) -> None:
    with pytest.raises(ValueError, match="not a CPU's"):
        build(made, Doubling, target=tvm.target.Target({"kind": "c"}))


def test_more_programs_than_are_held_wait_in_their_files(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(made)  # lets go of what the tests before have left
    for path in list(made._shelf.programs):
        take(path).built.close()
    monkeypatch.setattr(module, "MOST_HELD", 1)
    results = build(made, Doubling, Tripling)
    taken = [take(result.artifact_path) for result in results]
    assert [program.built is None for program in taken] == [False, True]
    taken[0].built.close()


def packed_matmul() -> tvm.IRModule:
    """A matrix product whose second operand's layout is the schedule's to choose."""
    a, b = (te.placeholder((64, 64), name=name) for name in "ab")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute(
        (64, 64),
        lambda i, j: te.sum(a[i, k] * b[k, j], axis=k),
        name="c",
        attrs={"layout_free_placeholders": [b]},
    )
    return Workload.from_module(te.create_prim_func([a, b, c])).mod


def test_packed_weights_are_taken_out_on_request_only() -> None:
    target = cpu_target()
    space = SketchSpace(Workload.from_module(packed_matmul()), target)
    mods = [space.schedule(c).mod for c in space.sample(np.random.default_rng(0), 8)]
    packed = [mod for mod in mods if "layout_rewrite" in mod.script()]
    assert packed, "no schedule packs the weights"
    shapes = {}
    for prepacked in (False, True):
        made = builder(prepacked=prepacked)
        (result,) = build(made, packed[0], target=target)
        assert result.error_msg is None
        program = take(result.artifact_path)
        shapes[prepacked] = [len(argument.shape) for argument in program.task.arguments]
        program.built.close()
        made.close()
    assert shapes[False] == [2, 2, 2]
    assert shapes[True][1] > 2


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (failure_message("timeout", "running took longer than 4.0 s"), "timeout"),
        (failure_message("compile", "ValueError: no"), "compile"),
        ("LocalBuilder: Timeout, killed after 30.0 seconds", "timeout"),
        ("LocalBuilder: An exception occurred\nTVMError", "compile"),
        ("LocalRunner: Timeout, killed after 30 seconds\n", "timeout"),
        ("LocalRunner: An exception occurred\nno", "runtime"),
        ("whatever else", "runtime"),
    ],
)
def test_the_kind_of_a_failure_is_read_from_its_message(message: str, kind: str) -> None:
    assert failure_of(message) == kind


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        builder(jobs=0)
