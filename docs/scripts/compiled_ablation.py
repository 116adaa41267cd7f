"""What the relation features of compiled loops are worth: models with and without them.

    python docs/scripts/compiled_ablation.py data/collected --json ablation.json

Only the training side of the split by shape with seed 0 is looked at, divided by shape once more:
so what it says has no part in the tests of that split.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from tensortune.costmodel.aligned import aligned
from tensortune.costmodel.base import FeatureSchema, Samples
from tensortune.costmodel.features.schemas import CODEGEN_COLUMNS, relation_names
from tensortune.costmodel.metrics import evaluate, measured_noise
from tensortune.costmodel.train_models import DEEP
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.dataset import read_dataset
from tensortune.data.splits import split

KINDS = ("statements", "relations", "general", "relations+general")
SUM = "the sum of all"


def without(samples: Samples) -> Samples:
    """The samples without the columns of compiled loops."""
    names = np.array(relation_names())
    compiled = np.flatnonzero(np.isin(names, CODEGEN_COLUMNS))
    rows = np.delete(samples.rows, compiled, axis=1)
    schema = FeatureSchema(f"{samples.schema.name} without", 1, rows.shape[1])
    return replace(samples, schema=schema, rows=rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    dataset = read_dataset(arguments.dataset)
    data = aligned(dataset, KINDS)
    outer = split(dataset, "shape", 0).train
    noise = measured_noise([dataset.records[i].repeats for i in data.positions])
    again = np.array([dataset.records[i].strategy == "again" for i in data.positions])
    found: dict[str, list[float]] = {}
    for seed in range(arguments.seeds):
        inner = split(dataset.take(outer), "shape", seed)
        train = np.isin(data.positions, outer[inner.train])
        test = np.isin(data.positions, outer[inner.test]) & ~again
        scores: dict[str, dict[str, np.ndarray]] = {"with": {}, "without": {}}
        for kind in KINDS:
            for how in ("with", "without"):
                samples = data.kinds[kind]
                if how == "without" and kind.startswith("relations"):
                    samples = without(samples)
                elif how == "without":
                    scores[how][kind] = scores["with"][kind]
                    continue
                model = XGBModel(**DEEP, seed=seed)
                model.fit(samples.take(train))
                made = model.predict(samples.take(test))
                scores[how][kind] = made / made.std()
        judged = data.any_kind.take(test)
        for how, by_kind in scores.items():
            for kind, score in {**by_kind, SUM: np.sum(list(by_kind.values()), axis=0)}.items():
                met = evaluate(score, judged.latency_s, judged.groups, noise=noise[test])
                found.setdefault(f"{kind}, {how}", []).append(met.mean.pairwise)
        print(f"seed {seed} done", flush=True)
    for name, values in found.items():
        print(f"{name:32} {np.mean(values):.4f}  ({', '.join(f'{v:.4f}' for v in values)})")
    if arguments.json:
        arguments.json.write_text(json.dumps({"pairwise": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
