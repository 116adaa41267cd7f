"""Policies: their files, and acting by them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

import torch

from tensortune.costmodel.model_file import ModelFile
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, WorkloadError
from tensortune.search.rl import environments, policy
from tensortune.search.rl.environments import actions_of, make_env, make_spaces, settings_of
from tensortune.search.rl.networks import Actor
from tensortune.search.rl.policy import Policy, PolicyFileError, no_speed

TARGET = cpu_target("llvm -num-cores=1")
MATMUL = Workload.from_key("matmul(m=48,n=64,k=40)")
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "cursor": ("cursor", {}),
    "cursor, graph": ("cursor", {"observation": "graph"}),
    "transform, graph": ("transform", {"observation": "graph"}),
    "transform, swaps": ("transform", {"interchange": "swaps", "max_loops": 12}),
    "knob": ("knob", {}),
}


def space_of(kind: str, workload: Workload = MATMUL) -> Any:
    return make_spaces(KINDS[kind][0], [workload], TARGET).of(workload)


def make(kind: str, seed: int = 0) -> Policy:
    """An untrained policy."""
    name, given = KINDS[kind]
    settings = settings_of(name, given)
    env = make_env(name, settings, make_spaces(name, [MATMUL], TARGET), no_speed)
    shape = env.observation_space.shape
    seen = {"inputs": shape[0]} if shape else dict(env.observer.shape._asdict())  # type: ignore[attr-defined]
    torch.manual_seed(seed)
    actions = len(actions_of(name, settings).names)
    net = Actor(
        observation=seen, graph_hidden=16, layers=[32, 32], actions=actions, activation="tanh"
    )
    return Policy(name, settings, {"seed": seed}, net)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_names_of_actions_are_those_of_the_environment(kind: str) -> None:
    made = make(kind)
    env = made.make_env(make_spaces(made.env, [MATMUL], TARGET))
    env.reset(seed=0)
    names = actions_of(made.env, made.settings).names
    assert len(names) == len(set(names)) == len(env.action_masks())


def test_rollouts_are_distinct_and_begin_with_the_preferred_one(kind: str) -> None:
    made, space = make(kind), space_of(kind)
    found = made.rollouts(space, 12, np.random.default_rng(0))
    assert 4 <= len(found) <= 12
    assert len(set(found)) == len(found)
    for candidate in found:
        assert space.schedule(candidate).mod is not None
    assert made.rollouts(space, 12, np.random.default_rng(0)) == found
    if kind != "knob":  # whose episodes begin anywhere
        again = made.rollouts(space, 5, np.random.default_rng(1))
        assert again[0] == found[0]
        assert made.rollouts(space, 5, np.random.default_rng(2), greedy=True) == found[:1]
    assert made.rollouts(space, 0, np.random.default_rng(0)) == []


def test_a_saved_policy_acts_as_before(kind: str, tmp_path: Path) -> None:
    made, space = make(kind), space_of(kind)
    made.save(tmp_path / "policy.ttp")
    loaded = Policy.load(tmp_path / "policy.ttp")
    assert (loaded.env, loaded.settings, loaded.meta) == (made.env, made.settings, made.meta)
    rollouts = [p.rollouts(space, 8, np.random.default_rng(3)) for p in (made, loaded)]
    assert rollouts[0] == rollouts[1]
    assert [file.name for file in tmp_path.iterdir()] == ["policy.ttp"]


def test_what_one_policy_draws_depends_on_its_weights() -> None:
    space = space_of("cursor")
    first, second = (
        make("cursor", seed).rollouts(space, 8, np.random.default_rng(0)) for seed in (0, 1)
    )
    assert first != second


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.ttp"
    with pytest.raises(FileNotFoundError):
        Policy.load(path)
    path.write_bytes(b"PK\x03\x04 a zip file")
    with pytest.raises(PolicyFileError, match="not a model file of tensortune"):
        Policy.load(path)
    XGBModel().save(path)
    with pytest.raises(PolicyFileError, match="holds a model of kind `xgb`, not `policy`"):
        Policy.load(path)
    make("cursor").save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PolicyFileError, match="damaged"):
        Policy.load(path)


def rewritten(path: Path, **state: Any) -> None:
    file = ModelFile.read(path)
    dataclasses.replace(file, state=file.state | state).write(path)


def test_another_version_is_refused_with_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.ttp"
    monkeypatch.setattr(policy, "VERSION", 7)
    make("cursor").save(path)
    monkeypatch.undo()
    with pytest.raises(PolicyFileError, match=rf"version 7, .* version {environments.VERSION}"):
        Policy.load(path)


def test_another_action_space_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.ttp"
    made = make("cursor")
    made.save(path)
    names = [*actions_of("cursor", made.settings).names, "split_128"]
    rewritten(path, actions=names)
    with pytest.raises(PolicyFileError, match=r"12 actions \(split_128 .* library 11 .*train it"):
        Policy.load(path)
    made.save(path)
    rewritten(path, columns=["there"])
    with pytest.raises(PolicyFileError, match="1 columns"):
        Policy.load(path)
    made.save(path)
    rewritten(path, env="maze")
    with pytest.raises(PolicyFileError, match="no environment `maze`: choose cursor"):
        Policy.load(path)
    made.save(path)
    rewritten(path, env="transform")
    with pytest.raises(PolicyFileError, match="train it again"):
        Policy.load(path)


def test_a_policy_for_one_space_refuses_the_other() -> None:
    with pytest.raises(PolicyFileError, match="--space loop"):
        make("cursor").rollouts(space_of("knob"), 4, np.random.default_rng(0))
    with pytest.raises(PolicyFileError, match="--space sketch"):
        make("knob").rollouts(space_of("cursor"), 4, np.random.default_rng(0))


def test_a_workload_with_too_many_loops_is_refused() -> None:
    made = make("transform, swaps")
    small = dataclasses.replace(made, settings=made.settings | {"max_loops": 2})
    with pytest.raises(WorkloadError, match="max_loops"):
        small.rollouts(space_of("transform, swaps"), 4, np.random.default_rng(0))


def test_a_missing_policy_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "SHIPPED", tmp_path / "contractions.ttp")
    with pytest.raises(PolicyFileError, match="tensortune rl train"):
        policy.shipped()


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="no setting `horizont`; it has horizon"):
        settings_of("cursor", {"horizont": 3})
    assert json.loads(json.dumps(settings_of("knob", {}))) == settings_of("knob", {})
