"""Comparisons: equals come out equal, the handicapped behind, and nothing runs twice."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortune.data.workload import workload
from tensortune.search import compare as module
from tensortune.search.compare import Entrant, compare
from tensortune.search.compare_stats import summarise, tables

SMALL = workload("matmul", 32, 32, 32)


def cells(label: str, factor: float, *, seeds: int = 3, noise: float = 0.02) -> list[Any]:
    """Runs of a strategy whose latency is `factor` ms, up to noise, on four workloads."""
    rng = np.random.default_rng(len(label) + seeds)
    return [
        {
            "workload": f"w{i}",
            "label": label,
            "seed": seed,
            "best_s": 1e-3 * factor * (i + 1) * float(np.exp(rng.normal(0, noise))),
            "wall_s": 10.0 * factor,
            "trials": 64,
            "failures": {"timeout": 1},
        }
        for i in range(4)
        for seed in range(seeds)
    ]


def test_equals_come_out_equal_and_the_slower_behind() -> None:
    result = summarise(
        cells("a", 1.0) + cells("twin", 1.0) + cells("slow", 1.2), ["a", "twin", "slow"]
    )
    low, high = result["strategies"]["a"]["geomean_speed_vs_ci95"]["twin"]
    assert low < 1 < high
    low, high = result["strategies"]["a"]["geomean_speed_vs_ci95"]["slow"]
    assert low > 1.1
    assert low < result["strategies"]["a"]["geomean_speed_vs"]["slow"] < high
    assert result["strategies"]["slow"]["geomean_speed_vs"]["a"] < 1


def test_one_seed_has_no_interval() -> None:
    result = summarise(cells("a", 1.0, seeds=1) + cells("b", 1.0), ["a", "b"])
    assert result["strategies"]["a"]["geomean_speed_vs_ci95"]["b"] == [None, None]
    assert len(tables(result)) == 3


def test_wall_clock_is_ours_over_metaschedules() -> None:
    result = summarise(cells("a", 0.1) + cells("metaschedule", 1.0), ["a", "metaschedule"])
    assert result["strategies"]["a"]["wall_ratio_vs_metaschedule"] == pytest.approx(0.1)


def test_a_failed_run_is_listed_and_left_out() -> None:
    broken = cells("b", 1.0)
    broken[0] |= {"error": "exit code 1: boom", "best_s": float("inf")}
    result = summarise(cells("a", 1.0) + broken, ["a", "b"])
    assert result["left_out"] == [
        {"workload": "w0", "label": "b", "seed": 0, "error": "exit code 1: boom"}
    ]
    assert len(result["workloads"]["w0"]["b"]["best_s_by_seed"]) == 2
    assert result["strategies"]["b"]["wall_ratio_vs_metaschedule"] is None
    assert len(tables(result)) == 3
    json.dumps(result)


@pytest.mark.parametrize(
    ("text", "entrant"),
    [
        ("annealing", Entrant("annealing", "annealing")),
        ("again=annealing", Entrant("again", "annealing")),
        ("half=random:trials=32", Entrant("half", "random", trials=32)),
        ("a8=annealing:batch=8:model=none", Entrant("a8", "annealing", "none", batch=8)),
        ("metaschedule-fast", Entrant("metaschedule-fast", "metaschedule-fast")),
    ],
)
def test_entrants_are_read(text: str, entrant: Entrant) -> None:
    assert Entrant.parse(text) == entrant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("guess", "metaschedule-fast"),
        ("annealing:trials=0", "trials=N"),
        ("annealing:model=guess", "xgb"),
        ("annealing:speed=9", "none of"),
        ("metaschedule:batch=4", "takes no batch"),
        ("metaschedule-fast:model=none", "takes no model"),
        ("numpy=random", "label"),
        ("../x=random", "label"),
    ],
)
def test_entrants_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Entrant.parse(text)


def test_one_label_twice_is_refused(tmp_path: Path) -> None:
    twins = [Entrant("a", "random"), Entrant("a", "annealing")]
    with pytest.raises(ValueError, match="label"):
        compare([SMALL], twins, out=tmp_path)


@pytest.mark.slow
def test_a_comparison_resumes_and_survives_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entrants = [
        Entrant("random", "random"),
        Entrant("annealing", "annealing"),
        Entrant("metaschedule-fast", "metaschedule-fast"),
    ]
    said: list[str] = []
    arguments: dict[str, Any] = {"trials": 6, "out": tmp_path, "say": said.append}
    real = module._run_process

    def crash_once(folder: Path, threads: int) -> str | None:
        return "exit code 1: boom" if "annealing-0" in folder.name else real(folder, threads)

    monkeypatch.setattr(module, "_run_process", crash_once)
    first = compare([SMALL], entrants, seeds=1, **arguments)
    assert [cell["label"] for cell in first["left_out"]] == ["annealing"]
    assert any("boom" in line for line in said)
    monkeypatch.setattr(module, "_run_process", real)
    said.clear()
    second = compare([SMALL], entrants, seeds=1, **arguments)
    assert sum("done before" in line for line in said) == 2, "only what had failed runs again"
    assert not second["left_out"]
    assert second["workloads"][SMALL.key]["metaschedule-fast"]["trials"] == [6]
    curve = second["workloads"][SMALL.key]["annealing"]["curves"][0]
    assert [trial for trial, _, _ in curve] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(ValueError, match="trials"):
        compare([SMALL], entrants, seeds=1, **(arguments | {"trials": 7}))
