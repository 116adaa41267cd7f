"""What one run of one tuner on one workload came to, in a form that every tuner can give."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil


def process_age() -> float:
    """Seconds since this process was started, the start of Python among them."""
    return time.time() - psutil.Process().create_time()


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        mod: The winner's scheduled module, or None when nothing valid was found.
        latencies_s: Seconds per run of every trial, in order; infinity for a failure.
        elapsed_s: When each trial was done, in seconds since the run began; None where the tuner
            does not tell.
        failures: Failures by kind.
        seconds: Where the time went, as far as the tuner tells.
        library: The winner, compiled, where the tuner is of another TVM and has no module of ours.
        packed: The same kernel without the conversions of layouts that it needs, if it needs any.
        about: What else is to be told of the tuner: its versions, its template.
        reason: Why there is no winner.
        start_s: How long the process had run when `elapsed_s` began; None where that is not told.
    """

    mod: Any
    latencies_s: list[float]
    elapsed_s: list[float | None]
    failures: Mapping[str, int]
    seconds: Mapping[str, float]
    library: Path | None = None
    packed: Path | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    start_s: float | None = None

    def curve(self) -> list[tuple[int, float | None, float | None]]:
        """Best so far: `(trials, elapsed_s, best_s)`; None for a best before the first success."""
        best = accumulate(self.latencies_s, min)
        return [
            (trial, seconds, None if latency == float("inf") else latency)
            for trial, (seconds, latency) in enumerate(
                zip(self.elapsed_s, best, strict=True), start=1
            )
        ]
