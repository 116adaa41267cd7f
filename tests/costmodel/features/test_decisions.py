from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from tensortune.costmodel.features import decisions
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.candidate import Candidate


class Grid:
    """As much of a space as is encoded."""

    name = "grid"

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        points = [candidate.point for candidate in candidates]
        return np.array(points, dtype=np.float32).reshape(len(points), 2)


CANDIDATES = [Candidate("grid", (i, j)) for i in range(4) for j in range(3)]


def test_a_row_a_candidate() -> None:
    samples = decisions.samples(Grid(), "abc", CANDIDATES, range(1, 13))  # type: ignore[arg-type]
    assert np.array_equal(samples.rows, Grid().encode(CANDIDATES))
    assert samples.counts.tolist() == [1] * 12
    assert samples.latency_s.tolist() == list(range(1, 13))
    assert np.isnan(decisions.samples(Grid(), "abc", CANDIDATES).latency_s).all()  # type: ignore[arg-type]


def test_no_candidates() -> None:
    samples = decisions.samples(Grid(), "abc", [])  # type: ignore[arg-type]
    assert len(samples) == 0
    assert samples.schema.width == 2


def test_a_model_of_another_workload_is_refused() -> None:
    model = XGBModel(rounds=2)
    model.fit(decisions.samples(Grid(), "abc", CANDIDATES, range(1, 13)))  # type: ignore[arg-type]
    model.predict(decisions.samples(Grid(), "abc", CANDIDATES))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"grid/abc.*grid/def"):
        model.predict(decisions.samples(Grid(), "def", CANDIDATES))  # type: ignore[arg-type]


def test_decisions_do_without_tvm() -> None:
    code = (
        "import sys\n"
        "from tensortune.costmodel.features import decisions\n"
        "from tensortune.costmodel.xgb import XGBModel\n"
        "sys.exit('tvm' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
