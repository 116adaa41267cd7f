"""The `collect` command: what it prints, and what it says when it is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tensortune.cli.collect import collect
from tensortune.search.collect_folder import CollectFolder

_COMMAND = """
import typer
from tensortune.cli.collect import collect
app = typer.Typer(pretty_exceptions_enable=False)
app.command()(collect)
app()
"""


def run(*arguments: str) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(collect)
    return CliRunner().invoke(app, list(arguments))


def test_an_interrupted_command_says_how_to_go_on_and_does(tmp_path: Path) -> None:
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    arguments = ["--suite", "smoke", "--samples", "10", "--spaces", "sketch"]
    arguments += ["--out", str(out), "--json", str(figures)]
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while len(list(CollectFolder(out).every_record())) < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "what was measured is in" in said and "the same command goes on" in said
    assert "Traceback" not in said
    kept = len(list(CollectFolder(out).every_record()))
    assert json.loads(figures.read_text())["records"] == kept >= 3

    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert re.search(r"round 1, \w+\(.*\): \d+ records, best .* us; \d+/10 records", result.output)
    assert "10 records of 4 workloads are in" in result.output
    found = json.loads(figures.read_text())
    assert found["records"] == found["session"]["held"] == 10
    assert found["session"]["new"] == 10 - kept
    assert set(found["families"]) == {"C2D", "GMM", "SFM", "elementwise"}

    result = run("--again", "1.0", "--hours", "1e-9", "--out", str(out))
    assert result.exit_code == 0 and "the hours are over" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x"], "name the suite with --suite"),
        (["--out", "x", "--suite", "smoky", "--samples", "9"], "did you mean `smoke`"),
        (["--out", "x", "--suite", "smoke", "--samples", "9", "--spaces", "a"], "the spaces are"),
        (["--out", "x", "--again", "0.05"], "x does not exist"),
    ],
)
def test_what_is_wrong_is_one_clear_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output and "Traceback" not in result.output
    assert not (tmp_path / "x").exists()
