"""Models on several kinds of features at once."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import CostModel, FeatureSchema, ModelFileError, Samples
from .files import load_model
from .model_file import Embedded, ModelFile, StrPath
from .rows import totals

Array = npt.NDArray[np.float64]

Kinds = Mapping[str, Samples]
"""The same programs, in the same order, by the kind of their features."""


def spread(scores: Array, of: Samples) -> float:
    """Standard deviation of scores around their workload's mean; 1 where they do not differ.

    Args:
        scores: Scores, of shape (programs,).
        of: The programs; those that failed are left out.
    """
    valid = np.isfinite(of.latency_s)
    score, groups = scores[valid], of.groups[valid]
    if not len(score):
        return 1.0
    _, group, count = np.unique(groups, return_inverse=True, return_counts=True)
    centred = score - (totals(group, score, len(count)) / count)[group]
    return float(np.sqrt(np.mean(centred**2))) or 1.0


class Combined:
    """The sum of several models' scores, each on its own features and in standard deviations.

    A score's standard deviation is that over the training programs of a workload. It is kept with
    the model, so that a program's score does not depend on what else is scored with it.

    Args:
        parts: Kind of features and model, of each part.
    """

    kind = "combined"

    def __init__(self, parts: Sequence[tuple[str, CostModel]]) -> None:
        self.parts = tuple(parts)
        self.scales = [1.0] * len(self.parts)

    @property
    def features(self) -> tuple[str, ...]:
        """The kinds of features that it takes."""
        return tuple(dict.fromkeys(kind for kind, _ in self.parts))

    def fit(self, samples: Kinds) -> None:
        """Learn from measured samples, failures included; what was learnt before is replaced."""
        for kind, model in self.parts:
            model.fit(samples[kind])
        self.rescale(samples)

    def rescale(self, samples: Kinds) -> None:
        """Take the parts' standard deviations from samples."""
        self.scales = [spread(model.predict(samples[k]), samples[k]) for k, model in self.parts]

    def predict(self, samples: Kinds) -> Array:
        """Scores of shape (programs,): higher is faster, comparable within a group."""
        scores = [model.predict(samples[kind]) for kind, model in self.parts]
        return add(scores, self.scales)

    def save(self, path: StrPath, workloads: Sequence[str] = ()) -> None:
        """Write the model to a file, without pickle.

        Args:
            path: The file.
            workloads: Identities of the workloads that it was trained on.
        """
        files = {}
        with tempfile.TemporaryDirectory() as folder:
            for number, (_, model) in enumerate(self.parts):
                part: Any = model
                part.save(Path(folder) / "part", workloads)
                files[str(number)] = (Path(folder) / "part").read_bytes()
        state = {"features": [kind for kind, _ in self.parts], "scales": self.scales}
        ModelFile(self.kind, {}, None, files, state, tuple(workloads)).write(path)

    @classmethod
    def load(cls, path: StrPath, schema: FeatureSchema | None = None) -> Combined:
        """Read what `save` wrote; the predictions are the same to the last bit.

        Args:
            path: The file.
            schema: The one kind of features that the model would be given; refused.

        Raises:
            ModelFileError: it is no whole file of such a model, one kind of features is all that
                it would get, or a part is of features of another schema.
        """
        file = ModelFile.read(path, cls.kind)
        kinds, scales = file.state.get("features"), file.state.get("scales")
        if not (isinstance(kinds, list) and isinstance(scales, list)) or not (
            len(kinds) == len(scales) == len(file.parts)
        ):
            raise ModelFileError(f"{path} is damaged: its parts do not fit its header")
        if schema is not None:
            raise ModelFileError(
                f"{path} holds a model on the features {', '.join(map(str, kinds))} together, and "
                f"`{schema.name}` are what it would be given; train one on these alone"
            )
        made = cls(
            [
                (
                    str(kind),
                    load_model(Embedded(f"part {number} of {path}", file.parts[str(number)])),
                )
                for number, kind in enumerate(kinds)
            ]
        )
        made.scales = [float(scale) for scale in scales]
        return made


def add(scores: Sequence[Array], scales: Sequence[float]) -> Array:
    """The sum of scores, each over its standard deviation."""
    total = np.zeros(len(scores[0]))
    for score, scale in zip(scores, scales, strict=True):
        total += score / scale
    return total


def features_of(model: Any) -> tuple[str, ...]:
    """The kinds of features that a model takes; of a trained one, those that it was trained on."""
    if isinstance(model, Combined):
        return model.features
    schema = getattr(model, "schema", None)
    if isinstance(schema, FeatureSchema):
        return (schema.name,)
    return (str(getattr(model, "features", "statements")),)


def predict(model: Any, samples: Kinds) -> Array:
    """A model's scores of programs whose features are of all the kinds that it takes."""
    if isinstance(model, Combined):
        return model.predict(samples)
    return np.asarray(model.predict(samples[features_of(model)[0]]), dtype=np.float64)
