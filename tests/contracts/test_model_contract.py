"""What every cost model keeps to. A new model is a new entry in CASES."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, ModelFileError, Samples
from tensortune.costmodel.files import load_model
from tensortune.costmodel.metrics import pairwise_accuracy
from tensortune.costmodel.model_file import arguments_of
from tensortune.costmodel.validity import ValidityModel
from tensortune.costmodel.xgb import XGBModel

WIDTH = 12
SCHEMA = FeatureSchema("made-up", 1, WIDTH)


@dataclass(frozen=True)
class ModelCase:
    """A model under test.

    Attributes:
        make: Builds an untrained model; takes its constructor's options.
        options: For each constructor option a value that changes what the model predicts.
        quiet: Options that change how, and not what, with a value.
        learns: What the model's predictions rank: `speed`, or which programs are `valid`.
        needs: An optional package that it needs.
    """

    make: Callable[..., Any]
    options: dict[str, Any]
    quiet: dict[str, Any]
    learns: str = "speed"
    needs: str = "numpy"


_XGB = {
    "rounds": 10,
    "max_depth": 1,
    "learning_rate": 0.05,
    "min_child_weight": 8.0,
    "reg_lambda": 30.0,
    "column_share": 1.0,
    "seed": 1,
}


def _xgb(objective: str) -> ModelCase:
    other = {"objective": "rank" if objective == "regression" else "regression"}
    return ModelCase(
        partial(XGBModel, objective=objective), _XGB | other, {"threads": 2, "warm_start": True}
    )


_VALIDITY = {"rounds": 5, "max_depth": 1, "learning_rate": 0.05, "min_failures": 10**6, "seed": 1}


def _treegru(**options: Any) -> Any:
    made = import_module("tensortune.costmodel.treegru").TreeGRU
    # 300 programs are few for a network: more epochs of longer steps than usual.
    usual = {"embedding": 32, "hidden": 32, "epochs": 100, "learning_rate": 1e-2, "patience": 40}
    return made(**usual | options)


_TREEGRU = {
    "embedding": 64,
    "hidden": 64,
    "epochs": 3,
    "learning_rate": 1e-4,
    "weight_decay": 0.1,
    "clip": 1e-3,
    "holdout": 0.3,
    "patience": 1,
    "seed": 1,
}

CASES = {
    "treegru": ModelCase(_treegru, _TREEGRU, {}, needs="torch"),
    "xgb-rank": _xgb("rank"),
    "xgb-regression": _xgb("regression"),
    "validity": ModelCase(ValidityModel, _VALIDITY, {"threads": 2}, learns="valid"),
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> ModelCase:
    found = CASES[request.param]
    pytest.importorskip(found.needs)
    return found


def problem(n: int, seed: int = 0) -> Samples:
    """Programs of one to three statements in two workloads, some of which fail.

    A statement takes a time that three of its columns decide; a program takes the sum of them,
    times its workload's scale, and most of it in its first statement, as kernels do. It fails when
    another column is large in any statement.
    """
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, n)
    rows = rng.uniform(0.0, 8.0, (int(counts.sum()), WIDTH)).astype(np.float32)
    programs = np.repeat(np.arange(n), counts)
    groups = rng.integers(0, 2, n)
    rows[:, 2] = 0.0
    rows[np.cumsum(counts) - counts, 2] = 6.0
    times = 2.0 ** rows[:, 2] * (2.0 ** rows[:, 1] + 2.0 ** (2.0 * np.abs(rows[:, 4] - 4.0)))
    latency = np.bincount(programs, times) * np.where(groups == 0, 1e-6, 1e-3)
    failed = np.bincount(programs, rows[:, 7] > 6.8) > 0
    return Samples(SCHEMA, rows, counts, np.where(failed, np.inf, latency), groups)


TRAINING = problem(300)
TEST = problem(200, seed=1)


def fitted(case: ModelCase, **options: Any) -> Any:
    model = case.make(**options)
    model.fit(TRAINING)
    return model


def test_before_a_fit_all_are_equal(case: ModelCase) -> None:
    scores = case.make().predict(TEST)
    assert scores.shape == (len(TEST),)
    assert scores.dtype == np.float64
    assert len(set(scores.tolist())) == 1


def test_it_learns(case: ModelCase) -> None:
    scores = fitted(case).predict(TEST)
    valid = np.isfinite(TEST.latency_s)
    if case.learns == "valid":
        truth, group = np.where(valid, 1.0, 2.0), np.zeros(len(TEST), np.int64)
    else:
        truth, group = TEST.latency_s, TEST.groups
    # Chance is 0.5. With 50 programs or more a group's accuracy has a standard deviation of about
    # 0.04 for scores at random: 0.75 is six of them away, and a model that learns has 0.8 to 0.95.
    for number in set(group.tolist()):
        member = (group == number) & np.isfinite(truth)
        assert pairwise_accuracy(scores[member], truth[member]) > 0.75


def test_the_same_seed_is_the_same_model(case: ModelCase) -> None:
    first = fitted(case, seed=3).predict(TEST)
    assert (fitted(case, seed=3).predict(TEST) == first).all()


def test_a_fit_replaces_the_one_before(case: ModelCase) -> None:
    model = case.make()
    model.fit(problem(100, seed=5))
    model.fit(TRAINING)
    assert (model.predict(TEST) == fitted(case).predict(TEST)).all()


def test_training_leaves_alone_the_global_generator(case: ModelCase) -> None:
    before = list(np.random.get_state()[1])  # noqa: NPY002
    fitted(case).predict(TEST)
    assert list(np.random.get_state()[1]) == before  # noqa: NPY002


def test_predictions_do_not_depend_on_batch_or_order(case: ModelCase) -> None:
    model = fitted(case)
    scores = model.predict(TEST)
    order = np.random.default_rng(0).permutation(len(TEST))
    assert (model.predict(TEST.take(order)) == scores[order]).all()
    alone = [model.predict(TEST.take([i]))[0] for i in range(20)]
    assert alone == scores[:20].tolist()
    assert model.predict(TEST.take([])).shape == (0,)


def test_predictions_do_not_look_at_latencies(case: ModelCase) -> None:
    model = fitted(case)
    unmeasured = replace(TEST, latency_s=np.full(len(TEST), np.nan))
    assert (model.predict(unmeasured) == model.predict(TEST)).all()


def test_inputs_are_left_alone(case: ModelCase) -> None:
    names = ("rows", "counts", "latency_s", "groups")
    given = problem(60)
    given.rows[3, 2] = np.inf
    kept = {name: getattr(given, name).copy() for name in names}
    model = case.make()
    model.fit(given)
    model.predict(given)
    for name in names:
        assert np.array_equal(getattr(given, name), kept[name]), name


def _with(latency_s: Any, n: int = 12) -> Samples:
    return replace(problem(n), latency_s=np.broadcast_to(np.float64(latency_s), n).copy())


def _rows_of(value: float) -> Samples:
    samples = problem(40)
    return replace(samples, rows=np.full_like(samples.rows, value))


def _without_rows() -> Samples:
    empty = np.empty((0, WIDTH), np.float32)
    return Samples.of(SCHEMA, [problem(1).rows, empty, problem(1).rows, empty], [1, 2, 3, np.inf])


AWKWARD = {
    "nothing": problem(12).take([]),
    "failures only": _with(np.inf),
    "nothing measured": _with(np.nan),
    "one program": problem(12).take([0]),
    "one success": _with([1e-3] + [np.inf] * 11),
    "equal latencies": _with(1e-3),
    "NaN features": _rows_of(np.nan),
    "infinite features": _rows_of(np.inf),
    "huge features": _rows_of(3e38),
    "equal features": _rows_of(1.0),
    "programs without statements": _without_rows(),
    "groups of one": replace(problem(12), groups=np.arange(12)),
    "far apart group numbers": replace(problem(12), groups=np.arange(12) * 2**55 - 2**58),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", sorted(AWKWARD))
def test_awkward_samples_are_survived(case: ModelCase, name: str) -> None:
    model = case.make()
    model.fit(AWKWARD[name])
    for samples in (*AWKWARD.values(), TEST):
        scores = model.predict(samples)
        assert scores.shape == (len(samples),)
        assert np.isfinite(scores).all()


def test_failures_do_not_change_what_is_fast(case: ModelCase) -> None:
    if case.learns == "valid":
        pytest.skip("failures are what it learns from")
    model = case.make()
    model.fit(TRAINING.take(np.isfinite(TRAINING.latency_s)))
    assert (model.predict(TEST) == fitted(case).predict(TEST)).all()


def test_every_option_is_stored_and_takes_effect(case: ModelCase) -> None:
    usual = fitted(case).predict(TEST)
    untried = set(arguments_of(case.make())) - set(case.options) - set(case.quiet)
    assert not untried
    for name, value in (case.options | case.quiet).items():
        model = fitted(case, **{name: value})
        assert getattr(model, name) == value
        assert (model.predict(TEST) != usual).any() == (name in case.options), name


def test_other_features_are_refused(case: ModelCase) -> None:
    model = fitted(case)
    later = replace(SCHEMA, version=2)
    for schema in (later, replace(SCHEMA, space="elsewhere"), replace(SCHEMA, name="other")):
        with pytest.raises(
            ValueError, match=f"version 1.*`{schema.name}` version {schema.version}"
        ):
            model.predict(replace(TEST, schema=schema))


def test_a_saved_model_predicts_the_same_to_the_bit(case: ModelCase, tmp_path: Path) -> None:
    model = fitted(case)
    model.save(tmp_path / "model", workloads=["abc"])
    for loaded in (type(model).load(tmp_path / "model"), load_model(tmp_path / "model")):
        assert type(loaded) is type(model)
        assert (loaded.predict(TEST) == model.predict(TEST)).all()
    code = (
        "import sys, numpy as np\n"
        "from tensortune.costmodel.base import FeatureSchema, Samples\n"
        "from tensortune.costmodel.files import load_model\n"
        "d = np.load(sys.argv[2])\n"
        f"schema = FeatureSchema('made-up', 1, {WIDTH})\n"
        "s = Samples(schema, d['rows'], d['counts'], d['latency_s'], d['groups'])\n"
        "np.save(sys.argv[3], load_model(sys.argv[1]).predict(s))\n"
    )
    names = ("rows", "counts", "latency_s", "groups")
    np.savez(tmp_path / "test.npz", **{name: getattr(TEST, name) for name in names})
    paths = [str(tmp_path / name) for name in ("model", "test.npz", "scores.npy")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True)
    assert (np.load(tmp_path / "scores.npy") == model.predict(TEST)).all()


def test_an_untrained_model_can_be_saved(case: ModelCase, tmp_path: Path) -> None:
    name, value = next(iter(case.options.items()))
    case.make(**{name: value}).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert getattr(loaded, name) == value
    assert len(set(loaded.predict(TEST).tolist())) == 1


def test_a_loaded_model_can_be_fitted_again(case: ModelCase, tmp_path: Path) -> None:
    case.make(seed=4).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    loaded.fit(TRAINING)
    assert (loaded.predict(TEST) == fitted(case, seed=4).predict(TEST)).all()


def test_a_file_of_other_features_is_refused(case: ModelCase, tmp_path: Path) -> None:
    fitted(case).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"version 1.*version 2"):
        load_model(tmp_path / "model", replace(SCHEMA, version=2))
