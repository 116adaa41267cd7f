"""How `TreeGRU`'s network is trained: batches of pairs, and threads that share the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ..data.host import usable_cores
from .base import Samples
from .metrics import pairwise_accuracy
from .treegru_net import TreeNet, forest

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# A block is of one group: each of its programs meets all others. A batch has blocks of many groups.
_BLOCK = 32
_BLOCKS = 16
# Of few programs a batch has fewer blocks, so that an epoch still has so many steps.
_STEPS = 8
# A batch's gradient is the sum of so many, each computed by one thread. Always as many and added
# in the same order: what is learnt depends neither on the threads nor on the cores there are.
_SHARDS = 4
# Programs that are scored at once: few enough for a core's cache.
_CHUNK = 128

# Latencies nearer than this are no different to what is measured.
_NOISE = 0.03
# How far apart, in the logarithm of the latency, a pair counts for most (63%) of what it can.
_APART = 0.2

_BETAS = (0.9, 0.999)  # Adam's


class Epoch(NamedTuple):
    """What an epoch of a fit came to.

    Attributes:
        loss: Mean loss of its batches.
        accuracy: Pairwise accuracy on the validation programs; NaN if none are held out.
    """

    loss: float
    accuracy: float


@dataclass(frozen=True)
class Training:
    """How a network is trained.

    Attributes:
        epochs: How often each program is seen.
        learning_rate: Adam's step at the beginning; it falls to 0 along a cosine.
        weight_decay: L2 penalty on the weights.
        clip: Longest gradient; a longer one is shortened.
    """

    epochs: int
    learning_rate: float
    weight_decay: float
    clip: float

    def run(
        self, net: TreeNet, learnt: Samples, judged: Samples, rng: np.random.Generator
    ) -> Iterator[Epoch]:
        """Train a network, an epoch at a time.

        Args:
            net: The network.
            learnt: What it learns from; all measured.
            judged: What each epoch is judged by.
            rng: Draws the batches.
        """
        members = [np.flatnonzero(learnt.groups == g) for g in np.unique(learnt.groups)]
        adam = _Adam(list(net.parameters()), self.weight_decay, self.clip)
        done = 0
        for _ in range(self.epochs):
            batches = _batches([m for m in members if len(m) > 1], rng)
            losses = []
            with workers() as pool:
                for batch in batches:
                    left = 0.5 * (1.0 + np.cos(np.pi * done / (self.epochs * len(batches))))
                    loss, gradients = _gradients(net, [learnt.take(s) for s in batch], pool)
                    adam.step(gradients, self.learning_rate * left)
                    losses.append(loss)
                    done += 1
                accuracy = _accuracy(scores_of(net, judged, pool), judged)
            yield Epoch(float(np.mean(losses)) if losses else 0.0, accuracy)


class _Adam:
    """Adam (Kingma and Ba, ICLR 2015) with an L2 penalty and gradients of a limited length.

    Torch's own takes seconds to load: it brings torch's compiler with it.
    """

    def __init__(self, parameters: list[torch.Tensor], weight_decay: float, clip: float) -> None:
        self.parameters = parameters
        self.weight_decay = weight_decay
        self.clip = clip
        self.steps = 0
        self.means = [torch.zeros_like(p) for p in parameters]
        self.squares = [torch.zeros_like(p) for p in parameters]

    def step(self, gradients: Sequence[torch.Tensor], learning_rate: float) -> None:
        """Change the parameters by one step."""
        with torch.no_grad():
            self.steps += 1
            norm = sum(float((g.double() ** 2).sum()) for g in gradients) ** 0.5
            shorten = min(1.0, self.clip / norm) if norm > 0 else 1.0
            rate = learning_rate / (1.0 - _BETAS[0] ** self.steps)
            unbias = (1.0 - _BETAS[1] ** self.steps) ** 0.5
            every = zip(self.parameters, gradients, self.means, self.squares, strict=True)
            for parameter, gradient, mean, square in every:
                whole = (shorten * gradient).add_(parameter, alpha=self.weight_decay)
                mean.lerp_(whole, 1.0 - _BETAS[0])
                square.lerp_(whole**2, 1.0 - _BETAS[1])
                parameter.addcdiv_(mean, square.sqrt().div_(unbias).add_(1e-8), value=-rate)


def _gradients(
    net: TreeNet, shards: Sequence[Samples], pool: Executor
) -> tuple[float, list[torch.Tensor]]:
    """A batch's loss, and its derivatives by the parameters."""
    parameters = list(net.parameters())
    pairs = [_pairs(shard) for shard in shards]
    total = max(sum(float(pair.weight.sum()) for pair in pairs), 1e-9)

    def part(shard: Samples, pair: _Pairs) -> tuple[float, Sequence[torch.Tensor]]:
        scores = net(shard.rows[:, 1:], forest(shard.rows[:, 0], shard.counts))
        ahead = scores[torch.from_numpy(pair.faster)] - scores[torch.from_numpy(pair.slower)]
        weight = torch.from_numpy((pair.weight / total).astype(np.float32))
        loss = (weight * torch.nn.functional.softplus(-ahead)).sum()
        return loss.item(), torch.autograd.grad(loss, parameters, materialize_grads=True)

    losses, found = zip(*pool.map(part, shards, pairs), strict=True)
    return sum(losses), [sum(parts[1:], parts[0]) for parts in zip(*found, strict=True)]


class _Pairs(NamedTuple):
    """Pairs of programs: which is the faster, which the slower, how much it counts."""

    faster: Ints
    slower: Ints
    weight: Array


def _pairs(samples: Samples) -> _Pairs:
    """The pairs of one group that are apart; all programs of a group have about the same say."""
    log = np.log(samples.latency_s)
    gap = log[None, :] - log[:, None]
    same = samples.groups[:, None] == samples.groups[None, :]
    faster, slower = np.nonzero(same & (gap > np.log1p(_NOISE)))
    others = same.sum(axis=1)[faster] - 1
    return _Pairs(faster, slower, -np.expm1(-gap[faster, slower] / _APART) / others)


def tells_apart(samples: Samples) -> bool:
    """Whether any two programs of a group differ by more than the noise."""
    for group in np.unique(samples.groups):
        latency_s = samples.latency_s[samples.groups == group]
        if latency_s.max() > latency_s.min() * (1.0 + _NOISE):
            return len(samples.rows) > 0
    return False


def _batches(members: Sequence[Ints], rng: np.random.Generator) -> list[list[Ints]]:
    """An epoch's batches, each as the programs of its shards; members are those of a group."""
    blocks = [
        block
        for programs in members
        for block in np.array_split(rng.permutation(programs), -(-len(programs) // _BLOCK))
    ]
    order = rng.permutation(len(blocks))
    size = min(_BLOCKS, max(1, len(blocks) // _STEPS))
    batches = []
    for start in range(0, len(blocks), size):
        chosen = order[start : start + size]
        shards = np.array_split(chosen, min(_SHARDS, len(chosen)))
        batches.append([np.concatenate([blocks[i] for i in shard]) for shard in shards])
    return batches


def scores_of(net: TreeNet, samples: Samples, pool: Executor) -> Array:
    """What the network gives each program, of shape (programs,)."""
    ends = np.append(0, np.cumsum(samples.counts))

    def chunk(start: int) -> npt.NDArray[np.float32]:
        counts = samples.counts[start : start + _CHUNK]
        rows = samples.rows[ends[start] : ends[start + len(counts)]]
        with torch.inference_mode():
            found: npt.NDArray[np.float32] = net(rows[:, 1:], forest(rows[:, 0], counts)).numpy()
        return found

    found = list(pool.map(chunk, range(0, len(samples), _CHUNK)))
    return np.concatenate(found).astype(np.float64) if found else np.zeros(0)


def _accuracy(scores: Array, samples: Samples) -> float:
    """The mean over groups of the pairwise accuracy; NaN if there are no pairs."""
    found = [
        pairwise_accuracy(scores[member], samples.latency_s[member], _NOISE)
        for group in np.unique(samples.groups)
        for member in [samples.groups == group]
    ]
    known = [accuracy for accuracy in found if not np.isnan(accuracy)]
    return float(np.mean(known)) if known else float("nan")


@contextmanager
def workers() -> Iterator[Executor]:
    """Threads that each do a part of the work, while torch uses none of its own.

    Torch's own threads wait for one another by spinning, a hundred times in every batch: on a
    machine that is busy otherwise that takes a hundred times as long. And how they share the work
    decides how sums are rounded.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(
            usable_cores(), initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)
