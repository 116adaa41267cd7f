"""Played-back comparisons: exact, fair, and honest about what they leave out."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortune.data.dataset import write_dataset
from tensortune.data.record import Record
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.target import cpu_target, target_string
from tensortune.data.workload import Workload, workload
from tensortune.search.compare import Entrant
from tensortune.search.compare_replay import STORED, ReplayError, compare_replay
from tensortune.search.report import write_report

MATMUL = workload("matmul", 64, 64, 64)
SOFTMAX = workload("softmax", 128, 128)
SMALL = workload("matmul", 32, 32, 32)
OWN = """
class Last:
    name = "last"

    def __init__(self, space, seed):
        self.left = list(space.candidates)

    def ask(self, n, score):
        return [self.left.pop() for _ in range(min(n, len(self.left)))]

    def tell(self, trials):
        pass
"""


def records_of(one: Workload, count: int) -> list[Record]:
    """Random candidates of the real space, as fast as a formula over their decisions says."""
    target = cpu_target()
    space = SketchSpace(one, target)
    found = list(dict.fromkeys(space.sample(np.random.default_rng(0), 2 * count)))[:count]
    features = np.nan_to_num(space.encode(found), nan=0.0)
    features = (features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-9)
    weights = np.random.default_rng(1).normal(size=features.shape[1]) / features.shape[1] ** 0.5
    latency = 1e-3 * np.exp(features @ weights)
    return [
        Record(
            workload=one.key,
            identity=one.identity,
            target=target_string(target),
            candidate=candidate,
            repeats=(float(seconds),) if i % 10 else (),
            failure=None if i % 10 else "timeout",
            host="a-host",
        )
        for i, (candidate, seconds) in enumerate(zip(found, latency, strict=True))
    ]


@pytest.fixture(scope="module")
def records() -> dict[Workload, list[Record]]:
    return {MATMUL: records_of(MATMUL, 200), SOFTMAX: records_of(SOFTMAX, 100)}


@pytest.fixture(scope="module")
def dataset(
    records: dict[Workload, list[Record]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    few = records_of(SMALL, 20)
    elsewhere = [replace(record, host="another") for record in records[MATMUL][:50]]
    path = tmp_path_factory.mktemp("stored") / "stored.parquet"
    return write_dataset(path, [*records[MATMUL], *records[SOFTMAX], *few, *elsewhere])


def parse(*texts: str) -> list[Entrant]:
    return [Entrant.parse(text) for text in texts]


def play(dataset: Path, entrants: Sequence[Entrant], *workloads: Workload, **options: Any) -> Any:
    arguments: dict[str, Any] = {"seeds": 2, "trials": 32, "say": lambda line: None} | options
    return compare_replay(dataset, entrants, workloads, **arguments)


def test_the_same_figures_every_time_and_the_guided_ahead(
    dataset: Path, records: dict[Workload, list[Record]]
) -> None:
    entrants = parse("annealing:model=xgb", "random", "blind=annealing:model=none")
    first, again = (play(dataset, entrants, MATMUL, seeds=3) for _ in range(2))
    for result in (first, again):
        for label in result["workloads"][MATMUL.key].values():
            del label["seconds"]  # of proposing, as long as it took
    assert json.dumps(first) == json.dumps(again)
    # The stored latencies follow the decisions, which a model learns and a blind search can't.
    assert first["strategies"]["annealing"]["geomean_speed_vs"]["random"] > 1
    assert first["strategies"]["annealing"]["geomean_speed_vs"]["blind"] > 1
    best = min(record.latency_s for record in records[MATMUL])
    found = first["workloads"][MATMUL.key]
    assert found[STORED]["best_s"] == best
    stored = {record.latency_s for record in records[MATMUL]}
    for label in ("annealing", "random", "blind"):
        assert set(found[label]["best_s_by_seed"]) <= stored
        assert first["strategies"][label]["geomean_speed_vs"][STORED] <= 1
        assert found[label]["trials"] == [32] * 3
        assert len(found[label]["curves"][0]) == 32
        assert found[label]["wall_s"] == []


def test_what_has_enough_records_is_played_back_and_the_rest_named(dataset: Path) -> None:
    said: list[str] = []
    result = play(dataset, parse("random"), say=said.append)
    assert list(result["workloads"]) == [MATMUL.key, SOFTMAX.key]
    text = "\n".join(said)
    assert f"{SMALL.key}: 20 candidates of the sketch space, 64 are needed" in text
    assert "50 records of other targets or hosts than a-host" in text
    assert result["settings"]["host"] == "a-host"
    few = play(dataset, parse("random"), trials=10)
    assert SMALL.key in few["workloads"]


def test_what_is_asked_for_and_is_not_there_is_an_error(dataset: Path) -> None:
    with pytest.raises(ReplayError, match=r"20 candidates of the sketch space, 64 are needed"):
        play(dataset, parse("random"), SMALL)
    with pytest.raises(ReplayError, match=r"norm.*no records of it"):
        play(dataset, parse("random"), workload("norm", 1, 64, 64))
    with pytest.raises(ReplayError, match="fewer --trials"):
        play(dataset, parse("random"), trials=5000)
    with pytest.raises(ReplayError, match="space loop"):
        play(dataset, parse("random:space=loop"))


def test_another_name_of_the_same_computation_is_found(dataset: Path) -> None:
    result = play(dataset, parse("random"), workload("batch_matmul", 1, 64, 64, 64))
    assert list(result["workloads"]) == [MATMUL.key]


def test_peers_are_listed_with_the_reason(dataset: Path) -> None:
    result = play(dataset, parse("random", "metaschedule-fast"), SOFTMAX)
    (left_out,) = result["left_out"]
    assert left_out["label"] == "metaschedule-fast"
    assert "can't be played back" in left_out["error"]
    assert "metaschedule-fast" not in result["strategies"]["random"]["geomean_speed_vs"]
    with pytest.raises(ReplayError, match="of ours or yours"):
        play(dataset, parse("metaschedule"))


def test_a_strategy_of_the_users_own(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "replay_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = play(dataset, parse("mine=replay_own:Last:model=none", "random:trials=16"), SOFTMAX)
    found = result["workloads"][SOFTMAX.key]
    assert found["mine"]["trials"] == [32, 32]
    assert found["random"]["trials"] == [16, 16]
    assert len(set(found["mine"]["best_s_by_seed"])) == 1, "it has no seed"


def test_a_folder_is_written_once_and_reported_on(dataset: Path, tmp_path: Path) -> None:
    entrants, out = parse("random"), tmp_path / "out"
    result = play(dataset, entrants, SOFTMAX, out=out)
    assert json.loads((out / "compare.json").read_text())["left_out"] == result["left_out"]
    play(dataset, entrants, SOFTMAX, out=out, seeds=3)
    before = (out / "compare.json").read_bytes()
    with pytest.raises(ReplayError, match="another --out"):
        play(dataset, entrants, SOFTMAX, trials=16, out=out)
    measured = tmp_path / "measured"
    measured.mkdir()
    (measured / "settings.json").write_text(json.dumps({"trials": 32, "host": "a-host"}))
    with pytest.raises(ReplayError, match="another --out"):
        play(dataset, entrants, SOFTMAX, out=measured)
    assert (out / "compare.json").read_bytes() == before


def test_the_report_says_that_nothing_was_measured(dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    play(dataset, parse("evolution:model=none", "random", "metaschedule-fast"), out=tmp_path)
    text = write_report(tmp_path)[1].read_text()
    assert "Nothing was measured" in text
    assert "best-stored" in text
    assert f"--replay {dataset}" in text
    assert "can't be played back" in text


def test_two_of_one_label_are_refused(dataset: Path) -> None:
    with pytest.raises(ReplayError, match="label"):
        play(dataset, parse("random", "random"))
