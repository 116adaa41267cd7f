"""How well measurements of the same candidates agree, measured several times over.

    python docs/scripts/repeatability.py DEP:0 NRM:1 'matmul(512,512,512)' C2D:2

Prints, for each workload, the share of pairs of candidates that two passes put in the same order,
and the largest time of each candidate over its least, the fastest candidate first. Nothing else
should run meanwhile.
"""

import argparse
from itertools import combinations

import numpy as np

from tensortune.data.measure import LocalMeasurer
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.suites import suite
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload


def passes(workload: Workload, candidates: int, times: int) -> np.ndarray:
    """Seconds of each candidate in each pass, of shape (times, candidates); valid ones only."""
    target = cpu_target()
    space = SketchSpace(workload, target)
    drawn = space.sample(np.random.default_rng(0), candidates)
    with LocalMeasurer(workload, target) as measurer:
        found = [[r.latency_s for r in measurer.measure(space, drawn)] for _ in range(times)]
    seconds = np.array(found)
    return seconds[:, np.isfinite(seconds).all(axis=0)]


def agreement(first: np.ndarray, second: np.ndarray) -> float:
    """Share of the pairs that both passes put in the same order."""
    upper = np.triu_indices(len(first), 1)
    signs = [np.sign(pass_[:, None] - pass_[None])[upper] for pass_ in (first, second)]
    return float(np.mean(signs[0] == signs[1]))


def main() -> None:
    """Print a paragraph for each workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--candidates", type=int, default=24)
    parser.add_argument("--passes", type=int, default=4)
    arguments = parser.parse_args()
    for name in arguments.workloads:
        for workload in suite(name) if "(" not in name else [Workload.from_key(name)]:
            seconds = passes(workload, arguments.candidates, arguments.passes)
            shares = [agreement(a, b) for a, b in combinations(seconds, 2)]
            order = np.argsort(seconds.min(axis=0))
            spread = (seconds.max(axis=0) / seconds.min(axis=0))[order]
            print(f"{workload.key}: {np.mean(shares):.3f} of the pairs in the same order")
            print(f"  largest over least time: {' '.join(f'{x:.2f}' for x in spread)}")


if __name__ == "__main__":
    main()
