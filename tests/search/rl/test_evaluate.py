"""Judging a policy: its figures, the folder it can be taken up in, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm_ffi import structural_equal

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

from tensortune.costmodel.base import ModelFileError, Samples
from tensortune.costmodel.features.schemas import GENERAL
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.finals import check_outputs, make_reference
from tensortune.data.loop_space import LoopSpace
from tensortune.data.measure import LocalMeasurer
from tensortune.data.suites import is_held_out
from tensortune.data.workload import workload
from tensortune.search.rl.chooser import Chooser, find_model, load_speed
from tensortune.search.rl.evaluate import EvaluateSettings, evaluate, held_out_shapes
from tensortune.search.rl.evaluate_figures import SECONDS, SPEEDS, geomean, ratios, tables
from tensortune.search.rl.nest_features import SCHEMA, features
from tensortune.search.rl.rivals import RandomTrials, search_metaschedule

from .policies import TARGET, tiny_policy

SHAPES = [workload("matmul", 48, 48, 40), workload("conv2d", 1, 7, 7, 8, 16, 3, 1, 1)]
SETTINGS = EvaluateSettings(measurements=2, rollouts=4, metaschedule=0, random=3)
WITHOUT_METASCHEDULE = [name for name in (*SPEEDS, SECONDS) if "metaschedule" not in name]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy's file, with a model of loop nests beside it."""
    path = tmp_path_factory.mktemp("policy") / "mine.ttp"
    tiny_policy().save(path)
    nest_model().save(path.with_suffix(".ttm"))
    return path


def nest_model() -> XGBModel:
    """A model that likes few loops: others may take long to compile."""
    space, rng = LoopSpace(SHAPES[0], TARGET), np.random.default_rng(0)
    nests = [space.nest(candidate) for candidate in space.sample(rng, 40)]
    rows = [np.array(features(nest, 1), np.float32) for nest in nests]
    latency_s = [math.exp(len(nest.loops)) for nest in nests]
    model = XGBModel("regression", rounds=20, threads=1)
    model.fit(Samples.of(SCHEMA, rows, latency_s))
    return model


@pytest.fixture(scope="module")
def evaluated(
    policy: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    out = tmp_path_factory.mktemp("evaluation")
    return evaluate(SHAPES, SETTINGS, policy=policy, out=out, say=lambda line: None), out


def test_every_figure_is_there(evaluated: tuple[dict[str, Any], Path]) -> None:
    result, _ = evaluated
    product, convolution = result["shapes"]
    assert [shape["workload"] for shape in result["shapes"]] == [item.key for item in SHAPES]
    assert not result["left_out"]
    assert product["errors"] == convolution["errors"] == {}
    for block in (product, product["unmeasured"]):
        assert all(block[name] for name in WITHOUT_METASCHEDULE), product["latency_s"]
        assert block["speed_vs_metaschedule"] is None
    assert convolution["speed_vs_numpy"] is None
    assert convolution["missing"].keys() >= {"numpy"}
    for block in (result["geomean"], result["geomean_unmeasured"]):
        assert all(block[name] > 0 for name in WITHOUT_METASCHEDULE)
        low, high = block["speed_vs_untuned_ci95"]
        assert 0 < low <= block["speed_vs_untuned"] <= high
        assert block["speed_vs_numpy_ci95"] is None  # of one shape
    for table in tables(result):
        assert table.row_count > 1


def test_measuring_takes_longer_and_counts(evaluated: tuple[dict[str, Any], Path]) -> None:
    for shape in evaluated[0]["shapes"]:
        seconds = shape["seconds"]
        assert shape[SECONDS] == seconds["policy_measured"] > shape["unmeasured"][SECONDS]
        assert shape["unmeasured"][SECONDS] == pytest.approx(
            sum(s for part, s in seconds.items() if part.startswith("policy: "))
        )
        latency_s = shape["latency_s"]
        assert shape["speed_vs_beam"] == pytest.approx(
            latency_s["beam_measured"] / latency_s["policy_measured"]
        )


def test_what_is_finished_is_not_done_again(
    evaluated: tuple[dict[str, Any], Path], policy: Path
) -> None:
    result, out = evaluated
    said: list[str] = []
    again = evaluate(SHAPES, SETTINGS, policy=policy, out=out, say=said.append)
    assert again == result
    assert [line.endswith("done before") for line in said] == [True, True]
    with pytest.raises(ValueError, match=r"with random 3, not 4; choose another"):
        evaluate(SHAPES, replace(SETTINGS, random=4), policy=policy, out=out)


def test_what_the_policy_cannot_take_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "small.ttp"
    tiny_policy(max_loops=3).save(path)
    result = evaluate(SHAPES[1:], SETTINGS, policy=path, say=lambda line: None)
    (left,) = result["left_out"]
    assert left["workload"] == SHAPES[1].key
    assert "6 loops" in left["error"]
    assert result["geomean"]["speed_vs_untuned"] is None
    assert tables(result)[0].row_count == 0


def test_metaschedule_finds_a_program() -> None:
    tiny = workload("matmul", 16, 16, 16)
    with LocalMeasurer(tiny, TARGET) as measurer:
        found = search_metaschedule(measurer, 4, 0)
        (verdict,) = check_outputs(measurer, make_reference(measurer), [found.mod])
    assert verdict.right
    assert found.seconds > 0


def test_random_draws_are_told_for_any_time() -> None:
    space = LoopSpace(SHAPES[0], TARGET)
    with LocalMeasurer(SHAPES[0], TARGET) as measurer:
        trials = RandomTrials(space, measurer, 4, 0.001, 0)
    assert len(trials.records) == 4
    first, every = trials.best(0.0), trials.best()
    assert first.seconds == trials.done_s[0] < every.seconds == trials.done_s[-1]
    fastest = min(trials.records, key=lambda record: record.latency_s)
    assert structural_equal(every.mod, space.schedule(fastest.candidate).mod)


def test_a_model_chooses_among_rollouts(policy: Path) -> None:
    speed = load_speed(policy.with_suffix(".ttm"), TARGET)
    own = Chooser(tiny_policy(), TARGET).choose(SHAPES[0])
    assert len(own.candidates) == 1
    chosen = Chooser(tiny_policy(), TARGET, speed=speed, rollouts=16).choose(SHAPES[0])
    values = speed([(chosen.space, candidate) for candidate in chosen.candidates])
    assert own.candidates[0] in chosen.candidates
    assert 1 < len(chosen.candidates) <= 16
    assert np.all(np.diff(values) <= 0)
    assert chosen.scheduled.candidate == chosen.candidates[0]


def test_models_are_found_beside_the_policy_or_where_they_are_named(
    policy: Path, tmp_path: Path
) -> None:
    assert find_model(None, policy) == policy.with_suffix(".ttm")
    assert find_model("none", policy) is None
    assert find_model(None, tmp_path / "alone.ttp") is None
    with pytest.raises(FileNotFoundError, match="no model"):
        find_model(tmp_path / "none.ttm", policy)
    other = XGBModel(rounds=2)
    rows = [np.zeros((1, GENERAL.width), np.float32) + i for i in range(4)]
    other.fit(Samples.of(GENERAL, rows, [1.0, 2.0, 3.0, 4.0]))
    other.save(tmp_path / "general.ttm")
    with pytest.raises(ModelFileError, match="features `general`"):
        load_speed(tmp_path / "general.ttm", TARGET)


def test_the_held_out_shapes_are_spread_over_the_split() -> None:
    shapes = held_out_shapes()
    assert len(set(shapes)) == 25
    assert all(is_held_out(item) for item in shapes)
    assert set(held_out_shapes(220)) > set(shapes)
    with pytest.raises(ValueError, match="1 to 220"):
        held_out_shapes(0)


def test_a_ratio_is_of_what_had_as_much() -> None:
    latency_s = {"policy": 2.0, "policy_measured": 1.0, "untuned": 8.0}
    latency_s |= {"beam": 4.0, "beam_measured": 3.0}
    assert ratios(latency_s, 0.5, False)["speed_vs_beam"] == 2.0
    assert ratios(latency_s, 0.5, True)["speed_vs_beam"] == 3.0
    assert ratios(latency_s, 0.5, True)["speed_vs_untuned"] == 8.0
    assert ratios(latency_s, 0.5, True)["speed_vs_numpy"] is None
    assert ratios(latency_s, 0.5, True)[SECONDS] == 0.5


def test_means_are_geometric_and_leave_out_what_is_missing() -> None:
    shapes = [{"speed_vs_numpy": v, "speed_vs_beam": None} for v in (1.0, 4.0, 2.0)]
    found = geomean(shapes)
    assert found["speed_vs_numpy"] == pytest.approx(2.0)
    low, high = found["speed_vs_numpy_ci95"]
    assert 1.0 <= low < 2.0 < high <= 4.0
    assert found["speed_vs_beam"] is None
    assert found["speed_vs_beam_ci95"] is None


@pytest.mark.parametrize(
    "wrong", [{"rollouts": 0}, {"random": 0}, {"measurements": -1}, {"metaschedule": -1}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"at least|or more"):
        EvaluateSettings(**wrong)
