"""A batch holds legal candidates that were never tried, each program once."""

import threading

import numpy as np
import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.space import Scheduled
from tensortune.search.annealing import SimulatedAnnealing
from tensortune.search.base import Score, Trial
from tensortune.search.proposer import Proposer
from tensortune.search.random_search import RandomSearch

from ..contracts.strategies import Oracle, TinySpace, trials_of
from ..contracts.synthetic import SyntheticSpace

SPACE = SyntheticSpace()


def parity(scheduled: Scheduled) -> int:
    point = scheduled.candidate.point[0]
    assert isinstance(point, int)
    return point % 8


def test_no_candidate_is_proposed_twice() -> None:
    proposer = Proposer(SPACE, SimulatedAnnealing(SPACE, 1), scorer=Oracle(SPACE))
    seen = []
    for _ in range(4):
        batch = [scheduled.candidate for scheduled in proposer.propose(8)]
        assert len(batch) == 8
        proposer.tell(trials_of(batch))
        seen += batch
    assert len(set(seen)) == 32


def test_the_scorer_picks_from_the_drafts() -> None:
    batches = []
    for scorer in (None, Oracle(SPACE)):
        proposer = Proposer(SPACE, SimulatedAnnealing(SPACE, 1), scorer=scorer)
        for _ in range(2):
            batch = [scheduled.candidate for scheduled in proposer.propose(8)]
            proposer.tell(trials_of(batch))
        batches.append(np.median([SPACE.latency(candidate) for candidate in batch]))
    assert batches[1] < batches[0]


def test_an_informed_scorer_picks_the_first_batch_too() -> None:
    medians = []
    for informed in (False, True):
        proposer = Proposer(
            SPACE, RandomSearch(SPACE, 1), scorer=Oracle(SPACE), drafts=8, informed=informed
        )
        batch = [scheduled.candidate for scheduled in proposer.propose(8)]
        medians.append(np.median([SPACE.latency(candidate) for candidate in batch]))
    assert medians[1] < medians[0]


def test_what_misled_gets_the_batch_that_a_run_begins_with() -> None:
    """Drawn at random, and only the one after the first; what did not mislead goes on picking."""
    medians = []
    for misled in (False, True):
        scorer = Oracle(SPACE)
        scorer.misled = misled
        proposer = Proposer(SPACE, SimulatedAnnealing(SPACE, 1), scorer=scorer, informed=True)
        batches = []
        for _ in range(3):
            batch = [scheduled.candidate for scheduled in proposer.propose(16)]
            proposer.tell(trials_of(batch))
            batches.append(batch)
        assert [len(batch) for batch in batches] == [8, 16, 16]
        medians.append([np.median([SPACE.latency(c) for c in batch]) for batch in batches])
    assert medians[0][0] == medians[1][0]
    assert medians[1][1] > 2 * medians[0][1]
    assert medians[1][2] < medians[1][1] / 2


@pytest.mark.parametrize("drafts", [1, 3])
def test_a_program_is_tried_once_whatever_its_decisions(drafts: int) -> None:
    space = TinySpace(32)
    proposer = Proposer(
        space, RandomSearch(space, 1), scorer=Oracle(space), drafts=drafts, program=parity
    )
    found = []
    table = {record.candidate: record for record in space.table()}
    for _ in range(20):
        batch = proposer.propose(3)
        found += [parity(scheduled) for scheduled in batch]
        proposer.tell([Trial(one.candidate, table[one.candidate]) for one in batch])
    assert sorted(found) == list(range(8))


def test_what_a_strategy_does_not_find_in_a_small_space_is_drawn() -> None:
    """A walk goes in circles when most of a space was tried, and some words mean the same."""

    class Stuck(RandomSearch):
        def ask(self, n: int, score: Score) -> list[Candidate]:
            return [Candidate("tiny", (0,))]

    space = TinySpace(32)
    proposer = Proposer(space, Stuck(space, 1))
    table = {record.candidate: record for record in space.table()}
    found = []
    for _ in range(20):
        batch = [one.candidate for one in proposer.propose(4)]
        proposer.tell([Trial(candidate, table[candidate]) for candidate in batch])
        found += batch
    assert len(found) == len(set(found)) > 28


def test_what_is_replayed_in_threads_is_the_same() -> None:
    class Threads(SyntheticSpace):
        concurrent = True

        def __init__(self) -> None:
            super().__init__()
            self.seen: set[int] = set()

        def schedule(self, candidate: Candidate) -> Scheduled:
            self.seen.add(threading.get_ident())
            return super().schedule(candidate)

    runs = []
    for space in (SPACE, Threads()):
        proposer = Proposer(space, SimulatedAnnealing(space, 1), scorer=Oracle(space))
        batches = []
        for _ in range(3):
            batches.append([scheduled.candidate for scheduled in proposer.propose(8)])
            proposer.tell(trials_of(batches[-1]))
        runs.append((batches, proposer.invalid))
    assert runs[0] == runs[1]
    assert isinstance(space, Threads) and space.seen - {threading.get_ident()}
