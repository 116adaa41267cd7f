"""Measurements played back from records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from .candidate import Candidate, InvalidCandidate
from .record import OnRecord, Record
from .space import Scheduled, Space


class UnknownCandidate(LookupError):
    """A candidate that the replayed records do not hold."""


class ReplayMeasurer:
    """A measurer that looks results up instead of running anything.

    Candidates are looked up as they are given: hand in canonical ones, as records hold them.

    A candidate with several records gets one answer, the same each time. It is `wrong` if it was
    ever found wrong, since that check comes after timing. Otherwise its timings are pooled into
    one record's repeats (the cut ones only where there is no other), and a failure beside a
    timing is passed over. All else in the answer is that of the first record that counts.

    Args:
        records: Records of one workload on one target and host. Others may hold equal candidates
            that mean other schedules.
        missing: What a candidate without a record gets: a record of an `invalid` failure, or an
            `UnknownCandidate` error, for a table that is meant to be complete.

    Raises:
        ValueError: there are no records, or they are not of one workload, target and host.
    """

    def __init__(
        self, records: Iterable[Record], missing: Literal["invalid", "error"] = "invalid"
    ) -> None:
        if missing not in ("invalid", "error"):
            raise ValueError(f"`missing` is 'invalid' or 'error', not {missing!r}")
        groups: dict[Candidate, list[Record]] = {}
        origins = set()
        for record in records:
            groups.setdefault(record.candidate, []).append(record)
            origins.add((record.workload, record.identity, record.target, record.host))
        if len(origins) != 1:
            raise ValueError(
                "a replay needs records of exactly one workload, target and host, "
                f"and these are of {len(origins)}"
            )
        self.missing = missing
        self._answers = {candidate: _answer(group) for candidate, group in groups.items()}
        self._workload, self._identity, self._target, self._host = origins.pop()

    def candidates(self) -> list[Candidate]:
        """Every candidate that has a record, in the order of the records."""
        return list(self._answers)

    def measure(
        self, space: Space, candidates: Sequence[Candidate], on_record: OnRecord | None = None
    ) -> list[Record]:
        """See `Measurer.measure`.

        Raises:
            UnknownCandidate: one has no record, and `missing` is `error`.
        """
        records = []
        for candidate in candidates:
            records.append(self._answers.get(candidate) or self._unknown(candidate))
            if on_record is not None:
                on_record(records[-1])
        return records

    def _unknown(self, candidate: Candidate) -> Record:
        why = "the replayed records do not hold this candidate"
        if self.missing == "error":
            raise UnknownCandidate(f"{why}: {candidate}")
        return Record(
            workload=self._workload,
            identity=self._identity,
            target=self._target,
            host=self._host,
            candidate=candidate,
            failure="invalid",
            detail=why,
        )


def _answer(records: list[Record]) -> Record:
    for record in records:
        if record.failure == "wrong":
            return record
    valid = [record for record in records if record.valid]
    timed = [record for record in valid if not record.cut] or valid
    if not timed:
        return records[0]
    return replace(timed[0], repeats=tuple(s for record in timed for s in record.repeats))


# How many of the nearest stored candidates are a candidate's neighbours.
_NEIGHBOURS = 24


class ReplaySpace:
    """A space cut down to the candidates that have records, so that a search can be replayed.

    A search over the whole space would propose what was never measured. Here `sample` draws from
    the records, and a neighbour is one of the nearest stored candidates, by the distance of their
    decision features, each column scaled to unit spread.

    Args:
        space: The space that the records are of.
        records: Records of canonical candidates.
    """

    def __init__(self, space: Space, records: Iterable[Record]) -> None:
        self.inner = space
        self.name = space.name
        self.candidates = list(dict.fromkeys(record.candidate for record in records))
        features = np.nan_to_num(space.encode(self.candidates), nan=-8.0).astype(np.float64)
        self._scale = np.maximum(features.std(axis=0), 1e-9)
        self._tree = KDTree(features / self._scale)
        self._index = {candidate: i for i, candidate in enumerate(self.candidates)}
        count = min(_NEIGHBOURS + 1, len(self.candidates))
        nearest = self._tree.query(features / self._scale, count)[1]
        self._nearest = nearest.reshape(len(self.candidates), count)[:, 1:]

    @property
    def size(self) -> float:
        """How many candidates are stored."""
        return len(self.candidates)

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Draw stored candidates."""
        return [self.candidates[i] for i in rng.integers(len(self.candidates), size=n)]

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Draw stored candidates, as `sample` does."""
        return self.sample(rng, n)

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        """For each candidate one of the nearest stored ones."""
        rows = np.array([self._index[candidate] for candidate in candidates])
        if self._nearest.shape[1] == 0:
            return list(candidates)
        picks = rng.integers(self._nearest.shape[1], size=len(rows))
        return [self.candidates[i] for i in self._nearest[rows, picks]]

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        """The stored candidate that is nearest to a crossover."""
        mixed = self.inner.crossover(a, b, rng)
        row = np.nan_to_num(self.inner.encode([mixed])[0], nan=-8.0) / self._scale
        return self.candidates[int(self._tree.query(row)[1])]

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        """The space's own decision features."""
        return self.inner.encode(candidates)

    def schedule(self, candidate: Candidate) -> Scheduled:
        """The space's own schedule.

        Raises:
            InvalidCandidate: it is no stored candidate.
        """
        if candidate not in self._index:
            raise InvalidCandidate("the replayed records do not hold this candidate")
        return self.inner.schedule(candidate)
