"""Ways to act and to see, compared by how they learn: learning curves over several seeds.

    tensortune rl train --out policies/contractions
    python docs/scripts/rl_comparison.py --run policies/contractions --out comparison

Every variant learns in the same workloads, with the same algorithm and the same number of steps of
the environment. What pays is the same for all: a model fitted once to all programs that the given
training has measured. Nothing is measured, so several seeds may run at once (`--jobs`). What is
finished is kept in the folder, and the same command goes on after an interruption.

At the end each policy prefers one nest for workloads that no variant has trained on; the figure is
the mean of the model's logarithm of their speed-up over the untuned program.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import numpy as np
from matplotlib.figure import Figure

from tensortune.data.store import Store
from tensortune.data.suites import suite
from tensortune.data.target import cpu_target
from tensortune.search.rl.config import TrainConfig
from tensortune.search.rl.environments import make_spaces
from tensortune.search.rl.folder import CONFIG, RECORDS
from tensortune.search.rl.learner import Learner
from tensortune.search.rl.program_model import fit
from tensortune.search.rl.training import workloads_of

GRAPH = {"observation": "graph"}
TRANSFORM = {"finished": True, **GRAPH}
VARIANTS: dict[str, dict[str, Any]] = {
    "cursor, graph": {"environment": "cursor", "settings": GRAPH},
    "cursor, flat": {"environment": "cursor", "settings": {"observation": "flat"}},
    "transform, pointers": {"environment": "transform", "settings": TRANSFORM},
    "transform, pointers, flat": {
        "environment": "transform",
        "settings": TRANSFORM | {"observation": "flat"},
    },
    "transform, permutations": {
        "environment": "transform",
        "settings": TRANSFORM | {"interchange": "permutations"},
    },
    "transform, swaps": {
        "environment": "transform",
        "settings": TRANSFORM | {"interchange": "swaps"},
    },
    "cursor, graph, DQN": {"environment": "cursor", "settings": GRAPH, "algorithm": "dqn"},
}
PANELS = {
    "interchange": ("transform, pointers", "transform, permutations", "transform, swaps"),
    "observation": (
        *("cursor, graph", "cursor, flat"),
        *("transform, pointers", "transform, pointers, flat"),
    ),
    "formulation": ("cursor, graph", "transform, pointers", "cursor, graph, DQN"),
}
COLOURS = ("#1f6feb", "#d1242f", "#2da44e", "#bf8700")
UNSEEN = 48


def config_of(run: Path, name: str, steps: int) -> TrainConfig:
    """A variant's configuration: that of the run, but for what the variant is about."""
    given = TrainConfig.read(run / CONFIG).to_json()
    return TrainConfig.of(given | VARIANTS[name] | {"steps": steps, "checkpoint_every": steps})


def learn(run: Path, name: str, steps: int, seed: int) -> dict[str, Any]:
    """One training; its curve, and what it comes to on workloads of its own kind."""
    config = config_of(run, name, steps)
    target = cpu_target({"kind": "llvm", "num-cores": config.cores})
    workloads = workloads_of(config)
    known = make_spaces(config.environment, workloads, target)
    speed = fit(Store(run / RECORDS).read().records, known, config.rounds, config.seed).speed
    learner = Learner(config.changed(seed=seed), known, speed)
    began = time.monotonic()
    learner.learn(steps)
    seconds = time.monotonic() - began
    seen = {workload.key for workload in workloads}
    others = [item for item in suite("looptune-train") if item.key not in seen]
    rng = np.random.default_rng(0)
    chosen = [others[int(at)] for at in rng.choice(len(others), UNSEEN, replace=False)]
    spaces = make_spaces(config.environment, chosen, target)
    policy = learner.policy({})
    made = [
        (spaces.of(item), policy.rollouts(spaces.of(item), 1, rng, greedy=True)[0])
        for item in chosen
    ]
    points = [point.to_json() for point in learner.curve.points]
    return {
        "variant": name,
        "seed": seed,
        "steps": learner.steps,
        "seconds": round(seconds, 1),
        "actions": int(learner.env.action_space.n),
        "preferred": float(np.mean(speed(made))),
        "curve": [[p["steps"], p["log_speedup"], p["episodes"]] for p in points],
    }


def run_all(run: Path, out: Path, steps: int, seeds: int, jobs: int) -> list[dict[str, Any]]:
    """All trainings, but for those that the folder holds."""
    found: list[dict[str, Any]] = []
    missing = []
    for seed in range(seeds):
        for name in VARIANTS:
            file = out / f"{name.replace(', ', '-')}-{seed}.json"
            if file.exists() and json.loads(file.read_text())["steps"] >= steps:
                found.append(json.loads(file.read_text()))
            else:
                missing.append((name, seed, file))
    with ProcessPoolExecutor(jobs) as pool:
        waiting = {pool.submit(learn, run, name, steps, seed): file for name, seed, file in missing}
        for done in as_completed(waiting):
            result = done.result()
            waiting[done].write_text(json.dumps(result))
            found.append(result)
            print(
                f"{result['variant']}, seed {result['seed']}: {result['curve'][-1][1]:.2f} after "
                f"{result['steps']} steps, {result['seconds']:.0f} s; preferred "
                f"{result['preferred']:.2f}",
                flush=True,
            )
    return found


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Each variant's figures over its seeds, and its curve as a mean."""
    table = {}
    for name in VARIANTS:
        own = sorted((r for r in results if r["variant"] == name), key=lambda r: r["seed"])
        length = min(len(r["curve"]) for r in own)
        curves = np.array([[point[1] for point in r["curve"][:length]] for r in own])
        table[name] = {
            "seeds": len(own),
            "actions": own[0]["actions"],
            "seconds": [r["seconds"] for r in own],
            "last": [round(float(curve[-1]), 3) for curve in curves],
            "half": [round(float(curve[length // 2]), 3) for curve in curves],
            "preferred": [round(r["preferred"], 3) for r in own],
            "steps": [point[0] for point in own[0]["curve"][:length]],
            "curves": curves.round(3).tolist(),
        }
    return table


def plot(table: dict[str, Any], path: Path) -> None:
    """A panel for each question; lines are means over the seeds, shades their range."""
    figure = Figure(figsize=(4.4 * len(PANELS), 3.8), layout="constrained")
    panels = figure.subplots(1, len(PANELS), sharey=True)
    for axes, (title, names) in zip(panels, PANELS.items(), strict=True):
        for colour, name in zip(COLOURS, names, strict=False):
            steps, curves = table[name]["steps"], np.array(table[name]["curves"])
            axes.plot(steps, curves.mean(axis=0), color=colour, label=name)
            low, high = curves.min(axis=0), curves.max(axis=0)
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(title=title, xlabel="steps")
        axes.legend(loc="lower right", fontsize=8)
    panels[0].set_ylabel("log speed-up of an episode")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="the folder of a training")
    parser.add_argument("--out", type=Path, required=True, help="folder of what is finished")
    parser.add_argument("--steps", type=int, default=60_000, help="of each training")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    parser.add_argument("--plot", type=Path, help="draw the curves, as a PNG")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = run_all(options.run, options.out, options.steps, options.seeds, options.jobs)
    table = summary(results)
    for name, row in table.items():
        print(f"{name}: {row['actions']} actions, last {row['last']}, preferred {row['preferred']}")
    if options.json is not None:
        options.json.write_text(json.dumps(table, indent=1) + "\n")
    if options.plot is not None:
        plot(table, options.plot)


if __name__ == "__main__":
    main()
