"""Networks: what they depend on, and what they don't."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

import torch

from tensortune.data.loop_space import LoopSpace
from tensortune.data.loops.steps import apply_step, legal_steps
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload
from tensortune.search.rl.networks import Actor, GraphEncoder, one_thread
from tensortune.search.rl.observe import GraphObserver, GraphShape, View

TARGET = cpu_target("llvm -num-cores=1")
SHAPE = GraphShape(16, 6, 7)


def observations(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    space = LoopSpace(Workload.from_key("batch_matmul(b=3,m=16,n=24,k=16)"), TARGET)
    observer, found = GraphObserver(SHAPE), []
    for _ in range(count):
        nest = space.start
        for _ in range(int(rng.integers(8))):
            steps = [step for step in legal_steps(nest) if step[0] in ("split", "move", "swap")]
            nest = apply_step(nest, steps[int(rng.integers(len(steps)))])
        found.append(observer(View(nest, int(rng.integers(len(nest.loops))))))
    return found


def batch(seen: list[dict[str, np.ndarray]]) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(np.stack([each[key] for each in seen])) for key in seen[0]}


def test_one_observation_is_encoded_alike_in_every_batch() -> None:
    torch.manual_seed(0)
    encoder, seen = GraphEncoder(SHAPE, 16), observations(12)
    with torch.no_grad():
        together = encoder(batch(seen))
        alone = torch.cat([encoder(batch([each])) for each in seen])
    assert together.shape == (12, encoder.width)
    assert torch.allclose(together, alone, atol=1e-6)


def test_the_order_of_the_loops_is_seen() -> None:
    torch.manual_seed(0)
    encoder, observer = GraphEncoder(SHAPE, 16), GraphObserver(SHAPE)
    start = LoopSpace(Workload.from_key("matmul(m=32,n=32,k=32)"), TARGET).start
    nests = (start, apply_step(start, ("swap", 0)))
    with torch.no_grad():
        rows = encoder(batch([observer(View(nest, 0)) for nest in nests]))
    assert not torch.allclose(rows[0], rows[1])


def test_every_weight_matters() -> None:
    actor = Actor(
        observation=dict(SHAPE._asdict()), graph_hidden=8, layers=[16], actions=5, activation="relu"
    )
    actor(batch(observations(8))).square().sum().backward()
    for name, weight in actor.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
