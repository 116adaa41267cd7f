"""What the online model knows after 32, 64 and 128 trials, and what annealing gains from it.

    tensortune tune matmul 512 512 512 --strategy random --trials 1500 --out runs/matmul-random
    python docs/scripts/replay_study.py runs/matmul-random [...] --json study.json

Every folder holds one random run. Nothing is measured: the runs' records are played back. First
the model is trained on a random share of the records and judged on the rest; then `annealing`, cold
and from the pretrained models, and `random` search the stored candidates, and the trials are
counted until the first candidate of the stored top 1% is found, and until half of the top 1% is.
"""

import argparse
import json
from pathlib import Path
from typing import Literal

import numpy as np

from tensortune.costmodel import pretrained
from tensortune.costmodel.features import decisions, statements
from tensortune.costmodel.metrics import pairwise_accuracy
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.record import Record
from tensortune.data.replay import ReplayMeasurer, ReplaySpace
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.store import Store
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload
from tensortune.search.annealing import SimulatedAnnealing
from tensortune.search.learned_scorer import LearnedScorer
from tensortune.search.random_search import RandomSearch
from tensortune.search.tuner import Budget, Tuner

STRATEGIES = ("annealing", "pretrained", "random")
SPLITS = 5
HELD_OUT = 400


def accuracy(space: SketchSpace, records: list[Record]) -> dict[str, dict[int, list[float]]]:
    """Held-out pairwise accuracy by model and number of training records, one value a split."""
    identity = space.workload.identity
    latency = np.array([record.latency_s for record in records])
    own = [record.candidate for record in records]
    both = {
        "decisions": decisions.samples(space, identity, own, latency),
        "statements": statements.samples(
            [space.schedule(candidate) for candidate in own], space.target, latency
        ),
    }
    goals: tuple[Literal["rank", "regression"], ...] = ("rank", "regression")
    kinds = [(features, goal) for features in both for goal in goals]
    found: dict[str, dict[int, list[float]]] = {
        name: {n: [] for n in (32, 64, 128)}
        for name in (*(f"{features}, {goal}" for features, goal in kinds), "sum of both, rank")
    }
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(len(records))
        test = order[:HELD_OUT]
        test = test[np.isfinite(latency[test])]
        for n in (32, 64, 128):
            total = np.zeros(len(test))
            for features, goal in kinds:
                model = XGBModel(goal, seed=split)
                model.fit(both[features].take(order[HELD_OUT : HELD_OUT + n]))
                scores = model.predict(both[features].take(test))
                if goal == "rank":
                    total += (scores - scores.mean()) / (scores.std() or 1.0)
                found[f"{features}, {goal}"][n].append(pairwise_accuracy(scores, latency[test]))
            found["sum of both, rank"][n].append(pairwise_accuracy(total, latency[test]))
    return found


def trials_to_top(
    space: SketchSpace, records: list[Record], strategy: str, seed: int
) -> tuple[int, int]:
    """Trials until one of the stored top 1% is found, and until half of them are."""
    stored = ReplaySpace(space, records)
    measurer = ReplayMeasurer(records)
    ranked = sorted((r for r in records if r.valid), key=lambda record: record.latency_s)
    top = {record.candidate for record in ranked[: max(2, len(records) // 100)]}
    known = pretrained.load() if strategy == "pretrained" else pretrained.Pretrained(None, None)
    learned = LearnedScorer(
        space,
        space.workload.identity,
        space.target,
        prior=known.verify,
        draft_prior=known.draft,
        seed=seed,
    )
    is_random = strategy == "random"
    tuner = Tuner(
        stored,
        RandomSearch(stored, seed) if is_random else SimulatedAnnealing(stored, seed),
        measurer,
        None,
        Budget(len(records) if is_random else min(len(records), 512)),
        scorer=None if is_random else learned,
        seed=seed,
        informed=learned.informed,
    )
    hits = [i for i, record in enumerate(tuner.run(), 1) if record.candidate in top]
    half = len(top) // 2
    return (
        hits[0] if hits else len(records),
        hits[half - 1] if len(hits) >= half else len(records),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = {}
    for folder in options.folders:
        settings = json.loads((folder / "run.json").read_text())
        workload = Workload.from_json(settings["definition"])
        space = SketchSpace(workload, cpu_target(settings["target"]))
        records = Store(folder / "records.jsonl").read().records
        print(f"{workload.key}: {len(records)} records")
        models = accuracy(space, records)
        for name, by_size in models.items():
            means = ", ".join(f"{n}: {np.mean(v):.3f}" for n, v in by_size.items())
            print(f"  pairwise accuracy of {name} after {means}")
        counts = {
            strategy: [
                trials_to_top(space, records, strategy, seed) for seed in range(options.seeds)
            ]
            for strategy in STRATEGIES
        }
        for what, position in (("the first of the top 1%", 0), ("half of the top 1%", 1)):
            needed = {name: [pair[position] for pair in counts[name]] for name in STRATEGIES}
            print(f"  trials to {what}: random {needed['random']}")
            for name in STRATEGIES[:-1]:
                pairs = zip(needed[name], needed["random"], strict=True)
                wins = sum(a < b for a, b in pairs)
                print(f"    {name} {needed[name]}: fewer in {wins} of {options.seeds} seeds")
        result[workload.key] = {"pairwise": models, "trials": counts}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
