"""Relation features: a program's loop features in one row, however many loops it has.

The curves are AutoTVM's context relation features (Chen et al., "Learning to Optimize Tensor
Programs", NeurIPS 2018, section 4): of two columns i and j of the loops, the greatest value of i
among the loops whose j is less than a threshold, for thresholds that are powers of two. They say,
for example, how often elements of a buffer are used again by the loops that fit the L1 cache.

The other columns are of the whole program, statements weighted by how often they run: work, how
much of it is vectorised and unrolled, and for several sizes of a cache how many bytes of cache
lines have to be moved into it: the largest subtrees that fit load what they touch every time they
run. Sums are log2(1 + n) again, and shares lie between 0 and 1.

A program that has no loop features (NaN) has no relation features either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base import Floats, Samples
from ..rows import totals
from .schemas import (
    CACHES,
    LOOP_BUFFER,
    LOOP_BUFFERS,
    LOOP_WORK,
    LOOPS,
    RELATION_CURVES,
    RELATIONS,
    loop_names,
    relation_names,
)

Array = npt.NDArray[np.float64]
_AT = {name: i for i, name in enumerate(loop_names())}
_WORK = [_AT[name] for name in LOOP_WORK]
_OPERATIONS = tuple(name for name in LOOP_WORK if name.startswith(("float", "int")))
_LINE = 6.0  # log2 of the bytes of a cache line


def of(loops: Samples) -> Samples:
    """Samples with relation features, of samples with loop features.

    Raises:
        ValueError: they have other features.
    """
    if loops.schema != LOOPS:
        raise ValueError(
            f"relations are of {LOOPS.name} v{LOOPS.version}, not of "
            f"{loops.schema.name} v{loops.schema.version}"
        )
    n = len(loops)
    return Samples(
        RELATIONS,
        relations(loops.rows, loops.counts),
        np.ones(n, dtype=np.int64),
        loops.latency_s,
        loops.groups,
    )


def relations(rows: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    """Relation features of programs.

    Args:
        rows: Loop features, of shape (rows, `LOOPS.width`), with the programs one after the other.
        counts: How many rows each program has, at least one, of shape (programs,).

    Returns:
        One row a program, of shape (programs, `RELATIONS.width`).
    """
    if not len(counts):
        return np.empty((0, RELATIONS.width), dtype=np.float32)
    forest = _forest(rows, counts)
    columns = _program(forest) | _innermost(forest) | _caches(forest)
    single = np.column_stack([columns[name] for name in relation_names()[: len(columns)]])
    made = np.concatenate([single, *_curves(forest)], axis=1).astype(np.float32)
    made[np.isnan(rows[:, 0])[np.cumsum(counts) - counts]] = np.nan
    return made


@dataclass(frozen=True)
class _Forest:
    """The nodes of several programs.

    Attributes:
        rows: Their loop features, of shape (nodes, `LOOPS.width`); zeros for NaN.
        starts: Where each program begins.
        owner: The program of each node.
        parent: The node around each; itself for a root.
        root: Whether a node is a root.
        leaf: Whether it is a statement.
        times: How often it runs.
        work: What one run does, by the columns of `LOOP_WORK`.
        weight: What a statement does in all; 0 for a loop.
        whole: The weight of each program.
    """

    rows: Array
    starts: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]
    parent: npt.NDArray[np.int64]
    root: npt.NDArray[np.bool_]
    leaf: npt.NDArray[np.bool_]
    times: Array
    work: Array
    weight: Array
    whole: Array

    def column(self, name: str) -> Array:
        found: Array = self.rows[:, _AT[name]]
        return found

    def buffers(self, name: str) -> Array:
        """A column of the buffers, of shape (nodes, `LOOP_BUFFERS`)."""
        found: Array = self.rows[:, [_AT[f"buffer {i}: {name}"] for i in range(LOOP_BUFFERS)]]
        return found

    def total(self, values: npt.NDArray[Any]) -> Array:
        """Sums over the nodes of each program."""
        return totals(self.owner, values.astype(np.float64), len(self.starts))

    def most(self, values: npt.NDArray[Any]) -> Array:
        """The greatest value of the nodes of each program, by column."""
        return np.asarray(np.maximum.reduceat(values, self.starts), dtype=np.float64)

    def share(self, values: npt.NDArray[Any]) -> Array:
        """The mean over the statements of each program, by their weight."""
        return np.asarray(self.total(self.weight * values) / np.maximum(self.whole, 1))


def _forest(rows: Floats, counts: npt.NDArray[np.int64]) -> _Forest:
    numbers = np.nan_to_num(rows.astype(np.float64))
    up = numbers[:, 0].astype(np.int64)
    owner = np.repeat(np.arange(len(counts)), counts)
    leaf = numbers[:, _AT["statement"]] > 0
    times = np.exp2(numbers[:, _AT["top-down"]] - numbers[:, _AT["length"]])
    work = np.exp2(numbers[:, _WORK]) - 1
    # One more, so that no statement weighs nothing.
    weight = times * leaf * (1 + work.sum(axis=1))
    return _Forest(
        rows=numbers,
        starts=np.cumsum(counts) - counts,
        owner=owner,
        parent=np.arange(len(rows)) - up,
        root=up == 0,
        leaf=leaf,
        times=times,
        work=work,
        weight=weight,
        whole=totals(owner, weight, len(counts)),
    )


def _log(values: Array) -> Array:
    return np.asarray(np.log2(1 + values))


def _program(forest: _Forest) -> dict[str, Array]:
    """Counts, work and what is run in parallel, in vectors and unrolled."""
    column = forest.column
    found = {
        "statements": _log(forest.total(forest.leaf)),
        "loops": _log(forest.total(~forest.leaf)),
        "roots": _log(forest.total(forest.root)),
        "level": forest.most(column("level")),
        "runs": _log(forest.total(forest.times * forest.leaf)),
        "weight": _log(forest.whole),
        "lanes and unrolled": forest.share(column("lanes") + column("unrolled around")),
        "unroll limit": forest.share(column("unroll limit")),
        "unroll explicit": forest.share(column("unroll explicit")),
        "guarded": forest.share(column("guards") > 0),
        "selecting": forest.share(column("select") > 0),
        "item bytes": forest.share(column("item bytes")),
        "partitioned": forest.most(column("partitioned")),
        "local bytes": forest.most(
            (forest.buffers("local") * forest.buffers("allocated bytes")).max(axis=1)
        ),
    }
    for name, work in zip(LOOP_WORK, forest.work.T, strict=True):
        found[name] = _log(forest.total(work * forest.root))
    around = {"threads": "threads", "lanes": "lanes", "unrolled": "unrolled around"}
    for what, name in around.items():
        found[f"{what}: log"] = forest.share(column(name))
        found[f"{what}: share"] = forest.share(column(name) > 0)
        found[f"{what}: most"] = forest.most(column(name))
    return found


def _innermost(forest: _Forest) -> dict[str, Array]:
    """The loops right around the statements by the statements' weight, and vectorised loops."""
    strides = forest.buffers("stride")
    around = forest.leaf & ~forest.root
    found = {}
    for name in ("length", "serial", "unrolled", "vectorised", "reduction"):
        value = forest.column(name)
        if name == "unrolled":
            value = np.maximum(value, forest.column("unrolled by the limit"))
        found[f"innermost: {name}"] = forest.share(around * value[forest.parent])
    for i in range(2):
        value = strides[forest.parent, i]
        found[f"innermost: stride of buffer {i}"] = forest.share(around * value)
    runs = forest.column("vectorised") * forest.times * np.exp2(forest.column("bottom-up"))
    whole = np.maximum(forest.total(runs), 1)
    # A stride of 1 is log2(1 + 1) = 1.
    seen = {
        "any stride 1": (strides == 1).any(axis=1).astype(np.float64),
        "any stride above 1": (strides > 1).any(axis=1).astype(np.float64),
        "stride": strides.max(axis=1),
    }
    for name, value in seen.items():
        found[f"vector loops: {name}"] = np.asarray(forest.total(runs * value) / whole)
    return found


def _caches(forest: _Forest) -> dict[str, Array]:
    """For several sizes of a cache: bytes moved, operations for each, statements that fit."""
    touched = forest.column("bytes")
    moved = forest.times * np.exp2(forest.column("lines") + _LINE)
    runs = forest.column("bottom-up") + forest.column("length")
    operations = forest.work[:, [LOOP_WORK.index(name) for name in _OPERATIONS]].sum(axis=1)
    amount = _log(forest.total(operations * forest.root))
    found = {}
    for size in CACHES:
        # What a statement touches is in registers.
        fits = (touched <= size) | forest.leaf
        largest = fits & (forest.root | ~fits[forest.parent])
        traffic = _log(forest.total(moved * largest))
        found[f"cache 2^{size}: moved"] = traffic
        found[f"cache 2^{size}: work"] = amount - traffic
        found[f"cache 2^{size}: fits"] = forest.most(runs * fits)
    return found


def _curves(forest: _Forest) -> list[Array]:
    """The relations of columns of the loops, for each place of a buffer: a column a threshold."""
    there = (forest.buffers("read") + forest.buffers("written") > 0) & ~forest.leaf[:, None]
    found = []
    for i in range(LOOP_BUFFERS):
        for of_name, by_name, thresholds in RELATION_CURVES:
            value, by = (
                forest.column(f"buffer {i}: {name}" if name in LOOP_BUFFER else name)
                for name in (of_name, by_name)
            )
            chosen = there[:, i, None] & (by[:, None] < np.array(thresholds))
            found.append(forest.most(np.where(chosen, value[:, None], 0.0)))
    return found
