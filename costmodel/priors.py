"""Trained models on features of programs: which features they take, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import Samples
from .features.schemas import LOOPS, RELATIONS, STATEMENTS

SCHEMAS = {schema.name: schema for schema in (STATEMENTS, LOOPS, RELATIONS)}
"""Features of scheduled programs that a model may ask for."""


def listed(prior: Any | Sequence[Any] | None) -> list[Any]:
    """The priors, of which it is known what they take.

    Raises:
        ValueError: one takes features that programs don't have.
    """
    priors = list(prior) if isinstance(prior, Sequence) else [] if prior is None else [prior]
    for model in priors:
        kinds_of(model)
    return priors


def kinds_of(model: Any) -> tuple[str, ...]:
    """Which features of programs a model takes.

    That is the name of its `schema`, or else its `features`; `statements` if it does not say.

    Raises:
        ValueError: features that programs don't have.
    """
    schema = getattr(model, "schema", None)
    found = getattr(model, "features", "statements") if schema is None else schema.name
    kinds = (found,) if isinstance(found, str) else tuple(found)
    for kind in kinds:
        if kind not in SCHEMAS:
            raise ValueError(
                f"a model on the features `{kind}` can't score programs; there are "
                f"{', '.join(SCHEMAS)} (and `draft_prior` for decisions)"
            )
    return kinds


def said(models: Sequence[Any], found: Mapping[str, Samples]) -> npt.NDArray[np.float64]:
    """What models say of programs, of shape (programs, models).

    Args:
        models: At least one model.
        found: The programs by the kind of their features; all kinds that the models take.
    """
    return np.stack([_predict(model, found) for model in models], axis=1)


def _predict(model: Any, found: Mapping[str, Samples]) -> npt.NDArray[np.float64]:
    kinds = getattr(model, "features", "statements")
    given = found[kinds_of(model)[0]] if isinstance(kinds, str) else found
    return np.asarray(model.predict(given), dtype=np.float64)
