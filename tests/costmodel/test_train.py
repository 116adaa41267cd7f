"""Training by name: what a model has seen, what it must not see, and going on with one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensortune.costmodel.aligned import aligned
from tensortune.costmodel.combined import Combined, predict
from tensortune.costmodel.files import load_model
from tensortune.costmodel.metrics import evaluate
from tensortune.costmodel.model_file import ModelFile
from tensortune.costmodel.train import (
    Source,
    judge,
    judge_saved,
    read_records,
    train,
    train_further,
)
from tensortune.costmodel.train_models import MODELS, PEER, Part, parts_of, usual_models
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.dataset import Dataset, append_records
from tensortune.data.splits import split
from tensortune.data.store import StoreError
from tensortune.data.suites import ansor

from ..measured import STORE, measured

SMALL = "xgb(rounds=40,max_depth=4)"


@pytest.fixture
def data(measured_dataset: Dataset) -> Dataset:
    return measured_dataset


def pairwise(model: object, data: Dataset, positions: np.ndarray) -> float:
    found = aligned(data, ["statements"])
    chosen = found.take(np.isin(found.positions, positions))
    of = chosen["statements"]
    return evaluate(predict(model, chosen), of.latency_s, of.groups).mean.pairwise


def test_a_model_knows_unseen_shapes_and_what_it_has_seen(data: Dataset, tmp_path: Path) -> None:
    made = split(data, "shape", 0)
    source = Source(data, positions=made.train)
    trained = train(source, SMALL)
    seen = {data.records[i].identity for i in made.train}
    assert set(trained.workloads) == seen and trained.features == ("statements",)
    assert trained.programs == len(made.train) and trained.held_out == trained.missing == {}
    assert trained.valid == np.isfinite(data.latency_s[made.train]).sum() < trained.programs
    trained.save(tmp_path / "model")
    assert set(ModelFile.read(tmp_path / "model").workloads) == seen
    loaded = load_model(tmp_path / "model")
    # Eight workloads are few; but chance is a half.
    assert pairwise(loaded, data, made.test) > 0.55
    assert pairwise(loaded, data, made.train) > 0.8
    figures = judge(trained.model, source, made.test)
    assert 0.55 < figures["pairwise"] < 1 and len(figures["pairwise_ci95"]) == 2
    # The rest of the dataset is what the saved one has not seen.
    assert judge_saved(tmp_path / "model", source) == figures
    train(Source(data), SMALL).save(tmp_path / "all")
    with pytest.raises(ValueError, match="judge it by others"):
        judge_saved(tmp_path / "all", Source(data))


def test_held_out_workloads_are_left_out(data: Dataset, tmp_path: Path) -> None:
    secret = ansor("GMM", 1)
    leak = [
        replace(record, identity=secret.identity)
        for record in data.records
        if record.workload.startswith("batch_matmul")
    ]
    append_records(tmp_path / "leaky", [*data.records[:40], *leak])
    source = Source(read_records(tmp_path / "leaky"), workers=1)
    trained = train(source, SMALL)
    assert trained.held_out == {leak[0].workload: len(leak)}
    assert secret.identity not in trained.workloads
    everything = train(replace(source, allow_held_out=True), SMALL)
    assert secret.identity in everything.workloads and not everything.held_out
    assert everything.programs == trained.programs + len(leak)
    alone = np.arange(40, 40 + len(leak))
    with pytest.raises(ValueError, match="allow-held-out"):
        train(replace(source, positions=alone), SMALL)


def test_nothing_to_train_on(data: Dataset) -> None:
    failed = np.flatnonzero(~np.isfinite(data.latency_s))
    with pytest.raises(ValueError, match="no record is of a program that ran"):
        train(Source(data, positions=failed), SMALL)


def test_a_trained_model_goes_on_with_a_users_own_records(data: Dataset, tmp_path: Path) -> None:
    made = split(data, "shape", 1)
    train(Source(data, positions=made.train), SMALL).save(tmp_path / "general")
    own = made.test[::2]
    further = train_further(Source(data, positions=own), tmp_path / "general")
    assert set(further.workloads) == {record.identity for record in data.records}
    general = load_model(tmp_path / "general")
    assert pairwise(further.model, data, own) > pairwise(general, data, own)
    further.save(tmp_path / "own")
    samples = aligned(data, ["statements"]).kinds
    loaded = predict(load_model(tmp_path / "own"), samples)
    assert np.array_equal(loaded, predict(further.model, samples))
    # What it started from is as it was.
    assert np.array_equal(
        predict(load_model(tmp_path / "general"), samples), predict(general, samples)
    )


def test_several_parts_are_trained_as_one(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Part("statements", ".xgb:XGBModel", {"rounds": 20})
    other = replace(small, arguments={"rounds": 20, "objective": "regression"})
    monkeypatch.setitem(MODELS, "both", (small, other))
    trained = train(Source(data), "both")
    assert isinstance(trained.model, Combined) and trained.features == ("statements",)
    trained.save(tmp_path / "both")
    loaded = Combined.load(tmp_path / "both")
    samples = aligned(data, ["statements"]).kinds
    assert np.array_equal(loaded.predict(samples), trained.model.predict(samples))
    further = train_further(Source(data), tmp_path / "both")
    assert not np.array_equal(further.model.predict(samples), loaded.predict(samples))


def test_names_of_models() -> None:
    for name in MODELS:
        assert parts_of(name) == MODELS[name]
    assert {"xgb", "xgb-small", PEER} <= set(usual_models()) <= set(MODELS)
    (part,) = parts_of("xgb(max_depth=4, objective=regression)")
    model = part.make(7)
    assert isinstance(model, XGBModel)
    assert (model.max_depth, model.objective, model.seed) == (4, "regression", 7)
    assert model.rounds == MODELS["xgb"][0].arguments["rounds"]
    assert part.key != parts_of("xgb")[0].key
    (own,) = parts_of("tensortune.costmodel.xgb:XGBModel")
    assert own.features == "statements" and isinstance(own.make(0), XGBModel)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("xgbost", "there is no model `xgbost`: choose xgb"),
        ("xgb(depth=4)", "`XGBModel` has no `depth`; there are objective, rounds"),
        ("xgb(max_depth)", "name=value"),
        ("xgb(objective=luck)", "not 'luck'"),
        ("verify(rounds=4)", "several parts"),
        ("no.such:Model", "can't be made"),
    ],
)
def test_what_is_no_model(name: str, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("(", r"\(")):
        parts_of(name)


def test_the_peer_cannot_be_saved(data: Dataset) -> None:
    with pytest.raises(ValueError, match="compared with"):
        train(Source(data), PEER)


def test_records_of_all_kinds_are_read(data: Dataset, tmp_path: Path) -> None:
    assert data.path is not None
    (part,) = data.path.glob("*.parquet")
    assert len(read_records(part)) == len(read_records(data.path)) == len(data)
    assert list(read_records(STORE).records) == measured()
    (tmp_path / "collection.json").write_text("{}")
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(STORE.read_bytes())
    assert len(read_records(tmp_path)) == 2 * len(measured())
    with pytest.raises(StoreError, match="does not exist"):
        read_records(tmp_path / "none")
