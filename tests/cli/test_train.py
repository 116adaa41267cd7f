"""The `train` and `evaluate` commands: what they write, and clear errors with exit code 2."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tensortune.cli.train import evaluate, train
from tensortune.costmodel.files import load_model
from tensortune.data.dataset import Dataset, read_dataset
from tensortune.data.store import Store
from tensortune.data.suites import ansor

from ..measured import measured

SMALL = "xgb(rounds=30,max_depth=4)"

app = typer.Typer()
app.command()(train)
app.command()(evaluate)


@pytest.fixture(scope="module")
def made(measured_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the dataset, its features too if they are there already."""
    folder = tmp_path_factory.mktemp("cli")
    assert measured_dataset.path is not None
    shutil.copytree(measured_dataset.path, folder / "set")
    return folder


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def run(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, (done.output, done.exc_info)
    return done


def figures(*arguments: str, code: int = 0) -> Any:
    run(*arguments, "--json", "figures.json", code=code)
    return json.loads(Path("figures.json").read_text())


def test_train(here: Path) -> None:
    done = figures("train", "set", "--model", SMALL, "--out", "a.model")
    assert done["programs"] == len(read_dataset("set")) and done["held_out"] == {}
    assert len(done["workloads"]) == 10
    assert done["bytes"] == Path("a.model").stat().st_size and done["fit_seconds"] > 0
    assert load_model("a.model").max_depth == 4
    refused = run("train", "set", "--model", SMALL, "--out", "a.model", code=2)
    assert "--force" in refused.output
    forced = figures("train", "set", "--model", SMALL, "--out", "a.model", "--force")
    assert forced["bytes"] == done["bytes"]


def test_train_on_one_side_of_a_split(here: Path) -> None:
    done = figures("train", "set", "--model", SMALL, "--split", "shape", "--out", "b.model")
    assert len(done["workloads"]) == 8 and 0 < done["test"]["pairwise"] < 1
    text = run(
        *("train", "set", "--model", SMALL, "--split", "shape", "--out", "b.model", "--force")
    ).output
    assert "other side of the split by shape: pairwise 0." in text
    judged = figures("evaluate", "set", "--saved", "b.model")
    assert judged["workloads"] == 2 and judged["pairwise"] == done["test"]["pairwise"]
    assert "leave out" in run("evaluate", "set", "--saved", "x", "--out", "y", code=2).output


def test_train_further_on_records_of_ones_own(here: Path) -> None:
    figures("train", "set", "--model", SMALL, "--split", "shape", "--out", "c.model", "--force")
    Store("own.jsonl").append([r for r in measured() if r.workload.startswith("softmax")])
    done = figures("train", "own.jsonl", "--from", "c.model", "--out", "own.model")
    assert done["from"] == "c.model" and 8 <= len(done["workloads"]) <= 9
    assert done["bytes"] > Path("c.model").stat().st_size


def test_held_out_records_are_said(here: Path) -> None:
    secret = ansor("SFM", 0)
    leak = [
        replace(record, identity=secret.identity)
        for record in measured()
        if record.workload.startswith("softmax")
    ]
    Store("leak.jsonl").append(leak)
    refused = run("train", "leak.jsonl", "--model", SMALL, "--out", "d.model", code=2)
    assert "--allow-held-out" in refused.output and not Path("d.model").exists()
    done = figures(
        *("train", "leak.jsonl", "--model", SMALL, "--out", "d.model", "--allow-held-out")
    )
    assert done["workloads"] == [secret.identity]


def test_bad_requests(here: Path) -> None:
    for arguments, told in [
        (("train", "set", "--model", "luck", "--out", "x"), "no model `luck`"),
        (("train", "none", "--out", "x"), "does not exist"),
        (("train", "set", "--out", "."), "is a folder"),
        (("train", "set", "--split", "luck", "--out", "x"), "no split by `luck`"),
        (("train", "set", "--from", "figures.json", "--out", "x"), "not a model file"),
        (("train", "set", "--from", "none", "--out", "x"), "none"),
        (
            ("train", "set", "--from", "pretrained", "--model", "luck", "--out", "x"),
            "no pretrained model `luck`",
        ),
        (("train", "set", "--model", "metaschedule-xgb", "--out", "x"), "compared with"),
        (("evaluate", "set", "--models", "luck"), "no model `luck`"),
        (("evaluate", "set", "--sizes", "many"), "--sizes takes numbers"),
        (("evaluate", "none"), "does not exist"),
    ]:
        Path("figures.json").write_text("{}")
        output = " ".join(run(*arguments, code=2).output.split())
        assert told in output and "Traceback" not in output
        assert not Path("x").exists()


def test_evaluate(here: Path) -> None:
    arguments = ("--models", f"{SMALL},metaschedule-xgb", "--splits", "shape", "--seeds", "2")
    done = figures("evaluate", "set", *arguments, "--sizes", "60", "--out", "judged")
    assert [row["model"] for row in done["rows"]] == [SMALL, "metaschedule-xgb"]
    assert done["rows"][0]["vs_metaschedule"]["pairwise_ci95"][0] is not None
    assert json.loads(Path("judged/evaluate.json").read_text()) == done
    with Path("judged/rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["size"] for row in rows] == ["60", "60", "", ""]
    assert float(rows[2]["pairwise"]) == done["rows"][0]["pairwise"]
    assert len(list(Path("judged/results").iterdir())) == 8
    plots = {path.name for path in Path("judged").glob("*.png")}
    assert plots == (
        {"calibration.png", "operators.png", "learning.png"} if find_spec("matplotlib") else set()
    )
    text = run("evaluate", "set", *arguments, "--out", "judged").output
    for word in ("split by shape", "noise ceiling of pairwise: 0.", "less metaschedule-xgb"):
        assert word in text
