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


STATEMENTS = FeatureSchema(name="statements", version=1, width=164)

# The versions that this library makes, by the features' name.
VERSIONS = {STATEMENTS.name: STATEMENTS.version, "decisions": 1}


def decisions(space: str, width: int) -> FeatureSchema:
    """The schema of decision features.

    Args:
        space: What the columns are of: the space, the workload and the target.
        width: Columns a row.
    """
    return FeatureSchema("decisions", VERSIONS["decisions"], width, space)
