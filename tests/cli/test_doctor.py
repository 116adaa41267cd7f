"""The doctor command: what is optional is a note, what is named and broken a warning."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tensortune.cli.doctor import check_autotvm, doctor


def test_autotvm_is_optional() -> None:
    finding = check_autotvm(None)
    assert finding.status == "ok"
    assert "docs/autotvm.md" in finding.advice


def test_an_interpreter_that_does_not_do_is_told_with_what_to_do() -> None:
    finding = check_autotvm("nowhere/python")
    assert finding.status == "warn"
    assert "nowhere/python" in finding.found
    assert "docs/autotvm.md" in finding.advice


@pytest.mark.autotvm
@pytest.mark.skipif(
    not os.environ.get("TENSORTUNE_AUTOTVM_PYTHON"), reason="needs an interpreter with AutoTVM"
)
def test_an_interpreter_that_does_is_told_with_its_versions() -> None:
    finding = check_autotvm(os.environ["TENSORTUNE_AUTOTVM_PYTHON"])
    assert finding.status == "ok"
    assert "xgboost" in finding.found


def test_the_command_tells_all(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(doctor)
    found = tmp_path / "found.json"
    environment = {"TENSORTUNE_AUTOTVM_PYTHON": "", "COLUMNS": "200"}
    done = CliRunner().invoke(app, ["--peak", "--json", str(found)], env=environment)
    assert done.exit_code == 0, done.output
    names = [finding["name"] for finding in json.loads(found.read_text())]
    assert {"Python", "cores", "peak", "AutoTVM (optional)"} <= set(names)
    assert len(names) == len(set(names))
    assert "docs/autotvm.md" in done.output
