"""`tensortune rl train`: what it prints, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from typer.testing import CliRunner

from tensortune.cli.rl import rl_app

CONFIG = """
environment = "cursor"
settings = { observation = "flat" }
reward = "toy"
suite = ""
random_products = 0
workloads = ["matmul(m=48,n=64,k=40)"]
steps = 128
checkpoint_every = 64

[network]
layers = [16]

[ppo]
envs = 4
rollout = 16
batch = 32
"""


def run(*arguments: str | Path | int) -> tuple[int, str]:
    result = CliRunner().invoke(rl_app, ["train", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    return path


def test_a_training_says_what_it_came_to(config: Path, tmp_path: Path) -> None:
    out, figures = tmp_path / "run", tmp_path / "figures.json"
    code, said = run("--config", config, "--out", out, "--json", figures)
    assert code == 0, said
    assert "policy.ttp: 128 steps" in said
    assert json.loads(figures.read_text())["steps"] == 128
    assert json.loads((out / "config.json").read_text())["seed"] == 0
    code, said = run("--config", config, "--out", out)
    assert code == 2
    assert "--resume" in said
    code, said = run("--out", out, "--resume")
    assert code == 0, said


def test_settings_of_the_command_come_before_those_of_the_file(
    config: Path, tmp_path: Path
) -> None:
    code, said = run("--config", config, "--out", tmp_path / "run", "--seed", 3, "--show-config")
    assert code == 0
    assert "seed = 3" in said
    assert not (tmp_path / "run").exists()
    (tmp_path / "shown.toml").write_text(said)
    assert run("--config", tmp_path / "shown.toml", "--out", "x", "--show-config") == (0, said)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--reward", "praise"), "`reward` is one of model, measured, toy"),
        (("--env", "maze"), "no environment `maze`"),
        (("--algorithm", "dqn", "--env", "transform"), "for the cursor only"),
        (("--steps", "0"), "`steps` is 1 or more"),
        (("--resume",), "holds no training"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    code, said = run("--out", tmp_path / "run", *arguments)
    assert code == 2
    assert message in said
    assert not (tmp_path / "run").exists()


def test_an_operator_without_a_nest_is_named(config: Path, tmp_path: Path) -> None:
    config.write_text(CONFIG.replace("m=48,n=64,k=40", "m=1,n=1,k=1"))
    code, said = run("--config", config, "--out", tmp_path / "run")
    assert code == 2
    assert "matmul(m=1,n=1,k=1)" in said
    assert "leave it out" in said
    assert not (tmp_path / "run").exists()
