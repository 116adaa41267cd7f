"""The command line: results, and clear errors with exit code 2."""

import ctypes
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tensortune.cli.app import app
from tensortune.costmodel.validity import ValidityModel
from tensortune.data.store import Store

COMMAND = [sys.executable, "-m", "tensortune.cli"]
SMALL = ["tune", "matmul", "m=64", "n=64", "k=64"]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run in `out`."""
    folder = tmp_path_factory.mktemp("finished")
    done = run(*SMALL, "--trials", "8", "--out", "out", "--json", "figures.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "output checked against float64; 8 trials" in done.stdout
    return folder


def test_figures(finished: Path) -> None:
    figures = json.loads((finished / "figures.json").read_text())
    assert figures["workload"] == "matmul(m=64,n=64,k=64)"
    assert figures["trials"] == 8
    assert figures["checked"] is True
    assert 0 < figures["best_s"] <= figures["untuned_s"]
    assert figures["reference_s"] > 0
    assert set(figures["seconds"]) == {"setup", "compile", "time", "model", "search"}
    assert sum(figures["seconds"].values()) == pytest.approx(figures["wall_s"], rel=0.2)


def test_the_script_runs_by_itself(finished: Path) -> None:
    environment = {"PATH": os.environ["PATH"]}
    script = shutil.copy(finished / "out" / "best.py", finished / "alone.py")
    # -I: no PYTHONPATH, no user site; the script needs TVM and NumPy alone.
    done = subprocess.run(
        [sys.executable, "-I", script],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
        cwd="/",
    )
    assert "GFLOP/s" in done.stdout
    assert "tensortune" not in Path(script).read_text().split("import")[1]


def test_the_library_computes_the_product(finished: Path) -> None:
    (library,) = (finished / "out" / "library").glob("*.so")
    (header,) = (finished / "out" / "library").glob("*.h")
    name = header.stem
    a, b = np.random.default_rng(0).random((2, 64, 64), dtype=np.float32)
    c = np.empty((64, 64), np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, c)]
    assert getattr(ctypes.CDLL(str(library)), name)(*pointers) == 0
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)


def test_what_else_is_in_the_folder(finished: Path) -> None:
    names = {path.name for path in (finished / "out").iterdir()}
    assert {"records.jsonl", "best.json", "best.py", "database", "best_so_far.png"} <= names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "matmull", "1", "1", "1"], "did you mean `matmul`"),
        (["tune", "matmul", "m=8", "n=8"], "needs `k`"),
        (["tune", "matmul", "8", "8", "8", "8"], "matmul"),
        (["tune", "matmul", "8", "8", "k=8", "z=1"], "z"),
        (["tune", "matmul", "8", "8", "k=0"], "at least 1"),
        (["tune", "matmul", "8", "8", "k=-3"], "at least 1"),
        (["tune", "matmul", "8", "8", "k=x"], "x"),
        (["tune", "matmul", "8", "m=8", "k=8"], "m"),
        (["tune", "matmul", "m=8", "8", "8"], "name it too"),
        (["tune", "matmul", "m=8", "m=8", "8"], "given twice"),
        ([*SMALL, "--dtype", "float33"], "float33"),
        ([*SMALL, "--target", "cuda"], "cuda"),
        ([*SMALL, "--target", "llvm -mcpu=nonsense"], "nonsense"),
        ([*SMALL, "--target", "llvm -num-cores=10000"], "10000"),
        ([*SMALL, "--trials", "0"], "at least 1"),
        ([*SMALL, "--seconds", "0"], "above 0"),
        ([*SMALL, "--strategy", "guess"], "annealing, beam, evolution, random"),
        ([*SMALL, "--strategy", "nowhere:Guess"], "imported"),
        ([*SMALL, "--model", "guess"], "the models are pretrained, xgb, none, package.module:Name"),
        ([*SMALL, "--model", "validity"], "does not rank"),
        ([*SMALL, "--model", "two.py"], "not a model file"),
        ([*SMALL, "--space", "grid"], "sketch, loop"),
        ([*SMALL, "--resume", "--out", "broken"], "run.json"),
        (["tune", "missing.py"], "missing.py"),
        (["tune", "syntax.py"], "syntax.py"),
        (["tune", "two.py"], "two"),
        (["list", "--suite", "nothing"], "nothing"),
    ],
    ids=lambda value: "_".join(value[1:])[:60] if isinstance(value, list) else "",
)
def test_bad_input_is_one_clear_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    (tmp_path / "syntax.py").write_text("def main(:\n")
    (tmp_path / "two.py").write_text(_TWO)
    ValidityModel().save(tmp_path / "validity")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) <= 2
    assert lines[0].startswith("error:")
    assert message in done.stderr
    assert not list(tmp_path.glob("runs"))


_TWO = """
from tvm.script import ir as I
from tvm.script import tirx as T

@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def one(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]

    @T.prim_func(s_tir=True)
    def two(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
"""


def test_another_workloads_folder_is_left_alone(finished: Path) -> None:
    before = (finished / "out" / "records.jsonl").read_bytes()
    done = run("tune", "matmul", "32", "32", "32", "--out", "out", "--resume", cwd=finished)
    assert done.returncode == 2
    assert "another --out" in done.stderr
    done = run(*SMALL, "--out", "out", cwd=finished)
    assert done.returncode == 2
    assert "--resume" in done.stderr
    assert (finished / "out" / "records.jsonl").read_bytes() == before


def test_a_corrupt_line_is_named_and_kept(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "out", tmp_path / "out")
    records = tmp_path / "out" / "records.jsonl"
    lines = records.read_text().splitlines()
    lines[2] = lines[2][:50]
    records.write_text("\n".join(lines) + "\n")
    done = run(*SMALL, "--trials", "8", "--out", "out", "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "line 3" in done.stdout
    assert records.read_text().splitlines()[2] == lines[2]
    assert len(Store(records).read().records) == 8


@pytest.mark.parametrize("broken", ["apache-tvm", "apache-tvm-ffi"])
def test_a_broken_installation_is_named(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The real check, over a metadata folder that says what a broken installation would say.
    info = tmp_path / f"{broken.replace('-', '_')}-0.1.15.dist-info"
    if broken == "apache-tvm-ffi":
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {broken}\nVersion: 0.1.15\n")
        script = "from tensortune.cli.app import main; main()"
    else:
        script = (
            "import importlib.metadata as m; version = m.version\n"
            "def gone(name):\n"
            "    if name == 'apache-tvm': raise m.PackageNotFoundError(name)\n"
            "    return version(name)\n"
            "m.version = gone\n"
            "from tensortune.cli.app import main; main()"
        )
    environment = dict(os.environ)
    environment["PYTHONPATH"] = f"{tmp_path}:{environment.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", script, *SMALL],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr


def start(folder: Path, *arguments: str, **settings: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *SMALL, "--out", "out", "--resume", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,  # type: ignore[call-overload]
    )


def wait_for_records(folder: Path, n: int) -> None:
    deadline = time.monotonic() + 60
    path = folder / "out" / "records.jsonl"
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= n:
            return
        time.sleep(0.02)
    raise AssertionError("no records after a minute")


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    process = start(tmp_path, "--trials", "1000")
    wait_for_records(tmp_path, 5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--resume" in errors
    assert "Traceback" not in errors
    contents = Store(tmp_path / "out" / "records.jsonl").read()
    assert len(contents.records) >= 5
    assert not contents.problems


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    first = start(tmp_path, "--trials", "1000")
    wait_for_records(tmp_path, 2)
    try:
        second = start(tmp_path, "--trials", "4")
        _, errors = second.communicate(timeout=60)
        assert second.returncode == 2
        assert "another process is tuning" in errors
    finally:
        first.kill()
        first.communicate()


def test_kill_9_ten_times_and_every_trial_counts_once(tmp_path: Path) -> None:
    rng = random.Random(0)
    path = tmp_path / "out" / "records.jsonl"
    seen = 0
    for _ in range(10):
        process = start(tmp_path, "--trials", "400", "--strategy", "random")
        time.sleep(rng.uniform(0.5, 5.0))
        process.kill()
        process.communicate()
        now = len(Store(path).read().records) if path.exists() else 0
        assert now >= seen, "a stored trial is never lost"
        seen = now
    total = seen + 20
    done = start(tmp_path, "--trials", str(total), "--strategy", "random", "--json", "f.json")
    done.communicate()
    assert done.returncode == 0
    records = Store(path).read().records
    assert len({record.candidate for record in records}) == total
    assert json.loads((tmp_path / "f.json").read_text())["trials"] == total


def test_a_full_disk_keeps_what_fits(tmp_path: Path) -> None:
    def limit() -> None:
        # A file may not grow beyond this: the same error as a full disk, without filling one.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))

    process = start(tmp_path, "--trials", "30", preexec_fn=limit)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "--resume" in errors
    assert "Traceback" not in errors
    kept = Store(tmp_path / "out" / "records.jsonl").read()
    assert kept.records
    assert not kept.problems
    again = start(tmp_path, "--trials", "10", "--json", "f.json")
    again.communicate(timeout=120)
    assert json.loads((tmp_path / "f.json").read_text())["trials"] == 10


def test_help_has_examples() -> None:
    for command in (["tune"], ["list"], ["doctor"], ["bench", "measure"]):
        done = CliRunner().invoke(app, [*command, "--help"])
        assert done.exit_code == 0
        assert f"tensortune {' '.join(command)}" in done.output
