"""The loop: budget, resuming, reproducing, and never a wrong winner."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.record import OnRecord, Record
from tensortune.data.replay import ReplayMeasurer
from tensortune.data.space import Space
from tensortune.data.store import Store
from tensortune.search.random_search import RandomSearch
from tensortune.search.tuner import Budget, Tuner

from ..contracts.synthetic import SyntheticSpace


class Stop(Exception):
    """Stands for a kill in the midst of a batch."""


class Dying:
    """A measurer that dies after so many measurements."""

    def __init__(self, inner: ReplayMeasurer, life: int) -> None:
        self.inner = inner
        self.life = life

    def measure(
        self, space: Space, candidates: Sequence[Candidate], on_record: OnRecord | None = None
    ) -> list[Record]:
        records = []
        for candidate in candidates:
            if self.life == 0:
                raise Stop
            self.life -= 1
            records += self.inner.measure(space, [candidate], on_record)
        return records


@pytest.fixture(scope="module")
def space() -> SyntheticSpace:
    return SyntheticSpace()


@pytest.fixture(scope="module")
def replay(space: SyntheticSpace) -> ReplayMeasurer:
    return ReplayMeasurer(space.table())


def run(
    space: SyntheticSpace,
    measurer: object,
    store: Store | None = None,
    *,
    trials: int = 64,
    seed: int = 0,
    stored: Sequence[Record] = (),
    batch: int = 16,
) -> list[Record]:
    tuner = Tuner(
        space,
        RandomSearch(space, seed),
        measurer,  # type: ignore[arg-type]
        store,
        Budget(trials),
        batch=batch,
        stored=stored,
    )
    return tuner.run()


@pytest.mark.parametrize("trials", [1, 16, 17, 64, 100])
def test_the_budget_is_spent_exactly(
    space: SyntheticSpace, replay: ReplayMeasurer, trials: int
) -> None:
    records = run(space, replay, trials=trials)
    assert len(records) == trials
    assert len({record.candidate for record in records}) == trials


def test_nothing_is_measured_before_all_is_ready(
    space: SyntheticSpace, replay: ReplayMeasurer
) -> None:
    events: list[str] = []
    tuner = Tuner(
        space,
        RandomSearch(space, 0),
        replay,
        None,
        Budget(8),
        on_status=lambda _: events.append("measured"),
        ready=lambda: events.append("ready"),
    )
    tuner.run()
    assert events == ["ready", *["measured"] * 8]


@pytest.mark.parametrize("life", [0, 1, 5, 16, 23, 40, 63])
def test_a_killed_run_resumes_as_if_it_had_not_been(
    space: SyntheticSpace, replay: ReplayMeasurer, tmp_path: Path, life: int
) -> None:
    whole = [record.candidate for record in run(space, replay)]
    store = Store(tmp_path / "records.jsonl")
    with pytest.raises(Stop):
        run(space, Dying(replay, life), store)
    stored = store.read().records
    assert len(stored) == life
    counting = Dying(replay, 64 - life)
    records = run(space, counting, store, stored=stored)
    assert counting.life == 0, "nothing is measured twice"
    assert [record.candidate for record in records] == whole
    assert len(store.read().records) == 64


def test_a_resumed_run_with_other_settings_counts_what_is_there(
    space: SyntheticSpace, replay: ReplayMeasurer
) -> None:
    stored = run(space, replay, trials=40)
    records = run(space, replay, stored=stored, seed=7, batch=10)
    assert len(records) == 64
    assert len({record.candidate for record in records}) == 64
    assert {record.candidate for record in stored} <= {record.candidate for record in records}


def test_a_smaller_budget_than_stored_measures_nothing(
    space: SyntheticSpace, replay: ReplayMeasurer
) -> None:
    stored = run(space, replay, trials=40)
    records = run(space, Dying(replay, 0), stored=stored, trials=20)
    assert {record.candidate for record in records} == {record.candidate for record in stored}


_PROPOSALS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from synthetic import SyntheticSpace
from tensortune.data.replay import ReplayMeasurer
from tensortune.search.random_search import RandomSearch
from tensortune.search.tuner import Budget, Tuner
space = SyntheticSpace()
tuner = Tuner(space, RandomSearch(space, int(sys.argv[2])), ReplayMeasurer(space.table()), None,
              Budget(48))
print(json.dumps([record.candidate.to_json() for record in tuner.run()]))
"""


def test_one_seed_gives_one_run_in_every_process() -> None:
    folder = str(Path(__file__).parents[1] / "contracts")

    def proposals(seed: int) -> list[object]:
        done = subprocess.run(
            [sys.executable, "-c", _PROPOSALS, folder, str(seed)],
            capture_output=True,
            text=True,
            check=True,
        )
        return list(json.loads(done.stdout))

    assert proposals(3) == proposals(3)
    assert proposals(3) != proposals(4)


@pytest.mark.parametrize(("trials", "seconds"), [(0, None), (-1, None), (5, 0.0), (5, -1.0)])
def test_a_budget_that_cannot_be_is_refused(trials: int, seconds: float | None) -> None:
    with pytest.raises(ValueError, match=r"at least 1|above 0"):
        Budget(trials, seconds)
