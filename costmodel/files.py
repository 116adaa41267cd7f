"""Loading a model of whatever kind from its file."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .base import FeatureSchema, ModelFileError
from .model_file import ModelFile, StrPath

# By import path, so that a model's own packages are imported for files of that model only.
_KINDS = {"xgb": ".xgb:XGBModel", "validity": ".validity:ValidityModel"}


def load_model(path: StrPath, schema: FeatureSchema | None = None) -> Any:
    """The model in a file, as an instance of the class that wrote it.

    Args:
        path: The file.
        schema: The features that the model will be given; see `ModelFile.read`.

    Raises:
        ModelFileError: it is no model file, a damaged one, of a kind that this library doesn't
            know, or of features of another schema.
        FileNotFoundError: there is no such file.
    """
    kind = ModelFile.read(path, schema=schema).kind
    if kind not in _KINDS:
        raise ModelFileError(
            f"{path} holds a model of kind `{kind}`; known are {', '.join(sorted(_KINDS))}"
        )
    module, _, name = _KINDS[kind].partition(":")
    return getattr(import_module(module, __package__), name).load(path, schema)
