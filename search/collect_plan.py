"""What a collection measures next, from what it holds already.

There is no queue to lose: the plan is a function of the settings and of the records that are
stored, so a collection that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..data.candidate import Candidate
from ..data.record import Record
from ..data.spaces import SPACES
from ..data.workload import Workload
from .random_search import RandomSearch

AGAIN = "again"
"""The strategy that records of a second measurement carry; they are no part of the plan."""

# Records of a workload in one turn, and the fewest that there is a turn for after the first: to
# begin one takes as long as some ten records.
TURN = 40
LEAST = 20

LEAST_AGAIN = 6
"""Programs of a workload that are measured a second time at least: how well two measurements agree
shows in pairs, and a workload with none would count as one without noise."""


@dataclass(frozen=True)
class CollectSettings:
    """What makes two collections the same.

    Attributes:
        suite: Name of the suite.
        spaces: Which spaces the records are of: `sketch`, `loop`.
        loop_share: Share of the records that is of the loop space, where there are both.
        guided_share: Share of the records that a model guides; the others are random.
        seed: Seed of all draws.

    Raises:
        ValueError: there is no such space, or a share is not from 0 to 1.
    """

    suite: str
    spaces: tuple[str, ...] = tuple(SPACES)
    loop_share: float = 0.2
    guided_share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [space for space in self.spaces if space not in SPACES]
        if unknown or not self.spaces or len(set(self.spaces)) < len(self.spaces):
            raise ValueError(
                f"the spaces are {' and '.join(SPACES)}, each at most once, "
                f"not `{','.join(self.spaces)}`"
            )
        for name in ("loop_share", "guided_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")

    def shares(self) -> dict[str, float]:
        """The share of each space that gets any."""
        if len(self.spaces) == 1:
            return {self.spaces[0]: 1.0}
        shares = {"sketch": 1.0 - self.loop_share, "loop": self.loop_share}
        return {space: shares[space] for space in self.spaces if shares[space] > 0}


@dataclass
class Stream:
    """One workload's records of one space.

    Attributes:
        workload: The workload.
        space: Name of the space.
        share: Share of the workload's records.
        cap: How many there can be, as far as is known.
        random: Candidates held that were drawn at random.
        guided: Candidates held that a model guided.
    """

    workload: Workload
    space: str
    share: float
    cap: float = math.inf
    random: int = 0
    guided: int = 0

    @property
    def held(self) -> int:
        """Candidates held."""
        return self.random + self.guided

    def goal(self, level: int) -> int:
        """How many candidates it is to hold when a workload has `level`; never fewer than now."""
        return max(self.held, int(min(self.cap, math.ceil(self.share * level))))

    def wanted(self, level: int, guided_share: float, most: int) -> tuple[int, int]:
        """How many random and how many guided candidates to measure now, `most` in all.

        Random ones come first: a model has to have something to learn from.
        """
        goal = self.goal(level)
        missing = min(goal - self.held, most)
        random = goal - int(goal * guided_share) - self.random
        random = min(missing, max(0, random))
        return random, missing - random


@dataclass
class Plan:
    """All streams of a collection, and how many records it is to have.

    Attributes:
        streams: By workload and space, in the order in which workloads have their turns.
        samples: Records wanted in all.
        guided_share: Share of them that a model guides.
    """

    streams: dict[tuple[str, str], Stream]
    samples: int
    guided_share: float

    @classmethod
    def of(cls, suite: Sequence[Workload], settings: CollectSettings, samples: int) -> Plan:
        """The plan of an empty collection.

        Workloads are in an order of their own, so that the first turns are of all operators.
        """
        order = sorted(suite, key=lambda workload: _digest(settings.seed, workload.key))
        streams = {
            (workload.key, space): Stream(workload, space, share)
            for workload in order
            for space, share in settings.shares().items()
        }
        return cls(streams, samples, settings.guided_share)

    @property
    def workloads(self) -> list[Workload]:
        """The workloads, in the order of their turns."""
        return list(dict.fromkeys(stream.workload for stream in self.streams.values()))

    @property
    def held(self) -> int:
        """Candidates held in all."""
        return sum(stream.held for stream in self.streams.values())

    def count(self, records: Iterable[Record]) -> None:
        """Count a workload's stored records: every candidate once, and no second measurement."""
        seen: set[Candidate] = set()
        for record in records:
            stream = self.streams.get((record.workload, record.candidate.space))
            if stream is None or record.strategy == AGAIN or record.candidate in seen:
                continue
            seen.add(record.candidate)
            if record.strategy == RandomSearch.name:
                stream.random += 1
            else:
                stream.guided += 1

    def of_workload(self, workload: Workload) -> list[Stream]:
        """The streams of one workload."""
        return [stream for stream in self.streams.values() if stream.workload == workload]

    def give_up(self, workload: Workload, records: Iterable[Record]) -> None:
        """Expect no more of a workload than the records that are stored."""
        for stream in self.of_workload(workload):
            stream.random = stream.guided = 0
        self.count(records)
        for stream in self.of_workload(workload):
            stream.cap = stream.held

    def turns(self) -> Iterator[tuple[int, int, Workload]]:
        """Whose turn it is: the round, the level to bring it to, and the workload.

        The caller counts what it measures in the streams, and lowers the cap of one that has no
        more to give; the others then get what it leaves.
        """
        level, number = 0, 0
        while self.held < self.samples:
            final = self._final_level()
            if level >= final:
                return  # no stream has any more to give
            step = math.ceil((final - level) / max(1, round((final - level) / TURN)))
            level += max(step, LEAST if level else 1)
            number += 1
            for workload in self.workloads:
                if self.held >= self.samples:
                    return
                streams = self.of_workload(workload)
                if any(stream.goal(level) > stream.held for stream in streams):
                    yield number, level, workload

    def _final_level(self) -> int:
        """The lowest level at which there are as many records as wanted, or as there can be."""
        streams = list(self.streams.values())

        def total(level: int) -> int:
            return sum(stream.goal(level) for stream in streams)

        most = math.ceil(self.samples / min((s.share for s in streams), default=1.0))
        return bisect_left(range(most), min(self.samples, total(most)), key=total)


def session_seed(settings: CollectSettings, stream: Stream) -> int:
    """The seed of a stream's next draws."""
    text = f"{stream.workload.key} {stream.space} {stream.held}"
    return int(_digest(settings.seed, text)[:8], 16) >> 1  # 31 bits, which XGBoost takes


def second_sample(records: Sequence[Record], share: float, seed: int) -> list[Candidate]:
    """The candidates of a workload that are still to be measured a second time.

    At least the share of those with a timing, and at least `LEAST_AGAIN`, drawn at random. A larger
    share holds a smaller one.
    """
    done = {record.candidate for record in records if record.strategy == AGAIN}
    timed = {record.candidate for record in records if record.valid and record.strategy != AGAIN}
    drawn = sorted(timed, key=lambda candidate: _digest(seed, str(candidate.to_json())))
    # A product of floats may be above the integer that it stands for.
    chosen = drawn[: max(LEAST_AGAIN, math.ceil(share * len(drawn) - 1e-9))]
    return [candidate for candidate in chosen if candidate not in done]


def _digest(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed} {text}".encode()).hexdigest()
