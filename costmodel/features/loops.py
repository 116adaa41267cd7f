"""Loop features: the loop tree of a scheduled program with the context of every loop.

A program has one row for every node of its loop tree, in pre-order. Nodes are the loops of more
than one iteration, and the statements: a store to a buffer, or a call. What a column says is after
the context features of AutoTVM (Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018,
section 4 and appendix): annotation, nest level, the products of the loops above and below, and for
each buffer how often it is touched, how often an element again, and with which stride.

Columns, in the order of `schemas.loop_names`; everything that adds up is that of *one full run* of
the node:

- *rows up to the parent*: how far above this row the parent's is, 0 for a root. The tree follows.
- *length* (iterations), *top-down* (product of the lengths of the loops around and its own),
  *bottom-up* (statements that one iteration runs), *threads*, *lanes* and *unrolled around*
  (products of the lengths of the parallel, vectorised and unrolled loops around and its own) are
  log2(n); so are the bytes of a stored element, the bytes and cache lines that are touched, and
  every number of a buffer but its allocated bytes and its stride.
- *level* (loops around), *unroll limit* (TVM's pragma), *statements* (below), work, allocated
  bytes and stride (elements) are log2(1 + n); the others are 0 or 1.
- Work counts operations on elements, not the arithmetic of indices; a float product that is added
  to something is one `mad`, shifts and bits go with *int add*, minima and maxima with *compare*.
  *guards* are conditions that a statement is under.
- The buffers are those that are touched below: first the written ones, then the others, the larger
  first. *touches* counts repeated ones, *unique* does not, and *reuse* is their ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from ...data.space import Scheduled
from ..base import Floats, Samples
from .loops_forms import Array
from .loops_touched import Nest, touched
from .loops_tree import PARALLEL, SERIAL, UNROLLED, VECTORISED, Tree
from .schemas import LOOP_BUFFER, LOOP_BUFFERS, LOOP_WORK, LOOPS


def extract(
    scheduled: Sequence[Scheduled], target: tvm.target.Target, threads: int | None = None
) -> list[Floats]:
    """Loop features of scheduled programs.

    Args:
        scheduled: The programs.
        target: The target they are for; the features do not depend on it.
        threads: Not used: the work is Python's, one program at a time.

    Returns:
        One matrix a program, of shape (nodes, `LOOPS.width`). A program that can't be analysed has
        a single row of NaN: it costs its own features, not the batch's.
    """
    return [_program(one.mod) for one in scheduled]


def samples(
    scheduled: Sequence[Scheduled],
    target: tvm.target.Target,
    latency_s: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
) -> Samples:
    """Samples with loop features; arguments as those of `extract` and `Samples.of`."""
    return Samples.of(LOOPS, extract(scheduled, target), latency_s, groups)


def _program(mod: Any) -> Floats:
    try:
        return _rows(Tree(mod))
    except Exception:  # a node that is new here must not cost the search a candidate
        return np.full((1, LOOPS.width), np.nan, dtype=np.float32)


def _rows(tree: Tree) -> Floats:
    """The features of a tree's nodes.

    Raises:
        ValueError: it has no statement.
    """
    nodes = tree.nodes
    leaves = [i for i, node in enumerate(nodes) if node.statement is not None]
    if not leaves:
        raise ValueError("a program without statements has no features")
    nest = _nest(tree)
    work = np.zeros((len(nodes), len(LOOP_WORK)))
    work[leaves] = [node.statement.work for node in nodes if node.statement is not None]
    full = np.exp2(nest.runs) * nest.inside
    items = np.zeros(len(nodes))
    items[leaves] = [node.statement.item for node in nodes if node.statement is not None]
    item = np.log2(np.maximum((items[:, None] * nest.inside).max(axis=0), 1))
    total, buffers = _buffers(tree, nest)
    columns = [
        _shape(tree, nest, full),
        np.log2(1 + full.T @ work),
        np.column_stack([item, *total]),
        buffers,
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _nest(tree: Tree) -> Nest:
    n = len(tree.nodes)
    lengths = np.array([node.length for node in tree.nodes], dtype=np.float64)
    lows = np.array([node.low for node in tree.nodes], dtype=np.float64)
    inside = np.eye(n)
    down = np.log2(lengths)
    for i, node in enumerate(tree.nodes):
        if node.parent >= 0:
            inside[i] += inside[node.parent]
            down[i] += down[node.parent]
    # A statement runs once for every iteration of the loops from the node down.
    runs = down[:, None] - down[None, :] + np.log2(lengths)[None, :]
    return Nest(lengths, lows, inside, np.where(inside > 0, runs, 0.0))


def _shape(tree: Tree, nest: Nest, full: Array) -> Array:
    """The columns of `schemas.LOOP_NODE`."""
    nodes = tree.nodes
    n = len(nodes)
    statement = np.array([node.statement is not None for node in nodes], dtype=np.float64)
    kinds = np.array([node.kind for node in nodes])
    parents = np.array([node.parent for node in nodes])
    by_limit = np.array([node.by_limit for node in nodes])
    length = np.log2(nest.lengths)
    around = nest.inside @ np.column_stack(
        [
            length,
            length * (kinds == PARALLEL),
            length * (kinds == VECTORISED),
            length * ((kinds == UNROLLED) | by_limit),
        ]
    )
    one = [(kinds == kind) for kind in (SERIAL, PARALLEL, VECTORISED, UNROLLED)]
    below = (nest.inside * statement[:, None]).sum(axis=0)
    runs = (full * statement[:, None]).sum(axis=0)
    return np.column_stack(
        [
            np.where(parents >= 0, np.arange(n) - parents, 0),
            statement,
            length,
            np.log2(nest.inside.sum(axis=1)),
            *one,
            kinds > UNROLLED,
            [node.spatial for node in nodes],
            [node.reduction for node in nodes],
            np.log2([1 + node.limit for node in nodes]),
            [node.explicit for node in nodes],
            by_limit,
            [node.partitioned for node in nodes],
            around[:, 0],
            np.log2(np.maximum(runs, 1)) - length,
            np.log2(1 + below),
            *around[:, 1:].T,
        ]
    ).astype(np.float64)


def _buffers(tree: Tree, nest: Nest) -> tuple[list[Array], Array]:
    """Bytes and cache lines of all buffers together, and the columns of the first few."""
    n = len(tree.nodes)
    accesses = [
        (i, access)
        for i, node in enumerate(tree.nodes)
        if node.statement is not None
        for access in node.statement.accesses.values()
    ]
    if not accesses:
        return [np.zeros(n), np.zeros(n)], np.zeros((n, LOOP_BUFFERS * len(LOOP_BUFFER)))
    known = tree.expressions.buffers
    found = touched(nest, tree.expressions.forms, known, accesses)
    present = np.maximum(found.read, found.written)
    total = [
        np.log2(np.maximum((np.exp2(amount) * present).sum(axis=0), 1))
        for amount in (found.bytes, found.lines)
    ]
    size = [math.prod(buffer.shape) * buffer.item for buffer in known]
    columns = np.stack(
        [
            found.read,
            found.written,
            found.touches,
            found.unique,
            np.maximum(found.touches - found.unique, 0),
            found.bytes,
            found.lines,
            np.log2(1 + found.stride),
            found.still,
            found.stride == 1,
            present * np.log2(1 + np.array(size, dtype=np.float64))[:, None],
            present * np.array([buffer.local for buffer in known])[:, None],
        ]
    )
    return total, _ranked(columns, found.bytes.max(axis=1), found.written, present)


def _ranked(columns: Array, size: Array, written: Array, present: Array) -> Array:
    """The columns of the first buffers of each node: the written ones first, the larger first."""
    largest = np.argsort(-size, kind="stable")
    # Of equally large ones the first in the program, so that a buffer's place seldom changes.
    place = np.argsort((2 * (1 - present) + (1 - written))[largest], axis=0, kind="stable")
    chosen = largest[place[:LOOP_BUFFERS]]
    kinds, _, n = columns.shape
    rows = np.zeros((n, LOOP_BUFFERS, kinds))
    rows[:, : len(chosen)] = columns[:, chosen, np.arange(n)].transpose(2, 1, 0)
    return rows.reshape(n, -1)
