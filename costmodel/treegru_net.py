"""The network of `TreeGRU`, and how the trees of many programs go through it at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from .base import Floats

Ints = npt.NDArray[np.int64]

# A feature counts at most so many standard deviations: no program is as odd as all that.
_OUTERMOST = 6.0
# A product of fewer rows is computed by other code, whose sums round differently.
_LEAST_ROWS = 32


@dataclass(frozen=True)
class Level:
    """The inner nodes of one depth, those of all trees, and their children.

    Attributes:
        nodes: Which of the inner nodes they are, in the forest's order.
        leaves: Which of the leaves are children of theirs.
        into: For each child, first the inner ones and then the leaves, its parent's place in the
            level.
    """

    nodes: slice
    leaves: slice
    into: torch.Tensor


@dataclass(frozen=True)
class Forest:
    """The trees of a batch of programs, ordered so that every step is on consecutive nodes.

    Inner nodes come first, then leaves; both the deepest first, and within one depth as they were
    given. By depth, and not by height: so all children of a level's inner nodes are of one level.

    Attributes:
        order: Which row each node is, of shape (nodes,).
        inner: How many of them are inner nodes.
        levels: The inner nodes, the deepest level first.
        lone: Which of the leaves are roots.
        programs: Of which program each root is, first the inner ones and then the leaves.
        count: How many programs there are.
    """

    order: Ints
    inner: int
    levels: list[Level]
    lone: slice
    programs: torch.Tensor
    count: int


def forest(up: Floats, counts: Ints) -> Forest:
    """The trees of programs whose rows are nodes.

    Args:
        up: How many rows above each row its parent is. Where that is no row of the same program
            (0, or NaN) the node is a root.
        counts: How many consecutive rows each program has.
    """
    n = len(up)
    row = np.arange(n)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    steps = np.rint(np.nan_to_num(up, nan=0.0, posinf=0.0, neginf=0.0))
    parent = row - np.clip(steps, 0, n).astype(np.int64)
    parent = np.where(parent < first, row, parent)
    has_parent = parent != row
    is_inner = np.zeros(n, dtype=bool)
    is_inner[parent[has_parent]] = True
    depth = _depths(parent, has_parent)
    deepest = int(depth.max(initial=0))
    key = np.where(is_inner, 0, deepest + 1) + (deepest - depth)
    order = np.argsort(key, kind="stable")
    place = np.empty(n, dtype=np.int64)
    place[order] = row
    # How many inner nodes and leaves are of a depth or deeper, and so where those of it end.
    inner_ends = np.cumsum(np.bincount(depth[is_inner], minlength=deepest + 1)[::-1])[::-1]
    leaf_ends = np.cumsum(np.bincount(depth[~is_inner], minlength=deepest + 1)[::-1])[::-1]
    inner_ends, leaf_ends = np.append(inner_ends, 0), np.append(leaf_ends, 0)
    inner = int(inner_ends[0])
    above = place[parent[order]]
    levels = []
    for d in range(deepest - 1, -1, -1):
        nodes = slice(int(inner_ends[d + 1]), int(inner_ends[d]))
        below = slice(int(inner_ends[d + 2]), nodes.start)
        leaves = slice(int(leaf_ends[d + 2]), int(leaf_ends[d + 1]))
        children = [above[below], above[inner + leaves.start : inner + leaves.stop]]
        into = torch.from_numpy(np.concatenate(children) - nodes.start)
        levels.append(Level(nodes, leaves, into))
    lone = slice(int(leaf_ends[1]), int(leaf_ends[0]))
    owner = np.repeat(np.arange(len(counts)), counts)[order]
    roots = [owner[int(inner_ends[1]) : inner], owner[inner + lone.start : inner + lone.stop]]
    programs = torch.from_numpy(np.concatenate(roots))
    return Forest(order, inner, levels, lone, programs, len(counts))


def _depths(parent: Ints, has_parent: npt.NDArray[np.bool_]) -> Ints:
    """How many nodes are above each node, by looking twice as far up each time."""
    depth, up = has_parent.astype(np.int64), parent
    further = up[up]
    while (further != up).any():
        depth = depth + depth[up]
        up, further = further, further[further]
    return depth


class TreeNet(torch.nn.Module):
    """A child-sum gated recurrent unit over loop trees, and a score from their roots.

    A node's state comes from its features and from the sum of its children's states (the child-sum
    form of Tai et al., ACL 2015, with the gates of Cho et al., EMNLP 2014), as in AutoTVM's
    TreeGRU. The states of a program's roots are added up, and two dense layers make them a score.

    Args:
        width: Features of a node.
        embedding: Size of what a node's features are turned into.
        hidden: Size of a node's state.
        rng: Draws the weights.
    """

    def __init__(self, width: int, embedding: int, hidden: int, rng: np.random.Generator) -> None:
        super().__init__()

        def weights(out: int, into: int, gain: float = 1.0) -> torch.nn.Parameter:
            # Glorot and Bengio, AISTATS 2010. From our own generator, not from torch's global one.
            bound = gain * np.sqrt(6.0 / (out + into))
            drawn = rng.uniform(-bound, bound, (out, into)).astype(np.float32)
            return torch.nn.Parameter(torch.from_numpy(drawn))

        def biases(out: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.zeros(out))

        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.embed, self.embed_bias = weights(embedding, width), biases(embedding)
        self.gates, self.gates_bias = weights(2 * hidden, embedding), biases(2 * hidden)
        self.gates_below = weights(2 * hidden, hidden)
        self.state, self.state_bias = weights(hidden, embedding, 2.0), biases(hidden)
        self.state_below = weights(hidden, hidden, 2.0)
        self.dense, self.dense_bias = weights(hidden, hidden), biases(hidden)
        self.out = weights(1, hidden)

    def standardise(self, rows: Floats) -> None:
        """Have features counted in standard deviations from the mean, both those of some rows.

        What isn't finite is left out here, and is taken for the mean later; columns that are the
        same in all rows count for nothing.
        """
        known = np.isfinite(rows)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, rows, 0.0).sum(axis=0, dtype=np.float64) / count
        apart = np.where(known, rows - mean, 0.0)
        deviation = np.sqrt((apart**2).sum(axis=0) / count)
        # Of equal values, which are not quite their own mean, a little is left over.
        varies = deviation > 1e-5 * np.maximum(np.abs(mean), 1.0)
        scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)
        self.mean = torch.from_numpy(mean.astype(np.float32))
        self.scale = torch.from_numpy(scale.astype(np.float32))

    def forward(self, rows: Floats, trees: Forest) -> torch.Tensor:
        """Scores of shape (programs,).

        Args:
            rows: Features of shape (nodes, width), in the order in which they were given.
            trees: The trees of these nodes.
        """
        features = torch.from_numpy(rows[trees.order])
        features = torch.nan_to_num((features - self.mean) * self.scale, 0.0, 0.0, 0.0)
        nodes = torch.relu(
            _product(features.clamp(-_OUTERMOST, _OUTERMOST), self.embed, self.embed_bias)
        )
        gates = _product(nodes, self.gates, self.gates_bias)
        fresh = _product(nodes, self.state, self.state_bias)
        size = self.state_below.shape[0]
        keep = torch.sigmoid(gates[trees.inner :, :size])
        leaves = (1.0 - keep) * _squashed(fresh[trees.inner :])
        states = fresh[:0]
        for level in trees.levels:
            children = torch.cat([states, leaves[level.leaves]])
            below = _sums(children, level.into, level.nodes.stop - level.nodes.start)
            gate = torch.sigmoid(gates[level.nodes] + _product(below, self.gates_below))
            keep, reset = gate[:, :size], gate[:, size:]
            new = _squashed(fresh[level.nodes] + _product(reset * below, self.state_below))
            states = torch.lerp(new, below, keep)
        roots = torch.cat([states, leaves[trees.lone]])
        whole = _sums(roots, trees.programs, trees.count)
        dense = torch.relu(_product(whole, self.dense, self.dense_bias))
        return (dense * self.out[0]).sum(dim=1)


def _squashed(values: torch.Tensor) -> torch.Tensor:
    """`tanh(values / 2)`, six times as fast as torch's `tanh`."""
    return 2.0 * torch.sigmoid(values) - 1.0


def _sums(values: torch.Tensor, into: torch.Tensor, n: int) -> torch.Tensor:
    """Sums of the rows of each of `n`, added in their order."""
    return values.new_zeros(n, values.shape[1]).index_add(0, into, values)


def _product(
    rows: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`rows @ weights.T + bias`, each row the same to the bit whichever others there are."""
    n = len(rows)
    if n < _LEAST_ROWS:
        rows = functional.pad(rows, (0, 0, 0, _LEAST_ROWS - n))
    return functional.linear(rows, weights, bias)[:n]
