"""Configurations: written, read, refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

from tensortune.search.rl.config import ConfigError, TrainConfig, to_toml


def test_a_configuration_comes_back_from_both_formats(tmp_path: Path) -> None:
    config = TrainConfig.of(
        {
            "environment": "transform",
            "settings": {"interchange": "swaps"},
            "workloads": ["matmul(m=48,n=64,k=40)"],
            "steps": 5000,
            "checkpoint_every": 1000,
            "network": {"layers": [32]},
            "ppo": {"gamma": 1},
        }
    )
    assert config.network.layers == (32,)
    assert config.ppo.gamma == 1.0
    (tmp_path / "config.toml").write_text(to_toml(config))
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    assert TrainConfig.read(tmp_path / "config.toml") == config
    assert TrainConfig.read(tmp_path / "config.json") == config
    (tmp_path / "empty.toml").write_text("")
    assert TrainConfig.read(tmp_path / "empty.toml") == TrainConfig()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stepz": 1}, "no setting `stepz`; there are algorithm"),
        ({"ppo": {"clipp": 0.1}}, r"no setting `ppo\.clipp`"),
        ({"steps": "many"}, "`steps` is of type int, not 'many'"),
        ({"steps": True}, "`steps` is of type int"),
        ({"steps": 0}, "`steps` is 1 or more"),
        ({"reward": "praise"}, "`reward` is one of model, measured, toy"),
        ({"workloads": "matmul"}, "`workloads` is a list"),
        ({"network": 3}, "is a table of settings"),
        ({"settings": 3}, "`settings` is a table"),
        ({"algorithm": "dqn", "environment": "transform"}, "for the cursor only"),
        ({"environment": "knob"}, "reward = measured"),
    ],
)
def test_mistakes_are_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig.of(given)


def test_a_file_that_does_not_parse_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("steps: 5")
    with pytest.raises(ConfigError, match="not TOML"):
        TrainConfig.read(tmp_path / "config.toml")
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ConfigError, match="table of settings"):
        TrainConfig.read(tmp_path / "config.json")
