"""The `tensortune dataset` commands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from ..data.record_set import RecordSet, is_database, read_store
from .common import console, errors, guard, load
from .dataset_say import log_row, note, note_first, say, say_added, say_held_out, show_log

dataset_app = typer.Typer(
    no_args_is_help=True,
    help="Records as a table for training: put it together, look at it, check and split it. "
    "A dataset is a Parquet file, or a folder of them.",
)

DatasetPath = Annotated[Path, typer.Argument(help="A Parquet file, or a folder of them.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to a file.")]
OutFolder = Annotated[Path, typer.Option("--out", help="The dataset's folder; it may exist.")]


@dataset_app.command()
def build(
    stores: Annotated[
        list[Path],
        typer.Argument(
            help="Files of records, folders of runs or of `collect`, MetaSchedule databases."
        ),
    ],
    out: OutFolder,
    allow_held_out: Annotated[
        bool, typer.Option("--allow-held-out", help="Keep what is held out for evaluation.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Add records to a dataset, as a part of its own; what is in it already is left out.

    Records of held-out workloads (the Ansor suite, LoopTune's test split and others) are left out:
    a model that has seen them can't be judged by them.

    Example: tensortune dataset build runs/matmul runs/conv2d --out my-dataset
    """

    def body() -> None:
        dataset, importing = load(".data.dataset"), load(".data.dataset_import")
        records: list[Any] = []
        definitions: dict[str, Any] = {}
        problems: list[str] = []
        held_out: dict[str, int] = {}
        for path in chain.from_iterable(map(_stores_in, stores)):
            found = _read(path)
            problems += found.problems
            definitions |= found.definitions
            sifted = None if allow_held_out else importing.sift(found)
            records += found.records if sifted is None else sifted.records
            _add(held_out, {} if sifted is None else sifted.held_out)
        note_first([f"left out: {problem}" for problem in problems])
        say_held_out(held_out)
        if not records:
            raise RuntimeError(f"there is no record to add; {out} is as it was")
        added = dataset.append_records(out, records, definitions)
        say_added(added, out)
        _write_json(json_file, _added(added, held_out) | {"problems": problems})

    guard(body)


def _stores_in(path: Path) -> list[Path]:
    """The stores of a folder that `collect` filled; of anything else, that itself."""
    if (path / "collection.json").exists():
        return sorted(path.glob("*.jsonl"))
    return [path]


def _read(path: Path) -> RecordSet:
    if not is_database(path):
        return read_store(path)
    found: RecordSet = load(".data.metaschedule.database").read_database(path)
    return found


@dataset_app.command("import")
def import_(
    logs: Annotated[list[Path], typer.Argument(help="Logs of AutoTVM, Ansor or TenSet.")],
    out: OutFolder,
    target: Annotated[
        str | None, typer.Option(help="Keep the lines for this target's CPU only.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The machine that they were measured on, which no log tells.")
    ] = "",
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK=KEY", help="What a task that is not recognised computes."),
    ] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Keep the tasks that are not recognised.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Add other tuners' logs to a dataset, as a part of its own; what is in it is left out.

    Records of held-out workloads are left out, and so are tasks that are not recognised, since
    whether they are held out can't be told. Exits with 1 when no record is left.

    Example: tensortune dataset import conv2d.json dense.json --out my-dataset --host amd-epyc
    """

    def body() -> None:
        keys = _keys(workload or [])
        module = load(".data.dataset_import")
        found = [
            module.import_log(
                path, target=target, host=host, workloads=keys, allow_unknown=allow_unknown
            )
            for path in logs
        ]
        for path, log in zip(logs, found, strict=True):
            show_log(path, log, allow_unknown)
        records = [record for log in found for record in log.records]
        held_out: dict[str, int] = {}
        for log in found:
            _add(held_out, log.held_out)
        say_held_out(held_out)
        if records:
            added = load(".data.dataset").append_records(out, records)
            say_added(added, out)
            summary = _added(added, held_out)
        else:
            summary = {"added": 0, "known": 0, "part": None, "held_out": held_out}
        rows = [log_row(path, log) for path, log in zip(logs, found, strict=True)]
        _write_json(json_file, summary | {"files": rows})
        if not records:
            raise RuntimeError("nothing was imported")

    guard(body)


def _keys(given: Sequence[str]) -> dict[str, str]:
    """`TASK=KEY` as a mapping; the keys are those of workloads that there are."""
    keys = {}
    for text in given:
        task, equals, key = text.partition("=")
        if not (task and equals and key):
            raise ValueError(
                f"--workload takes TASK=KEY, as in dense.x86='dense(m=128,n=64,k=256)', not {text}"
            )
        keys[task] = load(".data.workload").Workload.from_key(key).key
    return keys


@dataset_app.command()
def describe(
    path: DatasetPath,
    full: Annotated[bool, typer.Option("--full", help="Show every workload.")] = False,
    datasheet: Annotated[
        Path | None, typer.Option(help="Write the figures into a Markdown file, at its marks.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Show what a dataset holds: counts, failures, spread of the throughput, and noise.

    Example: tensortune dataset describe data/collected
    """

    def body() -> None:
        view = load(".cli.dataset_view")
        figures = view.figures(load(".data.dataset").read_dataset(path))
        for line in view.summary(figures):
            say(line)
        console.print(view.families(figures))
        if full:
            console.print(view.workloads(figures))
        if datasheet is not None:
            view.fill_datasheet(datasheet, figures)
        _write_json(json_file, figures)

    guard(body)


@dataset_app.command()
def validate(
    path: DatasetPath,
    records: Annotated[int, typer.Option(help="Least number of records.")] = 20_000,
    workloads: Annotated[int, typer.Option(help="Least number of workloads.")] = 120,
    families: Annotated[int, typer.Option(help="Least number of Ansor's families.")] = 13,
    looptune: Annotated[int, typer.Option(help="Least of LoopTune's training workloads.")] = 1,
    loop_share: Annotated[float, typer.Option(help="Least share of loop programs.")] = 0.15,
    again: Annotated[
        float, typer.Option(help="Least share of programs timed on two occasions.")
    ] = 0.05,
    megabytes: Annotated[float, typer.Option(help="Most megabytes of Parquet.")] = 30.0,
    json_file: JsonFile = None,
) -> None:
    """Check a dataset: schema, counts, provenance, and that nothing held out is in it.

    Exits with 1 when a check fails.

    Example: tensortune dataset validate my-dataset --records 1000 --workloads 8 --families 1
    """

    def body() -> None:
        module = load(".data.dataset_checks")
        floors = module.Floors(records, workloads, families, looptune, loop_share, again, megabytes)
        checks = module.validate(path, floors)
        table = Table("", "check", "found", "wanted", box=None, pad_edge=False)
        for check in checks:
            mark = "[green]ok[/]" if check.ok else "[bold red]fail[/]"
            table.add_row(mark, check.name, escape(check.found), escape(check.wanted))
        console.print(table, highlight=False)
        failed = sum(not check.ok for check in checks)
        rows = [asdict(check) for check in checks]
        _write_json(json_file, {"ok": not failed, "checks": rows})
        if failed:
            raise RuntimeError(f"{failed} of {len(checks)} checks failed")

    guard(body)


@dataset_app.command("split")
def split_(
    path: DatasetPath,
    by: Annotated[str, typer.Option(help="What is unseen: record, shape, operator or host.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for train.parquet, test.parquet.")],
    seed: Annotated[int, typer.Option(help="Another seed draws other groups.")] = 0,
    test_share: Annotated[float, typer.Option(help="Share of the groups to test on.")] = 0.2,
    force: Annotated[bool, typer.Option("--force", help="Replace what --out holds.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Split a dataset into two that share no computation (by record: no program).

    Example: tensortune dataset split data/collected --by shape --seed 0 --out by-shape-0
    """

    def body() -> None:
        module, splits = load(".data.dataset"), load(".data.splits")
        found = module.read_dataset(path)
        made = splits.split(found, by, seed, test_share)
        splits.check_disjoint(found, made)
        files = {out / "train.parquet": made.train, out / "test.parquet": made.test}
        there = [str(file) for file in files if file.exists()]
        if there and not force:
            raise ValueError(
                f"{' and '.join(there)} exist already; choose another --out, or add --force"
            )
        summary: dict[str, Any] = {"by": by, "seed": seed, "records": len(found)}
        for file, positions in files.items():
            side = found.take(positions)
            module.write_dataset(file, side.records, side.definitions, replace=force)
            identities = {record.identity for record in side.records}
            say(f"{file}: {len(side)} records of {len(identities)} workloads")
            summary[file.stem] = {"records": len(side), "identities": sorted(identities)}
        _write_json(json_file, summary)

    guard(body)


@dataset_app.command()
def features(
    path: DatasetPath,
    kind: Annotated[str, typer.Option(help="Kind of features.")] = "statements",
    workers: Annotated[
        int | None, typer.Option(help="Processes; by default one a CPU.", min=1)
    ] = None,
) -> None:
    """Compute the features of a dataset's programs, and keep them beside it.

    Training does it too, where they are missing. What is computed already is not computed again,
    and an interrupted run goes on where it was.

    Example: tensortune dataset features data/collected
    """

    def body() -> None:
        module = load(".costmodel.feature_cache")
        found = load(".data.dataset").read_dataset(path)
        with Progress(console=errors, transient=True) as bar:
            task = bar.add_task(kind)

            def progress(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            made = module.samples(found, kind, workers=workers, progress=progress)
        say(f"{len(made.samples)} of {len(found)} records have features `{kind}`")
        for why, count in made.missing.items():
            note(f"{count} have none: {why}")

    guard(body)


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for key, count in more.items():
        counts[key] = counts.get(key, 0) + count


def _added(added: Any, held_out: Mapping[str, int]) -> dict[str, Any]:
    part = str(added.part) if added.part else None
    return {"added": added.records, "known": added.known, "part": part, "held_out": dict(held_out)}


def _write_json(json_file: Path | None, value: Mapping[str, Any]) -> None:
    if json_file is not None:
        json_file.write_text(json.dumps(value, indent=2) + "\n")
