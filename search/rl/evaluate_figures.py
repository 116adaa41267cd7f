"""The figures of an evaluation: ratios of one shape, and geometric means over shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from ..progress import format_seconds

SPEEDS = {
    "speed_vs_untuned": "untuned",
    "speed_vs_numpy": "numpy",
    "speed_vs_metaschedule": "metaschedule",
    "speed_vs_random": "random",
    "speed_vs_random_all": "random_all",
    "speed_vs_beam": "beam",
}
"""The ratios, and whose latency is divided by the policy's."""

SECONDS = "seconds_per_shape"

MEASURED = "_measured"
"""What is added to a label for the winner of a few measurements."""

_RESAMPLES = 4000


def ratios(latency_s: Mapping[str, float], seconds: float, measured: bool) -> dict[str, Any]:
    """The figures of one shape: None where a rival has no right program.

    Args:
        latency_s: Seconds per run by label, in one interleaved timing.
        seconds: How long the policy took from the shape to a compiled program.
        measured: Whether the policy's choice of a few measurements is meant, and the rivals' of as
            many, or as long.
    """
    own = latency_s.get("policy" + MEASURED * measured)
    found: dict[str, Any] = {}
    for name, rival in SPEEDS.items():
        label = rival + MEASURED if measured and rival + MEASURED in latency_s else rival
        other = latency_s.get(label)
        found[name] = None if own is None or other is None else other / own
    return found | {SECONDS: seconds}


def geomean(shapes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric means over shapes, each with its 95% interval beside it as `<name>_ci95`.

    The intervals are bootstrapped over the shapes: they say how far other shapes of their kind may
    be off. A shape without a figure is left out of its mean; there is no interval of one shape.
    """
    found: dict[str, Any] = {}
    for name in (*SPEEDS, SECONDS):
        logs = np.array([math.log(s[name]) for s in shapes if s.get(name)])
        found[name] = float(np.exp(logs.mean())) if len(logs) else None
        found[f"{name}_ci95"] = None
        if len(logs) > 1:
            picks = np.random.default_rng(0).integers(len(logs), size=(_RESAMPLES, len(logs)))
            low, high = np.quantile(logs[picks].mean(axis=1), [0.025, 0.975])
            found[f"{name}_ci95"] = [float(np.exp(low)), float(np.exp(high))]
    return found


def tables(result: Mapping[str, Any]) -> list[Table]:
    """The result as tables: one of the shapes, one of the means."""
    columns = ("shape", "policy", "GFLOP/s", "seconds", *(f"vs {r}" for r in SPEEDS.values()))
    shapes = Table(*columns, box=None, pad_edge=False)
    for shape in result["shapes"]:
        if shape.get("error"):
            continue
        label = "policy" + MEASURED * (result["settings"]["measurements"] > 0)
        latency = shape["latency_s"][label]
        speeds = [_figure(shape[name]) for name in SPEEDS]
        rate = f"{shape['flops'] / latency / 1e9:.1f}" if shape["flops"] else "-"
        row = (shape["workload"], format_seconds(latency), rate, _figure(shape[SECONDS]))
        shapes.add_row(*row, *speeds)
    means = Table("geometric mean", "", "95% interval", box=None, pad_edge=False)
    blocks = {"": result["geomean"], ", unmeasured": result.get("geomean_unmeasured", {})}
    for note, block in blocks.items():
        for name in (*SPEEDS, SECONDS):
            if name in block:
                ci = block[f"{name}_ci95"]
                interval = "-" if ci is None else f"{ci[0]:.3f} .. {ci[1]:.3f}"
                means.add_row(name + note, _figure(block[name]), interval)
    return [shapes, means]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
