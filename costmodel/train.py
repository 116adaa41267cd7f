"""Training a cost model on a dataset, by the model's name; or training a trained one further."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.dataset import Dataset, read_dataset
from ..data.dataset_checks import recompute
from ..data.metaschedule.database import read_database
from ..data.record_set import is_database, read_store
from .aligned import Aligned, Progress, aligned
from .combined import Combined, Kinds, features_of, predict
from .files import load_model
from .metrics import evaluate, measured_noise
from .model_file import ModelFile, StrPath
from .train_models import parts_of
from .xgb import XGBModel

# Trees that are added to a trained model for a user's own records.
_MORE_ROUNDS = 60


@dataclass(frozen=True)
class Trained:
    """A trained model and what it was trained on.

    Attributes:
        model: The model.
        features: The kinds of features that it takes.
        workloads: Canonical identities of the workloads, those of the model it went on from too.
        programs: Programs that it was trained on.
        valid: How many of these ran.
        held_out: Records of each held-out workload that were left out, by key.
        missing: Why records have no features, and how many.
        seconds: Seconds that the training took, features apart.
    """

    model: Any
    features: tuple[str, ...]
    workloads: tuple[str, ...]
    programs: int
    valid: int
    held_out: Mapping[str, int]
    missing: Mapping[str, int]
    seconds: float

    def save(self, path: StrPath) -> None:
        """Write the model to a file, with the workloads that it was trained on."""
        self.model.save(path, self.workloads)


@dataclass(frozen=True)
class Source:
    """The records to train on, and how to treat them.

    Attributes:
        dataset: The records.
        positions: Which of them; all by default.
        allow_held_out: Train on what is held out for evaluation too.
        folder: Where features are kept; by default beside the dataset.
        workers: Processes that compute features.
        progress: Told how far the features are.
    """

    dataset: Dataset
    positions: npt.NDArray[np.int64] | None = None
    allow_held_out: bool = False
    folder: Path | None = None
    workers: int | None = None
    progress: Progress | None = None

    def prepare(self, kinds: Sequence[str]) -> tuple[Aligned, dict[str, int]]:
        """The programs with features, and how many of each held-out workload were left out.

        Raises:
            ValueError: no program that ran is left.
        """
        found = aligned(
            self.dataset,
            kinds,
            folder=self.folder,
            workers=self.workers,
            progress=self.progress,
        )
        wanted = np.ones(len(found.positions), dtype=bool)
        if self.positions is not None:
            wanted = np.isin(found.positions, self.positions)
        records = [self.dataset.records[i] for i in found.positions]
        left_out: Counter[str] = Counter()
        if not self.allow_held_out:
            again = recompute(records, self.dataset.definitions)
            # A computation is held out or not; a dataset has thousands of records of it.
            held = {pair: again.held_out(r) for pair, r in _by_workload(records).items()}
            for i, record in enumerate(records):
                if wanted[i] and held[record.workload, record.identity]:
                    wanted[i] = False
                    left_out[record.workload] += 1
        made = Aligned(found.take(wanted), found.positions[wanted], found.missing)
        if not np.isfinite(made.any_kind.latency_s).any():
            raise ValueError(_nothing_left(left_out, found.missing))
        return made, dict(left_out)


def _by_workload(records: Sequence[Any]) -> dict[tuple[str, str], Any]:
    return {(record.workload, record.identity): record for record in records}


def _nothing_left(held_out: Mapping[str, int], missing: Mapping[str, int]) -> str:
    if held_out:
        return (
            f"nothing is left to train on: {sum(held_out.values())} records are of workloads held "
            "out for evaluation; allow them (--allow-held-out) for a model that is not judged by "
            "these"
        )
    why = f" ({next(iter(missing))})" if missing else ""
    return f"no record is of a program that ran and has features{why}: collect some first"


def read_records(path: StrPath) -> Dataset:
    """A dataset, a store of records, a tuning run's or a collection's folder, or a database.

    Raises:
        DatasetError: a file of a dataset is damaged, or of another version.
        StoreError: there are no records, or they can't be read.
    """
    path = Path(path)
    if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
        return read_dataset(path)
    if is_database(path):
        sets = [read_database(path)]
    elif (path / "collection.json").exists():
        files = sorted(path.glob("*.jsonl"))
        sets = [read_store(file) for file in files if not file.name.endswith(".workloads.jsonl")]
    else:
        sets = [read_store(path)]
    definitions = {key: value for found in sets for key, value in found.definitions.items()}
    return Dataset([record for found in sets for record in found.records], definitions, path)


def train(source: Source, name: str = "xgb", seed: int = 0) -> Trained:
    """Train a model.

    Workloads that are held out for evaluation are left out, unless the source allows them.

    Args:
        source: The records.
        name: The model, see `parts_of`.
        seed: Seed of what it draws.

    Raises:
        ValueError: there is no such model or it can't be saved, or nothing is left to train on.
    """
    parts = parts_of(name)
    models = [(part.features, part.make(seed)) for part in parts]
    if not all(callable(getattr(model, "save", None)) for _, model in models):
        raise ValueError(f"`{name}` is there to be compared with, and can't be saved")
    model: Any = models[0][1] if len(models) == 1 else Combined(models)
    kinds = tuple(dict.fromkeys(part.features for part in parts))

    def fit(samples: Kinds) -> None:
        model.fit(samples if isinstance(model, Combined) else samples[kinds[0]])

    return _trained(source, model, kinds, fit)


def train_further(source: Source, start: StrPath) -> Trained:
    """Go on with a trained model, on other records.

    Of XGBoost's models the trees are kept and some are added; a neural one is fine-tuned.

    Args:
        source: The records.
        start: The file of the trained model.

    Raises:
        ModelFileError: it is no model's file, or of features of another schema.
        ValueError: the model can't be trained further, or nothing is left to train on.
    """
    model = load_model(start)
    known = ModelFile.read(start).workloads
    kinds = features_of(model)

    def fit(samples: Kinds) -> None:
        if isinstance(model, Combined):
            for kind, part in model.parts:
                _continue(part, samples[kind], start)
            model.rescale(samples)
        else:
            _continue(model, samples[kinds[0]], start)

    return _trained(source, model, kinds, fit, known)


def _continue(model: Any, samples: Any, start: StrPath) -> None:
    if isinstance(model, XGBModel):
        model.warm_start, model.rounds = True, _MORE_ROUNDS
        model.trees = replace(model.trees, rounds=_MORE_ROUNDS)
        model.fit(samples)
    elif callable(getattr(model, "fine_tune", None)):
        model.fine_tune(samples)
    else:
        raise ValueError(f"{start} holds a model that can't be trained further")


def _trained(
    source: Source,
    model: Any,
    kinds: tuple[str, ...],
    fit: Callable[[Kinds], None],
    known: Sequence[str] = (),
) -> Trained:
    data, held_out = source.prepare(kinds)
    start = time.perf_counter()
    fit(data.kinds)
    seconds = time.perf_counter() - start
    identities = {source.dataset.records[i].identity for i in data.positions}
    return Trained(
        model,
        kinds,
        tuple(sorted({*known, *identities})),
        len(data.positions),
        int(np.isfinite(data.any_kind.latency_s).sum()),
        held_out,
        data.missing,
        seconds,
    )


def judge(model: Any, source: Source, positions: npt.NDArray[np.int64]) -> dict[str, Any]:
    """How well a trained model ranks records, as `Evaluation.to_json`; None where undefined.

    Args:
        model: The model.
        source: Where the records are.
        positions: Which of them.

    Raises:
        ValueError: none of them ran.
    """
    data, _ = replace(source, positions=positions).prepare(features_of(model))
    records = [source.dataset.records[i] for i in data.positions]
    known = data.any_kind
    found = evaluate(
        predict(model, data.kinds),
        known.latency_s,
        known.groups,
        noise=measured_noise([record.repeats for record in records]),
    )
    return {name: _numbers(value) for name, value in found.to_json().items()} | {
        "programs": int(np.isfinite(known.latency_s).sum()),
        "workloads": len({record.identity for record in records}),
    }


def judge_saved(path: StrPath, source: Source) -> dict[str, Any]:
    """How well a saved model ranks the workloads that it was not trained on; see `judge`.

    Args:
        path: The model's file.
        source: The records; what is held out for evaluation is taken too.

    Raises:
        ModelFileError: it is no model's file.
        ValueError: it was trained on all of the workloads, or none of the others' programs ran.
    """
    seen = set(ModelFile.read(path).workloads)
    new = [i for i, record in enumerate(source.dataset.records) if record.identity not in seen]
    if not new:
        raise ValueError(f"{path} was trained on all of these workloads: judge it by others")
    everything = replace(source, allow_held_out=True)
    return judge(load_model(path), everything, np.array(new, dtype=np.int64))


def _numbers(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return value if np.isfinite(value) else None
