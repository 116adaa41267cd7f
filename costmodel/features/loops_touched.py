"""How every node of a loop tree touches the program's buffers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .loops_forms import Array, Form, Forms, Table
from .loops_statement import Access, Buffer

_LINE = 64  # bytes of a cache line


@dataclass(frozen=True)
class Nest:
    """The loops of a tree of n nodes as arrays.

    Attributes:
        lengths: Iterations of each node, of shape (n,); 1 for a statement.
        lows: The least value of its variable, of shape (n,).
        inside: 1 where a node (row) is in the subtree of another one (column), of shape (n, n).
        runs: log2 of how often a node (row) runs in one full run of another one (column), of shape
            (n, n); meaningful inside only.
    """

    lengths: Array
    lows: Array
    inside: Array
    runs: Array


@dataclass(frozen=True)
class Touched:
    """What is touched in one full run of a node, each of shape (buffers, n).

    Attributes:
        read: 1 where the buffer is loaded.
        written: 1 where it is stored.
        touches: log2 of the elements that are touched, repeated ones included.
        unique: log2 of the different elements.
        bytes: log2 of their bytes.
        lines: log2 of their cache lines.
        stride: Elements from one iteration to the next, the most of all places; of a quotient the
            mean.
        still: 1 where no place depends on the loop.
    """

    read: Array
    written: Array
    touches: Array
    unique: Array
    bytes: Array
    lines: Array
    stride: Array
    still: Array


def touched(
    nest: Nest, forms: Forms, buffers: list[Buffer], accesses: list[tuple[int, Access]]
) -> Touched:
    """What the nodes touch.

    Args:
        nest: The loops.
        forms: The forms that the indices are of.
        buffers: The buffers.
        accesses: Every place with the node of its statement; every buffer has one.
    """
    places = sorted(accesses, key=lambda place: place[1].buffer)
    leaf = np.array([node for node, _ in places])
    owner = np.array([access.buffer for _, access in places])
    starts = np.searchsorted(owner, np.arange(len(buffers)))
    rank = max(1, max(len(access.indices) for _, access in places))
    nothing: Form = (0, {})
    padded = [
        form
        for _, access in places
        for form in (nothing,) * (rank - len(access.indices)) + access.indices
    ]
    n = len(nest.lengths)
    table = Table(forms, nest.lows, nest.lengths, nest.inside)
    low, high, varies, lanes = table.evaluate(padded)
    low, high = low.reshape(-1, rank, 3 * n + 1), high.reshape(-1, rank, 3 * n + 1)
    shape = np.array([_padded(buffer.shape, rank) for buffer in buffers], dtype=np.float64)
    row = np.ones_like(shape)  # elements from one index of a dimension to the next
    row[:, :-1] = np.cumprod(shape[:, :0:-1], axis=1)[:, ::-1]
    below = nest.inside[leaf]
    present = np.maximum.reduceat(below, starts)
    reads = np.array([[access.reads] for _, access in places], dtype=np.float64)
    writes = np.array([[access.writes] for _, access in places], dtype=np.float64)

    # How many different values each index takes, and all of a place together.
    spread = np.log2(nest.lengths)[:, None] * nest.inside
    each = (varies @ spread + lanes[:, None]).reshape(-1, rank, n)
    varies = varies.reshape(-1, rank, n)
    lanes = lanes.reshape(-1, rank).sum(axis=1, keepdims=True)
    anywhere = varies.max(axis=1)
    together = anywhere @ spread + lanes
    single = np.minimum(np.log2(np.maximum(high[..., :n] - low[..., :n] + 1, 1)), each)
    single = np.minimum(single, np.log2(shape[owner])[:, :, None]).sum(axis=1)
    apart = np.exp2(np.minimum(single, together)) * below
    apart = np.log2(np.maximum(np.add.reduceat(apart, starts), 1))

    box = _box(low[..., :n], high[..., :n], shape[owner], below, starts)
    unique = np.minimum(np.log2(box).sum(axis=1), apart)
    item = np.array([[buffer.item] for buffer in buffers], dtype=np.float64)
    count = np.exp2(nest.runs[leaf] + lanes) * below * (reads + writes)
    stride = _strides(low[..., n:], nest.lengths, row[owner])
    loops = present * (nest.lengths > 1)
    return Touched(
        read=np.maximum.reduceat(below * (reads > 0), starts),
        written=np.maximum.reduceat(below * (writes > 0), starts),
        touches=np.log2(np.maximum(np.add.reduceat(count, starts), 1)),
        unique=unique * present,
        bytes=(unique + np.log2(item)) * present,
        lines=_lines(box, row, unique, item) * present,
        stride=np.maximum.reduceat(stride * below, starts) * loops,
        still=(1 - np.maximum.reduceat(anywhere * below, starts)) * loops,
    )


def _padded(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape


def _box(
    low: Array, high: Array, shape: Array, below: Array, starts: npt.NDArray[np.int64]
) -> Array:
    """Extents of the box around all places of a buffer, of shape (buffers, rank, n)."""
    last = shape[:, :, None] - 1
    outside = np.where(below > 0, 0.0, np.inf)[:, None, :]
    first = np.minimum.reduceat(np.clip(low, 0, last) + outside, starts)
    final = np.maximum.reduceat(np.clip(high, 0, last) - outside, starts)
    return np.asarray(np.maximum(final - first + 1, 1))


def _lines(box: Array, row: Array, unique: Array, item: Array) -> Array:
    """log2 of the cache lines of a box.

    Of its rows each may have its lines, or what lies between the first and the last one of several
    is taken for a whole: the fewest count.
    """
    span = (box - 1) * row[:, :, None]
    span = np.cumsum(span[:, ::-1], axis=1)[:, ::-1] + 1
    logs = np.log2(box)
    outer = np.cumsum(logs, axis=1) - logs
    lines = outer + np.log2(np.ceil(span * item[:, :, None] / _LINE))
    return np.asarray(np.minimum(lines.min(axis=1), unique))


def _strides(points: Array, lengths: Array, row: Array) -> Array:
    """Elements that the address of each place (row) moves along each loop."""
    n = len(lengths)
    address = (points * row[:, :, None]).sum(axis=1)
    second = np.abs(address[:, 1 : n + 1] - address[:, :1])
    mean = np.abs(address[:, n + 1 :] - address[:, :1]) / np.maximum(lengths - 1, 1)
    return np.asarray(np.where(second > 0, second, mean))
