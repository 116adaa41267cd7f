"""The `tensortune` command."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ..data.install import check_install, load_bare
from ..data.operators import OPERATORS
from ..data.pool_start import end_early, start_early
from ..data.signature import WorkloadError
from .bench import bench_model, bench_transfer
from .collect import collect
from .common import console, errors, guard, load
from .compare import compare, report
from .dataset import dataset_app
from .doctor import doctor
from .rl import rl_app
from .store import store_app
from .train import evaluate, train

app = typer.Typer(
    name="tensortune",
    help="Learned cost models and search strategies for tuning tensor operators with TVM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(no_args_is_help=True, help="Measure tensortune itself.")
app.add_typer(bench_app, name="bench")
app.add_typer(store_app, name="store")
app.add_typer(dataset_app, name="dataset")
app.add_typer(rl_app, name="rl")
bench_app.command("model")(bench_model)
bench_app.command("transfer")(bench_transfer)
app.command()(collect)
app.command()(train)
app.command()(evaluate)
app.command()(compare)
app.command()(report)
app.command()(doctor)


@app.command("list")
def list_operators(
    suite: Annotated[
        str | None, typer.Option(help="Show the workloads of a suite: ansor, looptune, ...")
    ] = None,
) -> None:
    """Show the operators, with their parameters in the order in which they can be given.

    Example: tensortune list --suite ansor
    """
    if suite is not None:
        guard(lambda: _list_suite(suite))
        return
    for operator in OPERATORS.values():
        parameters = (
            name if default is None else f"[{name}={default}]"
            for name, default in operator.parameters
        )
        console.print(f"[bold]{operator.name}[/] {escape(' '.join(parameters))}", soft_wrap=True)
        console.print(f"    {escape(operator.summary)}", highlight=False, soft_wrap=True)
        example = " ".join(map(str, operator.example))
        console.print(
            f"    [dim]tensortune tune {operator.name} {example}[/]",
            highlight=False,
            soft_wrap=True,
        )


def _list_suite(name: str) -> None:
    for workload in load(".data.suites").suite(name):
        console.print(workload.key, highlight=False, soft_wrap=True)


@app.command()
def tune(
    operator: Annotated[
        str, typer.Argument(metavar="OP", help="An operator (see `list`), or a TVMScript file.")
    ],
    shape: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE|VALUE]...", help="Its parameters, by name or order."),
    ] = None,
    trials: Annotated[int, typer.Option(help="Candidates to measure at most.")] = 64,
    seconds: Annotated[float | None, typer.Option(help="Seconds of search at most.")] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="Search strategy: annealing, beam, evolution or random; rl, rl+learning or "
            "rl+annealing, which follow a trained policy; or package.module:Name."
        ),
    ] = "annealing",
    policy: Annotated[
        Path | None,
        typer.Option(help="A policy of your own for rl (see `rl train`); else the package's."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="Cost model that guides it: pretrained, xgb (knows nothing before the first "
            "trial), a saved model's file, package.module:Name, or none."
        ),
    ] = "pretrained",
    cold: Annotated[
        bool, typer.Option("--cold", help="Start from nothing: the same as --model xgb.")
    ] = False,
    acquisition: Annotated[
        str,
        typer.Option(
            help="What a candidate is worth: its expected speed (mean), expected improvement (ei) "
            "or an upper confidence bound (ucb)."
        ),
    ] = "mean",
    space: Annotated[
        str | None,
        typer.Option(
            help="Space of schedules: sketch, which MetaSchedule generates (the default), or loop, "
            "free transformations of one loop nest (the default for rl).",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="TVM target, e.g. 'llvm -num-cores=1'; else this machine.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Element type of the inputs.")] = "float32",
    seed: Annotated[
        int, typer.Option(help="The same seed and measurements give the same proposals.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for records and results; else a new one in runs/.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to a file.")
    ] = None,
) -> None:
    """Tune an operator on this machine: from its shape to a checked, faster kernel.

    Examples:
    tensortune tune matmul m=512 n=512 k=512 --trials 64 --out runs/matmul

    tensortune tune conv2d 1 14 14 256 256 3 1 1 --seconds 30

    tensortune tune my_kernel.py
    """

    def body() -> None:
        began = time.monotonic()
        if cold and model not in ("pretrained", "xgb"):
            raise ValueError(
                f"--cold starts from nothing, and --model {model} does not: choose one"
            )
        check_install()
        if target is None:
            start_early()
        load_bare()
        module = load(".search.tune")
        imported_s = time.monotonic() - began
        workload = _workload(operator, shape or [], dtype)
        folder = out if out is not None or resume else _new_folder(workload.key)
        console = Console(quiet=quiet)
        try:
            result = module.tune(
                workload,
                trials=trials,
                seconds=seconds,
                strategy=strategy,
                model="xgb" if cold else model,
                acquisition=acquisition,
                space=space,
                policy=policy,
                target=target,
                seed=seed,
                out=folder,
                resume=resume,
                quiet=quiet,
            )
        except KeyboardInterrupt:
            errors.print(f"what was measured is in {folder}; go on with --out {folder} --resume")
            raise
        notes = [str(problem) + " was skipped" for problem in result.problems]
        notes += result.save(folder)
        load(".search.show").show_result(result, folder, notes, console)
        if json_file is not None:
            summary = result.summary()
            summary["wall_s"] += imported_s
            summary["seconds"]["setup"] += imported_s
            load(".search.run_folder").write_json(json_file, summary)

    try:
        guard(body)
    finally:
        end_early()


def _workload(operator: str, shape: list[str], dtype: str) -> Any:
    """The workload that a command line names."""
    module = load(".data.workload")
    if operator.endswith(".py"):
        if shape:
            raise WorkloadError("a TVMScript file takes no parameters")
        return module.Workload.from_file(operator)
    if "(" in operator and not shape:
        return module.Workload.from_key(operator)
    values: list[str] = []
    named: dict[str, str] = {}
    for word in shape:
        name, equals, value = word.partition("=")
        if not equals:
            if named:
                raise WorkloadError(f"`{word}` stands after a named parameter; name it too")
            values.append(word)
        elif name in named:
            raise WorkloadError(f"{name} is given twice")
        else:
            named[name] = value
    dtype = named.pop("dtype", dtype)
    return module.workload(
        operator,
        *(_integer(value, value) for value in values),
        dtype=dtype,
        **{name: _integer(name, value) for name, value in named.items()},
    )


def _integer(name: str, value: str) -> int | str:
    """A parameter's value; what is no integer goes on as text, for the operator to judge."""
    try:
        return int(value)
    except ValueError:
        return value


def _new_folder(key: str) -> Path:
    """A folder in `runs/` that does not exist yet, named after the workload."""
    name = "".join(c if c.isalnum() or c in "=.-" else "_" for c in key).strip("_")
    number = 1
    while (path := Path("runs") / f"{name}_{number}").exists():
        number += 1
    return path


@app.command()
def explain(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the explanation to a file.")
    ] = None,
) -> None:
    """Explain a run: what its winner does, what the models look at, where the time went.

    Example: tensortune explain runs/matmul
    """

    def body() -> None:
        found = load(".search.explain").explain(folder)
        load(".search.show").show_explanation(found, console)
        if json_file is not None:
            load(".search.run_folder").write_json(json_file, asdict(found))

    guard(body)


@bench_app.command("measure")
def bench_measure(
    batches: Annotated[str, typer.Option(help="Sizes of the batches.")] = "32,64",
    seed: Annotated[int, typer.Option(help="Seed of the candidates.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to a file.")
    ] = None,
) -> None:
    """Measure the same candidates with tensortune's workers and with MetaSchedule's.

    Takes about ten minutes, most of it MetaSchedule's. Nothing else should run meanwhile.

    Example: tensortune bench measure --json measure.json
    """

    def body() -> None:
        module = load(".search.bench_measure")
        sizes = tuple(int(size) for size in batches.split(","))
        result = module.bench_measure(sizes, seed, console)
        if json_file is not None:
            load(".search.run_folder").write_json(json_file, result)

    guard(body)


def main() -> None:
    """Run the command line."""
    app()
