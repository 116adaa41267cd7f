"""The `tensortune compare` and `tensortune report` commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import console, errors, guard, load


def compare(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(help="Suites, their parts (C2D:2), or `matmul(512,512,512)`."),
    ] = None,
    strategies: Annotated[
        str,
        typer.Option(
            help="Comma-separated: [label=]strategy[:trials=N][:seeds=N][:batch=N][:model=NAME]"
            "[:space=NAME][:acquisition=NAME][:policy=FILE]. Strategies: annealing, evolution, "
            "random, beam, rl, rl+learning, rl+annealing, package.module:Name, and peers "
            "(docs/strategies.md). seeds=N takes the first N of --seeds."
        ),
    ] = "annealing,evolution,random,metaschedule-fast",
    seeds: Annotated[
        str,
        typer.Option(
            help="Runs of each strategy on each workload, or their seeds: 3 is the same as 0,1,2."
        ),
    ] = "3",
    trials: Annotated[int, typer.Option(help="Trials of each run.")] = 64,
    target: Annotated[str | None, typer.Option(help="TVM target; else this machine.")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder; what is finished in it is not run or timed again.")
    ] = Path("comparison"),
    autotvm_python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            envvar="TENSORTUNE_AUTOTVM_PYTHON",
            help="The Python with AutoTVM and Ansor in it; docs/autotvm.md says how to make one.",
        ),
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Play this dataset's records back, and measure nothing.")
    ] = None,
    with_report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Write a report into --out (see `report`); of what is there, if no workload is "
            "named.",
        ),
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to a file.")
    ] = None,
) -> None:
    """Compare search strategies: same workloads, same trials, winners timed side by side.

    The peers are `metaschedule` (as shipped; minutes a run), `metaschedule-plugin` (with our four
    parts in it), `metaschedule-fast` (its search and model on our workers), and, in a Python of
    their own, `autotvm`, `autotvm-ga`, `autotvm-random` and `ansor`. Nothing else should run
    meanwhile.

    The same command goes on after an interrupt, and tries again what failed. Seeds, strategies and
    workloads can be added to it later: only what is new is run.

    Examples:
    tensortune compare C2D:2 SFM:1 --strategies annealing,random,metaschedule:seeds=1 --seeds 3

    tensortune compare C2D:2 --strategies annealing,autotvm --autotvm-python ~/autotvm/bin/python
    """

    def body() -> None:
        if with_report:
            load(".search.report").check_packages()
        if with_report and not workloads and replay is None:
            say_report(out)
            return
        module = load(".search.compare")
        entrants = [module.Entrant.parse(text) for text in strategies.split(",")]
        chosen = [item for name in workloads or [] for item in _workloads(name)]
        arguments: dict[str, Any] = {
            "seeds": read_seeds(seeds),
            "trials": trials,
            "out": out,
            "say": _say,
        }
        if replay is not None:
            play = load(".search.compare_replay").compare_replay
            result = play(replay, entrants, chosen, **arguments)
        elif chosen:
            arguments |= {"target": target, "autotvm_python": autotvm_python}
            result = _compare(module, chosen, entrants, arguments)
        else:
            raise ValueError("name a workload, such as C2D:2, or --replay a dataset")
        for table in load(".search.compare_stats").tables(result):
            console.print()
            console.print(table)
        for cell in result["left_out"]:
            console.print(f"left out: {cell}", highlight=False, markup=False)
        if json_file is not None:
            load(".search.run_folder").write_json(json_file, result)
        if with_report:
            say_report(out)

    guard(body)


def _compare(
    module: Any, workloads: Sequence[Any], entrants: Sequence[Any], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Run the comparison; an interrupt says how to go on."""
    try:
        result: dict[str, Any] = module.compare(workloads, entrants, **arguments)
    except KeyboardInterrupt:
        errors.print(
            f"what is finished is in {arguments['out']}; the same command goes on from there",
            highlight=False,
            soft_wrap=True,
        )
        raise
    except load(
        ".search.peers.autotvm"
    ).AutoTVMError as error:  # a wrong path is the user's to mend
        raise ValueError(str(error)) from None
    return result


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def read_seeds(text: str) -> int | list[int]:
    """Read `3`, a number of seeds, or `0,1,2`, seeds.

    Raises:
        ValueError: it is neither.
    """
    numbers = text.rstrip(",").split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise ValueError(f"--seeds takes a number of seeds, or seeds such as 0,1,2, not {text}")
    return [int(number) for number in numbers] if "," in text else int(text)


def _workloads(name: str) -> list[Any]:
    """The workloads of a suite or a part of it, or the one that a key or a file names."""
    if name.endswith(".py"):
        return [load(".data.workload").Workload.from_file(name)]
    if "(" in name:
        return [load(".data.workload").Workload.from_key(name)]
    return list(load(".data.suites").suite(name))


def report(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a comparison, or the file of its --json.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file; else report.html in the folder.")
    ] = None,
) -> None:
    """Write a comparison's report: an HTML page that needs nothing else, Markdown and CSV.

    Example: tensortune report comparison --out report.html
    """
    guard(lambda: say_report(folder, out))


def say_report(folder: Path, out: Path | None = None) -> None:
    """Write a comparison's report, and say where it is."""
    written = load(".search.report").write_report(folder, out)
    names = ", ".join(str(path) for path in written)
    console.print(f"the report is in {names}", highlight=False, markup=False, soft_wrap=True)
