"""Decision features: a candidate's own decisions, without TVM and without replaying it.

They cost microseconds a candidate, which is what a searcher's walk can afford. Their columns differ
from one workload's space to the next, so a model of them serves that space alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...data.candidate import Candidate
from ...data.space import Space
from ..base import FeatureSchema, Samples
from . import schemas


def schema(space: Space, identity: str) -> FeatureSchema:
    """The schema of a space's decision features.

    Args:
        space: The space that encodes the candidates.
        identity: What the space is of: the workload's identity, and the target where the space
            depends on it. A model of other decisions is refused by it.
    """
    return schemas.decisions(f"{space.name}/{identity}", space.encode([]).shape[1])


def samples(
    space: Space,
    identity: str,
    candidates: Sequence[Candidate],
    latency_s: npt.ArrayLike | None = None,
) -> Samples:
    """Samples of one workload with decision features, a row a candidate.

    Args:
        space: The space that the candidates are of.
        identity: See `schema`.
        candidates: Canonical candidates; others are encoded as they stand.
        latency_s: Seconds per run, of shape (candidates,); infinity for a failure. By default
            nothing was measured.
    """
    n = len(candidates)
    return Samples(
        schema(space, identity),
        space.encode(candidates),
        np.ones(n, dtype=np.int64),
        np.full(n, np.nan) if latency_s is None else np.asarray(latency_s, dtype=np.float64),
        np.zeros(n, dtype=np.int64),
    )
