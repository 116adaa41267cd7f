"""What a user hands to `ms.tune_tir`: names, objects, paths, and what is said of wrong ones."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tensortune import metaschedule as tt_ms
from tensortune.costmodel.base import ModelFileError, Samples
from tensortune.costmodel.validity import ValidityModel
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload
from tensortune.search.evolution import Evolution

TARGET = cpu_target("llvm -num-cores=1")
MOD = workload("matmul", 64, 64, 64).mod


class Plain:
    """The least that is a cost model."""

    def fit(self, samples: Samples) -> None: ...
    def predict(self, samples: Samples) -> np.ndarray:
        return np.zeros(len(samples))


@derived_object
class HalfFails(ms.builder.PyBuilder):
    """Builds nothing, and says of every other program that it does not compile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.built = 0

    def build(self, inputs: Sequence[Any]) -> list[Any]:
        results = []
        for _ in inputs:
            self.built += 1
            path = tempfile.mkdtemp(dir=self.folder)
            built = self.built % 2 == 0
            results.append(
                ms.builder.BuilderResult(f"{path}/kernel", None)
                if built
                else ms.builder.BuilderResult(None, "compile: it does not")
            )
        return results


@derived_object
class CountingRunner(ms.runner.PyRunner):
    """Says of the n-th program that it takes n ms."""

    def __init__(self) -> None:
        self.runs = 0

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        futures = []
        for _ in inputs:
            self.runs += 1
            result = ms.runner.RunnerResult([1e-3 * self.runs], None)
            futures.append(ms.runner.RunnerFuture(lambda: True, lambda result=result: result))
        return futures


def tune(folder: Path, mod: Any = MOD, trials: int = 16, **parts: Any) -> Any:
    """`ms.tune_tir` itself, with everything but the measurements."""
    tt_ms.skip_gpu_intrinsics()
    # It takes the handlers that are there for its own, by name, and those of pytest have none.
    logging.getLogger("tvm.s_tir.meta_schedule").handlers.clear()
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return ms.tune_tir(
        mod,
        TARGET,
        str(folder / "work"),
        max_trials_global=trials,
        num_trials_per_iter=8,
        builder=HalfFails(scratch),
        runner=CountingRunner(),
        seed=1,
        **parts,
    )


def test_programs_that_do_not_compile_reach_our_model(tmp_path: Path) -> None:
    model = tt_ms.cost_model("xgb")
    database = tune(tmp_path, cost_model=model, strategy=tt_ms.strategy("annealing"))
    assert len(database) == 16
    # MetaSchedule's own callback would have told it of the other half only.
    assert sorted(model.trials(MOD)) == pytest.approx(
        [1e-3 * i for i in range(1, 9)] + [np.inf] * 8
    )


def test_a_work_dir_of_another_workload_is_refused_in_one_line(tmp_path: Path) -> None:
    tune(tmp_path, trials=8, strategy=tt_ms.strategy("random"))
    files = [path for path in (tmp_path / "work").iterdir() if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    assert len(before) == 2
    other = workload("matmul", 96, 96, 96).mod
    with pytest.raises(ValueError, match="8 records of other workloads") as caught:
        tune(tmp_path, other, strategy=tt_ms.strategy("random"))
    assert "choose another `work_dir`" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in files} == before
    more = tt_ms.strategy("random", other_records=True)
    assert len(tune(tmp_path, other, trials=8, strategy=more)) == 16


def test_their_search_goes_on_with_a_model_that_learnt_the_work_dir(tmp_path: Path) -> None:
    assert not tt_ms.cost_model(work_dir=tmp_path / "work").trials(MOD), "nothing is there yet"
    tune(tmp_path, strategy=tt_ms.strategy("random"))
    assert len(tt_ms.cost_model(work_dir=tmp_path / "work").trials(MOD)) == 16


def test_models_by_name_object_and_path(tmp_path: Path) -> None:
    path = tmp_path / "saved.model"
    tt_ms.cost_model("xgb").save(str(path))
    here = f"{__name__}:Plain"
    given = ("xgb", "pretrained", XGBModel(), Plain(), path, str(path), here)
    models = [tt_ms.cost_model(m) for m in given]
    kinds = [type(model.model).__name__ for model in models]
    assert kinds == ["XGBModel"] * 3 + ["Plain", "XGBModel", "XGBModel", "Plain"]
    assert all(isinstance(model, ms.cost_model.CostModel) for model in models)


def test_strategies_by_name_class_and_import_path() -> None:
    for given in (
        "annealing",
        "evolution",
        "random",
        Evolution,
        f"{Evolution.__module__}:Evolution",
    ):
        assert isinstance(tt_ms.strategy(given), ms.search_strategy.SearchStrategy)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tt_ms.cost_model("xgboost"), "no model `xgboost`, and no file"),
        (lambda: tt_ms.cost_model("no.such:Model"), "`no.such:Model` can't be made"),
        (lambda: tt_ms.cost_model(ValidityModel), "not a class"),
        (lambda: tt_ms.cost_model(3), "3 has not"),
        (lambda: tt_ms.strategy("anealing"), "no strategy `anealing`"),
        (lambda: tt_ms.strategy("no.such:Strategy"), "can't be imported"),
        (lambda: tt_ms.strategy(object()), "give its class"),
        (lambda: tt_ms.strategy(batch=0), "at least 1 trial"),
    ],
)
def test_bad_input_is_told_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_file_that_holds_no_cost_model_is_refused(tmp_path: Path) -> None:
    ValidityModel().save(tmp_path / "validity")
    (tmp_path / "text").write_text("no model")
    for name, told in [("validity", "kind `validity`"), ("text", "is not a model file")]:
        with pytest.raises(ModelFileError, match=told) as caught:
            tt_ms.cost_model(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_the_intrinsics_of_gpus_are_skipped() -> None:
    """Their import takes 13 s; the default rules need the CPU's."""
    code = (
        "import sys\n"
        "from tensortune import metaschedule as tt_ms\n"
        "tt_ms.skip_gpu_intrinsics()\n"
        "from tvm.s_tir import meta_schedule as ms\n"
        "from tensortune.data.target import cpu_target\n"
        "from tensortune.data.workload import workload\n"
        "mod = workload('matmul', 64, 64, 64).mod\n"
        "context = ms.TuneContext(mod, target=cpu_target(), space_generator='post-order-apply')\n"
        "assert len(context.generate_design_space()) == 3\n"
        "assert 'tvm.s_tir.tensor_intrin.cuda' not in sys.modules\n"
        "import tvm.s_tir.tensor_intrin.x86\n"
        "assert tvm.s_tir.tensor_intrin.x86.VNNI_DOT_16x4_INTRIN\n"
        "tt_ms.skip_gpu_intrinsics()\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)
