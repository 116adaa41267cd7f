"""The bench of transfer: its ratios, from runs that are known, and a small real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortune.costmodel import pretrained
from tensortune.costmodel.features.schemas import STATEMENTS
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.families import ANSOR_FAMILIES, family_of
from tensortune.data.suites import is_held_out
from tensortune.data.workload import workload
from tensortune.search import bench_transfer as module
from tensortune.search.bench_transfer import figures, reached, table
from tensortune.search.compare import Entrant


def curve(*best_s: float | None, each_s: float = 2.0) -> list[Any]:
    return [(trial, trial * each_s, best) for trial, best in enumerate(best_s, start=1)]


def runs(*curves: list[Any], best_s: float = 1.0) -> dict[str, Any]:
    return {"curves": list(curves), "best_s_by_seed": [best_s] * len(curves)}


COLD = curve(None, 8.0, 4.0, 2.0, 2.0, 2.0, 2.0, 1.0)


def test_the_trials_and_seconds_to_a_quality() -> None:
    assert reached(COLD, 4.0) == (3, 6.0)
    assert reached(COLD, 0.5) is None


def test_what_a_warm_run_needs() -> None:
    labels = {
        "cold": runs(COLD),
        "warm": runs(curve(2.0, 1.005, 1.0, each_s=1.0), best_s=0.5),
        "misled": runs(COLD, best_s=1.25),
    }
    found = figures({"a": labels, "b": labels})
    assert found["trials_ratio"] == pytest.approx(2 / 8)
    assert found["seconds_ratio"] == pytest.approx(2 / 16)
    assert found["quality_ratio"] == pytest.approx(2.0)
    assert found["misleading_quality_ratio"] == pytest.approx(0.8)
    assert (found["pairs"], found["censored"]) == (2, 0)
    assert found["workloads"]["a"]["trials_ratio"] == pytest.approx(2 / 8)
    # Workloads that agree leave nothing to be unsure of.
    assert found["trials_ratio_ci95"] == pytest.approx([2 / 8, 2 / 8])
    json.dumps(found)
    assert table(found).row_count == 3


def test_a_warm_run_that_never_gets_there_counts_whole() -> None:
    never = curve(3.0, 2.0, 2.0, 2.0)
    found = figures({"a": {"cold": runs(COLD), "warm": runs(never, COLD)}})
    row = found["workloads"]["a"]
    assert (row["pairs"], row["censored"]) == (2, 1)
    assert row["trials_ratio"] == pytest.approx(np.sqrt(4 / 8 * 8 / 8))
    assert row["misleading_quality_ratio"] is None
    assert table(found).row_count == 2


def test_every_cold_run_is_taken_with_every_warm_one() -> None:
    other = curve(None, 1.0, 1.0, 1.0)
    found = figures({"a": {"cold": runs(COLD, other), "warm": runs(COLD, other, other)}})
    assert found["pairs"] == 6
    logs = [np.log(w / c) for c in (8, 2) for w in (8, 2, 2)]
    assert found["trials_ratio"] == pytest.approx(np.exp(np.mean(logs)))
    low, high = found["workloads"]["a"]["trials_ratio_ci95"]
    assert low < found["trials_ratio"] < high


def test_runs_that_failed_are_left_out() -> None:
    found = figures({"a": {"cold": runs(curve(None, None)), "warm": runs(COLD)}, "b": {}})
    assert found["trials_ratio"] is None
    assert found["pairs"] == 0
    assert table(found).row_count == 3


def test_intervals_are_over_workloads() -> None:
    rng = np.random.default_rng(0)
    fast = [curve(*[2.0] * (n - 1), 1.0) for n in rng.integers(1, 5, size=20)]
    found = figures({f"w{i}": {"cold": runs(COLD), "warm": runs(c)} for i, c in enumerate(fast)})
    low, high = found["trials_ratio_ci95"]
    assert low < found["trials_ratio"] < high < 1


def test_one_held_out_workload_of_each_family() -> None:
    usual = module.usual_workloads()
    assert [family_of(item.key) for item in usual] == list(ANSOR_FAMILIES)
    assert all(map(is_held_out, usual))


def test_a_workload_of_the_training_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = workload("matmul", 32, 32, 32)
    known = pretrained.Pretrained(None, None, (item.identity,))
    monkeypatch.setattr(pretrained, "load", lambda: known)
    with pytest.raises(ValueError, match=r"matmul.*ansor"):
        module.bench_transfer([item], out=tmp_path)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model of the test's own in the place of the package's."""
    prior = XGBModel(rounds=2)
    prior.save(tmp_path / "prior.ttm")
    assert prior.schema is None or prior.schema == STATEMENTS
    entrants = (
        Entrant("cold", "random", model="none"),
        Entrant("warm", "annealing", model=str(tmp_path / "prior.ttm")),
        Entrant("misled", "random", model="none"),
    )
    monkeypatch.setattr(module, "ENTRANTS", entrants)
    monkeypatch.setattr(pretrained, "load", lambda: pretrained.Pretrained(None, None))
    item = workload("matmul", 32, 32, 32)
    found = module.bench_transfer([item], seeds=1, trials=2, out=tmp_path / "out")
    assert found["pairs"] == 1
    assert not found["left_out"]
    assert 0.5 <= found["trials_ratio"] <= 2
    assert found["seconds_ratio"] > 0
    assert 0 < found["misleading_quality_ratio"] < 10
    assert json.loads((tmp_path / "out" / "transfer.json").read_text())["pairs"] == 1
