"""The package's own models: found, loaded, refused, reversed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensortune.costmodel import pretrained
from tensortune.costmodel.base import FeatureSchema, ModelFileError, Samples
from tensortune.costmodel.features.schemas import GENERAL, STATEMENTS
from tensortune.costmodel.model_file import ModelFile
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.suites import held_out


def samples(schema: FeatureSchema, n: int = 40) -> Samples:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, schema.width)).astype(np.float32)
    return Samples.of(schema, list(rows), np.exp(rows[:, 0]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of both models, trained on different workloads."""
    for name, schema in (("draft", GENERAL), ("verify", STATEMENTS)):
        model = XGBModel(rounds=5)
        model.fit(samples(schema))
        model.save(tmp_path / f"{name}.ttm", [f"{name}-workload", "both"])
    return tmp_path


def test_both_are_loaded(folder: Path) -> None:
    assert pretrained.available(folder)
    found = pretrained.load(folder)
    assert found.workloads == ("both", "draft-workload", "verify-workload")
    for model, schema in ((found.draft, GENERAL), (found.verify, STATEMENTS)):
        assert model is not None
        assert np.ptp(model.predict(samples(schema))) > 0


def test_one_is_enough(folder: Path) -> None:
    (folder / "draft.ttm").unlink()
    assert pretrained.load(folder).draft is None
    assert pretrained.available(folder)


def test_where_there_is_none_the_error_says_what_to_do(tmp_path: Path) -> None:
    assert not pretrained.available(tmp_path)
    with pytest.raises(ModelFileError, match=r"`verify` .*--cold"):
        pretrained.load(tmp_path)
    with pytest.raises(ModelFileError, match="choose draft, verify, treegru"):
        pretrained.path("oracle", tmp_path)


def test_the_model_on_programs_goes_by_two_names(folder: Path) -> None:
    assert pretrained.path("xgb", folder) == pretrained.path("verify", folder)
    assert pretrained.load_one("xgb", folder).schema == STATEMENTS


def test_another_schema_is_refused_and_both_versions_named(folder: Path) -> None:
    path = folder / "draft.ttm"
    file = ModelFile.read(path)
    replace(file, schema=replace(GENERAL, version=99)).write(path)
    with pytest.raises(ModelFileError, match=r"`general` version 99 .*`general` version 1"):
        pretrained.load(folder)


def test_a_draft_on_other_features_is_refused(folder: Path) -> None:
    (folder / "verify.ttm").rename(folder / "draft.ttm")
    with pytest.raises(ModelFileError, match=r"`statements` .*`general`"):
        pretrained.load(folder)


def test_reversed_models_say_the_opposite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", folder)
    usual, opposite = pretrained.named(pretrained.NAME), pretrained.named(pretrained.MISLEADING)
    assert usual is not None and opposite is not None
    for name, schema in (("draft", GENERAL), ("verify", STATEMENTS)):
        one, other = getattr(usual, name), getattr(opposite, name)
        assert other.schema == schema
        given = samples(schema)
        assert np.array_equal(other.predict(given), -one.predict(given))
    alone = pretrained.Reversed()
    assert alone.schema == STATEMENTS
    alone.fit(samples(STATEMENTS))
    assert alone.predict(samples(STATEMENTS)).argmin() == samples(STATEMENTS).rows[:, 0].argmin()
    assert pretrained.named("xgb") is None


def test_the_names_are_those_of_this_module() -> None:
    module, _, name = pretrained.MISLEADING.partition(":")
    assert (module, name) == (pretrained.__name__, pretrained.Reversed.__name__)


def test_looking_for_them_loads_no_xgboost() -> None:
    code = (
        "import sys\n"
        "from tensortune.costmodel import pretrained\n"
        "pretrained.available()\n"
        "sys.exit('xgboost' in sys.modules or 'tvm' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_the_package_has_is_whole_and_small_and_has_not_seen_what_is_held_out() -> None:
    files = [pretrained.path(name) for name in pretrained.NAMES]
    for path in files:
        seen = ModelFile.read(path).workloads
        assert len(seen) > 100
        assert not held_out() & set(seen)
    assert sum(path.stat().st_size for path in files) < 5e6
    found = pretrained.load()
    assert found.draft is not None
    assert found.verify is not None
