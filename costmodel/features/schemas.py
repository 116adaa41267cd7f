"""What the columns of the features that this library makes mean, without importing TVM.

A version is raised whenever a column of its features changes its meaning; model files of another
version are then refused.
"""

from __future__ import annotations

from ..base import FeatureSchema

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
