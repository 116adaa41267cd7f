"""A model that says how sure it is: the same model, trained on several draws of the samples."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import CostModel, FeatureSchema, ModelFileError, Samples
from .files import load_model
from .model_file import Embedded, ModelFile, StrPath, check_samples
from .xgb import XGBModel

Array = npt.NDArray[np.float64]


class BootstrapEnsemble:
    """Members trained on bootstrap samples; where they disagree, too little was measured.

    After AutoTVM's uncertainty (Chen et al., NeurIPS 2018, section 3.3). Each member sees as many
    programs of each group as there are, drawn with replacement, those that failed apart. What
    a member's scores are centred on is an accident of its draw, so their mean over the programs
    of the fit is taken off.

    Args:
        member: What is trained on each draw: a copy of it is. By default an `XGBModel` that
            predicts the logarithm of speed, which expected improvement needs.
        size: Members.
        seed: Seed of the draws.
    """

    kind = "ensemble"

    def __init__(self, member: CostModel | None = None, *, size: int = 6, seed: int = 0) -> None:
        if size < 2:
            raise ValueError(f"an ensemble has at least 2 members, not {size}")
        self.member: CostModel = XGBModel("regression", seed=seed) if member is None else member
        self.size = size
        self.seed = seed
        self.schema: FeatureSchema | None = None
        self._members: list[CostModel] = []
        self._centres: list[float] = []

    @property
    def objective(self) -> str:
        """The members' objective."""
        return str(getattr(self.member, "objective", "regression"))

    def fit(self, samples: Samples, margin: Array | None = None) -> None:
        """Learn from measured samples; what was learnt before is replaced.

        Args:
            samples: The samples.
            margin: Scores to learn on top of, for members that can; see `XGBModel.fit`.
        """
        self.schema = samples.schema
        rng = np.random.default_rng(self.seed)
        strata = _strata(samples)
        valid = samples.take(np.isfinite(samples.latency_s))
        self._members, self._centres = [], []
        for _ in range(self.size):
            drawn = [rng.choice(stratum, len(stratum)) for stratum in strata]
            chosen = np.sort(np.concatenate(drawn)) if drawn else np.empty(0, np.int64)
            member: Any = copy.deepcopy(self.member)
            if margin is None:
                member.fit(samples.take(chosen))
            else:
                member.fit(samples.take(chosen), margin[chosen])
            self._members.append(member)
            self._centres.append(float(member.predict(valid).mean()) if len(valid) else 0.0)

    def predict(self, samples: Samples) -> Array:
        """The members' mean, of shape (programs,): higher is faster, comparable within a group."""
        return self.predict_distribution(samples)[0]

    def predict_distribution(self, samples: Samples) -> tuple[Array, Array]:
        """Mean and standard deviation over the members, each of shape (programs,).

        Zeros before a fit.

        Raises:
            ValueError: the samples are of another schema than the model was fitted to.
        """
        check_samples(self.schema, samples)
        mean, square = np.zeros(len(samples)), np.zeros(len(samples))
        if not self._members:
            return mean, square
        found = [
            member.predict(samples) - centre
            for member, centre in zip(self._members, self._centres, strict=True)
        ]
        # One by one: a sum over an axis rounds in an order that depends on how many programs there
        # are.
        for scores in found:
            mean += scores / self.size
        for scores in found:
            square += (scores - mean) ** 2 / (self.size - 1)
        return mean, np.sqrt(square)

    def save(self, path: StrPath, workloads: Sequence[str] = ()) -> None:
        """Write the model to a file, a part for each member; see `XGBModel.save`.

        Raises:
            ValueError: the members are of a class without `save`.
        """
        parts = {"member": packed(self.member)}
        parts |= {f"member {i}": packed(member) for i, member in enumerate(self._members)}
        ModelFile(
            self.kind,
            {"size": self.size, "seed": self.seed},
            self.schema,
            parts,
            state={"centres": self._centres},
            workloads=tuple(workloads),
        ).write(path)

    @classmethod
    def load(cls, path: StrPath, schema: FeatureSchema | None = None) -> BootstrapEnsemble:
        """Read what `save` wrote; see `XGBModel.load`.

        Raises:
            ModelFileError: it is no whole file of such a model, or of features of another schema.
        """
        file = ModelFile.read(path, cls.kind, schema)
        try:
            model = cls(unpacked(file.parts["member"]), **file.arguments)
            model.schema = file.schema
            model._centres = [float(centre) for centre in file.state["centres"]]
            names = [f"member {i}" for i in range(len(model._centres))]
            model._members = [unpacked(file.parts[name]) for name in names]
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"{path} is damaged: {error}") from error
        return model


def packed(model: Any) -> bytes:
    """A model's file as bytes, to be a part of another model's file.

    Raises:
        ValueError: the model is of a class without `save`.
    """
    if not hasattr(model, "save"):
        raise ValueError(
            f"a {type(model).__name__} can't be saved: it needs the methods `save(path)` and "
            "`load(path)`"
        )
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model"
        model.save(path)
        return path.read_bytes()


def unpacked(content: bytes) -> Any:
    """The model of which `packed` gave the bytes.

    Raises:
        ModelFileError: they hold no model.
    """
    return load_model(Embedded("a part of the file", content))


def _strata(samples: Samples) -> list[npt.NDArray[np.int64]]:
    """Programs that are drawn for one another: of one group, and valid or not alike."""
    valid = np.isfinite(samples.latency_s)
    found = []
    for group in np.unique(samples.groups):
        member = samples.groups == group
        found += [np.flatnonzero(member & valid), np.flatnonzero(member & ~valid)]
    return [stratum for stratum in found if len(stratum)]
