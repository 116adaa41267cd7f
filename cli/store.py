"""The `tensortune store` commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..data import store_ops
from ..data.record import Record
from ..data.record_set import RecordSet, is_database, read_store, rewrite_store, write_store
from .common import console, errors, guard, load

store_app = typer.Typer(
    no_args_is_help=True,
    help="Put records together, choose among them, and exchange them with MetaSchedule. "
    "Where a store is asked for, a file of records, the folder of a run and the folder of a "
    "MetaSchedule database all do.",
)

# How many notes are printed; all of them go into the file of --json.
_MOST_NOTES = 20

Out = Annotated[Path, typer.Option("--out", help="What to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what --out holds.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to a file.")]
WorkloadFilter = Annotated[
    str | None, typer.Option(help="Part of a workload's key, a pattern with *, or its identity.")
]
TargetFilter = Annotated[str | None, typer.Option(help="Part of a target, or a pattern with *.")]
Stores = Annotated[list[Path], typer.Argument(help="Stores to read.")]
OneStore = Annotated[Path, typer.Argument(help="The store.")]


@store_app.command()
def merge(stores: Stores, out: Out, force: Force = False, json_file: JsonFile = None) -> None:
    """Put stores together into a new one; records that are the same in all are there once.

    The result is a MetaSchedule database if all of them are, else a file of records.

    Example: tensortune store merge runs/matmul runs/conv2d --out all.jsonl
    """

    def body() -> None:
        sets = [_read(path) for path in stores]
        merged = store_ops.merge(sets)
        double = sum(len(each.records) for each in sets) - len(merged.records)
        notes = _write(out, merged, all(map(is_database, stores)), force)
        _say(f"{_count(merged.records)} are in {out}; {double} more were the same as one of them")
        _finish(
            json_file,
            {"records": len(merged.records), "duplicates": double},
            merged.problems + notes,
        )

    guard(body)


@store_app.command("filter")
def filter_(
    store: OneStore,
    out: Out,
    workload: WorkloadFilter = None,
    target: TargetFilter = None,
    host: Annotated[str | None, typer.Option(help="Part of a host's key, or a pattern.")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Part of a strategy's name, or a pattern.")
    ] = None,
    valid: Annotated[
        bool, typer.Option("--valid", help="Leave out failures, and what was found wrong.")
    ] = False,
    force: Force = False,
    json_file: JsonFile = None,
) -> None:
    """Write the records that fit into a new store of the same kind.

    Examples:
    tensortune store filter all.jsonl --workload matmul --valid --out matmul.jsonl

    tensortune store filter all.jsonl --target znver4 --host 'amd-*' --out znver4.jsonl
    """

    def body() -> None:
        found = _read(store)
        records = store_ops.matching(
            found.records,
            workload=workload,
            target=target,
            host=host,
            strategy=strategy,
            valid=valid,
        )
        if not records:
            raise ValueError(f"no record of {store} fits; it holds {_inventory(found.records)}")
        chosen = RecordSet(records, found.definitions)
        notes = _write(out, chosen, is_database(store), force)
        _say(f"{len(records)} of {_count(found.records)} are in {out}")
        _finish(
            json_file,
            {"records": len(records), "of": len(found.records)},
            found.problems + notes,
        )

    guard(body)


@store_app.command()
def best(
    stores: Stores,
    count: Annotated[
        int, typer.Option("--count", "-k", help="How many for each workload and target.")
    ] = 1,
    workload: WorkloadFilter = None,
    target: TargetFilter = None,
    json_file: JsonFile = None,
) -> None:
    """Show the fastest candidates of each workload on each target.

    Examples:
    tensortune store best runs/matmul --count 5

    tensortune store best all.jsonl --workload conv2d --json best.json
    """

    def body() -> None:
        found = store_ops.merge([_read(path) for path in stores])
        records = store_ops.matching(found.records, workload=workload, target=target)
        ranked = store_ops.rank(records, count)
        groups = groupby(ranked, key=lambda each: (each.record.identity, each.record.target))
        for _, group in groups:
            _show_ranked(list(group))
        if not ranked:
            _say(f"no sound record fits; the stores hold {_inventory(found.records)}")
        _finish(json_file, {"best": list(map(_row, ranked))}, found.problems)

    guard(body)


@store_app.command()
def prune(
    store: OneStore,
    failures: Annotated[
        bool, typer.Option("--failures", help="Drop failures, and what was found wrong.")
    ] = False,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Keep one record for each candidate and host.")
    ] = False,
    best_count: Annotated[
        int | None,
        typer.Option("--best", help="Keep the N fastest of each workload and target only."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Drop records from a store in its place; the file as it was is kept as a backup, `.bak`.

    Examples:
    tensortune store prune all.jsonl --failures --duplicates

    tensortune store prune runs/matmul --best 100
    """

    def choose(records: Sequence[Record]) -> list[int]:
        return store_ops.prune(records, failures=failures, duplicates=duplicates, best=best_count)

    def body() -> None:
        choose([])  # nothing is read, let alone changed, for a question that makes no sense
        if is_database(store):
            done = load(".data.metaschedule.database").rewrite_database(store, choose)
        else:
            done = rewrite_store(store, choose)
        where = f"; as it was: {done.backup}" if done.backup else ""
        _say(f"{done.kept} records kept, {done.dropped} dropped{where}")
        summary = {
            "kept": done.kept,
            "dropped": done.dropped,
            "backup": str(done.backup) if done.backup else None,
        }
        _finish(json_file, summary, done.problems)

    guard(body)


@store_app.command()
def convert(
    store: OneStore,
    out: Out,
    workload: Annotated[
        list[str] | None,
        typer.Option(help="Key of a workload that the database holds, to call it by that key."),
    ] = None,
    force: Force = False,
    json_file: JsonFile = None,
) -> None:
    """Turn a MetaSchedule database into a file of records, or records into a database.

    Examples:
    tensortune store convert work_dir --workload 'matmul(512,512,512)' --out records.jsonl

    tensortune store convert runs/matmul --out work_dir
    """

    def body() -> None:
        from_database = is_database(store)
        if workload and not from_database:
            raise ValueError(f"{store} is no database, and its workloads have their keys already")
        found = _read(store, workload or ())
        if from_database and not found.records:
            raise ValueError(
                f"{store} holds no record: {'; '.join(found.problems) or 'it is empty'}"
            )
        notes = _write(out, found, not from_database, force)
        _say(f"{_count(found.records)} were read, and written to {out}")
        summary = {"records": len(found.records), "workloads": sorted(_workloads(found.records))}
        _finish(json_file, summary, found.problems + notes)

    guard(body)


def _read(path: Path, known: Iterable[str] = ()) -> RecordSet:
    if not is_database(path):
        return read_store(path)
    named = [load(".data.workload").Workload.from_key(key) for key in known]
    found: RecordSet = load(".data.metaschedule.database").read_database(path, named)
    for workload in named:
        if workload.key not in found.definitions:
            raise ValueError(f"{path} does not hold the program of {workload.key}")
    return found


def _write(out: Path, found: RecordSet, as_database: bool, force: bool) -> list[str]:
    """Write a database or a file of records; what could not be written is returned."""
    if not as_database:
        write_store(out, found.records, found.definitions, replace=force)
        return []
    module = load(".data.metaschedule.database")
    notes: list[str] = module.export_records(out, found, replace=force)
    return notes


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _finish(json_file: Path | None, summary: dict[str, Any], left_out: Sequence[str]) -> None:
    """Say what was left out, and write the figures."""
    for note in left_out[:_MOST_NOTES]:
        errors.print(f"left out: {note}", highlight=False, markup=False, soft_wrap=True)
    if len(left_out) > _MOST_NOTES:
        errors.print(f"left out: {len(left_out) - _MOST_NOTES} more; --json lists them all")
    if json_file is not None:
        json_file.write_text(json.dumps({**summary, "left_out": list(left_out)}, indent=2) + "\n")


def _workloads(records: Iterable[Record]) -> set[str]:
    return {record.workload for record in records}


def _count(records: Sequence[Record]) -> str:
    count = len(_workloads(records))
    return f"{len(records)} records of {count} workload{'s' if count != 1 else ''}"


def _inventory(records: Sequence[Record]) -> str:
    return ", ".join(sorted(_workloads(records))) or "no records"


def _show_ranked(group: Sequence[store_ops.Ranked]) -> None:
    first = group[0].record
    _say(f"{first.workload} on {_short_target(first.target)}")
    table = Table("", "time, us", "repeats", "strategy", "host", box=None, pad_edge=False)
    for each in group:
        table.add_row(
            str(each.rank),
            f"{each.latency_s * 1e6:.4g}",
            str(each.repeats),
            escape(each.record.strategy),
            escape(each.record.host),
        )
    console.print(table, highlight=False)


def _short_target(target: str) -> str:
    """What tells targets of one kind apart, or all of its text."""
    try:
        config = json.loads(target)
        return f"{config['kind']} {config['mcpu']}, num-cores {config['num-cores']}"
    except (ValueError, TypeError, KeyError):
        return target


def _row(ranked: store_ops.Ranked) -> dict[str, Any]:
    record = ranked.record
    return {
        "rank": ranked.rank,
        "latency_s": ranked.latency_s,
        "repeats": ranked.repeats,
        "workload": record.workload,
        "identity": record.identity,
        "target": record.target,
        "host": record.host,
        "strategy": record.strategy,
        "candidate": record.candidate.to_json(),
    }
