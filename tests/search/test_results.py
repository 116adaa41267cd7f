"""What a run leaves behind can be used: applied, explained, loaded by MetaSchedule."""

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.s_tir import meta_schedule as ms
from tvm_ffi import structural_equal
from typer.testing import CliRunner

import tensortune
from tensortune.cli.app import app
from tensortune.data.measure import UNTUNED
from tensortune.search.tune import TuneResult

WORKLOAD = tensortune.matmul(48, 64, 80)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run") / "out"


@pytest.fixture(scope="module")
def result(folder: Path) -> TuneResult:
    found = tensortune.tune(WORKLOAD, trials=20, batch=8, out=folder)
    found.save(folder)
    return found


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((48, 80), dtype=np.float32), rng.random((80, 64), dtype=np.float32)


def test_the_kernel_computes_the_product(result: TuneResult) -> None:
    a, b = arrays()
    np.testing.assert_allclose(result.compile()(a, b), a @ b, rtol=1e-4)
    with pytest.raises(ValueError, match="float32"):
        result.compile()(a.astype(np.float64), b)
    with pytest.raises(ValueError, match="2 arrays"):
        result.compile()(a)


def test_records_schedule_a_module_later(result: TuneResult, folder: Path) -> None:
    renamed = WORKLOAD.mod["main"].with_attr("global_symbol", "product")
    module = tensortune.apply(tvm.IRModule({"product": renamed}), folder)
    assert not structural_equal(module["product"], renamed)
    kernel = tvm.compile(module, target=result.target).jit()["product"]
    a, b = arrays()
    c = tvm.runtime.empty((48, 64), "float32")
    kernel(tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4)


def test_records_of_something_else_are_refused(result: TuneResult) -> None:
    with pytest.raises(ValueError, match="matmul"):
        tensortune.apply(tensortune.softmax(8, 8).mod, result.records)


def test_metaschedule_finds_the_winner(result: TuneResult, folder: Path) -> None:
    database = ms.database.JSONDatabase(
        str(folder / "database" / "database_workload.json"),
        str(folder / "database" / "database_tuning_record.json"),
    )
    found = database.query_schedule(WORKLOAD.mod, result.target, "main")
    assert structural_equal(found.mod, result.schedule().mod)


def test_the_trace_in_best_json_makes_the_winner_again(result: TuneResult, folder: Path) -> None:
    if result.best.candidate == UNTUNED:
        pytest.skip("nothing beat the untuned program")
    best = json.loads((folder / "best.json").read_text())
    schedule = tvm.s_tir.Schedule(WORKLOAD.mod)
    tvm.s_tir.Trace.apply_json_to_schedule(best["trace"], schedule)
    assert structural_equal(schedule.mod, result.schedule().mod)


def test_a_run_is_explained(result: TuneResult, folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["explain", str(folder), "--json", str(tmp_path / "e.json")])
    assert done.exit_code == 0, done.output
    for title in ("what the winner does", "gains from", "where the time went"):
        assert title in done.output
    explained = json.loads((tmp_path / "e.json").read_text())
    assert any("tile loop" in step for step in explained["steps"])
    shares = [share for _, share in explained["importance"]["decisions"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1.0 + 1e-6
    empty = CliRunner().invoke(app, ["explain", str(tmp_path)])
    assert empty.exit_code == 2
    assert "--resume" in empty.stderr
