"""Decision features that all workloads and spaces share, for a draft model that is trained once.

They are computed from a candidate's decisions and what is known of its workload beforehand, without
TVM and without a replay, in microseconds. Unlike those of `decisions` a column means the same in
every workload: sizes of tiles by their place in the nest, bytes that they touch, and what a rough
model of registers and caches makes of these. See `general_columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ...data.candidate import Candidate, InvalidCandidate
from ...data.loop_space import LoopSpace
from ...data.sketch_space import SketchSpace
from ...data.space import Space
from ..base import Floats, Samples
from .general_nests import NestFeatures
from .general_sketches import SketchFeatures
from .schemas import GENERAL

# Candidates that are computed at once: what they take stays in the cache.
_CHUNK = 2048

# What is known of each space, as long as it is there.
_KNOWN: WeakKeyDictionary[Space, SketchFeatures | NestFeatures] = WeakKeyDictionary()


def reads(space: Space) -> bool:
    """Whether a space's candidates have these features: those of both spaces of ours do."""
    return isinstance(space, SketchSpace | LoopSpace)


def extract(space: Space, candidates: Sequence[Candidate]) -> Floats:
    """Features, of shape (candidates, `GENERAL.width`); NaN where one does not apply.

    Args:
        space: The space that the candidates are of.
        candidates: Canonical candidates; others are taken as they stand.

    Raises:
        InvalidCandidate: one is of another space.
        TypeError: the space is neither the sketch nor the loop space.
    """
    known = _features(space)
    others = {candidate.space for candidate in candidates} - {known.name}
    if others:
        raise InvalidCandidate(f"candidates of {', '.join(others)} in the {known.name} space")
    if len(candidates) <= _CHUNK:
        return known.rows(candidates)
    starts = range(0, len(candidates), _CHUNK)
    return np.concatenate([known.rows(candidates[i : i + _CHUNK]) for i in starts])


def samples(
    space: Space,
    candidates: Sequence[Candidate],
    latency_s: npt.ArrayLike | None = None,
) -> Samples:
    """Samples of one workload with general decision features, a row a candidate.

    Args:
        space: The space that the candidates are of.
        candidates: See `extract`.
        latency_s: Seconds per run, of shape (candidates,); infinity for a failure. By default
            nothing was measured.

    Raises:
        InvalidCandidate: see `extract`.
        TypeError: see `extract`.
    """
    n = len(candidates)
    return Samples(
        GENERAL,
        extract(space, candidates),
        np.ones(n, dtype=np.int64),
        np.full(n, np.nan) if latency_s is None else np.asarray(latency_s, dtype=np.float64),
        np.zeros(n, dtype=np.int64),
    )


def _features(space: Space) -> SketchFeatures | NestFeatures:
    found = _KNOWN.get(space)
    if found is None:
        if isinstance(space, SketchSpace):
            found = SketchFeatures(space)
        elif isinstance(space, LoopSpace):
            found = NestFeatures(space)
        else:
            raise TypeError(f"there are no general features of a space {type(space).__name__}")
        _KNOWN[space] = found
    return found
