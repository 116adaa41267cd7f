"""The models that come with this package: trained on many workloads, none of them held out.

`draft` ranks candidates by decision features that all workloads share (`features.general`),
`verify` ranks scheduled programs by statement features, and `treegru`, which needs torch, by their
loops. They are files of this package; `tensortune train` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import CostModel, FeatureSchema, ModelFileError, Samples
from .features.schemas import GENERAL, LOOPS
from .files import load_model
from .model_file import ModelFile

NAME = "pretrained"
"""What a tuning run's model is called that starts from these."""

MISLEADING = "tensortune.costmodel.pretrained:Reversed"
"""The same for a run that starts from the opposite of what these say."""

FOLDER = Path(__file__).with_name("pretrained")
NAMES = ("draft", "verify", "treegru")

# Features that a model has to take; None for any kind that scheduled programs have.
_SCHEMAS: dict[str, FeatureSchema | None] = {"draft": GENERAL, "verify": None, "treegru": LOOPS}


@dataclass(frozen=True)
class Pretrained:
    """The models that a tuning run starts from.

    Attributes:
        draft: Ranks candidates by their decisions; None where this installation has none.
        verify: Ranks scheduled programs; None where this installation has none.
        workloads: Canonical identities of the workloads that either was trained on.
    """

    draft: CostModel | None
    verify: CostModel | None
    workloads: tuple[str, ...] = ()

    def reversed(self) -> Pretrained:
        """The same models with the opposite of their scores."""
        return Pretrained(
            None if self.draft is None else Reversed(self.draft),
            None if self.verify is None else Reversed(self.verify),
            self.workloads,
        )


class Reversed:
    """The opposite of what a model says, to try how a search copes with a prior that misleads.

    Args:
        model: The model; by default the pretrained one on programs.

    Raises:
        ModelFileError: this installation has no pretrained model, or none that can be used.
    """

    def __init__(self, model: CostModel | None = None) -> None:
        self.model: Any = load_one("verify") if model is None else model

    @property
    def schema(self) -> FeatureSchema | None:
        """The features of the model."""
        found: FeatureSchema | None = getattr(self.model, "schema", None)
        return found

    @property
    def features(self) -> Any:
        """The kinds of features that the model takes."""
        return getattr(self.model, "features", "statements")

    def fit(self, samples: Samples) -> None:
        """Train the model; its scores are reversed all the same."""
        self.model.fit(samples)

    def predict(self, samples: Any) -> npt.NDArray[np.float64]:
        """The model's scores, negated."""
        return -np.asarray(self.model.predict(samples), dtype=np.float64)


def available(folder: Path | None = None) -> bool:
    """Whether this installation has the model that a tuning run needs at least (`verify`).

    Args:
        folder: Where the files are; by default in the package.
    """
    return _file("verify", folder).is_file()


def path(name: str, folder: Path | None = None) -> Path:
    """The file of a model.

    Args:
        name: One of `NAMES`; also `xgb`, which `verify` is.
        folder: Where the files are; by default in the package.

    Raises:
        ModelFileError: there is no model of that name, or this installation lacks its file.
    """
    name = "verify" if name == "xgb" else name
    if name not in NAMES:
        raise ModelFileError(f"there is no pretrained model `{name}`: choose {', '.join(NAMES)}")
    file = _file(name, folder)
    if not file.is_file():
        raise ModelFileError(
            f"this installation has no pretrained model `{name}` ({file} is missing): install the "
            "package again, start from nothing (--cold, or model='xgb'), or name the file of a "
            "model of your own"
        )
    return file


def load_one(name: str, folder: Path | None = None) -> Any:
    """One of the models.

    Raises:
        ModelFileError: see `path`; or the file is damaged, or of other features or another version
            of them, and both versions are named.
    """
    return load_model(path(name, folder), _SCHEMAS["verify" if name == "xgb" else name])


def load(folder: Path | None = None) -> Pretrained:
    """The models that a tuning run starts from.

    Args:
        folder: Where the files are; by default in the package.

    Raises:
        ModelFileError: there is neither of them, or one of them can't be used; see `load_one`.
    """
    found = [name for name in ("draft", "verify") if _file(name, folder).is_file()]
    if not found:
        path("verify", folder)  # says what to do
    models = {name: load_one(name, folder) for name in found}
    known = {w for name in found for w in ModelFile.read(path(name, folder)).workloads}
    return Pretrained(models.get("draft"), models.get("verify"), tuple(sorted(known)))


def named(model: str) -> Pretrained | None:
    """What a tuning run's `model` stands for: these models, their opposite, or none of them.

    Raises:
        ModelFileError: it stands for these, and they can't be used.
    """
    if model == NAME:
        return load()
    return load().reversed() if model == MISLEADING else None


def _file(name: str, folder: Path | None) -> Path:
    return (FOLDER if folder is None else folder) / f"{name}.ttm"
