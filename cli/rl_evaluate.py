"""The `tensortune rl evaluate` command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import console, guard, load


def rl_evaluate(
    shapes: Annotated[
        int, typer.Option(help="How many products of LoopTune's test split, spread over it.")
    ] = 25,
    workloads: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            help="Shapes of your own in their place, e.g. 'matmul(512,512,512)' or a TVMScript "
            "file; may be given several times.",
            show_default=False,
        ),
    ] = None,
    measurements: Annotated[
        int, typer.Option(help="Candidates that the policy, and the beam, may measure.")
    ] = 0,
    policy: Annotated[
        Path | None, typer.Option(help="A policy's file; else the package's.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A cost model's file that ranks what the policy makes, or none; by default the "
            "one that lies beside the policy, if one does.",
            show_default=False,
        ),
    ] = None,
    rollouts: Annotated[int, typer.Option(help="Episodes that the model chooses from.")] = 12,
    metaschedule: Annotated[
        int, typer.Option(help="Trials of MetaSchedule's search; 0 leaves it out.")
    ] = 64,
    random: Annotated[int, typer.Option(help="Random candidates of the loop space.")] = 32,
    target: Annotated[
        str | None,
        typer.Option(help="TVM target; else this machine with one core.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder; shapes that are finished in it are not done again."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to a file.")
    ] = None,
) -> None:
    """Compare a policy with untuned TVM, NumPy, MetaSchedule, random draws and a beam search.

    For each shape the policy chooses a program, without measuring or with a few measurements. All
    winners are timed in turn in one run, on one core, and their outputs are checked. `random` is
    the best of as many random candidates as can be measured while the policy works, `random_all`
    that of all of them. Nothing else should run meanwhile.

    Examples:
    tensortune rl evaluate --out evaluation --json evaluation.json

    tensortune rl evaluate --measurements 4 --out evaluation-4

    tensortune rl evaluate --workload 'matmul(512,512,512)' --workload 'batch_matmul(8,96,96,64)'
    """

    def body() -> None:
        began = time.monotonic()
        module = _load_evaluate()
        imported_s = time.monotonic() - began
        chosen = [_workload(name) for name in workloads or []] or module.held_out_shapes(shapes)
        settings = module.EvaluateSettings(
            measurements=measurements,
            rollouts=rollouts,
            metaschedule=metaschedule,
            random=random,
            seed=seed,
        )
        result = module.evaluate(
            chosen, settings, policy=policy, model=model, target=target, out=out, say=_say
        )
        result["import_s"] = imported_s
        for table in load(".search.rl.evaluate_figures").tables(result):
            console.print()
            console.print(table)
        for shape in result["left_out"]:
            _say(f"left out: {shape['workload']}: {shape['error']}")
        if json_file is not None:
            load(".search.run_folder").write_json(json_file, result)

    guard(body)


def _load_evaluate() -> Any:
    try:
        return load(".search.rl.evaluate")
    except ImportError as error:  # it says which extra to install
        raise ValueError(str(error)) from None


def _workload(name: str) -> Any:
    module = load(".data.workload")
    if name.endswith(".py"):
        return module.Workload.from_file(name)
    return module.Workload.from_key(name)


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
