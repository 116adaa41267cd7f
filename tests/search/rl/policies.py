"""Tiny untrained policies, so that tests need none that comes with the package."""

from __future__ import annotations

from typing import Any

import torch

from tensortune.data.target import cpu_target
from tensortune.data.workload import workload
from tensortune.search.rl.environments import actions_of, make_env, make_spaces, settings_of
from tensortune.search.rl.networks import Actor
from tensortune.search.rl.policy import Policy, no_speed

TARGET = cpu_target("llvm -num-cores=1")


def tiny_policy(env: str = "cursor", **given: Any) -> Policy:
    """A policy of random weights, which are the same every time."""
    settings = settings_of(env, given)
    spaces = make_spaces(env, [workload("matmul", 16, 16, 16)], TARGET)
    inputs = make_env(env, settings, spaces, no_speed).observation_space.shape
    assert inputs is not None
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Actor(
            observation={"inputs": inputs[0]},
            graph_hidden=8,
            layers=(16,),
            actions=len(actions_of(env, settings).names),
            activation="tanh",
        )
    return Policy(env, settings, {}, net.eval())
