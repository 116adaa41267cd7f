"""Relation features: a program's loop features in one row, however many loops it has.

The curves are AutoTVM's context relation features (Chen et al., "Learning to Optimize Tensor
Programs", NeurIPS 2018, section 4): of two columns i and j of the loops, the greatest value of i
among the loops whose j is less than a threshold, for thresholds that are powers of two. They say,
for example, how often elements of a buffer are used again by the loops that fit the L1 cache.

The other columns are of the whole program, statements weighted by how often they run: work, how
much of it is vectorised and unrolled, and for several sizes of a cache how many bytes of cache
lines have to be moved into it: the largest subtrees that fit load what they touch every time they
run. Sums are log2(1 + n) again, and shares lie between 0 and 1. What a compiler makes of the
innermost loops is in `codegen`.

A program that has no loop features (NaN) has no relation features either.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..base import Floats, Samples
from .codegen import codegen
from .loops_forest import LINE, Array, Forest, forest_of
from .schemas import (
    CACHES,
    LOOP_BUFFER,
    LOOP_BUFFERS,
    LOOP_WORK,
    LOOPS,
    RELATION_CURVES,
    RELATION_SINGLE,
    RELATIONS,
)

_OPERATIONS = tuple(name for name in LOOP_WORK if name.startswith(("float", "int")))


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
    forest = forest_of(rows, counts)
    columns = _program(forest) | _innermost(forest) | _caches(forest) | codegen(forest)
    single = np.column_stack([columns[name] for name in RELATION_SINGLE])
    made = np.concatenate([single, *_curves(forest)], axis=1).astype(np.float32)
    made[np.isnan(rows[:, 0])[np.cumsum(counts) - counts]] = np.nan
    return made


def _log(values: Array) -> Array:
    return np.asarray(np.log2(1 + values))


def _program(forest: Forest) -> dict[str, Array]:
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


def _innermost(forest: Forest) -> dict[str, Array]:
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


def _caches(forest: Forest) -> dict[str, Array]:
    """For several sizes of a cache: bytes moved, operations for each, statements that fit."""
    touched = forest.column("bytes")
    moved = forest.times * np.exp2(forest.column("lines") + LINE)
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


def _curves(forest: Forest) -> list[Array]:
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
