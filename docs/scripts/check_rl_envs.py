"""Do the environments hold up? Random steps under their masks, and the programs that they lead to.

    python docs/scripts/check_rl_envs.py --steps 10000
    python docs/scripts/check_rl_envs.py --programs 1000 --log checked.jsonl

Steps are drawn at random from those that the mask allows, in every environment, over operators and
shapes with primes and ones; how many a second there are is printed with them. Programs are what
such episodes end with; each runs on random inputs, and its outputs are compared with float64 ones.
With `--log` a killed check goes on where it was; program number N is the same in every run.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.finals import check_outputs, make_reference
from tensortune.data.measure import LocalMeasurer
from tensortune.data.target import cpu_target
from tensortune.data.verify import Reference
from tensortune.data.workload import Workload
from tensortune.search.rl.cursor_env import CursorEnv, loop_spaces
from tensortune.search.rl.knob_env import MOVES, KnobEnv, sketch_spaces
from tensortune.search.rl.speed import Query
from tensortune.search.rl.transform_env import TransformEnv
from tensortune.search.rl.tuning_env import TuningEnv

WORKLOADS = (
    "matmul(m=48,n=64,k=40)",
    "matmul(m=37,n=53,k=29)",
    "matmul(m=127,n=131,k=67)",
    "matmul(m=1,n=97,k=64)",
    "matmul(m=64,n=1,k=1)",
    "matmul(m=64,n=48,k=32,dtype=int8)",
    "matmul_relu(m=33,n=70,k=48)",
    "batch_matmul(b=3,m=17,n=24,k=16)",
    "transpose_batch_matmul(batch=1,seq=24,heads=3,dim=20)",
    "conv1d(n=1,l=31,ci=8,co=18,kernel=3,stride=2,padding=1)",
    "conv2d(n=1,h=11,w=13,ci=6,co=17,kernel=3,stride=1,padding=1)",
    "conv2d(n=1,h=14,w=14,ci=8,co=32,kernel=1,stride=1,padding=0)",
    "conv2d_bn_relu(n=1,h=7,w=7,ci=8,co=20,kernel=3,stride=1,padding=1)",
    "depthwise_conv2d(n=1,h=13,w=13,c=24,kernel=3,stride=1,padding=1)",
    "max_pool2d(n=1,h=13,w=13,c=19,kernel=3,stride=2,padding=1)",
    "softmax(m=37,n=64)",
    "norm(b=1,m=32,n=48)",
    "mean(m=7,n=101)",
    "add(m=37,n=64)",
)
# Sketches of what has a decision to take.
SKETCHED = tuple(key for key in WORKLOADS if not key.startswith(("add", "matmul(m=64,n=1,")))


def nothing(queries: Sequence[Query]) -> Any:
    """No reward: what is looked at are the steps."""
    return np.zeros(len(queries))


Maker = Callable[[list[Workload]], TuningEnv[Any]]


def makers() -> dict[str, Maker]:
    """The environments by name."""
    target = cpu_target()

    def cursor(workloads: list[Workload]) -> TuningEnv[Any]:
        return CursorEnv(loop_spaces(workloads, target), nothing)

    def transform(**options: Any) -> Maker:
        return lambda workloads: TransformEnv(loop_spaces(workloads, target), nothing, **options)

    def knob(workloads: list[Workload]) -> TuningEnv[Any]:
        return KnobEnv(sketch_spaces(workloads, target), nothing)

    return {
        "cursor": cursor,
        "transform": transform(observation="graph"),
        "transform, permutations": transform(interchange="permutations"),
        "transform, swaps": transform(interchange="swaps", finished=True),
        "knob": knob,
    }


def workloads_of(name: str) -> list[Workload]:
    """The workloads of an environment."""
    return [Workload.from_key(key) for key in (SKETCHED if name == "knob" else WORKLOADS)]


def draw(env: TuningEnv[Any], mask: Any, rng: np.random.Generator) -> Any:
    """An action that the mask allows."""
    if isinstance(env, KnobEnv):
        rows = mask.reshape(-1, len(MOVES))
        return np.array([rng.choice(np.flatnonzero(row)) for row in rows])
    return int(rng.choice(np.flatnonzero(mask)))


def check_steps(name: str, make: Maker, count: int, seed: int) -> None:
    """Take steps, and build the program of every episode."""
    env, rng = make(workloads_of(name)), np.random.default_rng(seed)
    env.reset(seed=seed)
    seconds, episodes, refused = 0.0, 0, 0
    for _ in range(count):
        began = time.perf_counter()
        mask = env.action_masks()
        seconds += time.perf_counter() - began
        action = draw(env, mask, rng)
        began = time.perf_counter()
        _, _, terminated, truncated, info = env.step(action)
        seconds += time.perf_counter() - began
        if not info["legal"] or truncated:
            raise AssertionError(f"{name}: {env.space.workload.key}: {action} was not legal")
        if terminated:
            try:
                env.space.schedule(info["candidate"])
            except InvalidCandidate as error:
                if name != "knob":  # TVM's own rules refuse a sketch now and then
                    raise AssertionError(f"{name}: {info['candidate']}: {error}") from error
                refused += 1
            episodes += 1
            env.reset()
    print(
        f"{name}: {count} steps and {episodes} programs built, {refused} refused by TVM; "
        f"{count / seconds:.0f} steps a second with their masks",
        flush=True,
    )


def made(env: TuningEnv[Any], key: str, seed: int, number: int) -> Candidate:
    """What episode `number` of a workload ends with."""
    rng = np.random.default_rng([seed, number])
    env.reset(seed=int(rng.integers(2**31)), options={"workload": key})
    length = int(rng.integers(1, 40))
    for _ in range(length):
        if any(env.step(draw(env, env.action_masks(), rng))[2:4]):
            break
    return env.candidate


def checked(
    measurer: LocalMeasurer,
    reference: Reference,
    envs: dict[str, TuningEnv[Any]],
    seed: int,
    wanted: list[tuple[str, int]],
) -> list[dict[str, Any]]:
    """What came of the programs of some episodes of one workload."""
    entries: list[dict[str, Any]] = []
    mods: dict[int, Any] = {}
    for name, number in wanted:
        env, key = envs[name], measurer.workload.key
        candidate = made(env, key, seed, number)
        entry = {"environment": name, "workload": key, "number": number}
        entry |= {"candidate": candidate.to_json(), "right": False, "refused": False}
        try:
            mods[len(entries)] = env.space.schedule(candidate).mod
        except InvalidCandidate as error:
            entry |= {"refused": True, "detail": str(error)}
        entries.append(entry)
    verdicts = check_outputs(measurer, reference, list(mods.values()))
    for position, verdict in zip(mods, verdicts, strict=True):
        entries[position] |= {"right": verdict.right, "detail": verdict.detail}
    return entries


def check_programs(count: int, seed: int, log: Path | None, limit_s: float) -> None:
    """Compile, run and check programs, and say what came of all in the log."""
    done: dict[tuple[str, str, int], dict[str, Any]] = {}
    if log is not None and log.exists():
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            done[entry["environment"], entry["workload"], entry["number"]] = entry
    kinds = makers()
    each = -(-count // sum(len(workloads_of(name)) for name in kinds))
    began = time.monotonic()
    for key in WORKLOADS:
        workload, target = Workload.from_key(key), cpu_target()
        wanted = [
            (name, number)
            for name in kinds
            for number in range(each)
            if (name, key, number) not in done and (name != "knob" or key in SKETCHED)
        ]
        if not wanted or time.monotonic() - began > limit_s:
            continue
        envs = {name: make([workload]) for name, make in kinds.items()}
        with LocalMeasurer(workload, target) as measurer:
            reference = make_reference(measurer)
            for start in range(0, len(wanted), 16):
                if time.monotonic() - began > limit_s:
                    break
                part = wanted[start : start + 16]
                entries = checked(measurer, reference, envs, seed, part)
                for entry in entries:
                    done[entry["environment"], key, entry["number"]] = entry
                if log is not None:
                    with log.open("a") as file:
                        file.writelines(json.dumps(entry) + "\n" for entry in entries)
        print(f"{len(done)} programs: {key} done", flush=True)
    report(list(done.values()))


def report(entries: list[dict[str, Any]]) -> None:
    """Print how many were right, and the others."""
    ran = [entry for entry in entries if not entry["refused"]]
    right = sum(bool(entry["right"]) for entry in ran)
    print(f"{right} of {len(ran)} programs compiled, ran and were right")
    distinct = {(entry["workload"], json.dumps(entry["candidate"])) for entry in ran}
    print(f"{len(distinct)} of them distinct; {Counter(str(e['environment']) for e in ran)}")
    print(f"{len(entries) - len(ran)} more were refused by TVM")
    for entry in entries:
        if not entry["right"]:
            where = f"{entry['environment']}: {entry['workload']}: {entry['candidate']}"
            print(f"{where}: {entry['detail']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=0, help="in each environment")
    parser.add_argument("--programs", type=int, default=0, help="in all")
    parser.add_argument("--only", help="the environment to take steps in")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="JSON lines, one a program; to go on from")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    options = parser.parse_args()
    if options.steps:
        for name, make in makers().items():
            if options.only in (None, name):
                check_steps(name, make, options.steps, options.seed)
    if options.programs:
        check_programs(options.programs, options.seed, options.log, options.seconds)


if __name__ == "__main__":
    main()
