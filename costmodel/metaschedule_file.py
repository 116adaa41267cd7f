"""What a cost model in MetaSchedule knows of its tasks, and its file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import CostModel, Floats, ModelFileError, Samples
from .features.schemas import GENERAL, STATEMENTS
from .files import load_model
from .model_file import Embedded, ModelFile, StrPath
from .priors import SCHEMAS
from .ranker import Ranker
from .xgb import XGBModel

KIND = "metaschedule"

Scores = npt.NDArray[np.float64]


class TaskModel:
    """What was measured of one task, and what ranks its programs.

    Args:
        prior: See `Ranker`.
        seed: Seed of the models made here.

    Attributes:
        programs: Hashes of the programs that were learnt, in that order.
        known: What priors on other features say of them, a row each; empty without any.
    """

    def __init__(self, prior: CostModel, seed: int) -> None:
        self.ranker = Ranker(prior, STATEMENTS, seed)
        self.programs: dict[str, None] = {}
        self.known: list[Scores] = []

    def add(
        self,
        programs: Sequence[str],
        features: Sequence[Floats],
        latency_s: Sequence[float],
        compile_s: Sequence[float],
        known: Scores | None,
    ) -> None:
        """Take in programs; `programs` are their hashes, the rest is as for `Ranker.add`."""
        self.programs.update(dict.fromkeys(programs))
        self.ranker.add(features, latency_s, compile_s, known)
        if known is not None:
            self.known += list(known)


@dataclass(frozen=True)
class Held:
    """What a file holds.

    Attributes:
        model: What is trained for every task, or is a trained model on statement features.
        tasks: The tasks by the hash of their module.
        priors: Trained models on features of programs.
        draft_prior: A trained model on the decision features that all workloads share.
    """

    model: CostModel
    tasks: Mapping[str, TaskModel] = field(default_factory=dict)
    priors: Sequence[Any] = ()
    draft_prior: CostModel | None = None


def samples_of(tasks: Mapping[str, TaskModel]) -> Samples:
    """The programs of several tasks, each task a group."""
    rankers = [task.ranker for task in tasks.values()]
    return Samples.of(
        STATEMENTS,
        [matrix for ranker in rankers for matrix in ranker.features],
        [seconds for ranker in rankers for seconds in ranker.latency_s],
        [group for group, ranker in enumerate(rankers) for _ in ranker.latency_s],
    )


def write(path: StrPath, held: Held) -> None:
    """Write a file that `read` reads.

    Raises:
        ValueError: a model is of a class without `save`.
    """
    parts = {"model": _saved(held.model)}
    for number, prior in enumerate(held.priors):
        parts[f"prior {number}"] = _saved(prior)
    if held.draft_prior is not None:
        parts["draft"] = _saved(held.draft_prior)
    samples = samples_of(held.tasks)
    parts["rows"] = samples.rows.astype("<f4").tobytes()
    parts["counts"] = samples.counts.astype("<i8").tobytes()
    parts["latency_s"] = samples.latency_s.astype("<f8").tobytes()
    compile_s = [second for task in held.tasks.values() for second in task.ranker.compile_s]
    parts["compile_s"] = np.array(compile_s, dtype="<f8").tobytes()
    if held.priors:
        known = [row for task in held.tasks.values() for row in task.known]
        parts["known"] = np.array(known, dtype="<f8").tobytes()
    tasks = [[name, list(task.programs)] for name, task in held.tasks.items()]
    state = {"tasks": tasks, "priors": len(held.priors)}
    ModelFile(KIND, {}, STATEMENTS, parts, state=state).write(path)


def read(path: StrPath, seed: int) -> Held:
    """Read what `write` wrote, or a model file of ours as the trained model.

    Raises:
        ModelFileError: it is no model file, damaged, or of a model of something else.
        FileNotFoundError: there is no such file.
    """
    file = ModelFile.read(path)
    if file.kind == "validity":
        raise ModelFileError(
            f"{path} holds a model of kind `validity`, which does not rank programs; "
            "a file of kind `xgb` does"
        )
    if file.kind != KIND:
        return _model_alone(path, file, seed)
    try:
        return _read_parts(path, file, seed)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path} is damaged: {error}") from error


def _saved(model: Any) -> bytes:
    if not hasattr(model, "save"):
        raise ValueError(
            f"a {type(model).__name__} can't be saved: it needs the methods `save(path)` and "
            "`load(path)`"
        )
    with tempfile.TemporaryDirectory() as scratch:
        inner = Path(scratch) / "model"
        model.save(inner)
        return inner.read_bytes()


def _model_alone(path: StrPath, file: ModelFile, seed: int) -> Held:
    """A trained model as what is known of all tasks."""
    if file.schema is not None and file.schema.name == GENERAL.name:
        return Held(XGBModel(seed=seed), draft_prior=load_model(path))
    if file.schema is not None and (
        file.schema.name not in SCHEMAS or file.schema.name == STATEMENTS.name
    ):
        return Held(load_model(path, STATEMENTS))
    model = load_model(path)
    if file.schema is None and getattr(model, "features", "statements") == "statements":
        return Held(model)
    return Held(XGBModel(seed=seed), priors=(model,))


def _read_parts(path: StrPath, file: ModelFile, seed: int) -> Held:
    def part(name: str, schema: Any = None) -> Any:
        return load_model(Embedded(f"{name} of {path}", file.parts[name]), schema)

    model: CostModel = part("model", STATEMENTS)
    priors = [part(f"prior {number}") for number in range(file.state.get("priors", 0))]
    draft = part("draft") if "draft" in file.parts else None
    rows = np.frombuffer(file.parts["rows"], "<f4").reshape(-1, STATEMENTS.width)
    counts = np.frombuffer(file.parts["counts"], "<i8")
    latency_s = np.frombuffer(file.parts["latency_s"], "<f8").tolist()
    compile_s = [0.0] * len(counts)
    if "compile_s" in file.parts:  # older files have none
        compile_s = np.frombuffer(file.parts["compile_s"], "<f8").tolist()
    features = np.split(rows, np.cumsum(counts)[:-1]) if len(counts) else []
    known = None
    if priors:
        known = np.frombuffer(file.parts["known"], "<f8").reshape(len(counts), len(priors))
    tasks: dict[str, TaskModel] = {}
    start = 0
    for name, programs in file.state["tasks"]:
        end = start + len(programs)
        tasks[name] = TaskModel(model, seed)
        tasks[name].add(
            programs,
            features[start:end],
            latency_s[start:end],
            compile_s[start:end],
            None if known is None else known[start:end],
        )
        start = end
    return Held(model, tasks, priors, draft)
