"""The `dataset` commands: what they write, and clear errors with the right exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tensortune.cli.dataset import dataset_app
from tensortune.data.candidate import Candidate
from tensortune.data.dataset import read_dataset, write_dataset
from tensortune.data.record import Record
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.store import Store
from tensortune.data.target import cpu_target, target_string
from tensortune.data.workload import workload

LOGS = Path(__file__).parents[1] / "data" / "logs"
HELD_OUT = workload("batch_matmul", 1, 384, 384, 384)


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Six programs of each of four workloads, one of each measured again, and a failure."""
    made = []
    for item in (
        *(workload("matmul", side, side, side) for side in (16, 32, 40)),
        workload("softmax", 8, 16),
    ):
        target = cpu_target()
        found = SketchSpace(item, target).sample(np.random.default_rng(0), 60)
        one = Record(
            item.key,
            item.identity,
            target_string(target),
            found[0],
            repeats=(1.0, 1.1),
            host="h",
            versions={"apache-tvm": "0.27"},
            strategy="random",
            time=1.0,
        )
        timed = [
            replace(one, candidate=candidate, repeats=(1.0 + n, 1.1 + n))
            for n, candidate in enumerate(list(dict.fromkeys(found))[:6])
        ]
        made += [*timed, replace(timed[0], time=1e6)]
    return [*made, replace(made[0], repeats=(), failure="timeout", candidate=Candidate("loop", ()))]


@pytest.fixture
def here(records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two stores that overlap, one with held-out records too."""
    monkeypatch.chdir(tmp_path)
    leak = replace(records[0], workload=HELD_OUT.key, identity=HELD_OUT.identity)
    Store("a.jsonl").append(records[:15])
    Store("run/records.jsonl").append([*records[10:], leak])
    return tmp_path


def run(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(dataset_app, list(arguments))
    assert done.exit_code == code, done.output
    return done


def figures(*arguments: str, code: int = 0) -> Any:
    run(*arguments, "--json", "figures.json", code=code)
    return json.loads(Path("figures.json").read_text())


def test_build(here: Path, records: list[Record]) -> None:
    done = figures("build", "a.jsonl", "run", "--out", "set")
    assert done == {
        "added": len(records),
        "known": 5,
        "part": "set/part-0001.parquet",
        "held_out": {HELD_OUT.key: 1},
        "problems": [],
    }
    assert read_dataset("set").records == records
    again = figures("build", "run", "a.jsonl", "--out", "set")
    assert (again["added"], again["part"]) == (0, None)
    kept = figures("build", "run", "--out", "set", "--allow-held-out")
    assert kept["added"] == 1 and kept["part"] == "set/part-0002.parquet"
    assert HELD_OUT.key in run("build", "run", "--out", "other").output


def test_build_takes_all_stores_of_a_collection(here: Path, records: list[Record]) -> None:
    Path("collected").mkdir()
    Path("collected/collection.json").write_text("{}")
    for n, record in enumerate(records[:3]):
        Store(f"collected/{n}.jsonl").append([record])
    assert figures("build", "collected", "--out", "set")["added"] == 3


def test_build_of_nothing(here: Path, records: list[Record]) -> None:
    leak = replace(records[0], workload=HELD_OUT.key, identity=HELD_OUT.identity)
    Store("leak.jsonl").append([leak])
    assert "no record to add" in run("build", "leak.jsonl", "--out", "set", code=1).output
    assert not Path("set").exists()
    assert "does not exist" in run("build", "none.jsonl", "--out", "set", code=2).output
    assert "neither" in run("build", ".", "--out", "set", code=2).output


def test_describe(here: Path, records: list[Record]) -> None:
    write_dataset("a.parquet", records)
    found = figures("describe", "a.parquet", "--full")
    assert (found["records"], found["identities"], found["measured_again"]) == (len(records), 4, 4)
    assert found["failures"] == {"timeout": 1}
    assert found["noise_ceiling"] is None or 0 <= found["noise_ceiling"] <= 1
    assert found["bytes"] == Path("a.parquet").stat().st_size
    text = run("describe", "a.parquet", "--full").output
    for word in ("records: 29", "softmax(m=8,n=16)", "timeout: 1", "GMM", "noise ceiling"):
        assert word in text


def test_describe_fills_a_datasheet(here: Path, records: list[Record]) -> None:
    write_dataset("a.parquet", records)
    marks = run("describe", "a.parquet", "--datasheet", "none.md", code=2).output
    assert "none.md" in marks
    Path("sheet.md").write_text("# Ours\n")
    marks = run("describe", "a.parquet", "--datasheet", "sheet.md", code=2).output
    lines = [line for line in marks.splitlines() if line.startswith("<!--")]
    Path("sheet.md").write_text("# Ours\n" + "\nold\n".join(lines) + "\nThe end.\n")
    run("describe", "a.parquet", "--datasheet", "sheet.md")
    once = Path("sheet.md").read_text()
    assert "old" not in once and once.startswith("# Ours\n") and once.endswith("\nThe end.\n")
    assert "| records | 29 |" in once and "| GMM |" in once
    run("describe", "a.parquet", "--datasheet", "sheet.md")
    assert Path("sheet.md").read_text() == once


def test_the_shipped_datasheet_has_a_place_for_the_figures(
    here: Path, records: list[Record], clone: Path
) -> None:
    write_dataset("a.parquet", records)
    Path("sheet.md").write_text((clone / "docs" / "dataset.md").read_text())
    run("describe", "a.parquet", "--datasheet", "sheet.md")
    assert "| records | 29 |" in Path("sheet.md").read_text()


FLOORS = [
    *("--records", "10", "--workloads", "4", "--families", "2", "--looptune", "0"),
    *("--loop-share", "0.01", "--again", "0.1"),
]


def test_validate(here: Path, records: list[Record]) -> None:
    write_dataset("a.parquet", records)
    found = figures("validate", "a.parquet", *FLOORS)
    assert found["ok"] and all(check["ok"] for check in found["checks"])
    strict = figures("validate", "a.parquet", code=1)
    failed = {check["name"] for check in strict["checks"] if not check["ok"]}
    assert failed >= {"records", "workloads", "Ansor families", "LoopTune training workloads"}
    assert not failed & {"schema", "identities", "held-out workloads", "provenance"}


def test_validate_finds_a_planted_leak(here: Path, records: list[Record]) -> None:
    leak = replace(records[0], workload=HELD_OUT.key, identity="0" * 16)
    write_dataset("a.parquet", [*records, leak])
    done = run("validate", "a.parquet", *FLOORS, code=1)
    assert "2 of 12 checks failed" in done.output
    Path("a.parquet").write_bytes(b"PAR1")
    assert "damaged" in run("validate", "a.parquet", code=1).output
    assert "does not exist" in run("validate", "none", code=2).output


def test_split(here: Path, records: list[Record]) -> None:
    write_dataset("a.parquet", records)
    done = figures("split", "a.parquet", "--by", "shape", "--seed", "3", "--out", "parts")
    sides = [read_dataset(f"parts/{side}.parquet") for side in ("train", "test")]
    identities = [{r.identity for r in side.records} for side in sides]
    assert not identities[0] & identities[1]
    assert len(sides[0]) + len(sides[1]) == len(records) == done["records"]
    assert done["test"] == {"records": len(sides[1]), "identities": sorted(identities[1])}
    again = ["split", "a.parquet", "--by", "operator", "--out", "parts"]
    assert "exist already" in run(*again, code=2).output
    run(*again, "--force")
    assert "two hosts" in run("split", "a.parquet", "--by", "host", "--out", "b", code=2).output
    assert "choose from" in run("split", "a.parquet", "--by", "x", "--out", "b", code=2).output
    assert not Path("b").exists()


def test_features(here: Path, records: list[Record]) -> None:
    write_dataset("a.parquet", records)
    done = run("features", "a.parquet", "--workers", "1")
    assert "28 of 29 records" in done.output and "1 have none: illegal here" in done.output
    assert list(Path("a.features/statements-v1").glob("*.npz"))
    assert "no features" in run("features", "a.parquet", "--kind", "x", code=2).output


def test_import(here: Path) -> None:
    log = str(LOGS / "autotvm_dense.jsonl")
    done = figures("import", log, "--out", "set", "--host", "amd")
    assert (done["added"], done["held_out"]) == (80, {})
    row = done["files"][0]
    assert (row["lines"], row["records"], row["problems"]) == (80, 80, [])
    assert row["failures"] == {"timeout": 15}
    assert list(row["workloads"].values()) == ["dense(m=128,n=128,k=128)"]
    assert {r.host for r in read_dataset("set").records} == {"amd"}
    again = figures("import", log, "--out", "set", "--host", "amd")
    assert (again["added"], again["known"]) == (0, 80)
    assert len(read_dataset("set")) == 80


def test_import_names_damaged_lines(here: Path) -> None:
    good = (LOGS / "autotvm_dense.jsonl").read_text().splitlines()[0]
    foreign = (LOGS / "autotvm_dense.jsonl").read_text().splitlines()[1].replace("llvm", "cuda", 1)
    Path("log").write_text("\n".join([good, foreign, *["{}"] * 12]))
    done = run("import", "log", "--out", "set")
    assert "log: 14 lines, 1 records" in done.output
    assert "log:2: it is for the target kind 'cuda'" in done.output
    assert "log:11: it is neither" in done.output and "log:12:" not in done.output
    assert "and 3 more" in done.output
    assert len(figures("import", "log", "--out", "set")["files"][0]["problems"]) == 13


def test_import_leaves_out_what_is_not_recognised_or_held_out(here: Path) -> None:
    log = str(LOGS / "ansor_dense.jsonl")
    done = run("import", log, "--out", "set", code=1)
    assert "not recognised: 144 records left out" in done.output
    assert "nothing was imported" in done.output and not Path("set").exists()
    task = json.loads(json.loads(Path(log).read_text().splitlines()[0])["i"][0][0])[0]
    held = figures(*("import", log, "--out", "set", "--workload", f"{task}={HELD_OUT.key}"), code=1)
    assert held["held_out"] == {HELD_OUT.key: 144} and not Path("set").exists()
    named = figures("import", log, "--out", "a", "--workload", f"{task}=dense(128,128,128)")
    assert named["added"] == 144
    assert {r.workload for r in read_dataset("a").records} == {"dense(m=128,n=128,k=128)"}
    assert figures("import", log, "--out", "b", "--allow-unknown")["added"] == 144
    assert "TASK=KEY" in run("import", log, "--out", "c", "--workload", "x", code=2).output
    assert "no operator" in run("import", log, "--out", "c", "--workload", "x=y(1)", code=2).output
    assert "none.log" in run("import", "none.log", "--out", "c", code=2).output


def test_import_for_a_target(here: Path) -> None:
    log = str(LOGS / "autotvm_dense.jsonl")
    done = run("import", log, "--out", "set", "--target", "llvm -mcpu=haswell", code=1)
    assert "not haswell" in done.output and "and 70 more" in done.output
