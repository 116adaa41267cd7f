"""What each training of an evaluation came to, kept so that an interrupted one goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.dataset import Dataset
from ..data.install import versions
from ..data.record_set import write_lines
from .base import Samples

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fitted:
    """What a model came to that was trained on one side of a split.

    Attributes:
        scores: Scores of the programs on the other side, of shape (programs,).
        scale: Standard deviation of its scores within the workloads it was trained on.
        fit_seconds: Seconds that the training took.
        predict_seconds: Seconds that scoring the other side took.
    """

    scores: Array
    scale: float
    fit_seconds: float
    predict_seconds: float


class Results:
    """A folder of results, a file each, or nothing that is kept.

    Args:
        folder: The folder; made with the first result. None keeps nothing.
        about: Digest of the records, see `digest`.
    """

    def __init__(self, folder: Path | None, about: str) -> None:
        self.folder = folder
        self.about = about

    def key(self, part: str, schema: Any, seed: int, train: Ints, test: Ints) -> str:
        """The name of a result: the same for the same model, features, records and packages."""
        sides = [hashlib.sha256(side.astype("<i8").tobytes()).hexdigest() for side in (train, test)]
        what = [self.about, part, str(schema), seed, *sides, sorted(versions().items())]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]

    def find(self, key: str, programs: int) -> Fitted | None:
        """A result that is kept; None where there is none, or it is no whole one."""
        if self.folder is None:
            return None
        try:
            value = json.loads((self.folder / f"{key}.json").read_bytes())
            scores = np.array(value.pop("scores"), dtype=np.float64)
            names = ("scale", "fit_seconds", "predict_seconds")
            found = Fitted(scores, *(float(value[name]) for name in names))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return found if scores.shape == (programs,) else None

    def keep(self, key: str, what: Mapping[str, Any], fitted: Fitted) -> None:
        """Keep a result.

        Args:
            key: Its name.
            what: What it is of, for people who look into the file.
            fitted: The result.
        """
        if self.folder is None:
            return
        value = dict(what) | {
            "scale": fitted.scale,
            "fit_seconds": fitted.fit_seconds,
            "predict_seconds": fitted.predict_seconds,
            "scores": fitted.scores.tolist(),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{key}.json"
        draft = self.folder / f".{key}.{os.getpid()}.draft"
        try:
            write_lines(draft, [json.dumps(value, allow_nan=False).encode() + b"\n"])
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)


def digest(dataset: Dataset, positions: Sequence[int] | Ints, samples: Samples) -> str:
    """A hash of the programs that models are trained on and judged by, and of what was measured.

    Args:
        dataset: The records.
        positions: Which of them.
        samples: Their latencies and groups.
    """
    made = hashlib.sha256()
    for i in positions:
        record = dataset.records[int(i)]
        what = [record.identity, record.target, record.host, record.candidate.to_json()]
        made.update(json.dumps(what).encode() + b"\n")
    made.update(samples.latency_s.tobytes() + samples.groups.astype("<i8").tobytes())
    return made.hexdigest()
