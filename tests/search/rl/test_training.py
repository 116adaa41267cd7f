"""Training: a learner learns, a run is resumed to the same policy, bad input is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

import torch

from tensortune.data.store import Store
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, WorkloadError
from tensortune.search.rl import folder, learner, training
from tensortune.search.rl.callbacks import Point
from tensortune.search.rl.config import ConfigError, TrainConfig
from tensortune.search.rl.environments import make_spaces
from tensortune.search.rl.folder import TrainingError, read_config
from tensortune.search.rl.learner import CheckpointError
from tensortune.search.rl.policy import Policy
from tensortune.search.rl.speed import ToySpeed
from tensortune.search.rl.training import train, workloads_of

TARGET = cpu_target("llvm -num-cores=1")
KEYS = ["matmul(m=48,n=64,k=40)", "matmul(m=64,n=96,k=32)"]
TOY = {
    "environment": "cursor",
    "settings": {},
    "reward": "toy",
    "suite": "",
    "random_products": 0,
    "workloads": KEYS,
    "network": {"layers": [64, 64], "graph_hidden": 16},
}


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.of(TOY | settings)


def small(**settings: Any) -> TrainConfig:
    """A run that takes no time, and learns nothing."""
    ppo = {"envs": 4, "rollout": 16, "batch": 32, "epochs": 2}
    return config(**{"steps": 256, "checkpoint_every": 128, "ppo": ppo} | settings)


def gains(policy: Policy | None, seed: int = 0, count: int = 40) -> float:
    """The mean gain of a policy's episodes; of random ones without one."""
    spaces = make_spaces("cursor", [Workload.from_key(key) for key in KEYS], TARGET)
    speed, rng = ToySpeed(), np.random.default_rng(seed)
    found = []
    for workload in spaces.workloads:
        space = spaces.of(workload)
        if policy is not None:
            made = policy.rollouts(space, count, rng)
        else:
            env = training.make_env("cursor", {}, spaces, training.no_speed)
            made = []
            for _ in range(count):
                env.reset(seed=int(rng.integers(2**31)), options={"workload": workload})
                while True:
                    action = int(rng.choice(np.flatnonzero(env.action_masks())))
                    if any(env.step(action)[2:4]):
                        break
                made.append(env.candidate)
        found.append(np.mean(speed([(space, candidate) for candidate in made])))
    return float(np.mean(found))


def test_the_learner_learns(tmp_path: Path) -> None:
    """The best is log(8 * 32) = 5.5, and a random episode in ten gets anything at all."""
    ppo = {"envs": 32, "rollout": 20, "batch": 160, "epochs": 6, "learning_rate": 2e-3}
    made = train(config(steps=14_000, checkpoint_every=14_000, ppo=ppo), tmp_path / "run")
    points = made.results["curve"]
    best, random = ToySpeed().best, gains(None)
    assert random < 0.2 * best
    assert points[-1]["log_speedup"] > 0.75 * best
    spaces = make_spaces("cursor", [Workload.from_key(key) for key in KEYS], TARGET)
    for workload in spaces.workloads:
        space = spaces.of(workload)
        (preferred,) = made.policy.rollouts(space, 1, np.random.default_rng(0), greedy=True)
        assert ToySpeed()([(space, preferred)])[0] > 0.7 * best


@pytest.mark.parametrize(
    "settings",
    [
        {"settings": {"observation": "flat"}},
        {"settings": {"observation": "graph"}},
        {"environment": "transform", "settings": {"interchange": "swaps", "observation": "flat"}},
    ],
)
def test_a_resumed_run_comes_to_the_same(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(small(**settings), tmp_path / "whole")

    def interrupt(point: Point) -> None:
        if point.steps > 128:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(small(**settings), tmp_path / "part", on_point=interrupt)
    kept = Policy.load(tmp_path / "part" / folder.POLICY)
    assert kept.meta["steps"] == 128
    resumed = train(read_config(tmp_path / "part"), tmp_path / "part", resume=True)
    assert resumed.policy.meta["steps"] == whole.policy.meta["steps"]
    weights = whole.policy.net.state_dict()
    for name, value in resumed.policy.net.state_dict().items():
        assert torch.equal(value, weights[name]), name
    curves = [
        [{k: v for k, v in point.items() if k != "seconds"} for point in made.results["curve"]]
        for made in (whole, resumed)
    ]
    assert curves[0] == curves[1]


def test_one_seed_is_one_policy_and_another_is_another(tmp_path: Path) -> None:
    made = [train(small(seed=seed), tmp_path / str(n)) for n, seed in enumerate((0, 0, 1))]
    heads = [each.policy.net.head.weight for each in made]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_deep_q_learning_runs_and_acts(tmp_path: Path) -> None:
    dqn = {"envs": 4, "learning_starts": 64, "buffer": 1000, "target_interval": 64}
    made = train(
        small(algorithm="dqn", dqn=dqn, settings={"observation": "graph"}), tmp_path / "run"
    )
    spaces = make_spaces("cursor", [Workload.from_key(KEYS[0])], TARGET)
    found = made.policy.rollouts(spaces.of(spaces.workloads[0]), 4, np.random.default_rng(0))
    assert found
    assert (
        Policy.load(made.path).rollouts(spaces.of(spaces.workloads[0]), 4, np.random.default_rng(0))
        == found
    )


def test_a_model_is_learnt_along_the_way(tmp_path: Path) -> None:
    rounds = {"rounds": 2, "shapes": 2, "programs": 3, "first_programs": 4, "trees": 10}
    told: list[tuple[int, int, int]] = []
    made = train(
        small(reward="model", rounds=rounds),
        tmp_path / "run",
        on_measured=lambda *how: told.append(how),
    )
    records = Store(tmp_path / "run" / folder.RECORDS).read().records
    assert [sum(r.batch == n for r in records) for n in (0, 1)] == [8, 6]
    assert {r.strategy for r in records if r.batch == 0} == {"random"}
    assert {r.strategy for r in records if r.batch == 1} == {"random", "policy"}
    assert len({(r.workload, r.candidate) for r in records}) == 14
    assert told[-1] == (1, 6, 6)
    first, second = made.results["rounds"]
    assert first["programs"] == 8
    assert second["programs"] == 14
    assert first["unseen"] is None
    assert 0 <= second["unseen"]["pairwise"] <= 1
    assert 0 < second["of_best"]["policy"] <= 1
    assert made.results["curve"][-1]["stage"] == 1


def test_measured_programs_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = {"rounds": 1, "shapes": 2, "first_programs": 3, "trees": 10}
    settings = small(reward="model", rounds=rounds)

    def interrupt(number: int, done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "run", on_measured=interrupt)
    before = Store(tmp_path / "run" / folder.RECORDS).read().records
    assert len(before) == 4
    train(settings, tmp_path / "run", resume=True)
    after = Store(tmp_path / "run" / folder.RECORDS).read().records
    assert after[:4] == before
    assert len({(r.workload, r.candidate) for r in after}) == len(after) == 6


def test_a_folder_is_for_one_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(TrainingError, match="leave --resume out"):
        train(small(), run, resume=True)
    with pytest.raises(TrainingError, match="leave --resume out"):
        read_config(run)
    train(small(), run)
    with pytest.raises(TrainingError, match="--resume"):
        train(small(), run)
    with pytest.raises(TrainingError, match="`seed` 0, not 1"):
        train(small(seed=1), run, resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(TrainingError, match="something else"):
        train(small(), tmp_path / "other")


def test_checkpoints_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(learner, "VERSION", 7)
    train(small(), run)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"version 7, .* version 1: begin a new run"):
        train(small(), run, resume=True)
    checkpoint = run / folder.CHECKPOINT
    checkpoint.write_bytes(checkpoint.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="damaged"):
        train(small(), run, resume=True)
    (run / folder.POLICY).replace(checkpoint)
    with pytest.raises(CheckpointError, match="kind `policy`"):
        train(small(), run, resume=True)


def test_workloads_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no workload to train on"):
        workloads_of(config(workloads=["matmul(m=512,n=512,k=512)"]))  # held out
    with pytest.raises(ConfigError, match="no suite `lopptune`"):
        workloads_of(config(suite="lopptune"))
    with pytest.raises(WorkloadError, match="leave it out"):
        train(small(workloads=["matmul(m=1,n=1,k=1)"]), tmp_path / "run")
    found = workloads_of(config(suite="looptune-train", most=5, random_products=3))
    assert len(found) == 5 + 3 + len(KEYS)
