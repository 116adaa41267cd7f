"""`tensortune rl evaluate`: what it writes, and what it says of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

import typer
from typer.testing import CliRunner

from tensortune.cli.rl_evaluate import rl_evaluate

from ..search.rl.policies import tiny_policy

app = typer.Typer()
app.command()(rl_evaluate)


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "mine.ttp"
    tiny_policy().save(path)
    return path


def test_shapes_of_ones_own(policy: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = ("--policy", policy, "--workload", "matmul(48,32,40)", "--metaschedule", 0)
    code, said = run(*words, "--random", 2, "--json", figures)
    assert code == 0, said
    result = json.loads(figures.read_text())
    assert [shape["workload"] for shape in result["shapes"]] == ["matmul(m=48,n=32,k=40)"]
    assert result["geomean"]["speed_vs_untuned"] > 0
    assert result["import_s"] > 0
    assert "geometric mean" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--shapes", 0), "1 to 220 shapes"),
        (("--workload", "matmul(3"), "matmul(3"),
        (("--policy", "none.ttp"), "none.ttp"),
        (("--model", "none.ttm"), "no model none.ttm"),
        (("--measurements", -1), "measurements is at least 0"),
    ],
)
def test_bad_input_is_one_clear_line(
    policy: Path, words: tuple[object, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(policy.parent)
    given = words if "--policy" in words else (*words, "--policy", policy)
    code, said = run(*given)
    assert code == 2
    assert why in "".join(said.split("\n"))
    assert "Traceback" not in said
