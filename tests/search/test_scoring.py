"""Both models learn online; resuming trains them again to the same state."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.record import OnRecord, Record
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.space import Space
from tensortune.data.store import Store
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload
from tensortune.search.annealing import SimulatedAnnealing
from tensortune.search.base import Trial
from tensortune.search.learned_scorer import LearnedScorer
from tensortune.search.scoring import NoScorer
from tensortune.search.tuner import Budget, Tuner


class Stop(Exception):
    """Stands for a kill in the midst of a batch."""


class Formula:
    """A measurer whose latency is a function of the decisions, so that runs can be compared.

    Every seventh candidate, by its hash of decisions, fails.
    """

    def __init__(self, life: int = 10**9) -> None:
        self.life = life

    def measure(
        self, space: Space, candidates: Sequence[Candidate], on_record: OnRecord | None = None
    ) -> list[Record]:
        records = []
        for candidate in candidates:
            if self.life == 0:
                raise Stop
            self.life -= 1
            records.append(record_of(space, candidate))
            if on_record is not None:
                on_record(records[-1])
        return records


def record_of(space: Space, candidate: Candidate) -> Record:
    row = np.nan_to_num(space.encode([candidate])[0])
    fails = int(row.sum() * 8) % 7 == 0
    weights = np.linspace(-0.2, 0.3, len(row))
    return Record(
        workload="w",
        identity="i",
        target="t",
        candidate=candidate,
        repeats=() if fails else (1e-3 * float(np.exp(row @ weights)),),
        failure="runtime" if fails else None,
    )


@pytest.fixture(scope="module")
def space() -> SketchSpace:
    return SketchSpace(workload("matmul", 64, 64, 64), cpu_target("llvm -num-cores=1"))


def tuner(
    space: SketchSpace, measurer: Formula, store: Store | None = None, stored: Sequence[Record] = ()
) -> Tuner:
    return Tuner(
        space,
        SimulatedAnnealing(space, 3),
        measurer,
        store,
        Budget(48),
        scorer=LearnedScorer(space, space.workload.identity, space.target, seed=3),
        batch=12,
        seed=3,
        stored=stored,
    )


def ranks_right(scores: np.ndarray, latency_s: Sequence[float]) -> float:
    """Share of pairs that the scores put in the right order."""
    speeds = -np.log(np.asarray(latency_s))
    upper = np.triu_indices(len(speeds), 1)
    return float(
        np.mean(
            np.sign(np.subtract.outer(scores, scores)[upper])
            == np.sign(np.subtract.outer(speeds, speeds)[upper])
        )
    )


def test_both_models_learn_to_rank(space: SketchSpace) -> None:
    rng = np.random.default_rng(0)
    candidates = list(dict.fromkeys(space.sample(rng, 160)))
    records = [record_of(space, candidate) for candidate in candidates]
    scorer = LearnedScorer(space, space.workload.identity, space.target)
    assert np.ptp(scorer.draft(candidates)) == 0, "equal scores before the first trial"
    scorer.learn([Trial(r.candidate, r) for r in records[:100]])
    held_out = [r for r in records[100:] if r.valid]
    names = [r.candidate for r in held_out]
    latencies = [r.latency_s for r in held_out]
    # 0.5 is chance, and its standard deviation over some 45 candidates' pairs is below 0.05.
    assert ranks_right(scorer.draft(names), latencies) > 0.75
    verified = scorer.verify([space.schedule(candidate) for candidate in names])
    assert ranks_right(verified, latencies) > 0.75


def test_no_scorer_knows_nothing(space: SketchSpace) -> None:
    candidates = space.sample(np.random.default_rng(0), 3)
    scorer = NoScorer()
    scorer.learn([])
    assert scorer.draft(candidates).tolist() == [0.0] * 3
    assert scorer.verify([space.schedule(c) for c in candidates]).tolist() == [0.0] * 3


@pytest.mark.parametrize("life", [5, 12, 30, 47])
def test_a_resumed_run_proposes_what_an_uninterrupted_one_would(
    space: SketchSpace, tmp_path: Path, life: int
) -> None:
    whole = [record.candidate for record in tuner(space, Formula()).run()]
    store = Store(tmp_path / "records.jsonl")
    with pytest.raises(Stop):
        tuner(space, Formula(life), store).run()
    stored = store.read().records
    assert len(stored) == life
    resumed = tuner(space, Formula(48 - life), store, stored).run()
    assert [record.candidate for record in resumed] == whole
