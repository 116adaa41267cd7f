"""A dataset's records with features of several kinds, program by program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..data.dataset import Dataset
from .base import Samples
from .combined import Kinds
from .feature_cache import DERIVED, cache_folder, samples
from .features.general_dataset import samples_of_dataset
from .features.schemas import GENERAL, JOINT, RELATIONS

# Features that are others side by side.
_JOINED = {JOINT.name: (RELATIONS.name, GENERAL.name)}

Progress = Callable[[str, int, int], None]
"""Called with a kind of features, how many programs are done, and of how many."""


@dataclass(frozen=True)
class Aligned:
    """A dataset's records with features of several kinds.

    Attributes:
        kinds: By kind, the samples of the programs that have features of every kind.
        positions: Which record of the dataset each program is, of shape (programs,).
        missing: Why other records have no features, and how many.
    """

    kinds: Kinds
    positions: npt.NDArray[np.int64]
    missing: Mapping[str, int]

    @property
    def any_kind(self) -> Samples:
        """The samples of one kind, for what they have in common: groups and latencies."""
        return next(iter(self.kinds.values()))

    def take(self, programs: npt.ArrayLike) -> Kinds:
        """The samples of some programs, by index or by a mask, in that order."""
        return {kind: found.take(programs) for kind, found in self.kinds.items()}


def aligned(
    dataset: Dataset,
    kinds: Sequence[str],
    *,
    folder: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Aligned:
    """A dataset's records with features of several kinds; arguments as those of `samples`.

    Args:
        dataset: The records.
        kinds: The kinds of features, one at least.
        folder: Where features are kept, each kind that is in a folder of its own; by default beside
            the dataset.
        workers: Processes that replay what is not kept yet.
        progress: Told how far each kind is.
    """
    found = {}
    for kind in dict.fromkeys(part for name in kinds for part in _JOINED.get(name, (name,))):

        def told(done: int, total: int, kind: str = kind) -> None:
            if progress is not None:
                progress(kind, done, total)

        if kind == GENERAL.name:
            beside = None if folder is None else folder / kind
            found[kind] = samples_of_dataset(dataset, folder=beside, progress=told)
            continue
        kept_as, _ = DERIVED.get(kind, (kind, None))
        where = cache_folder(dataset, kind) if folder is None else folder / kept_as
        found[kind] = samples(dataset, kind, folder=where, workers=workers, progress=told)
    common = next(iter(found.values())).positions
    missing: dict[str, int] = {}
    for each in found.values():
        common = np.intersect1d(common, each.positions)
        missing |= each.missing
    made = {
        kind: each.samples.take(np.isin(each.positions, common)) for kind, each in found.items()
    }
    for kind in set(kinds) & set(_JOINED):
        made[kind] = _joined(made, kind)
    return Aligned({kind: made[kind] for kind in kinds}, common, missing)


def _joined(made: Kinds, kind: str) -> Samples:
    """Samples with features that others have a part of each; all with one row a program."""
    parts = [made[part] for part in _JOINED[kind]]
    rows = np.concatenate([part.rows for part in parts], axis=1)
    one = parts[0]
    return Samples(JOINT, rows, one.counts, one.latency_s, one.groups)
