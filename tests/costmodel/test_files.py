"""A cost model from its name."""

from pathlib import Path

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, ModelFileError, Samples
from tensortune.costmodel.features.schemas import STATEMENTS
from tensortune.costmodel.files import make_model
from tensortune.costmodel.validity import ValidityModel
from tensortune.costmodel.xgb import XGBModel


def fitted(schema: FeatureSchema) -> XGBModel:
    rng = np.random.default_rng(0)
    model = XGBModel(rounds=3)
    model.fit(Samples.of(schema, list(rng.random((20, schema.width))), rng.random(20) + 0.1))
    return model


def test_a_kind_of_ours_takes_the_seed() -> None:
    model = make_model("xgb", 7)
    assert isinstance(model, XGBModel) and model.seed == 7 and model.schema is None


def test_a_saved_model_is_loaded_as_it_was(tmp_path: Path) -> None:
    model = fitted(STATEMENTS)
    model.save(tmp_path / "model")
    samples = Samples.of(STATEMENTS, list(np.random.default_rng(1).random((5, STATEMENTS.width))))
    loaded = make_model(tmp_path / "model")
    assert np.array_equal(loaded.predict(samples), model.predict(samples))


def test_a_class_of_the_users_own_is_made() -> None:
    assert isinstance(make_model("tensortune.costmodel.xgb:XGBModel"), XGBModel)


def test_what_is_no_such_model_is_refused_by_name(tmp_path: Path) -> None:
    fitted(FeatureSchema("decisions", 1, 3, "other")).save(tmp_path / "decisions")
    ValidityModel().save(tmp_path / "validity")
    (tmp_path / "text").write_text("no model")
    for name, error, told in [
        ("xgboost", ValueError, "no model `xgboost`"),
        ("no.such:Model", ValueError, "can't be made"),
        ("pathlib:Path", ValueError, "`fit` and `predict`"),
        (tmp_path / "decisions", ModelFileError, "decisions"),
        (tmp_path / "validity", ModelFileError, "validity"),
        (tmp_path / "text", ModelFileError, "not a model file"),
    ]:
        with pytest.raises(error, match=told):
            make_model(name)
