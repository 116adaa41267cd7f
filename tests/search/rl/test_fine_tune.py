"""Training a policy on with what was measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

import torch

from tensortune.data.workload import workload
from tensortune.search.rl.environments import make_spaces
from tensortune.search.rl.fine_tune import FineTuner
from tensortune.search.rl.policy import Episode, Policy, batch

from .policies import TARGET, tiny_policy


def episodes_of(policy: Policy, n: int = 12) -> list[Episode]:
    item = workload("matmul", 48, 64, 40)
    space = make_spaces(policy.env, [item], TARGET).of(item)
    return list(policy.episodes(space, n, np.random.default_rng(0)).values())


def log_likelihood(policy: Policy, episode: Episode) -> float:
    with torch.inference_mode():
        logits = policy.net(batch(episode.observations)).numpy()
    logits = np.where(episode.masks, logits, -np.inf)
    logits = logits.reshape(len(logits), episode.actions.shape[1], -1)
    log = logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)
    return float(np.take_along_axis(log, episode.actions[:, :, None], axis=2).sum())


@pytest.mark.parametrize("env", ["cursor", "transform", "knob"])
def test_what_was_fast_gets_likelier_and_the_policy_given_stays(env: str) -> None:
    given = tiny_policy(env)
    episodes = episodes_of(given)
    speeds = [math.log(10.0)] + [0.0] * (len(episodes) - 1)
    before = [log_likelihood(given, episode) for episode in episodes]
    tuner = FineTuner(given, learning_rate=0.01)
    tuner.learn(episodes, speeds)
    after = [log_likelihood(tuner.policy, episode) for episode in episodes]
    gains = np.subtract(after, before)
    assert gains[0] > 0
    assert gains[0] > np.median(gains[1:])
    assert [log_likelihood(given, episode) for episode in episodes] == before


@pytest.mark.parametrize("speeds", [[0.0, -math.inf], [1.0, 1.0], [-math.inf, -math.inf]])
def test_nothing_is_learnt_where_there_is_nothing_to_tell_apart(speeds: list[float]) -> None:
    tuner = FineTuner(tiny_policy())
    episodes = episodes_of(tuner.policy)[:2]
    before = [log_likelihood(tuner.policy, episode) for episode in episodes]
    tuner.learn(episodes, speeds)
    assert [log_likelihood(tuner.policy, episode) for episode in episodes] == before
