"""Comparisons: equals come out equal, the handicapped behind, and nothing runs twice."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import psutil
import pytest

from tensortune.data.workload import workload
from tensortune.search.compare import Entrant, compare
from tensortune.search.compare_stats import summarise, tables
from tensortune.search.peers import references

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


def test_equal_seconds_end_with_the_quickest_run() -> None:
    def with_curves(label: str, curve: list[list[float | None]]) -> list[Any]:
        return [one | {"curve": curve} for one in cells(label, 1.0, noise=0.0)]

    quick = with_curves("quick", [[1, 1.0, 4e-3], [2, 2.0, 2e-3]])
    slow = with_curves("slow", [[1, 1.5, None], [2, 2.0, 3e-3], [3, 9.0, 1e-3]])
    untold = with_curves("untold", [[1, None, 1e-3]])
    figures = summarise(quick + slow + untold, ["quick", "slow", "untold"])["strategies"]
    assert figures["quick"]["geomean_speed_vs_at_equal_seconds"] == pytest.approx({"slow": 1.5})
    assert figures["slow"]["geomean_speed_vs_at_equal_seconds_ci95"]["quick"] == pytest.approx(
        [2 / 3, 2 / 3]
    )
    assert figures["untold"]["geomean_speed_vs_at_equal_seconds"] == {}


def test_how_soon_a_strategy_is_as_good_as_another() -> None:
    # It measured everything twice as slow as the interleaved timing did: 2.0, 1.01, 1.0 ms there.
    curve = [[1, 1.0, 4e-3], [2, 2.0, 2.02e-3], [3, 3.0, 2e-3]]
    quick = [one | {"curve": curve, "wall_s": 5.0} for one in cells("quick", 1.0, noise=0.0)]
    for one in quick:
        one["curve"] = [[n, at, best * one["best_s"] / 1e-3] for n, at, best in one["curve"]]
    slow = [one | {"wall_s": 40.0, "curve": []} for one in cells("slow", 1.0, noise=0.0)]
    slow = [one | {"best_s": one["best_s"] / (2 if one["workload"] == "w3" else 1)} for one in slow]
    figures = summarise(quick + slow, ["quick", "slow"])["strategies"]
    found = figures["quick"]["wall_to_near"]["slow"]
    # Two seconds went to the start; on the last workload nothing came near.
    assert found["seconds"] == {"w0": 4.0, "w1": 4.0, "w2": 4.0, "w3": None}
    assert (found["reached"], found["of"], found["ratio"]) == (3, 4, pytest.approx(0.1))
    told = summarise([one | {"start_s": 1.0} for one in quick] + slow, ["quick", "slow"])
    assert told["strategies"]["quick"]["wall_to_near"]["slow"]["seconds"]["w0"] == 3.0
    assert figures["slow"]["wall_to_near"] == {}
    assert "3 of 4" in str([list(t.columns[-1].cells) for t in tables(renamed(quick + slow))])


def renamed(runs: list[Any]) -> dict[str, Any]:
    """The same with the slow one as the peer."""
    runs = [one | {"label": one["label"].replace("slow", "metaschedule")} for one in runs]
    return summarise(runs, ["quick", "metaschedule"])


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
        ("metaschedule:seeds=1", Entrant("metaschedule", "metaschedule", seeds=1)),
    ],
)
def test_entrants_are_read(text: str, entrant: Entrant) -> None:
    assert Entrant.parse(text) == entrant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("guess", "metaschedule-fast"),
        ("annealing:trials=0", "trials=N"),
        ("annealing:seeds=0,1", "seeds=N"),
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


# A strategy that ends its process while there is a file `broken` beside it.
BROKEN = """
import os, signal
from pathlib import Path
from tensortune.search.random_search import RandomSearch

class Broken(RandomSearch):
    def ask(self, n, score):
        if Path(__file__).with_name("broken").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().ask(n, score)
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the strategy `own_broken:Broken` crash as long as it is there."""
    (tmp_path / "own_broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken").touch()
    return tmp_path / "broken"


@pytest.mark.slow
def test_a_comparison_survives_a_crash_and_grows(
    tmp_path: Path, broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch takes seconds to load in each of the timings, which are many here.
    monkeypatch.setattr(references, "TORCH_OPERATORS", frozenset())
    said: list[str] = []
    out = tmp_path / "comparison"
    random, own = Entrant("random", "random", "none"), Entrant("own", "own_broken:Broken", "none")

    def again(workloads: list[Any], entrants: list[Entrant], seeds: Any) -> Any:
        said.clear()
        return compare(workloads, entrants, seeds=seeds, trials=4, out=out, say=said.append)

    def count(words: str) -> int:
        return sum(words in line for line in said)

    first = again([SMALL], [random, own], [0])
    lost = {cell["label"]: cell["error"] for cell in first["left_out"]}
    assert "it died of SIGKILL" in lost["own"]
    assert "random" not in lost
    assert not first["workloads"][SMALL.key]["own"]["unable"]
    assert first["workloads"][SMALL.key]["random"]["best_s"] > 0, "the rest goes on"
    broken.unlink()

    second = again([SMALL], [random, own], [0])
    assert count("done before") == 1, "what had failed is run again, and nothing else"
    assert count("side by side") == 1
    assert "own" not in [cell["label"] for cell in second["left_out"]]
    assert second["workloads"][SMALL.key]["own"]["trials"] == [4]
    curve = second["workloads"][SMALL.key]["own"]["curves"][0]
    assert [trial for trial, _, _ in curve] == [1, 2, 3, 4]

    kept = {path: path.stat().st_mtime_ns for path in out.rglob("done.json")}
    again([SMALL], [random, replace(own, seeds=1)], [0, 1])
    assert count("done before") == 2, "a seed is added, to one of the two"
    assert len(said) == 3 + 1
    larger = workload("matmul", 32, 32, 64)
    third = again([SMALL, larger], [random], [0])
    assert count("done before") == 1, "a workload is added"
    assert count("side by side") == 1, "and timed; a part of what was timed before is as it was"
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    assert again([SMALL, larger], [random], 1) == third, "nothing new: the same figures"
    assert count("done before") == len(said) == 2
    with pytest.raises(ValueError, match="trials"):
        compare([SMALL], [random], seeds=1, trials=7, out=out)
    with pytest.raises(ValueError, match="other settings"):
        again([SMALL], [replace(random, space="loop")], 1)


COMMAND = (
    "import typer; from tensortune.cli.compare import compare; "
    "app = typer.Typer(); app.command()(compare); app()"
)


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on_and_leaves_nothing_behind(tmp_path: Path) -> None:
    arguments = ["matmul(16,16,16)", "--strategies", "random:model=none", "--trials", "2"]
    runs = tmp_path / "comparison/runs/matmul_m=16_n=16_k=16"

    def start(*more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments, *more],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(path: Path) -> None:
        end = time.monotonic() + 60
        while not path.exists():
            assert time.monotonic() < end
            time.sleep(0.02)

    def at_work() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if str(runs.relative_to(tmp_path)) in " ".join(process.info["cmdline"] or []):
                found.append(process)
        return found

    # Killed outright: the run that it had begun ends, too.
    process = start("--seeds", "2")
    wait_for(runs / "random-0/job.json")
    wait_for(runs / "random-0/log.txt")
    process.kill()
    process.communicate()
    # Its process may be only just starting, and not in sight yet the first time.
    end = time.monotonic() + 30
    while at_work() and time.monotonic() < end:
        time.sleep(0.1)
    assert not at_work()
    assert not (runs / "random-0/done.json").exists()
    # Only one at a time.
    with filelock.FileLock(tmp_path / "comparison/compare.lock"):
        process = start("--seeds", "2")
        assert "another process is comparing" in process.communicate(timeout=60)[0]
    assert process.returncode == 2
    # Interrupted: what was finished is kept.
    process = start("--seeds", "2")
    wait_for(runs / "random-1/log.txt")
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 130, output
    assert "the same command goes on from there" in " ".join(output.split())
    assert not at_work()
    output = start("--seeds", "0,1").communicate(timeout=120)[0]
    assert output.count("done before") == 1
    assert (tmp_path / "comparison/compare.json").exists()


@pytest.mark.parametrize("seeds", [0, [], [-1, 0]])
def test_no_seeds_are_refused(seeds: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seeds"):
        compare([SMALL], [Entrant("a", "random")], seeds=seeds, out=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_more_seeds_than_there_are_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a is to run with 3 seeds, and the comparison has 2"):
        compare([SMALL], [Entrant("a", "random", seeds=3)], seeds=2, out=tmp_path / "c")


def test_the_faster_library_is_a_reference() -> None:
    found = cells("a", 1.0)
    for i in range(4):
        found.append({"workload": f"w{i}", "label": "numpy", "seed": None, "best_s": 2e-3})
    found.append({"workload": "w0", "label": "torch", "seed": None, "best_s": 1e-3})
    result = summarise(found, ["a"])
    ratios = result["strategies"]["a"]["geomean_speed_vs"]
    assert ratios["numpy/torch"] == pytest.approx(ratios["numpy"] / 2**0.25)
    assert set(result["workloads"]["w0"]) == {"a", "numpy", "torch"}
    result = summarise([cell for cell in found if cell["label"] != "torch"], ["a"])
    assert "numpy/torch" not in result["strategies"]["a"]["geomean_speed_vs"]


def test_who_cannot_run_a_workload_is_told_from_who_failed() -> None:
    unable = {"workload": "w0", "label": "b", "seed": 0, "trials": 0, "error": "no template"}
    found = summarise([unable], ["b"])["workloads"]["w0"]["b"]
    assert (found["unable"], found["error"]) == (True, "no template")
    assert not summarise([{**unable, "trials": 4}], ["b"])["workloads"]["w0"]["b"]["unable"]
    assert summarise(cells("a", 1.0), ["a"])["workloads"]["w0"]["a"]["error"] is None
