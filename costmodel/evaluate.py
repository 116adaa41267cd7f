"""Models trained and judged on a dataset, on splits that share no computation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.dataset import Dataset
from ..data.install import versions
from ..data.splits import SEEDS, SplitKind, check_disjoint, identity_families, split
from .aligned import Aligned, Progress, aligned
from .base import Samples
from .ceiling import dataset_ceiling
from .combined import add, spread
from .evaluate_results import Fitted, Results, digest
from .evaluate_stats import Cell, by_model, calibration_rows, deciles, family_rows, row
from .metrics import measured_noise, workload_metrics
from .train_models import PEER, Part, parts_of

Ints = npt.NDArray[np.int64]

Told = Callable[[int, int, str], None]
"""Called with how many trainings are done, of how many, and which is next."""

# Of fewer programs of a workload there is nothing to rank.
_FEWEST = 2


@dataclass(frozen=True)
class Report:
    """What an evaluation came to; every row is plain JSON.

    Attributes:
        rows: One a model and split: `model`, `split`, each metric with its 95% interval beside it
            as `<metric>_ci95`, `noise_ceiling`, `vs_metaschedule` (each metric less the peer's,
            with its interval), `fit_seconds` (mean of a training), `train_programs` (likewise),
            `workloads`, `programs`, `seeds`.
        learning_curve: The same with fewer programs to train on, `size` of them.
        families: Pairwise accuracy and top-1 score by model, split and operator family.
        calibration: See `calibration_rows`.
        about: The dataset, the seeds, the versions.
    """

    rows: list[dict[str, Any]]
    learning_curve: list[dict[str, Any]]
    families: list[dict[str, Any]]
    calibration: list[dict[str, Any]]
    about: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            **self.about,
            "rows": self.rows,
            "learning_curve": self.learning_curve,
            "families": self.families,
            "calibration": self.calibration,
        }


@dataclass(frozen=True)
class _Round:
    """Programs to train on and to judge by, as positions among those that have features."""

    split: SplitKind
    seed: int
    size: int | None
    train: Ints
    test: Ints


def evaluate(
    dataset: Dataset,
    models: Sequence[str],
    splits: Sequence[SplitKind] = ("record", "shape", "operator"),
    seeds: Sequence[int] = SEEDS,
    *,
    sizes: Sequence[int] = (),
    results: Path | None = None,
    folder: Path | None = None,
    workers: int | None = None,
    features_progress: Progress | None = None,
    progress: Told | None = None,
) -> Report:
    """Train every model on one side of every split and judge it by the other.

    Args:
        dataset: The records.
        models: Their names, see `train_models.parts_of`; the others are compared with
            `metaschedule-xgb` where that is among them.
        splits: Kinds of splits.
        seeds: Seeds of the splits; a model is trained with the seed of its split.
        sizes: For a learning curve: numbers of programs to train on as well, drawn at random.
        results: Folder that keeps what each training came to; one that is there already is not
            done again.
        folder: Where features are kept; by default beside the dataset.
        workers: Processes that compute features.
        features_progress: Told how far the features are.
        progress: Told how far the trainings are.

    Raises:
        ValueError: there is no such model or split, or too little to split or to judge by.
    """
    specs = {name: parts_of(name) for name in models}
    parts = {part.key: part for named in specs.values() for part in named}
    if not (parts and splits and len(seeds)):
        raise ValueError("name at least one model, one split and one seed")
    rounds_of = [(kind, split(dataset, kind, seed)) for kind in splits for seed in seeds]
    for _, made in rounds_of:
        check_disjoint(dataset, made)
    kinds = list(dict.fromkeys(part.features for part in parts.values()))
    data = aligned(dataset, kinds, folder=folder, workers=workers, progress=features_progress)
    judge = _Judge(dataset, data)
    rounds = [r for _, made in rounds_of for r in judge.rounds(made, sizes)]
    kept = Results(results, digest(dataset, data.positions, data.any_kind))
    seconds: dict[tuple[str, str, int | None], list[float]] = {}
    cells: list[Cell] = []
    for number, one in enumerate(rounds):
        fitted = {}
        for step, (key, part) in enumerate(parts.items()):
            if progress is not None:
                size = "" if one.size is None else f", {one.size} programs"
                what = f"{_name_of(part, specs)}, by {one.split}, seed {one.seed}{size}"
                progress(number * len(parts) + step, len(rounds) * len(parts), what)
            fitted[key] = _fitted(part, one, data, kept)
        for name, named in specs.items():
            cells += judge.cells(name, one, [fitted[part.key] for part in named])
            spent = sum(fitted[part.key].fit_seconds for part in named)
            seconds.setdefault((name, one.split, one.size), []).append(spent)
    if progress is not None:
        progress(len(rounds) * len(parts), len(rounds) * len(parts), "done")
    whole = [cell for cell in cells if cell.size is None]
    return Report(
        list(_rows(whole, rounds, seconds, judge)),
        [r for r in _rows(cells, rounds, seconds, judge) if sizes],
        family_rows(whole),
        calibration_rows(whole),
        _about(dataset, data, models, splits, seeds),
    )


def _name_of(part: Part, specs: Mapping[str, Sequence[Part]]) -> str:
    """The model that is this part alone, or else that it is a part of."""
    owners = [(len(named), name) for name, named in specs.items() if part in named]
    return min(owners)[1]


def _fitted(part: Part, one: _Round, data: Aligned, kept: Results) -> Fitted:
    """What a model came to that was trained on a round, from the results or by doing it."""
    samples = data.kinds[part.features]
    train, test = data.positions[one.train], data.positions[one.test]
    key = kept.key(part.key, samples.schema, one.seed, train, test)
    found = kept.find(key, len(test))
    if found is not None:
        return found
    model = part.make(one.seed)
    before = samples.take(one.train)
    start = time.perf_counter()
    model.fit(before)
    fit_seconds = time.perf_counter() - start
    after = samples.take(one.test)
    # What a model must not know is not handed to it.
    unknown = Samples(
        after.schema, after.rows, after.counts, np.full(len(after), np.nan), after.groups
    )
    start = time.perf_counter()
    scores = np.asarray(model.predict(unknown), dtype=np.float64)
    predict_seconds = time.perf_counter() - start
    if not np.isfinite(scores).all():
        raise ValueError(f"{part.made_by} gave scores that are no numbers (split by {one.split})")
    made = Fitted(scores, spread(model.predict(before), before), fit_seconds, predict_seconds)
    what = {
        "model": part.made_by,
        "features": part.features,
        "arguments": dict(part.arguments),
        "split": one.split,
        "seed": one.seed,
        "member": part.member,
        "train_programs": len(train),
    }
    kept.keep(key, what, made)
    return made


class _Judge:
    """Judges scores by what was measured."""

    def __init__(self, dataset: Dataset, data: Aligned) -> None:
        self.dataset = dataset
        self.data = data
        self.records = [dataset.records[i] for i in data.positions]
        self.latency_s = data.any_kind.latency_s
        self.groups = data.any_kind.groups
        self.noise = measured_noise([record.repeats for record in self.records])
        self.families = identity_families(dataset)
        self.ceilings: dict[str, list[float]] = {}

    def rounds(self, made: Any, sizes: Sequence[int]) -> Iterator[_Round]:
        """A split's whole round, and one for each size that it has more programs than."""
        train = np.flatnonzero(np.isin(self.data.positions, made.train))
        both = np.flatnonzero(np.isin(self.data.positions, made.test))
        test = self._once(both)
        if not (len(test) and np.isfinite(self.latency_s[train]).any()):
            raise ValueError(
                f"the split by {made.kind} with seed {made.seed} has no programs that ran on both "
                "sides: collect more"
            )
        found = dataset_ceiling(self.dataset.take(self.data.positions[both])).pairwise
        self.ceilings.setdefault(made.kind, []).append(found)
        yield _Round(made.kind, made.seed, None, train, test)
        for size in sorted(set(sizes)):
            if size < len(train):
                rng = np.random.default_rng([made.seed, size])
                drawn = np.sort(rng.choice(train, size, replace=False))
                yield _Round(made.kind, made.seed, size, drawn, test)

    def _once(self, programs: Ints) -> Ints:
        """The programs that ran, each once: one that was measured again counts as at first."""
        seen: dict[tuple[int, Any], int] = {}
        for i in programs[np.isfinite(self.latency_s[programs])].tolist():
            seen.setdefault((int(self.groups[i]), self.records[i].candidate), i)
        return np.array(sorted(seen.values()), dtype=np.int64)

    def ceiling(self, kind: str) -> float:
        """The noise ceiling of the tests of a kind of split; NaN where it is not known."""
        known = [value for value in self.ceilings[kind] if np.isfinite(value)]
        return float(np.mean(known)) if known else float("nan")

    def cells(self, name: str, one: _Round, fitted: Sequence[Fitted]) -> Iterator[Cell]:
        """How well a model ranks each workload of a round."""
        if len(fitted) == 1:
            scores = fitted[0].scores
        else:
            scores = add([each.scores for each in fitted], [each.scale for each in fitted])
        groups = self.groups[one.test]
        for group in np.unique(groups).tolist():
            where = np.flatnonzero(groups == group)
            if len(where) < _FEWEST:
                continue
            programs = one.test[where]
            latency_s = self.latency_s[programs]
            identity = self.records[int(programs[0])].identity
            yield Cell(
                name,
                one.split,
                one.size,
                one.seed,
                group,
                identity,
                self.families[identity],
                len(where),
                workload_metrics(scores[where], latency_s, self.noise[programs]),
                deciles(scores[where], latency_s),
                deciles(-latency_s, latency_s),
            )


def _rows(
    cells: Sequence[Cell],
    rounds: Sequence[_Round],
    seconds: Mapping[tuple[str, str, int | None], Sequence[float]],
    judge: _Judge,
) -> Iterator[dict[str, Any]]:
    """A row a split, size and model, the smallest size first and all programs last."""
    where = dict.fromkeys((one.split, one.size) for one in rounds)
    sized = sorted((c for c in where if c[1] is not None), key=lambda c: c[1] or 0)
    for kind, size in [*sized, *(c for c in where if c[1] is None)]:
        models = by_model(c for c in cells if c.split == kind and c.size == size)
        trained = [len(one.train) for one in rounds if (one.split, one.size) == (kind, size)]
        for name, own in models.items():
            peer = models.get(PEER, []) if name != PEER else []
            found: dict[str, Any] = {"model": name, "split": kind, "size": size}
            found |= row(own, peer, judge.ceiling(kind))
            found["fit_seconds"] = float(np.mean(seconds[name, kind, size]))
            found["train_programs"] = round(float(np.mean(trained)))
            yield found


def _about(
    dataset: Dataset,
    data: Aligned,
    models: Sequence[str],
    splits: Sequence[str],
    seeds: Sequence[int],
) -> dict[str, Any]:
    return {
        "dataset": None if dataset.path is None else str(dataset.path),
        "records": len(dataset),
        "programs": len(data.positions),
        "missing": dict(data.missing),
        "models": list(models),
        "splits": list(splits),
        "seeds": list(seeds),
        "hosts": sorted({record.host for record in dataset.records}),
        "versions": versions(),
    }
