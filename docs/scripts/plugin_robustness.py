"""What bad candidates cost: MetaSchedule's own builder and runner, and ours, on the same batch.

A batch of good candidates of one matrix product, with some among them that are illegal, crash, hang
or never compile. Prints for each pair, and for each mixture of the two, how many good candidates
were lost, how many bad ones were noticed, and how long the batch took. Takes some minutes, nearly
all of them MetaSchedule's: each of its workers starts for 15 s, anew after each that it kills, and
that counts against the 30 s that a candidate has. So run it on a quiet machine, where it loses few,
and on a busy one, where it may lose all. In a clone, with tensortune installed:

    python docs/scripts/plugin_robustness.py
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from tensortune.data.host import set_threads
from tensortune.data.metaschedule.builder import builder, failure_of
from tensortune.data.metaschedule.runner import runner
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.target import cpu_target, num_cores
from tensortune.data.workload import workload

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import planted


def loops_of(schedule: Schedule) -> list[Any]:
    """The loops of the only block."""
    return list(schedule.get_loops(schedule.get_child_blocks(schedule.get_sblock("root"))[0]))


def unrolled(task: Any) -> Any:
    """A legal schedule whose every loop is unrolled: LLVM will not finish it."""
    schedule = Schedule(task.mod)
    for loop in loops_of(schedule):
        schedule.unroll(loop)
    return schedule.mod


def nested(task: Any) -> Any:
    """Two parallel loops in each other: a schedule may say so, code generation refuses it."""
    schedule = Schedule(task.mod)
    for loop in loops_of(schedule)[:2]:
        schedule.parallel(loop)
    return schedule.mod


def batch(target: Any, good: int) -> list[tuple[str, Any]]:
    """Modules with what each of them does; the bad ones are spread evenly."""
    task = workload("matmul", 64, 64, 64)
    space = SketchSpace(task, target)
    drawn = space.sample(np.random.default_rng(0), good)
    result = [("good", space.schedule(candidate).mod) for candidate in drawn]
    bad = [
        ("never compiles", unrolled(task)),
        ("crashes", planted.Crash),
        ("hangs", planted.Hang),
        ("illegal", nested(task)),
    ]
    for number, entry in enumerate(bad):
        result.insert((number + 1) * good // len(bad), entry)
    return result


def measure(build: Any, run: Any, named: list[tuple[str, Any]], target: Any) -> list[str | None]:
    """The error message of each candidate, or None, as the task scheduler would see it."""
    built = build.build([ms.builder.BuilderInput(mod, target) for _, mod in named])
    messages = [result.error_msg for result in built]
    inputs = {
        index: ms.runner.RunnerInput(
            result.artifact_path, "cpu", ms.arg_info.ArgInfo.from_entry_func(named[index][1], True)
        )
        for index, result in enumerate(built)
        if result.artifact_path is not None
    }
    for index, future in zip(inputs, run.run(list(inputs.values())), strict=True):
        messages[index] = future.result().error_msg
    for item in inputs.values():
        shutil.rmtree(os.path.dirname(item.artifact_path), ignore_errors=True)
    return messages


def row(our_builder: bool, our_runner: bool, named: list[tuple[str, Any]], target: Any) -> str:
    """One line of the table."""
    began = time.monotonic()
    build = builder() if our_builder else ms.builder.LocalBuilder(max_workers=num_cores(target))
    run = runner() if our_runner else ms.runner.LocalRunner()
    messages = measure(build, run, named, target)
    seconds = time.monotonic() - began
    failed = [
        (kind, failure_of(message))
        for (kind, _), message in zip(named, messages, strict=True)
        if message is not None
    ]
    lost = sum(kind == "good" for kind, _ in failed)
    good = sum(kind == "good" for kind, _ in named)
    kinds = ", ".join(f"{kind} {n}" for kind, n in Counter(kind for _, kind in failed).items())
    names = ["tensortune" if ours else "MetaSchedule" for ours in (our_builder, our_runner)]
    return (
        f"{names[0]:<14}{names[1]:<14}{f'{lost} of {good}':>10}"
        f"{f'{len(failed) - lost} of {len(named) - good}':>13}{seconds:>9.1f}  {kinds}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--good", type=int, default=12, help="good candidates in the batch")
    good = parser.parse_args().good
    target = cpu_target()
    set_threads(num_cores(target))  # MetaSchedule's runner inherits it
    named = batch(target, good)
    print(
        f"{'builder':<14}{'runner':<14}{'good lost':>10}{'bad noticed':>13}{'seconds':>9}  failures"
    )
    for our_builder, our_runner in ((True, True), (True, False), (False, True), (False, False)):
        print(row(our_builder, our_runner, named, target), flush=True)


if __name__ == "__main__":
    main()
