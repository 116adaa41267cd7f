"""Are the programs of the loop space right? Random steps, and programs compiled, run and checked.

    python docs/scripts/check_loop_space.py --steps 10000
    python docs/scripts/check_loop_space.py --programs 1000 --log checked.jsonl

Steps are legal ones drawn at random, from the program as it stands, over operators and shapes with
primes and ones. Programs are such walks, drawn samples, their neighbours and their crossovers; each
runs on random inputs, and its outputs are compared with float64 ones. With `--log` a killed check
goes on where it was; program number N is the same in every run.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tensortune.data.candidate import Candidate
from tensortune.data.finals import check_outputs, make_reference
from tensortune.data.loop_space import LoopSpace
from tensortune.data.loops.steps import apply_step, legal_steps
from tensortune.data.measure import LocalMeasurer
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload

WORKLOADS = (
    "matmul(m=48,n=64,k=40)",
    "matmul(m=37,n=53,k=29)",
    "matmul(m=127,n=131,k=67)",
    "matmul(m=1,n=97,k=64)",
    "matmul(m=64,n=1,k=1)",
    "matmul(m=64,n=48,k=32,dtype=int8)",
    "dense(m=31,n=33,k=64)",
    "matmul_relu(m=33,n=70,k=48)",
    "batch_matmul(b=3,m=17,n=24,k=16)",
    "transpose_batch_matmul(batch=1,seq=24,heads=3,dim=20)",
    "conv1d(n=1,l=31,ci=8,co=18,kernel=3,stride=2,padding=1)",
    "conv2d(n=1,h=11,w=13,ci=6,co=17,kernel=3,stride=1,padding=1)",
    "conv2d(n=1,h=14,w=14,ci=8,co=32,kernel=1,stride=1,padding=0)",
    "conv3d(n=1,d=3,h=5,w=7,ci=4,co=8,kernel=3,stride=1,padding=1)",
    "grouped_conv2d(n=1,h=9,w=9,ci=8,co=16,kernel=3,stride=2,padding=1)",
    "conv2d_bn_relu(n=1,h=7,w=7,ci=8,co=20,kernel=3,stride=1,padding=1)",
    "depthwise_conv2d(n=1,h=13,w=13,c=24,kernel=3,stride=1,padding=1)",
    "transposed_conv2d(n=1,h=5,w=5,ci=8,co=12,kernel=4,stride=2,padding=1)",
    "capsule_conv2d(n=1,h=5,w=5,ci=4,co=4,kernel=3,stride=1,padding=1)",
    "max_pool2d(n=1,h=13,w=13,c=19,kernel=3,stride=2,padding=1)",
    "avg_pool2d(n=1,h=11,w=11,c=16,kernel=3,stride=1,padding=1)",
    "softmax(m=37,n=64)",
    "layer_norm(m=24,n=96)",
    "norm(b=1,m=32,n=48)",
    "sum(m=50,n=96)",
    "mean(m=7,n=101)",
    "add(m=37,n=64)",
    "take(rows=50,dim=33,count=20)",
)
KINDS = ("steps", "sample", "neighbour", "crossover")


def walk(space: LoopSpace, rng: np.random.Generator, steps: int) -> tuple[Candidate, int]:
    """Take legal steps at random, each kind as likely as another; where to, and how many."""
    nest, taken = space.start, 0
    for _ in range(steps):
        legal = legal_steps(nest)
        if not legal:
            break
        kinds = sorted({str(step[0]) for step in legal})
        kind = kinds[int(rng.integers(len(kinds)))]
        options = [step for step in legal if step[0] == kind]
        nest = apply_step(nest, options[int(rng.integers(len(options)))])
        taken += 1
    return space.candidate_of(nest), taken


def check_steps(count: int, seed: int) -> int:
    """Take steps, and build every nest's program. How many steps were taken."""
    spaces = [LoopSpace(Workload.from_key(key), cpu_target()) for key in WORKLOADS]
    taken, number = 0, 0
    while taken < count:
        rng = np.random.default_rng([seed, number])
        space = spaces[number % len(spaces)]
        candidate, walked = walk(space, rng, int(rng.integers(1, 30)))
        canonical = space.schedule(candidate).candidate
        again = space.candidate(space.steps(canonical))
        if again != canonical:
            raise AssertionError(f"{space.workload.key}: steps do not lead to {canonical}")
        taken += walked
        number += 1
        if number % 100 == 0:
            print(f"{taken} steps, {number} programs built", flush=True)
    print(f"{taken} steps over {len(spaces)} workloads, {number} programs built: no exception")
    return taken


def made(space: LoopSpace, seed: int, number: int) -> tuple[str, Candidate]:
    """Candidate `number` of a workload, and how it was made."""
    rng = np.random.default_rng([seed, number])
    kind = KINDS[number % len(KINDS)]
    if kind == "steps":
        return kind, walk(space, rng, int(rng.integers(1, 30)))[0]
    first, second = space.sample(rng, 2)
    if kind == "neighbour":
        for _ in range(int(rng.integers(1, 20))):
            first = space.neighbours([first], rng)[0]
    elif kind == "crossover":
        first = space.crossover(first, second, rng)
    return kind, first


def check_programs(count: int, seed: int, log: Path | None, limit_s: float) -> None:
    """Compile, run and check programs, and say what came of all in the log."""
    done: dict[tuple[str, int], dict[str, object]] = {}
    if log is not None and log.exists():
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            done[entry["workload"], entry["number"]] = entry
    each = -(-count // len(WORKLOADS))
    began = time.monotonic()
    for key in WORKLOADS:
        wanted = [number for number in range(each) if (key, number) not in done]
        if not wanted or time.monotonic() - began > limit_s:
            continue
        workload, target = Workload.from_key(key), cpu_target()
        space = LoopSpace(workload, target)
        with LocalMeasurer(workload, target) as measurer:
            reference = make_reference(measurer)
            for start in range(0, len(wanted), 16):
                if time.monotonic() - began > limit_s:
                    break
                numbers = wanted[start : start + 16]
                kinds, candidates = zip(*(made(space, seed, n) for n in numbers), strict=True)
                mods = [space.schedule(candidate).mod for candidate in candidates]
                verdicts = check_outputs(measurer, reference, mods)
                for number, kind, candidate, verdict in zip(
                    numbers, kinds, candidates, verdicts, strict=True
                ):
                    entry = {
                        "workload": key,
                        "number": number,
                        "kind": kind,
                        "candidate": candidate.to_json(),
                        "nest": space.describe(candidate),
                        "right": verdict.right,
                        "wrong": verdict.wrong,
                        "detail": verdict.detail,
                    }
                    done[key, number] = entry
                    if log is not None:
                        with log.open("a") as file:
                            file.write(json.dumps(entry) + "\n")
        print(f"{len(done)} of {each * len(WORKLOADS)}: {key} done", flush=True)
    report(list(done.values()))


def report(entries: list[dict[str, object]]) -> None:
    """Print how many were right, and the others."""
    right = sum(bool(entry["right"]) for entry in entries)
    print(f"{right} of {len(entries)} programs compiled, ran and were right")
    distinct = {(entry["workload"], json.dumps(entry["candidate"])) for entry in entries}
    print(f"{len(distinct)} of them distinct; {Counter(str(e['kind']) for e in entries)}")
    for entry in entries:
        if not entry["right"]:
            print(f"{entry['workload']}: {entry['nest']}: {entry['detail']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="JSON lines, one a program; to go on from")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    options = parser.parse_args()
    if options.steps:
        check_steps(options.steps, options.seed)
    if options.programs:
        check_programs(options.programs, options.seed, options.log, options.seconds)


if __name__ == "__main__":
    main()
