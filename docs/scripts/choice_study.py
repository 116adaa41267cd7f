"""What the choice of each batch is worth, played back over the records of random runs.

    tensortune tune matmul 512 512 512 --strategy random --trials 1500 --out runs/matmul-random
    python docs/scripts/choice_study.py runs/matmul-random [...] --json choice.json

Every folder holds one random run. Nothing is measured. A search of 64 trials in batches of 16
starts from random records and picks each further batch among all that are left: at random, by the
tuner's scores without the time to compile, or by the tuner's scores. What comes out is the best
latency found, as a share of the best there is, and the mean time to compile of what was picked.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tensortune.costmodel.features import decisions, statements
from tensortune.costmodel.ranker import Ranker
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.store import Store
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload

TRIALS, BATCH = 64, 16
RULES = ("random", "speed", "speed and compile time")


class Stored:
    """One run's records with their features."""

    def __init__(self, folder: Path) -> None:
        run = json.loads((folder / "run.json").read_text())
        workload = Workload.from_json(run["definition"])
        space = SketchSpace(workload, cpu_target(run["target"]))
        records = list(
            {r.candidate: r for r in Store(folder / "records.jsonl").read().records}.values()
        )
        candidates = [record.candidate for record in records]
        self.name = workload.key
        self.latency_s = np.array([record.latency_s for record in records])
        self.compile_s = np.array([record.compile_s for record in records])
        self.features = {
            "decisions": decisions.samples(space, workload.identity, candidates),
            "statements": statements.samples(
                [space.schedule(candidate) for candidate in candidates], space.target
            ),
        }

    def pick(
        self, rule: str, tried: npt.NDArray[np.intp], rng: np.random.Generator
    ) -> npt.NDArray[np.intp]:
        """The next batch, by index."""
        left = np.setdiff1d(np.arange(len(self.latency_s)), tried)
        if rule == "random":
            return rng.choice(left, BATCH, replace=False)
        total = np.zeros(len(left))
        for samples in self.features.values():
            ranker = Ranker(XGBModel(), samples.schema)
            known = samples.take(tried)
            rows = np.split(known.rows, np.cumsum(known.counts)[:-1])
            compile_s = self.compile_s[tried].tolist() if rule.endswith("time") else None
            ranker.add(rows, self.latency_s[tried].tolist(), compile_s)
            total += ranker.score(samples.take(left))
        return left[np.argsort(-total)[:BATCH]]


def study(stored: Stored, seeds: int) -> dict[str, dict[str, float]]:
    """Means over seeds, by rule."""
    found: dict[str, dict[str, float]] = {}
    best = np.min(stored.latency_s)
    for rule in RULES:
        shares, compiles = [], []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            tried = rng.choice(len(stored.latency_s), BATCH, replace=False)
            while len(tried) < TRIALS:
                tried = np.concatenate([tried, stored.pick(rule, tried, rng)])
            shares.append(best / np.min(stored.latency_s[tried]))
            compiles.append(np.mean(stored.compile_s[tried[BATCH:]]))
        found[rule] = {
            "best_share": float(np.exp(np.mean(np.log(shares)))),
            "best_share_std": float(np.std(shares)),
            "compile_s": float(np.mean(compiles)),
        }
    return found


def main() -> None:
    """Print a table for each folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {}
    for folder in arguments.folders:
        stored = Stored(folder)
        results[stored.name] = study(stored, arguments.seeds)
        print(f"{stored.name}: {len(stored.latency_s)} records")
        for rule, figures in results[stored.name].items():
            print(f"  {rule:24s} " + "  ".join(f"{k} {v:.3f}" for k, v in figures.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
