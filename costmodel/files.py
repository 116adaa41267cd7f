"""A cost model from its name: a kind of ours, one of the user's own, or a saved model's file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from .base import CostModel, FeatureSchema, ModelFileError
from .features.schemas import STATEMENTS
from .model_file import ModelFile, StrPath

# By import path, so that a model's own packages are imported for files of that model only.
_KINDS = {
    "combined": ".combined:Combined",
    "ensemble": ".ensemble:BootstrapEnsemble",
    "global-local": ".transfer:GlobalLocal",
    "treegru": ".treegru:TreeGRU",
    "validity": ".validity:ValidityModel",
    "xgb": ".xgb:XGBModel",
}
# Those that a name stands for as they are, untrained.
_NAMES = ("xgb", "treegru")


def load_model(path: StrPath, schema: FeatureSchema | None = None) -> Any:
    """The model in a file, as an instance of the class that wrote it.

    Args:
        path: The file.
        schema: The features that the model will be given; see `ModelFile.read`.

    Raises:
        ModelFileError: it is no model file, a damaged one, of a kind that this library doesn't
            know, or of features of another schema; or a package that it needs is missing.
        FileNotFoundError: there is no such file.
    """
    kind = ModelFile.read(path, schema=schema).kind
    if kind not in _KINDS:
        raise ModelFileError(
            f"{path} holds a model of kind `{kind}`; known are {', '.join(sorted(_KINDS))}"
        )
    try:
        return _class_of(kind).load(path, schema)
    except ModuleNotFoundError as error:
        raise ModelFileError(f"{path}: {error}") from error


def _class_of(kind: str) -> Any:
    module, _, name = _KINDS[kind].partition(":")
    return getattr(import_module(module, __package__), name)


def make_model(name: StrPath, seed: int = 0) -> CostModel:
    """A cost model.

    Args:
        name: `xgb` (on statement features), `treegru` (on loop features), the path of a saved
            model, or `package.module:Name` of a class (or function) that makes a `CostModel` from
            nothing.
        seed: Seed of a model of ours.

    Raises:
        ValueError: there is no model of that name, or it can't be made: a package is missing, say.
        ModelFileError: the file is no such model's, or of features of another schema.
    """
    if name in _NAMES:
        try:
            made: CostModel = _class_of(str(name))(seed=seed)
        except ModuleNotFoundError as error:
            raise ValueError(str(error)) from error
        return made
    if Path(name).is_file():
        made = load_model(name, STATEMENTS)
        if isinstance(made, import_module(".validity", __package__).ValidityModel):
            raise ModelFileError(f"{name} holds a model of validity, which does not rank programs")
        return made
    module, colon, attribute = str(name).partition(":")
    if not colon:
        raise ValueError(
            f"there is no model `{name}`, and no file of that name; the models are "
            f"{', '.join(_NAMES)}, package.module:Name, and paths of saved models"
        )
    try:
        made = getattr(import_module(module), attribute)()
    # Whatever the user's module raises when it is imported, the name leads to no model.
    except Exception as error:
        raise ValueError(f"the model `{name}` can't be made: {error}") from None
    if not (callable(getattr(made, "fit", None)) and callable(getattr(made, "predict", None))):
        raise ValueError(f"the model `{name}` needs the methods `fit` and `predict`")
    return made
