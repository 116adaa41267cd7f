"""The `store` commands: what they write, and clear errors with exit code 2."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from typer.testing import CliRunner

from tensortune.cli.store import store_app
from tensortune.data.record import Record
from tensortune.data.record_set import read_store
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.store import Store
from tensortune.data.target import cpu_target, target_string
from tensortune.data.workload import workload

RECORDS = "database_tuning_record.json"


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Eight timed candidates of a matmul, and one that failed."""
    subject = workload("matmul", 16, 16, 16)
    target = tvm.target.Target({**dict(cpu_target().export()), "num-cores": 2})
    found = dict.fromkeys(SketchSpace(subject, target).sample(np.random.default_rng(0), 60))
    record = Record(
        subject.key,
        subject.identity,
        target_string(target),
        next(iter(found)),
        repeats=(1.0,),
        host="h",
        strategy="random",
    )
    timed = [
        replace(record, candidate=candidate, repeats=(9.0 - number,))
        for number, candidate in enumerate(list(found)[:8])
    ]
    return [*timed, replace(record, candidate=list(found)[8], repeats=(), failure="timeout")]


@pytest.fixture
def here(records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store, a run's folder that shares three records with it, and a database."""
    monkeypatch.chdir(tmp_path)
    Store("a.jsonl").append(records[:6])
    Store("run/records.jsonl").append([*records[3:], replace(records[0], target="other")])
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(store_app, list(arguments))


def figures(*arguments: str) -> Any:
    done = run(*arguments, "--json", "figures.json")
    assert done.exit_code == 0, done.output
    return json.loads(Path("figures.json").read_text())


def test_merge(here: Path, records: list[Record]) -> None:
    assert figures("merge", "a.jsonl", "run", "--out", "all.jsonl") == {
        "records": 10,
        "duplicates": 3,
        "left_out": [],
    }
    other = replace(records[0], target="other")
    assert Store("all.jsonl").read().records == [*records, other]


def test_filter(here: Path, records: list[Record]) -> None:
    chosen = ["filter", "run", "--target", "llvm", "--workload", "matmul(*", "--host", "h"]
    assert figures(*chosen, "--valid", "--strategy", "rand", "--out", "b.jsonl") == {
        "records": 5,
        "of": 7,
        "left_out": [],
    }
    assert Store("b.jsonl").read().records == records[3:8]


def test_best(here: Path, records: list[Record]) -> None:
    done = run("best", "a.jsonl", "run", "-k", "2")
    assert done.exit_code == 0
    assert records[0].workload in done.stdout
    rows = figures("best", "a.jsonl", "run", "--count", "2")["best"]
    assert [(row["rank"], row["latency_s"]) for row in rows] == [(1, 2.0), (2, 3.0), (1, 9.0)]
    assert rows[0]["candidate"] == json.loads(json.dumps(records[7].candidate.to_json()))
    assert rows[2]["target"] == "other"
    assert figures("best", "run", "--target", "nowhere")["best"] == []


def test_prune(here: Path, records: list[Record]) -> None:
    before = Path("a.jsonl").read_bytes()
    assert figures("prune", "a.jsonl", "--best", "2") == {
        "kept": 2,
        "dropped": 4,
        "backup": str(here / "a.jsonl.bak"),
        "left_out": [],
    }
    assert Store("a.jsonl").read().records == records[4:6]
    assert Path("a.jsonl.bak").read_bytes() == before
    assert figures("prune", "run", "--failures", "--duplicates")["dropped"] == 1


def test_convert_there_and_back(here: Path, records: list[Record]) -> None:
    Store("b.jsonl").append(records)
    key = records[0].workload
    assert figures("convert", "b.jsonl", "--out", "db")["workloads"] == [key]
    assert figures("convert", "db", "--workload", "matmul(16,16,16)", "--out", "c.jsonl") == {
        "records": 9,
        "workloads": [key],
        "left_out": [],
    }
    back = Store("c.jsonl").read().records
    assert [(r.candidate, r.repeats) for r in back] == [(r.candidate, r.repeats) for r in records]
    # Without its name the program is in the file beside the store.
    (custom,) = figures("convert", "db", "--out", "d.jsonl")["workloads"]
    assert custom.startswith("custom:main@")
    run("convert", "d.jsonl", "--out", "again")
    assert Path("again", RECORDS).read_text() == Path("db", RECORDS).read_text()


def test_databases_stay_databases(here: Path, records: list[Record]) -> None:
    Store("b.jsonl").append(records)
    run("convert", "a.jsonl", "--out", "one")
    run("convert", "b.jsonl", "--out", "two")
    assert figures("merge", "one", "two", "--out", "both")["duplicates"] == 6
    assert Path("both", RECORDS).read_text() == Path("two", RECORDS).read_text()
    run("filter", "both", "--valid", "--out", "valid")
    assert len(Path("valid", RECORDS).read_text().splitlines()) == 8
    assert figures("prune", "valid", "--best", "3")["kept"] == 3
    assert len(Path("valid", RECORDS).read_text().splitlines()) == 3
    assert figures("best", "valid")["best"][0]["latency_s"] == 2.0
    assert figures("merge", "two", "b.jsonl", "--out", "mixed.jsonl")["records"] == 18


def test_damaged_lines_are_named(here: Path) -> None:
    with Path("a.jsonl").open("a") as file:
        file.write("garbage\n" * 30)
    done = run("merge", "a.jsonl", "--out", "b.jsonl", "--json", "f.json")
    assert done.exit_code == 0
    assert "left out: a.jsonl, line 7: not JSON" in done.output
    assert "10 more" in done.output
    assert len(json.loads(Path("f.json").read_text())["left_out"]) == 30
    run("convert", "b.jsonl", "--out", "db")
    with Path("db", RECORDS).open("a") as file:
        file.write("[0, [[[")
    for command in (["best", "db"], ["convert", "db", "--out", "c.jsonl"]):
        done = run(*command)
        assert done.exit_code == 0
        assert f"left out: db/{RECORDS}, line 7: not JSON" in done.output


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("merge nothing.jsonl --out b.jsonl", "nothing.jsonl does not exist"),
        ("merge empty --out b.jsonl", "neither records.jsonl nor a MetaSchedule database"),
        ("merge a.jsonl --out run/records.jsonl", "exists; choose another name, or add --force"),
        ("merge a.jsonl --out run", "is a folder"),
        ("merge a.jsonl --out a.jsonl/b.jsonl", "cannot write"),
        ("filter a.jsonl --workload conv --out b.jsonl", "it holds matmul(m=16,n=16,k=16)"),
        ("best a.jsonl --count 0", "at least 1"),
        ("prune a.jsonl", "--failures, --duplicates or --best N"),
        ("prune a.jsonl --best 0", "at least 1"),
        ("prune nothing.jsonl --failures", "does not exist"),
        ("convert run --out db", "of 2 targets"),
        ("convert a.jsonl --out empty/file", "is a file"),
        ("convert a.jsonl --out run", "holds records.jsonl, which is no part"),
        ("convert a.jsonl --out run --force", "holds records.jsonl, which is no part"),
        ("convert a.jsonl --workload x --out db", "is no database"),
        ("convert db --out c.jsonl --workload matmul(8,8,8)", "does not hold the program of"),
        ("convert db --out c.jsonl --workload nonsense", "nonsense"),
        ("convert a.jsonl --out db", "add --force to replace it"),
        ("best a.jsonl --json empty", "empty"),
    ],
)
def test_bad_input_is_one_clear_line_and_changes_nothing(
    here: Path, command: str, message: str
) -> None:
    (here / "empty" / "file").parent.mkdir()
    if "empty/file" in command:
        (here / "empty" / "file").write_text("mine")
    if "db" in command and message not in ("of 2 targets", "is no database"):
        assert run("convert", "a.jsonl", "--out", "db").exit_code == 0
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    done = run(*command.split())
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert done.stderr.count("\n") == 1
    after = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    assert after == before


def test_replaced_when_asked(here: Path, records: list[Record]) -> None:
    assert run("merge", "run", "--out", "a.jsonl", "--force").exit_code == 0
    assert Store("a.jsonl").read().records == Store("run/records.jsonl").read().records
    Store("b.jsonl").append(records[:2])
    assert run("convert", "b.jsonl", "--out", "db").exit_code == 0
    Store("c.jsonl").append(records[:1])
    assert run("convert", "c.jsonl", "--out", "db", "--force").exit_code == 0
    assert len(read_database_lines("db")) == 1


def read_database_lines(folder: str) -> list[str]:
    return Path(folder, RECORDS).read_text().splitlines()


def test_ctrl_c_leaves_nothing_behind(here: Path, records: list[Record]) -> None:
    Store("big.jsonl").append(
        replace(record, time=float(number)) for number in range(2500) for record in records[:8]
    )
    names = {path.name for path in here.iterdir()}
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", "from tensortune.cli.store import store_app; store_app()"),
            *("merge", "big.jsonl", "--out", "out.jsonl"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(here.glob(".out.jsonl.*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert {path.name for path in here.iterdir()} == names


def test_stores_are_handled_without_tvm(here: Path) -> None:
    code = (
        "import sys; from tensortune.cli.store import store_app\n"
        "try: store_app(['merge', 'a.jsonl', 'run', '--out', 'all.jsonl'])\n"
        "except SystemExit: pass\n"
        "assert 'tvm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(read_store("all.jsonl").records) == 10


def test_help_has_examples() -> None:
    for command in ("merge", "filter", "best", "prune", "convert"):
        done = run(command, "--help")
        assert done.exit_code == 0
        assert f"tensortune store {command}" in done.output
