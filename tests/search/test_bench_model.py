"""The bench of models: every figure is there, or the row says why not."""

from __future__ import annotations

import json

from rich.console import Console

from tensortune.data.workload import workload
from tensortune.search.bench_model import _RATES, _TIMES, bench_model


def test_every_figure_is_there() -> None:
    console = Console(record=True, width=200)
    small = [workload("matmul", 32, 32, 32)]
    found = bench_model(console, workloads=small, programs=64, least_s=0.01)
    json.dumps(found)
    for row in (found, *found["workloads"]):
        for name in (*_RATES, *_TIMES):
            if name == "xgb_fit_s_512":
                assert row[name] is None, "64 programs are too few for it"
            elif name != "treegru_per_s":
                assert row[name] > 0, name
        assert row["draft_per_s"] < min(row["draft_features_per_s"], row["draft_scores_per_s"])
        # A tree of loops is not scored where torch is not installed, and that is said.
        assert (row["treegru_per_s"] is None) == ("torch" in found["models"]["treegru"])
    assert [row["workload"] for row in found["workloads"]] == [item.key for item in small]
    assert "draft_per_s" in console.export_text()
