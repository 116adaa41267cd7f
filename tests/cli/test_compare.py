"""The compare command: what is wrong is said at once, in a line that names the fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tensortune.cli.compare import compare, read_seeds
from tensortune.search.compare_stats import summarise

app = typer.Typer()
app.command()(compare)


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments), env={"TENSORTUNE_AUTOTVM_PYTHON": ""})
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize("given", [(), ("--autotvm-python", "nowhere/python")])
def test_a_peer_without_its_interpreter_is_refused_before_anything_runs(
    tmp_path: Path, given: tuple[str, ...]
) -> None:
    out = tmp_path / "comparison"
    strategies = ("--strategies", "random,autotvm,ansor")
    code, said = run("matmul(8,8,8)", *strategies, "--out", str(out), *given)
    assert code == 2
    assert "docs/autotvm.md" in said
    assert "--autotvm-python" in said
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a workload"),
        (("matmul(8,8,8)", "--seeds", "many"), "0,1,2, not many"),
        (("matmul(8,8,8)", "--seeds", "0"), "seeds"),
        (("matmul(8,8,8)", "--strategies", "metaschedule:seeds=4"), "4 seeds"),
        (("matmul(8,8,8)", "--strategies", "guess"), "autotvm"),
        (("--report", "--out", "nowhere"), "holds no comparison"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], message: str) -> None:
    code, said = run(*arguments)
    assert code == 2
    assert message in said


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", 3), ("0,1,2", [0, 1, 2]), ("5,", [5]), ("0, 2", [0, 2])]
)
def test_seeds_are_read(text: str, seeds: object) -> None:
    assert read_seeds(text) == seeds


def test_a_report_of_what_is_there_measures_nothing(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    cells = [{"workload": "matmul(8,8,8)", "label": "a", "seed": 0, "best_s": 1e-6}]
    (tmp_path / "compare.json").write_text(json.dumps(summarise(cells, ["a"])))
    before = {path.name for path in tmp_path.iterdir()}
    code, said = run("--report", "--out", str(tmp_path))
    assert code == 0, said
    made = {path.name for path in tmp_path.iterdir()} - before
    assert made == {"report.html", "report.md", "report.csv"}


def test_help_has_examples() -> None:
    code, said = run("--help")
    assert code == 0
    assert "tensortune compare C2D:2" in said
    assert "--autotvm-python" in said
