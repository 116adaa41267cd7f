"""General decision features of a dataset's records, kept beside it.

They need no replay, but every workload's space has to be made once, and that takes up to a second.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from ...data.candidate import InvalidCandidate
from ...data.dataset import Dataset
from ...data.record import Record
from ...data.spaces import SPACES, make_space
from ...data.workload import Workload
from ..feature_cache import Featured, featured, last_line
from ..feature_files import FeatureFiles
from . import general
from .schemas import GENERAL

Progress = Callable[[int, int], None]
"""Called with how many records are done, and of how many."""


def cache_folder(dataset: Dataset) -> Path:
    """Where a dataset's general features are kept: `features/general-v<version>` beside its parts.

    Raises:
        ValueError: the dataset was made in memory.
    """
    if dataset.path is None:
        raise ValueError("a dataset made in memory has no folder: say where to keep its features")
    path = dataset.path
    beside = path / "features" if path.is_dir() else path.with_name(f"{path.stem}.features")
    return beside / f"{GENERAL.name}-v{GENERAL.version}"


def samples_of_dataset(
    dataset: Dataset, *, folder: Path | None = None, progress: Progress | None = None
) -> Featured:
    """A dataset's records with general decision features.

    Args:
        dataset: The records.
        folder: Where features are kept; by default `cache_folder`.
        progress: Told how far it is.

    Raises:
        ValueError: see `cache_folder`.
        OSError: the folder can't be written.
    """
    cache = FeatureFiles(folder or cache_folder(dataset), GENERAL.width)
    cache.load()
    keys = [_key(record) for record in dataset.records]
    wanted: dict[tuple[str, str, str], dict[bytes, Record]] = {}
    for record, key in zip(dataset.records, keys, strict=True):
        if key is not None and key not in cache.rows and key not in cache.illegal:
            group = record.workload, record.target, record.candidate.space
            wanted.setdefault(group, {})[key] = record
    done, total = 0, sum(map(len, wanted.values()))
    for records in wanted.values():
        _add(cache, dataset.definitions, records)
        done += len(records)
        if progress is not None:
            progress(done, total)
    return featured(dataset, GENERAL, keys, cache, {})


def _key(record: Record) -> bytes | None:
    """The hash of a record's candidate; None where no space of ours reads it."""
    if record.candidate.space not in SPACES:
        return None
    salt = [GENERAL.name, GENERAL.version, GENERAL.width, tvm.__version__]
    told = [*salt, record.workload, record.target, record.candidate.to_json()]
    return hashlib.sha256(json.dumps(told).encode()).digest()[:16]


def _add(
    cache: FeatureFiles,
    definitions: Mapping[str, Mapping[str, Any]],
    records: Mapping[bytes, Record],
) -> None:
    """Compute and keep the features of records of one workload, target and space."""
    some = next(iter(records.values()))
    none = np.empty((0, GENERAL.width), np.float32)
    try:
        workload = Workload.from_json(definitions.get(some.workload, {"key": some.workload}))
        target = tvm.target.Target(json.loads(some.target))
        space = make_space(some.candidate.space, workload, target)
    except Exception as error:  # TVM raises whatever its C++ side threw
        why = f"its space can't be made: {last_line(error)}"
        cache.illegal |= dict.fromkeys(records, why)  # another installation may make it
        return
    candidates = [record.candidate for record in records.values()]
    try:
        cache.add(
            list(records), list(general.extract(space, candidates)[:, None]), [""] * len(records)
        )
        return
    except InvalidCandidate:
        pass  # one of them at least: which?
    found, why_not = [], []
    for candidate in candidates:
        try:
            found.append(general.extract(space, [candidate]))
            why_not.append("")
        except InvalidCandidate as error:
            found.append(none)
            why_not.append(f"not of this space: {last_line(error)}")
    cache.add(list(records), found, why_not)
