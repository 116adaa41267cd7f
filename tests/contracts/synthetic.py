"""A schedule space without TVM: a matrix product's tiles, with a runtime that is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.record import Record
from tensortune.data.space import Scheduled

DECISIONS = ("tile_i", "tile_j", "tile_k", "vector", "unroll", "parallel")
EXTENTS = (8, 8, 5, 4, 4, 4)
_LARGEST_TILE = 14


class SyntheticSpace:
    """Six decisions, each an exponent, that interact as those of a real kernel do.

    It has what makes real spaces awkward: samples that are illegal (a tile too large for the
    cache), decisions that snap (two vectors of decisions are one schedule), schedules that
    crash when they run, and a runtime whose best tile depends on the other decisions.

    Args:
        shift: Moves the best tile, for a related workload; its latencies correlate with those
            of `shift=0`, the less so the larger it is.
    """

    name = "synthetic"

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift
        self.workload = f"synthetic shift={shift}"
        self.size = float(math.prod(EXTENTS))

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Uniform vectors of decisions; some are illegal, some not canonical."""
        return [_candidate(row) for row in rng.integers(0, EXTENTS, size=(n, len(EXTENTS)))]

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """As `sample`, which costs nothing here."""
        return self.sample(rng, n)

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        """One decision takes another of its values, uniformly."""
        moved = []
        for candidate in candidates:
            values = list(_decisions(candidate))
            which = int(rng.integers(len(EXTENTS)))
            step = int(rng.integers(1, EXTENTS[which]))
            values[which] = (values[which] + step) % EXTENTS[which]
            moved.append(_candidate(values))
        return moved

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        """Each decision from one parent or the other."""
        mask = rng.integers(0, 2, size=len(EXTENTS))
        return _candidate(np.where(mask, _decisions(a), _decisions(b)))

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        """The decisions themselves."""
        rows = [_decisions(candidate) for candidate in candidates]
        return np.array(rows, dtype=np.float32).reshape(len(rows), len(EXTENTS))

    def schedule(self, candidate: Candidate) -> Scheduled:
        """Check and snap; there is no module and no trace."""
        i, j, k, vector, unroll, parallel = _decisions(candidate)
        if i + j + k > _LARGEST_TILE:
            raise InvalidCandidate(f"a tile of 2**{i + j + k} does not fit the cache")
        vector = min(vector, j)  # a vector is no wider than its tile
        if parallel == 0:
            unroll -= unroll % 2
        return Scheduled(_candidate((i, j, k, vector, unroll, parallel)), None, None)

    def latency(self, candidate: Candidate) -> float:
        """Seconds that the candidate's schedule takes; infinity for one that crashes.

        Raises:
            InvalidCandidate: it is no legal schedule.
        """
        i, j, k, vector, unroll, parallel = _decisions(self.schedule(candidate).candidate)
        if k == EXTENTS[2] - 1 and parallel == EXTENTS[5] - 1:
            return math.inf
        log2 = (
            0.10 * (i - 4 + self.shift) ** 2
            + 0.06 * (j - 5) ** 2
            + 0.20 * abs(i + j - 8)  # the tile as a whole has a best size
            + 0.15 * abs(unroll - 1)
            - (0.5 if k >= 2 else 0.1) * vector  # vectors pay off in long inner loops only
            - 0.6 * min(parallel, 6 - i // 2)  # large tiles leave few to run in parallel
            + 0.05 * ((3 * i + 5 * j + 7 * k + unroll) % 4)  # rugged, as cache conflicts are
        )
        return float(1e-3 * 2.0**log2)

    def record(self, candidate: Candidate, repeats: Sequence[float] | None = None) -> Record:
        """The record of a legal candidate, timed without noise unless `repeats` are given."""
        canonical = self.schedule(candidate).candidate
        latency = self.latency(canonical)
        crashed = math.isinf(latency)
        return Record(
            workload=self.workload,
            identity=f"synthetic-{self.shift}",
            target="synthetic",
            candidate=canonical,
            repeats=() if crashed else tuple(repeats or (latency,)),
            failure="runtime" if crashed else None,
            detail="stack overflow" if crashed else "",
            host="synthetic-host",
        )

    def canonical(self) -> list[Candidate]:
        """Every legal schedule once, in the order of its decisions."""
        found = []
        for values in product(*map(range, EXTENTS)):
            candidate = _candidate(values)
            try:
                if self.schedule(candidate).candidate == candidate:
                    found.append(candidate)
            except InvalidCandidate:
                continue
        return found

    def table(self, noise: float = 0.0, repeats: int = 3, seed: int = 0) -> list[Record]:
        """A record of every legal schedule, for `ReplayMeasurer`.

        Args:
            noise: Standard deviation of the logarithm of each repeat.
            repeats: Repeats per record.
            seed: Seed of the noise.
        """
        rng = np.random.default_rng(seed)
        records = []
        for candidate in self.canonical():
            factors = np.exp(noise * rng.standard_normal(repeats))
            records.append(self.record(candidate, (self.latency(candidate) * factors).tolist()))
        return records


def _candidate(values: Sequence[int] | npt.NDArray[np.integer]) -> Candidate:
    return Candidate(SyntheticSpace.name, tuple(int(value) for value in values))


def _decisions(candidate: Candidate) -> tuple[int, ...]:
    values = tuple(value for value in candidate.point if isinstance(value, int))
    if candidate.space != SyntheticSpace.name:
        raise InvalidCandidate(f"a candidate of the space {candidate.space!r}")
    if len(values) != len(candidate.point) or len(values) != len(EXTENTS):
        raise InvalidCandidate(f"a point is {len(EXTENTS)} integers, not {candidate.point!r}")
    for decision, value, extent in zip(DECISIONS, values, EXTENTS, strict=True):
        if not 0 <= value < extent:
            raise InvalidCandidate(f"{decision} is from 0 to {extent - 1}, not {value}")
    return values
