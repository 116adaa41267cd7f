"""Whom a policy is compared with: searches that begin from nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...data.candidate import Candidate, InvalidCandidate
from ...data.measure import LocalMeasurer
from ...data.record import Record
from ...data.space import Scheduled, Space
from ...data.spaces import NamedSpace
from ..base import Score
from ..beam import BeamSearch
from ..peers.metaschedule import TRIALS_PER_ITER, run_on_our_workers
from ..random_search import RandomSearch
from ..scoring import NoScorer
from ..tune import make_scorer
from .speed import Speed

# What the beam ends with: the best of these is its own.
_BEAM_ENDS = 32


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        mod: The program, or None where there is none.
        seconds: Wall-clock that it took.
        why: Why there is none.
    """

    mod: Any
    seconds: float
    why: str = ""


class RandomTrials:
    """Random candidates, measured one by one, so that a winner can be told for any time.

    Args:
        space: Where they are drawn.
        measurer: Measures them.
        n: How many.
        seconds: For this long they are measured one after the other, the first one in any case;
            then all that are left at once, compiled in parallel.
        seed: Seed of the draws.
    """

    def __init__(
        self, space: Space, measurer: LocalMeasurer, n: int, seconds: float, seed: int
    ) -> None:
        self.space = space
        began = time.monotonic()
        drawn = RandomSearch(space, seed).ask(n, lambda c: np.zeros(len(c)))
        measurer.best_s = float("inf")
        self.records: list[Record] = []
        self.done_s: list[float] = []
        while len(self.records) < len(drawn) and (
            not self.records or time.monotonic() - began < seconds
        ):
            self._take(measurer.measure(space, [drawn[len(self.records)]]), began)
        if len(self.records) < len(drawn):
            self._take(measurer.measure(space, drawn[len(self.records) :]), began)

    def _take(self, records: Sequence[Record], began: float) -> None:
        self.records += records
        self.done_s += [time.monotonic() - began] * len(records)

    def best(self, seconds: float | None = None) -> Found:
        """The fastest of those that were measured within some time, the first one at least."""
        done = self.done_s
        count = len(done) if seconds is None else max(1, sum(s <= seconds for s in done))
        took = done[min(count, len(done)) - 1] if done else 0.0
        return fastest(self.space, self.records[:count], took)


def fastest(space: Space, records: Sequence[Record], seconds: float) -> Found:
    """The program of the fastest of some records."""
    valid = [record for record in records if record.valid]
    if not valid:
        return Found(None, seconds, "none of its candidates ran")
    best = min(valid, key=lambda record: record.latency_s)
    return Found(space.schedule(best.candidate).mod, seconds)


def search_beam(space: NamedSpace, speed: Speed | None, seed: int) -> tuple[list[Candidate], float]:
    """What a beam search ends with, the best first, and how long it took.

    Args:
        space: Where it searches.
        speed: What it follows; None for the package's pretrained cost model.
        seed: Seed of its draws.
    """
    began = time.monotonic()
    if speed is None:
        scorer = make_scorer("beam", "pretrained", space, seed) or NoScorer()
        scheduled = _legal(space, BeamSearch(space, seed).ask(_BEAM_ENDS, scorer.draft))
        values = scorer.verify(scheduled)
    else:
        score = _following(space, speed)
        scheduled = _legal(space, BeamSearch(space, seed).ask(_BEAM_ENDS, score))
        values = score([one.candidate for one in scheduled])
    ranked = np.argsort(-values, kind="stable").tolist()
    return [scheduled[i].candidate for i in ranked], time.monotonic() - began


def _legal(space: Space, candidates: Sequence[Candidate]) -> list[Scheduled]:
    """The programs of those candidates that have one."""
    found = []
    for candidate in candidates:
        with suppress(InvalidCandidate):
            found.append(space.schedule(candidate))
    return found


def _following(space: NamedSpace, speed: Speed) -> Score:
    def score(candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
        return speed([(space, candidate) for candidate in candidates])

    return score


def search_metaschedule(measurer: LocalMeasurer, trials: int, seed: int) -> Found:
    """MetaSchedule's search and cost model, measured by workers of ours."""
    began = time.monotonic()
    per_iter = min(trials, TRIALS_PER_ITER)
    outcome = run_on_our_workers(measurer.workload, measurer.target, trials, seed, per_iter)
    why = "" if outcome.mod is not None else "none of its candidates ran"
    return Found(outcome.mod, time.monotonic() - began, why)
