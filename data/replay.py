"""Measurements played back from records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from .candidate import Candidate
from .record import OnRecord, Record
from .space import Space


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
