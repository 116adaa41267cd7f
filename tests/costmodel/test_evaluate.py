"""Judging models: figures that can be checked by hand, without leaks, resumable."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortune.costmodel import evaluate as module
from tensortune.costmodel.base import Samples
from tensortune.costmodel.evaluate import Report, evaluate
from tensortune.costmodel.evaluate_stats import METRICS, Cell, calibration_rows, deciles, row
from tensortune.costmodel.metrics import Metrics
from tensortune.costmodel.train_models import PEER, Part
from tensortune.data.dataset import Dataset
from tensortune.data.splits import LeakError, Split

SMALL = "xgb(rounds=30,max_depth=4)"
NAME = __name__


class Oracle:
    """Knows what is measured: that of the very rows that it is handed in the fit, and no others."""

    def __init__(self, rows: object = None) -> None:
        self.seen: list[Samples] = []

    def fit(self, samples: Samples) -> None:
        SEEN.append(samples)

    def predict(self, samples: Samples) -> np.ndarray:
        if not np.isfinite(samples.latency_s).any():
            ASKED.append(samples)
        starts = np.cumsum(samples.counts) - samples.counts
        return np.asarray(samples.rows[starts].sum(axis=1), dtype=np.float64)


SEEN: list[Samples] = []
ASKED: list[Samples] = []


@pytest.fixture(scope="module")
def data(measured_dataset: Dataset) -> Dataset:
    return measured_dataset


@pytest.fixture(scope="module")
def report(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Report:
    results = tmp_path_factory.mktemp("evaluate") / "results"
    return evaluate(
        data, [SMALL, PEER], ("record", "shape"), (0, 1), sizes=(60, 10_000), results=results
    )


def test_every_figure_is_there(report: Report) -> None:
    assert [(r["model"], r["split"]) for r in report.rows] == [
        (model, split) for split in ("record", "shape") for model in (SMALL, PEER)
    ]
    for one in report.rows:
        for name in (*METRICS, "noise_ceiling", "fit_seconds", "pairwise_over_ceiling"):
            assert isinstance(one[name], float), name
        for name in METRICS:
            low, high = one[f"{name}_ci95"]
            assert low <= one[name] <= high
        assert one["seeds"] == 2 and one["programs"] > one["workloads"] > 1
        assert 0.5 < one["noise_ceiling"] <= 1.0
    ours, peer = report.rows[2:]
    assert peer["vs_metaschedule"] is None
    for name in METRICS:
        low, high = ours["vs_metaschedule"][f"{name}_ci95"]
        assert ours["vs_metaschedule"][name] == pytest.approx(ours[name] - peer[name])
        assert low <= ours["vs_metaschedule"][name] <= high
    json.dumps(report.to_json(), allow_nan=False)


def test_models_beat_chance(report: Report) -> None:
    for one in report.rows:
        assert one["pairwise"] > 0.5, one
    # Other programs of the same workloads are easier than other workloads.
    assert report.rows[0]["pairwise"] > 0.6


def test_the_learning_curve_has_its_sizes(report: Report) -> None:
    sizes = [(r["split"], r["size"], r["model"]) for r in report.learning_curve]
    # 10,000 programs there are not.
    assert sizes == [
        (split, size, model)
        for size in (60,)
        for split in ("record", "shape")
        for model in (SMALL, PEER)
    ] + [(split, None, model) for split in ("record", "shape") for model in (SMALL, PEER)]
    assert {r["train_programs"] for r in report.learning_curve[:4]} == {60}
    assert report.rows[0]["train_programs"] > 100


def test_families_and_calibration(report: Report) -> None:
    families = {(r["model"], r["split"], r["family"]) for r in report.families}
    assert (SMALL, "record", "GMM") in families and len(families) > 16
    assert len(report.calibration) == 4
    for one in report.calibration:
        perfect = one["perfect"]
        assert len(one["speed"]) == len(perfect) == 10
        assert perfect[-1] == max(perfect) and perfect[0] == min(perfect)
        assert one["speed"][-1] > one["speed"][0]


def test_an_interrupted_evaluation_goes_on(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[int, int, str]] = []

    def stop(done: int, total: int, what: str) -> None:
        said.append((done, total, what))
        if done == 1:
            raise KeyboardInterrupt

    def judge(**options: Any) -> Report:
        return evaluate(data, [SMALL], ("shape",), (0, 1), **options)

    with pytest.raises(KeyboardInterrupt):
        judge(results=tmp_path, progress=stop)
    assert said[0] == (0, 2, f"{SMALL}, by shape, seed 0")
    (kept,) = tmp_path.iterdir()
    assert json.loads(kept.read_text())["seed"] == 0
    whole = judge()
    made: list[int] = []
    make = Part.make

    def note(part: Part, seed: int) -> object:
        made.append(seed)
        return make(part, seed)

    monkeypatch.setattr(Part, "make", note)
    resumed = judge(results=tmp_path)
    assert made[-1:] == [1] and made.count(0) == 1  # once to check the arguments
    again = judge(results=tmp_path)
    for other in (resumed, again):
        for one, two in zip(whole.rows, other.rows, strict=True):
            assert {**one, "fit_seconds": 0} == {**two, "fit_seconds": 0}
    assert resumed.rows == again.rows
    # A damaged result is done again.
    for path in tmp_path.iterdir():
        path.write_text('{"scores": [1.0]}')
    assert judge(results=tmp_path).rows[0]["pairwise"] == whole.rows[0]["pairwise"]


def test_other_records_are_another_evaluation(data: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    evaluate(data, [SMALL], ("shape",), (0,), results=folder)
    slower = [
        replace(record, repeats=tuple(2 * seconds for seconds in record.repeats))
        for record in data.records
    ]
    other = Dataset(slower, data.definitions, data.path)
    evaluate(other, [SMALL], ("shape",), (0,), results=folder)
    evaluate(data, ["xgb(rounds=31)"], ("shape",), (0,), results=folder)
    assert len(list(folder.iterdir())) == 3


def test_no_model_is_told_what_it_is_judged_by(data: Dataset) -> None:
    SEEN.clear()
    ASKED.clear()
    found = evaluate(data, [f"{NAME}:Oracle"], ("shape", "operator"), (0, 1, 2))
    assert len(SEEN) == len(ASKED) == 6
    for seen, asked in zip(SEEN, ASKED, strict=True):
        assert np.isnan(asked.latency_s).all()
        assert not set(seen.groups.tolist()) & set(asked.groups.tolist())
    # A program that was measured again is judged once.
    again = sum(record.time > min(r.time for r in data.records) + 5e4 for record in data.records)
    assert again and found.rows[0]["programs"] == sum(map(len, ASKED[:3]))
    assert found.rows[0]["vs_metaschedule"] is None


def test_a_split_that_leaks_is_refused(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = np.arange(len(data))
    monkeypatch.setattr(module, "split", lambda d, k, s: Split(k, s, everything, everything))
    with pytest.raises(LeakError):
        evaluate(data, [SMALL], ("shape",), (0,))


def test_what_cannot_be_asked(data: Dataset) -> None:
    with pytest.raises(ValueError, match="no split by `luck`"):
        evaluate(data, [SMALL], ("luck",), (0,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no model `luck`"):
        evaluate(data, ["luck"])
    with pytest.raises(ValueError, match="at least one"):
        evaluate(data, [])
    with pytest.raises(ValueError, match="two hosts"):
        evaluate(data, [SMALL], ("host",), (0,))


def cell(identity: str, seed: int, pairwise: float, top1: float, group: int = 0) -> Cell:
    metrics = Metrics(pairwise, 0.0, 0.0, 0.0, top1, 1.0, 0.0)
    empty = np.zeros((10, 2))
    return Cell("m", "shape", None, seed, group, identity, "GMM", 10, metrics, empty, empty)


def test_means_and_intervals_by_hand() -> None:
    cells = [cell("a", 0, 0.6, 0.5), cell("b", 0, 0.8, 1.0), cell("a", 1, 0.7, 0.5)]
    found = row(cells, ceiling=0.9)
    assert found["pairwise"] == pytest.approx(0.7)
    assert found["pairwise_over_ceiling"] == pytest.approx(0.7 / 0.9)
    # Every workload's latency in its best: 3 over 2 + 1 + 2.
    assert found["top1"] == pytest.approx(0.6)
    # `a` twice, `b` twice, or each once: `a`'s two results go together.
    assert found["pairwise_ci95"] == pytest.approx([0.65, 0.8])
    assert (found["workloads"], found["seeds"], found["programs"]) == (2, 2, 30)


def test_a_constant_lead_has_no_width() -> None:
    rng = np.random.default_rng(0)
    peer = [cell(str(i), 0, float(rng.random()) / 2, 0.5, i) for i in range(30)]
    ours = [replace(c, metrics=replace(c.metrics, pairwise=c.metrics.pairwise + 0.1)) for c in peer]
    ahead = row(ours, peer)["vs_metaschedule"]
    assert ahead["pairwise"] == pytest.approx(0.1)
    assert ahead["pairwise_ci95"] == pytest.approx([0.1, 0.1])
    with pytest.raises(ValueError, match="other workloads"):
        row(ours, peer[1:])


def test_what_is_not_defined_is_no_number_and_no_zero() -> None:
    found = row([cell("a", 0, float("nan"), 1.0), cell("b", 0, 0.8, 1.0)])
    assert found["pairwise"] == pytest.approx(0.8) and found["noise_ceiling"] is None
    nothing = row([cell("a", 0, float("nan"), 1.0)])
    assert nothing["pairwise"] is None and nothing["pairwise_ci95"] == [None, None]


def test_tenths_of_an_order() -> None:
    latency_s = np.arange(20, 0, -1.0)
    perfect = deciles(-latency_s, latency_s)
    assert perfect[:, 1].tolist() == [2.0] * 10
    assert perfect[-1, 0] == pytest.approx(1 + 1 / 2)
    level = deciles(np.zeros(20), latency_s)
    assert level[:, 1].sum() == level[5, 1] == 20
    one = replace(cell("a", 0, 0.5, 0.5), deciles=level, perfect=perfect)
    (made,) = calibration_rows([one])
    assert made["speed"][0] is None and made["perfect"][-1] == pytest.approx(0.75)
