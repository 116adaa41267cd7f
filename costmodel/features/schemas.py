"""What the columns of the features that this library makes mean, without importing TVM.

A version is raised whenever a column of its features changes its meaning; model files of another
version are then refused.
"""

from __future__ import annotations

from ..base import FeatureSchema

_ARITHMETIC = (
    *("float mad", "float add", "float mul", "float div", "float cmp", "float math", "float other"),
    *("int mad", "int add", "int mul", "int div", "int cmp", "int math", "int other"),
    *("bool", "select"),
)
_POSITIONS = (
    *("none", "inner spatial", "middle spatial", "outer spatial"),
    *("inner reduce", "middle reduce", "outer reduce", "mixed"),
)
_BUFFER = (
    *("read", "written", "read and written", "bytes", "unique bytes", "lines", "unique lines"),
    *("reuse by loop", "reuse in sequence", "no reuse", "reuse distance, iterations"),
    *("reuse distance, bytes", "reuse count", "bytes / reuse", "unique bytes / reuse"),
    *("lines / reuse", "unique lines / reuse", "stride"),
)


def statement_names() -> list[str]:
    """What each column of the statement features is, in order."""
    loops = [
        f"{kind}: {what}"
        for kind in ("vectorised", "unrolled", "parallel")
        for what in ("loops", "product", "length", *(f"at {place}" for place in _POSITIONS))
    ]
    gpu = [f"gpu {i}" for i in range(8)]
    buffers = [f"buffer {i}: {what}" for i in range(5) for what in _BUFFER]
    curve = [f"arithmetic intensity at {i}0%" for i in range(1, 11)]
    rest = [
        "allocated bytes",
        "allocations",
        "allocations, outer loops",
        "allocations, inner loops",
    ]
    scope = ["outer loops' product", "number of loops", "unroll limit"]
    return [*_ARITHMETIC, *loops, *gpu, *buffers, *curve, *rest, *scope]


LOOP_BUFFERS = 5  # buffers that a node of the loop tree tells of

LOOP_NODE = (
    *("rows up to the parent", "statement", "length", "level"),
    *("serial", "parallel", "vectorised", "unrolled", "other kind", "spatial", "reduction"),
    *("unroll limit", "unroll explicit", "unrolled by the limit", "partitioned"),
    *("top-down", "bottom-up", "statements", "threads", "lanes", "unrolled around"),
)
LOOP_WORK = (
    *("float add", "float mul", "float mad", "float div", "float math"),
    *("int add", "int mul", "int div", "compare", "select", "cast"),
    *("loads", "stores", "guards"),
)
LOOP_TOTALS = ("item bytes", "bytes", "lines")
LOOP_BUFFER = (
    *("read", "written", "touches", "unique", "reuse", "bytes", "lines"),
    *("stride", "stride 0", "stride 1", "allocated bytes", "local"),
)


def loop_names() -> list[str]:
    """What each column of the loop-tree features is, in order; `loops` says more."""
    buffers = [f"buffer {i}: {what}" for i in range(LOOP_BUFFERS) for what in LOOP_BUFFER]
    return [*LOOP_NODE, *LOOP_WORK, *LOOP_TOTALS, *buffers]


CACHES = (10, 12, 15, 18, 20, 22, 25)
"""Sizes of a cache that relation features look at: log2 of bytes."""

RELATION_CURVES = (
    ("reuse", "touches", (3, 5, 7, 9, 11, 14, 17, 20)),
    ("reuse", "bytes", (8, 10, 12, 15, 17, 20, 22, 25)),
    ("lines", "bottom-up", (2, 5, 8, 11, 14, 17, 20, 23)),
    ("stride", "touches", (3, 5, 7, 9, 11, 14, 17, 20)),
)
"""Pairs of loop columns (a buffer's where it has one of that name): the first one's greatest value
among the loops whose second one is below a power of two; and log2 of the thresholds."""

_OVER_STATEMENTS = ("log", "share", "most")
_RELATION_PROGRAM = (
    *("statements", "loops", "roots", "level", "runs", *LOOP_WORK, "weight"),
    *(f"{name}: {how}" for name in ("threads", "lanes", "unrolled") for how in _OVER_STATEMENTS),
    *("lanes and unrolled", "unroll limit", "unroll explicit", "guarded", "selecting"),
    *("item bytes", "partitioned", "local bytes"),
    *("vector loops: any stride 1", "vector loops: any stride above 1", "vector loops: stride"),
    *(f"innermost: {what}" for what in ("length", "serial", "unrolled", "vectorised", "reduction")),
    *("innermost: stride of buffer 0", "innermost: stride of buffer 1"),
)


CODEGEN_CACHES = (15, 20, 24)
"""Sizes of a cache that the model of what is compiled looks at: log2 of bytes."""

_CODEGEN_AMOUNTS = (
    *("arithmetic", "loads", "stores", "iterations", "vector operations", "cycles"),
)
CODEGEN_COLUMNS = (
    *(f"compiled: {name}" for name in _CODEGEN_AMOUNTS),
    *(f"compiled: {name} over the work" for name in _CODEGEN_AMOUNTS),
    *("compiled: longest", "compiled: copies", "compiled: guards", "compiled: lanes"),
    *("compiled: scalar", "compiled: gathered", "compiled: scattered", "compiled: along rows"),
    *("compiled: along rows only", "compiled: chained", "compiled: waiting", "compiled: results"),
    *("compiled: registers", "compiled: summed", "compiled: packed", "compiled: short loops"),
    *("compiled: short reductions", "compiled: machine loop", "compiled: machine loop sums"),
    *(f"compiled: moved into 2^{size}" for size in CODEGEN_CACHES),
    *("compiled: launches", "compiled: roofline", "compiled: estimate"),
    "compiled: estimate over the work",
)
"""What each column of what is compiled is; `codegen` says more."""

RELATION_SINGLE = (
    *_RELATION_PROGRAM,
    *(f"cache 2^{size}: {what}" for size in CACHES for what in ("moved", "work", "fits")),
    *CODEGEN_COLUMNS,
)
"""The relation features that are no curves."""


def relation_names() -> list[str]:
    """What each column of the relation features is, in order; `relations` says more."""
    curves = [
        f"buffer {i}: {of} where {by} < 2^{threshold}"
        for i in range(LOOP_BUFFERS)
        for of, by, thresholds in RELATION_CURVES
        for threshold in thresholds
    ]
    return [*RELATION_SINGLE, *curves]


GENERAL_CACHES = (15, 18, 20, 23)
"""Sizes of a cache that general decision features look at: log2 of bytes."""

GENERAL_SLOTS = 3  # blocks besides the main one whose place is told of

GENERAL_COLUMNS = (
    # The workload and its main block.
    *("loop space", "flops", "bytes", "flops / byte", "blocks", "spatial extent"),
    *("reduction extent", "spatial axes", "reduction axes", "reads", "item bytes"),
    *("native lanes", "threads", "written bytes"),
    # The main block's nest.
    *("tiled", "parallel", "balance", "work a task", "outer spatial", "outer reduction"),
    *("middle spatial", "inner reduction", "register tile", "largest factor", "second factor"),
    *("lanes", "lanes filled", "vectors", "rows", "accumulators", "vector stride 1"),
    *("vector stride 0", "vector other stride", "lanes of the contiguous axis"),
    *("loads a result", "loads a vector", "unroll limit", "unrolled", "body", "body over limit"),
    *("write cache", "write cache elements", "write cache over output", "waste", "factored"),
    *("task bytes", "first reduction bytes", "inner bytes", "register bytes"),
    *("run at the first reduction", "run in the registers"),
    *(f"cache 2^{c}: {what}" for c in GENERAL_CACHES for what in ("moved", "inside")),
    # The other blocks.
    *("places", "inlined", "at the root", "at a depth", "recomputed", "placed bytes"),
    *(
        f"block {slot}: {what}"
        for slot in range(GENERAL_SLOTS)
        for what in ("place", "place of partial results", "partial results", "factored loop")
    ),
)
"""What each column of the general decision features is; `general_columns` says more."""

STATEMENTS = FeatureSchema(name="statements", version=1, width=164)
LOOPS = FeatureSchema(name="loops", version=1, width=98)
RELATIONS = FeatureSchema(name="relations", version=2, width=len(relation_names()))
GENERAL = FeatureSchema(name="general", version=1, width=len(GENERAL_COLUMNS))
JOINT = FeatureSchema(
    name=f"{RELATIONS.name}+{GENERAL.name}",
    version=RELATIONS.version + GENERAL.version - 1,
    width=RELATIONS.width + GENERAL.width,
)
"""What a program's loops and its decisions say, in one row."""

# The versions that this library makes, by the features' name.
VERSIONS = {
    STATEMENTS.name: STATEMENTS.version,
    LOOPS.name: LOOPS.version,
    RELATIONS.name: RELATIONS.version,
    GENERAL.name: GENERAL.version,
    JOINT.name: JOINT.version,
    "decisions": 1,
}


def decisions(space: str, width: int) -> FeatureSchema:
    """The schema of decision features.

    Args:
        space: What the columns are of: the space, the workload and the target.
        width: Columns a row.
    """
    return FeatureSchema("decisions", VERSIONS["decisions"], width, space)
