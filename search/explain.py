"""`tensortune explain`: what the winner of a run does, what the models look at, where time went."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..costmodel.features.schemas import statement_names
from ..costmodel.xgb import XGBModel
from ..data.candidate import Candidate
from ..data.measure import UNTUNED
from ..data.record import Record
from ..data.spaces import SPACES, NamedSpace, make_space
from ..data.store import Store
from ..data.target import cpu_target
from ..data.workload import Workload
from .base import Trial
from .learned_scorer import LearnedScorer
from .run_folder import RunFolderError

# The features listed for each model.
_FEATURES = 8


@dataclass(frozen=True)
class Explanation:
    """What there is to say of a run.

    Attributes:
        summary: The run's figures, as `tensortune tune --json` writes them.
        steps: The winner's schedule in words, a step each.
        trace: The winner's trace as Python.
        importance: For each model the features that its trees gained most from, with their share
            of the gain; empty with too few records to train on.
    """

    summary: dict[str, Any]
    steps: list[str]
    trace: str
    importance: dict[str, list[tuple[str, float]]]


def explain(folder: Path) -> Explanation:
    """Explain the run in a folder.

    Raises:
        RunFolderError: the folder holds no finished run.
    """
    path = folder / "best.json"
    if not path.exists():
        raise RunFolderError(
            f"{folder} holds no finished run (there is no best.json); "
            "finish it with `tensortune tune ... --resume`"
        )
    best = json.loads(path.read_text())
    if not {"definition", "target", "candidate", "seconds"} <= best.keys():
        raise RunFolderError(f"{path} is not what a finished run writes")
    workload = Workload.from_json(best["definition"])
    candidate = Candidate.from_json(best["candidate"])
    records = Store(folder / "records.jsonl").read().records
    # The winner may be the untuned program, which is of no space.
    spaces = [record.candidate.space for record in records if record.candidate.space in SPACES]
    space = make_space((*spaces, "sketch")[0], workload, cpu_target(best["target"]))
    if candidate == UNTUNED:
        steps, trace = ["the program is left as it is"], ""
    else:
        found = space.schedule(candidate).trace
        steps, trace = describe_trace(found), "\n".join(found.as_python())
    summary = {
        name: best[name] for name in best if name not in ("definition", "trace", "candidate")
    }
    return Explanation(summary, steps, trace, _importance(records, workload, space))


def _importance(
    records: Sequence[Record], workload: Workload, space: NamedSpace
) -> dict[str, list[tuple[str, float]]]:
    """Train both models on the run's records, as the tuner did, and see what they use."""
    scorer = LearnedScorer(space, workload.identity, space.target)
    scorer.learn([Trial(r.candidate, r) for r in records if r.candidate.space == space.name])
    models = {
        "decisions": (scorer.drafts.model, space.feature_names()),
        "statements": (scorer.verifies.model, statement_names()),
    }
    return {
        name: _top(model, names)
        for name, (model, names) in models.items()
        if isinstance(model, XGBModel) and model.importance().any()
    }


def _top(model: XGBModel, names: Sequence[str]) -> list[tuple[str, float]]:
    shares = model.importance()
    order = np.argsort(-shares)[:_FEATURES]
    return [(names[i], float(shares[i])) for i in order if shares[i] > 0]


def describe_trace(trace: Any) -> list[str]:
    """A trace in words: what is tiled how, what is computed where, what runs in parallel."""
    names: list[tuple[Any, str]] = []

    def name_of(variable: Any) -> str:
        return next((name for var, name in names if var.same_as(variable)), str(variable))

    steps: list[str] = []
    for inst in trace.insts:
        kind = inst.kind.name
        if kind == "EnterPostproc":
            steps.append("then, by TVM's post-processors:")
        inputs = [name_of(value) for value in inst.inputs if value is not None]
        if kind == "GetSBlock":
            names.append((inst.outputs[0], str(inst.attrs[0])))
        elif kind == "GetLoops":
            names += [(o, f"{inputs[0]}.{i}") for i, o in enumerate(inst.outputs)]
        else:
            stem = inputs[0] if inputs else kind
            marks = {"CacheWrite": "cache of ", "CacheRead": "cache of ", "Fuse": "fused "}
            for i, output in enumerate(inst.outputs):
                single = len(inst.outputs) == 1
                names.append((output, f"{marks.get(kind, '')}{stem}" + ("" if single else f"/{i}")))
        step = _describe(kind, inst, inputs, trace)
        if step is not None:
            steps.append(step)
    return steps


def _describe(kind: str, inst: Any, inputs: Sequence[str], trace: Any) -> str | None:
    """One instruction in words, or None where it only names things."""
    decision: Any = trace.get_decision(inst)
    first = inputs[0] if inputs else ""
    if kind == "SamplePerfectTile":
        return f"tile loop {first} into {' x '.join(str(int(size)) for size in decision)}"
    if kind == "SampleCategorical":
        return f"choose {int(inst.attrs[0][int(decision)])} as the limit of unrolling"
    if kind == "SampleComputeLocation":
        index = int(decision)
        where = {-1: "at the root", -2: "inlined"}.get(index, f"in loop {index} of its consumer")
        return f"compute {first} {where}"
    last = inputs[-1] if inputs else ""
    return {
        "CacheWrite": f"accumulate {first} in a buffer of its own",
        "CacheRead": f"read an input of {first} through a buffer of its own",
        "ReverseComputeAt": f"write the buffer back in loop {last}",
        "ComputeInline": f"inline {first}",
        "ReverseComputeInline": f"inline {first} into its producer",
        "RFactor": f"split the reduction of {first} over independent partial results",
        "Fuse": f"fuse {' and '.join(inputs)}",
        "Parallel": f"run {first} in parallel",
        "Vectorize": f"vectorise {first}",
        "Unroll": f"unroll {first}",
        "DecomposeReduction": f"initialise {first} before loop {last}",
        "Tensorize": f"use the intrinsic {inst.attrs[0] if len(inst.attrs) else ''} for {first}",
    }.get(kind)
