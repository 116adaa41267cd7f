"""How well a dataset's measurements rank programs against measurements made again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.dataset import Dataset
from ..data.dataset_stats import OCCASION_S, noise_pairs
from .metrics import measured_noise, noise_ceiling


@dataclass(frozen=True)
class Ceiling:
    """The noise ceiling of a dataset.

    Attributes:
        pairwise: Pairwise accuracy of one occasion's measurements against the others', averaged
            over workloads; NaN where nothing was measured twice.
        programs: Programs that were measured on several occasions.
        workloads: Of how many workloads they are.
    """

    pairwise: float
    programs: int
    workloads: int


def dataset_ceiling(dataset: Dataset, apart_s: float = OCCASION_S) -> Ceiling:
    """The pairwise accuracy that no model of this dataset can be expected to beat by much.

    Pairs nearer than the noise within a record are skipped, as where models are judged.

    Args:
        dataset: The records.
        apart_s: Seconds between two occasions at least.
    """
    pairs = noise_pairs(dataset, apart_s)
    repeats = [dataset.records[chosen[0]].repeats for chosen in pairs.positions]
    noise = measured_noise(repeats)
    pairwise = noise_ceiling(pairs.latency_s, pairs.groups, noise)
    return Ceiling(pairwise, len(pairs), len(np.unique(pairs.groups)))
