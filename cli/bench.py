"""The `tensortune bench` commands on models: how fast they are, and what pretrained ones save."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import console, guard, load


def bench_model(
    workloads: Annotated[
        str | None,
        typer.Option(help="Comma-separated parts of suites, e.g. C2D:2,GMM:2 (by default these)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the candidates.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to a file.")
    ] = None,
) -> None:
    """Time the features of candidates and programs, and the models on them.

    Takes about a minute. Nothing else should run meanwhile.

    Example: tensortune bench model --json model.json
    """

    def body() -> None:
        module = load(".search.bench_model")
        result = module.bench_model(console, workloads=_workloads(workloads), seed=seed)
        if json_file is not None:
            load(".search.run_folder").write_json(json_file, result)

    guard(body)


def bench_transfer(
    workloads: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated parts of suites, e.g. C2D:2,SFM:1; by default one held-out "
            "workload of each of 13 families."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each kind on each workload.")] = 3,
    trials: Annotated[int, typer.Option(help="Trials of each run.")] = 64,
    target: Annotated[str | None, typer.Option(help="TVM target; else this machine.")] = None,
    out: Annotated[Path, typer.Option(help="Folder; what is finished in it is not run again.")] = (
        Path("transfer")
    ),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to a file.")
    ] = None,
) -> None:
    """Tune with and without the pretrained models, and with the opposite of what these say.

    Says how many trials and seconds a pretrained run needs for what a cold run comes to in the end,
    and what a misleading prior costs. Takes an hour or so; when interrupted, the same command goes
    on. Nothing else should run meanwhile.

    Example: tensortune bench transfer --workloads C2D:2,SFM:1 --seeds 3 --json transfer.json
    """

    def body() -> None:
        module = load(".search.bench_transfer")

        def say(line: str) -> None:
            console.print(line, highlight=False, markup=False, soft_wrap=True)

        result = module.bench_transfer(
            _workloads(workloads), seeds=seeds, trials=trials, target=target, out=out, say=say
        )
        console.print(module.table(result))
        for cell in result["left_out"]:
            console.print(f"left out: {cell}", highlight=False, markup=False)
        if json_file is not None:
            load(".search.run_folder").write_json(json_file, result)

    guard(body)


def _workloads(names: str | None) -> list[object] | None:
    """The workloads of some suites or their parts."""
    if names is None:
        return None
    suite = load(".data.suites").suite
    return [item for name in names.split(",") for item in suite(name.strip())]
