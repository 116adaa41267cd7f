from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te
from tvm_ffi import structural_equal

from tensortune.data.export import write_script
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.space import Scheduled
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, workload


@pytest.fixture(scope="module")
def target() -> Any:
    # Two threads, however many there are: what is tested is not how fast they are.
    return tvm.target.Target({**dict(cpu_target().export()), "num-cores": 2})


def _schedules(subject: Workload, target: Any, n: int) -> list[Scheduled]:
    space = SketchSpace(subject, target)
    return [space.schedule(c) for c in space.sample(np.random.default_rng(0), n)]


@pytest.fixture(scope="module")
def matmul(target: Any) -> tuple[Workload, list[Scheduled]]:
    subject = workload("matmul", 48, 64, 32)
    return subject, _schedules(subject, target, 12)


@pytest.fixture(scope="module")
def parallel(matmul: tuple[Workload, list[Scheduled]]) -> Any:
    """A schedule with a parallel loop."""
    return next(s.mod for s in matmul[1] if "T.parallel" in s.mod.script())


def _of(*tensors: Any) -> Workload:
    return Workload.from_module(te.create_prim_func(list(tensors)))


def _placeholder(dtype: str = "float32") -> Any:
    return te.placeholder((8, 16), name="X", dtype=dtype)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # TVM's parser looks there for the source
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module


@pytest.mark.parametrize(
    "subject",
    [
        workload("matmul", 48, 64, 32),
        workload("take", 100, 16, 20),
        workload("softmax", 16, 24),
        workload("log", 16, 24),
        workload("transpose", 16, 24),
        workload("matmul", 16, 16, 16, dtype="int8"),
        workload("add", 16, 24, dtype="bfloat16"),
        workload("add", 16, 24, dtype="float16"),
    ],
    ids=str,
)
def test_script_holds_the_same_program(
    subject: Workload,
    target: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # the script changes it: put it back afterwards
    (scheduled,) = _schedules(subject, target, 1)
    path = write_script(tmp_path / "new" / "best.py", subject, scheduled.mod, target)
    assert "load_json" not in path.read_text()
    best = _load(path)
    assert os.environ["TVM_NUM_THREADS"] == "2"
    assert structural_equal(best.Module, scheduled.mod)
    best.main()
    line = capsys.readouterr().out
    assert line.startswith(f"{subject.key}: ")
    assert re.search(r"[\d.]+ us", line)
    assert ("GFLOP/s" in line) == (subject.flops > 0)


def test_script_runs_without_tensortune(
    matmul: tuple[Workload, list[Scheduled]], parallel: Any, target: Any, tmp_path: Path
) -> None:
    write_script(tmp_path / "best.py", matmul[0], parallel, target)
    program = (
        "import sys, runpy; sys.modules['tensortune'] = None;"
        "runpy.run_path('best.py', run_name='__main__');"
        "import tvm; print(tvm.get_global_func('runtime.NumThreads')())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "GFLOP/s" in done.stdout
    assert done.stdout.split()[-1] == "2"


def test_script_holds_what_tvmscript_cannot(
    matmul: tuple[Workload, list[Scheduled]],
    target: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    subject, schedules = matmul
    # The printer writes an object as a reference to metadata, which the parser does not know.
    odd = tvm.IRModule({"main": subject.mod["main"].with_attr("odd", schedules[0].trace)})
    best = _load(write_script(tmp_path / "best.py", subject, odd, target))
    assert best.Module.script(show_meta=True) == odd.script(show_meta=True)
    arrays = subject.make_inputs(0)
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    best.build()["main"](*tensors)
    np.testing.assert_allclose(tensors[2].numpy(), arrays[0] @ arrays[1], rtol=1e-4, atol=1e-4)


def test_script_holds_what_the_parser_refuses(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    subject = workload("max", 16, 24, dtype="float64")
    # It takes every floating-point literal for a float32, and the least float64 is out of range.
    best = _load(write_script(tmp_path / "best.py", subject, subject.mod, target))
    assert structural_equal(best.Module, subject.mod)
    best.main()


def test_script_says_when_outputs_are_not_finite(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    x = _placeholder()
    subject = _of(x, te.compute(x.shape, lambda i, j: te.exp(1e5 * te.abs(x[i, j])), name="Y"))
    best = _load(write_script(tmp_path / "best.py", subject, subject.mod, target))
    with pytest.raises(SystemExit, match="Y holds values that are not finite"):
        best.main()
