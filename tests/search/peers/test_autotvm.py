"""The real AutoTVM and Ansor: their kernels are right, and timed with everybody else's."""

from __future__ import annotations

import ast
import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortune.data.finals import judge, make_reference, time_interleaved
from tensortune.data.measure import LocalMeasurer
from tensortune.data.target import cpu_target
from tensortune.data.worker import Artifact
from tensortune.data.workload import Workload, workload
from tensortune.search.compare import Entrant, compare
from tensortune.search.peers import autotvm as module
from tensortune.search.peers.autotvm import (
    PYTHON_VARIABLE,
    AutoTVMError,
    find_python,
    probe,
    run_old_tvm,
)

needs_autotvm = pytest.mark.skipif(
    not os.environ.get(PYTHON_VARIABLE),
    reason=f"needs an interpreter with AutoTVM in {PYTHON_VARIABLE} (docs/autotvm.md)",
)


@pytest.fixture(scope="module")
def target() -> Any:
    return cpu_target()


# --- Without the interpreter ------------------------------------------------------------------


def test_without_an_interpreter_the_error_says_how_to_make_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    with pytest.raises(AutoTVMError, match=r"docs/autotvm\.md .*--autotvm-python"):
        find_python()
    with pytest.raises(AutoTVMError, match=r"nowhere/python is no program"):
        find_python("nowhere/python")
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path))
    with pytest.raises(AutoTVMError, match="no program"):
        find_python()
    monkeypatch.delenv(PYTHON_VARIABLE)
    with pytest.raises(AutoTVMError, match=r"docs/autotvm\.md"):
        compare([workload("matmul", 8, 8, 8)], [Entrant("autotvm", "autotvm")], out=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_an_interpreter_without_autotvm_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    assert find_python() == Path(sys.executable).absolute()
    with pytest.raises(AutoTVMError, match="has no AutoTVM that works"):
        probe(find_python())


@pytest.mark.parametrize("tuner", module.OLD_TVM)
def test_entrants_are_read_and_take_trials_only(tuner: str) -> None:
    assert Entrant.parse(f"{tuner}:trials=8") == Entrant(tuner, tuner, trials=8)
    with pytest.raises(ValueError, match="takes no model"):
        Entrant.parse(f"{tuner}:model=none")


def test_an_unnamed_operator_has_a_reason_and_starts_nothing(tmp_path: Path, target: Any) -> None:
    own = Workload.from_module(workload("matmul", 8, 8, 8).mod, "mine")
    outcome = run_old_tvm("autotvm", own, target, 4, 0, tmp_path)
    assert "named operators only" in outcome.reason
    assert outcome.mod is outcome.library is None
    assert outcome.curve() == []


def test_what_runs_there_needs_nothing_of_ours_and_parses_on_its_python() -> None:
    folder = Path(module.__file__).with_name("old_tvm")
    for path in folder.glob("*.py"):
        text = path.read_text()
        assert "tensortune" not in text
        ast.parse(text, path.name, feature_version=(3, 8))


# A candidate, as far as the launcher goes: counts how often each task is run.
_CANDIDATE = """
extern int (*__TVMBackendParallelLaunch)(int (*)(int, void *, void *), void *, int);
static int task(int number, void *group, void *seen) { return ((int *)seen)[number]++ < 0; }
int launch(int *seen, int tasks) { return __TVMBackendParallelLaunch(task, seen, tasks); }
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize(("asked", "run"), [(0, 3), (1, 1), (7, 7)])
def test_each_task_of_a_parallel_loop_is_run_once(
    asked: int, run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "candidate.c").write_text(_CANDIDATE)
    sources = [tmp_path / "candidate.c", Path(module.__file__).with_name("old_tvm") / "parallel.c"]
    library = tmp_path / "candidate.so"
    command = ["gcc", "-shared", "-fPIC", "-fopenmp", "-Wall", "-Werror", "-o", library, *sources]
    subprocess.run(command, check=True)
    monkeypatch.setenv("TVM_NUM_THREADS", "3")
    loaded = ctypes.CDLL(str(library))
    seen = (ctypes.c_int * 8)()
    assert loaded.launch(seen, asked) == 0
    assert list(seen) == [1] * run + [0] * (8 - run)
    assert not hasattr(loaded, "__TVMBackendParallelLaunch"), "the runtime would put in its own"


def test_a_process_that_fails_is_told_with_its_last_words(target: Any, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho the disk is full\nexit 3\n")
    script.chmod(0o755)
    with pytest.raises(AutoTVMError, match="autotvm failed: the disk is full"):
        run_old_tvm("autotvm", workload("matmul", 8, 8, 8), target, 1, 0, tmp_path, script)
    job = json.loads((tmp_path / "peer/job.json").read_text())
    assert job["params"] == {"m": 8, "n": 8, "k": 8}


# --- With it ----------------------------------------------------------------------------------

# One small shape of each way that there is to reach a template.
_TEMPLATES = [
    ("dense_pack.x86", workload("batch_matmul", 1, 32, 48, 64)),
    ("batch_matmul.x86", workload("batch_matmul", 3, 16, 24, 32)),
    ("batch_matmul.x86", workload("transpose_batch_matmul", 1, 16, 3, 8)),
    ("conv2d_NCHWc.x86", workload("conv2d", 1, 9, 9, 6, 8, 3, 2, 1)),
    ("conv2d_NCHWc.x86", workload("dilated_conv2d", 1, 9, 9, 6, 8, 3, 1, 1)),
    ("conv2d_NCHWc.x86", workload("conv2d_bn_relu", 1, 8, 8, 6, 8, 1)),
    ("conv2d_NCHWc.x86", workload("transposed_conv2d", 1, 5, 5, 6, 8, 4, 2, 1)),
    ("depthwise_conv2d_NCHWc.x86", workload("depthwise_conv2d", 1, 9, 9, 12, 3, 1, 1)),
    ("group_conv2d_nchw.x86", workload("grouped_conv2d", 1, 8, 8, 16, 16, 3, 1, 1)),
    ("conv3d_ndhwc.x86", workload("conv3d", 1, 3, 6, 6, 4, 8, 3, 1, 1)),
]


def _check(outcome: Any, subject: Workload, target: Any) -> None:
    """The winner's library is right, twice over, on fresh arguments."""
    assert outcome.library is not None, outcome.reason
    with LocalMeasurer(subject, target, input_seed=7) as measurer:
        reference = make_reference(measurer)
        libraries = [path for path in (outcome.library, outcome.packed) if path is not None]
        artifacts = [
            Artifact(str(path), measurer.inputs, measurer.memory_bytes) for path in libraries
        ]
        ran = time_interleaved(measurer, artifacts, rounds=2, repeat_s=1e-3, run=len(artifacts))
    for contestant in ran:
        assert contestant.failure is None
        assert len(contestant.times_s) == 2
        verdict = judge(reference, contestant)
        assert verdict.right, verdict.detail


@needs_autotvm
@pytest.mark.autotvm
@pytest.mark.slow
@pytest.mark.parametrize(("template", "subject"), _TEMPLATES, ids=lambda value: str(value))
def test_every_template_gives_a_right_kernel(
    template: str, subject: Workload, target: Any, tmp_path: Path
) -> None:
    outcome = run_old_tvm("autotvm-random", subject, target, 3, 0, tmp_path)
    assert outcome.about["template"] == template
    assert len(outcome.latencies_s) == len(outcome.elapsed_s) == 3
    assert (outcome.packed is None) == (template == "conv3d_ndhwc.x86")
    _check(outcome, subject, target)


@needs_autotvm
@pytest.mark.autotvm
@pytest.mark.slow
@pytest.mark.parametrize("tuner", ["autotvm", "autotvm-ga"])
def test_the_tuners_learn_from_what_they_measure(tuner: str, target: Any, tmp_path: Path) -> None:
    # Beyond the 16 trials after which the model is fitted, or a generation ends.
    subject = workload("depthwise_conv2d", 1, 14, 14, 32, 3, 1, 1)
    outcome = run_old_tvm(tuner, subject, target, 20, 1, tmp_path)
    assert len(outcome.latencies_s) == 20
    assert sum(np.isfinite(outcome.latencies_s[16:])) >= 2, "nothing runs once the model is fitted"
    elapsed = [seconds for seconds in outcome.elapsed_s if seconds is not None]
    assert elapsed == sorted(elapsed) and elapsed[0] > 0
    assert outcome.seconds["trials"] > 0
    assert outcome.library is not None
    assert {"tvm", "xgboost", "template", "configuration"} <= set(outcome.about)


@needs_autotvm
@pytest.mark.autotvm
@pytest.mark.slow
@pytest.mark.parametrize(
    "subject", [workload("depthwise_conv2d", 1, 9, 9, 12, 3, 1, 1), workload("softmax", 16, 32)]
)
def test_ansor_gives_a_right_kernel(subject: Workload, target: Any, tmp_path: Path) -> None:
    outcome = run_old_tvm("ansor", subject, target, 4, 0, tmp_path)
    assert outcome.packed is None
    _check(outcome, subject, target)


@needs_autotvm
@pytest.mark.autotvm
@pytest.mark.slow
def test_a_comparison_times_it_with_the_rest_and_goes_on_without(tmp_path: Path) -> None:
    subjects = [workload("conv2d", 1, 8, 8, 16, 16, 3, 1, 1), workload("softmax", 16, 32)]
    entrants = [Entrant("random", "random"), Entrant("autotvm", "autotvm")]
    arguments: dict[str, Any] = {"seeds": 1, "trials": 4, "out": tmp_path, "say": lambda _: None}
    result = compare(subjects, entrants, **arguments)
    (left_out,) = result["left_out"]
    assert left_out["label"] == "autotvm"
    assert "nothing for AutoTVM to tune" in left_out["error"]
    first = result["workloads"][subjects[0].key]["autotvm"]
    assert first["best_s"] > 0
    assert first["packed_s"][0] > 0
    assert first["about"]["template"] == "conv2d_NCHWc.x86"
    assert result["strategies"]["random"]["geomean_speed_vs"]["autotvm"] > 0
    said: list[str] = []
    compare(subjects, entrants, **(arguments | {"say": said.append}))
    assert sum("done before" in line for line in said) == 4


@needs_autotvm
@pytest.mark.autotvm
@pytest.mark.slow
def test_a_wrong_winner_gives_way_to_the_next(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = workload("matmul", 16, 16, 16)
    real = judge
    judged: list[Any] = []

    def first_is_wrong(reference: Any, contestant: Any) -> Any:
        judged.append(contestant)
        if len(judged) > 1:
            return real(reference, contestant)
        contestant.outputs[2] += 1.0
        return real(reference, contestant)

    monkeypatch.setattr(module, "judge", first_is_wrong)
    outcome = run_old_tvm("autotvm-random", subject, target, 4, 0, tmp_path)
    assert len(judged) == 2
    assert outcome.failures["wrong"] == 1
    assert outcome.library is not None
