"""Both models learn online; resuming trains them again to the same state; priors are guarded."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, Samples
from tensortune.costmodel.features import general, loops, relations, statements
from tensortune.costmodel.ranker import Ranker
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.candidate import Candidate
from tensortune.data.record import OnRecord, Record
from tensortune.data.replay import ReplayMeasurer
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

from ..contracts.synthetic import SyntheticSpace


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


def scorer_of(space: SketchSpace, **options: Any) -> LearnedScorer:
    return LearnedScorer(space, space.workload.identity, space.target, seed=3, **options)


def tuner(
    space: SketchSpace,
    measurer: Formula,
    store: Store | None = None,
    stored: Sequence[Record] = (),
    brief: bool = False,
    **options: Any,
) -> Tuner:
    scorer = scorer_of(space, **options)
    return Tuner(
        space,
        SimulatedAnnealing(space, 3, **({"steps": 5, "guesses": 200} if brief else {})),
        measurer,
        store,
        Budget(48),
        scorer=scorer,
        informed=scorer.informed,
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


@cache
def known(space: SketchSpace, kind: str, sign: float = 1.0) -> XGBModel:
    """A model of a kind of features, trained on 120 candidates; upside down with a sign of -1."""
    records = [record_of(space, c) for c in dict.fromkeys(drawn(space, 120, 9))]
    records = [record for record in records if record.valid]
    latency_s = np.array([record.latency_s for record in records]) ** sign
    model = XGBModel()
    if kind == "general":
        model.fit(general.samples(space, [record.candidate for record in records], latency_s))
        return model
    programs = [space.schedule(record.candidate) for record in records]
    if kind == "statements":
        model.fit(statements.samples(programs, space.target, latency_s))
        return model
    tree = loops.samples(programs, space.target, latency_s)
    model.fit(tree if kind == "loops" else relations.of(tree))
    return model


@cache
def drawn(space: SketchSpace, n: int, seed: int) -> list[Candidate]:
    return [
        space.schedule(candidate).candidate
        for candidate in space.sample(np.random.default_rng(seed), n)
    ]


def judged(space: SketchSpace, scorer: LearnedScorer) -> tuple[float, float]:
    """How often drafts and programs are ranked right."""
    records = [record_of(space, candidate) for candidate in dict.fromkeys(drawn(space, 60, 1))]
    records = [record for record in records if record.valid]
    latency_s = [record.latency_s for record in records]
    names = [record.candidate for record in records]
    scheduled = [space.schedule(candidate) for candidate in names]
    return (
        ranks_right(scorer.draft(names), latency_s),
        ranks_right(scorer.verify(scheduled), latency_s),
    )


def taught(space: SketchSpace, n: int, **options: Any) -> LearnedScorer:
    scorer = scorer_of(space, **options)
    judged(space, scorer)  # it is asked before it is told, as in a run
    trials = [Trial(c, record_of(space, c)) for c in dict.fromkeys(drawn(space, n, 2))]
    scorer.learn(trials)
    return scorer


@pytest.mark.parametrize("kind", ["statements", "loops", "relations"])
def test_a_prior_on_programs_ranks_before_the_first_trial(space: SketchSpace, kind: str) -> None:
    prior = known(space, kind)
    scorer = scorer_of(space, prior=prior)
    assert scorer.informed
    assert np.ptp(scorer.draft(drawn(space, 20, 1))) == 0
    assert judged(space, scorer)[1] > 0.7
    assert taught(space, 16, prior=prior).verifies.trust[1] > 0
    assert taught(space, 16, prior=known(space, kind, -1.0)).verifies.trust[1] == 0


def test_a_prior_on_decisions_ranks_drafts_before_the_first_trial(space: SketchSpace) -> None:
    prior = known(space, "general")
    draft, verified = judged(space, scorer_of(space, draft_prior=prior))
    assert draft > 0.7
    assert verified > 0.7
    assert taught(space, 16, draft_prior=prior).drafts.trust[1] > 0
    assert taught(space, 16, draft_prior=known(space, "general", -1.0)).drafts.trust[1] == 0


def test_misleading_priors_leave_the_models_as_they_are_without(space: SketchSpace) -> None:
    cold = judged(space, taught(space, 24))
    kinds = ("statements", "relations")
    wrong = {
        "prior": [known(space, kind, -1.0) for kind in kinds],
        "draft_prior": known(space, "general", -1.0),
    }
    assert judged(space, taught(space, 24, **wrong)) == cold
    right = {
        "prior": [known(space, kind) for kind in kinds],
        "draft_prior": known(space, "general"),
    }
    assert min(judged(space, taught(space, 24, **right))) > max(cold)


def test_a_trained_model_is_a_prior(space: SketchSpace) -> None:
    model = known(space, "statements")
    scorer = scorer_of(space, model=model)
    assert scorer.informed
    assert judged(space, scorer)[1] > 0.7
    assert not scorer_of(space, model=XGBModel()).informed
    assert not scorer_of(space).informed


def test_a_model_of_several_features_gets_them_by_name(space: SketchSpace) -> None:
    class Both:
        features = ("relations", "statements")

        def predict(self, samples: dict[str, Samples]) -> np.ndarray:
            return parts[0].predict(samples["relations"]) + parts[1].predict(samples["statements"])

    parts = [known(space, kind) for kind in Both.features]
    assert judged(space, scorer_of(space, prior=Both()))[1] > 0.7


def test_a_prior_on_other_features_is_refused(space: SketchSpace) -> None:
    class Pixels:
        features = "pixels"

    with pytest.raises(ValueError, match=r"`pixels`.*statements, loops, relations"):
        scorer_of(space, prior=Pixels())
    with pytest.raises(ValueError, match=r"`general`|draft_prior"):
        scorer_of(space, prior=known(space, "general"))


def test_an_informed_run_is_resumed_as_it_was(space: SketchSpace, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "prior": known(space, "statements"),
        "draft_prior": known(space, "general"),
        "brief": True,
    }
    whole = [record.candidate for record in tuner(space, Formula(), **options).run()]
    store = Store(tmp_path / "records.jsonl")
    with pytest.raises(Stop):
        tuner(space, Formula(30), store, **options).run()
    stored = store.read().records
    resumed = tuner(space, Formula(18), store, stored, **options).run()
    assert [record.candidate for record in resumed] == whole
    picked, chance = (
        [record.latency_s for record in (record_of(space, c) for c in found) if record.valid]
        for found in (whole[:3], drawn(space, 60, 1))
    )
    assert max(picked) < np.median(chance), "half of the first batch is not left to chance"


@pytest.mark.parametrize("acquisition", ["ei", "ucb"])
def test_acquisitions_take_the_doubt_into_account(space: SketchSpace, acquisition: str) -> None:
    scorer = taught(space, 60, acquisition=acquisition)
    assert judged(space, scorer)[1] > 0.65
    scheduled = [space.schedule(candidate) for candidate in dict.fromkeys(drawn(space, 60, 5))]
    programs = statements.samples(scheduled, space.target)
    mean, std = scorer.verifies.distribution(programs)
    scores = scorer.verify(scheduled)
    assert np.isfinite(scores).all()
    expected = mean + scorer.draft([one.candidate for one in scheduled])
    expected = expected + scorer.verifies.bonus(programs)
    above = scores - expected
    # What is doubted ranks higher than its mean alone would have it.
    assert np.corrcoef(above, std)[0, 1] > (0.99 if acquisition == "ucb" else 0.0)


def test_runs_by_acquisition_are_repeatable(space: SketchSpace) -> None:
    first, again, usual = (
        [record.candidate for record in tuner(space, Formula(), brief=True, **options).run()]
        for options in ({"acquisition": "ei"}, {"acquisition": "ei"}, {})
    )
    assert first == again
    assert first[:12] == usual[:12], "there is nothing to improve on yet"
    assert first != usual


def test_the_mean_is_no_acquisition_of_its_own(space: SketchSpace) -> None:
    usual, named = (scorer_of(space, acquisition=name) for name in (None, "mean"))
    trials = [Trial(c, record_of(space, c)) for c in dict.fromkeys(drawn(space, 30, 2))]
    for scorer in (usual, named):
        scorer.learn(trials)
    assert judged(space, usual) == judged(space, named)
    with pytest.raises(ValueError, match="mean, ei, ucb"):
        scorer_of(space, acquisition="luck")


SYNTHETIC = SyntheticSpace()
DECISIONS = FeatureSchema("decisions", 1, 6, "synthetic")
SEEDS = range(8)


class Planted:
    """Scores candidates of the synthetic space by their decisions, with or without a prior."""

    def __init__(self, prior: XGBModel | None) -> None:
        self.ranker = Ranker(prior or XGBModel(), DECISIONS)
        self.informed = prior is not None

    @property
    def misled(self) -> bool:
        return self.ranker.misled

    def draft(self, candidates: Sequence[Candidate]) -> np.ndarray:
        return self.ranker.score(Samples.of(DECISIONS, list(SYNTHETIC.encode(candidates))))

    def verify(self, scheduled: Sequence[Any]) -> np.ndarray:
        return self.draft([one.candidate for one in scheduled])

    def learn(self, trials: Sequence[Trial]) -> None:
        rows = list(SYNTHETIC.encode([trial.candidate for trial in trials]))
        self.ranker.add(rows, [trial.record.latency_s for trial in trials])


def related(sign: float) -> XGBModel:
    """What was learnt of a workload whose best tile is another one."""
    table = [record for record in SyntheticSpace(shift=1).table() if record.valid][::7]
    latency_s = np.array([record.latency_s for record in table]) ** sign
    model = XGBModel(rounds=200)
    rows = SYNTHETIC.encode([record.candidate for record in table])
    model.fit(Samples.of(DECISIONS, list(rows), latency_s))
    return model


@cache
def runs(name: str) -> list[np.ndarray]:
    """The best latency after each of 64 trials, a run a seed."""
    prior = {"cold": None, "good": related(1.0), "reversed": related(-1.0)}[name]
    measurer = ReplayMeasurer(SYNTHETIC.table())
    found = []
    for seed in SEEDS:
        strategy = SimulatedAnnealing(SYNTHETIC, seed, chains=32, steps=20, guesses=500)
        records = Tuner(
            SYNTHETIC,
            strategy,
            measurer,
            None,
            Budget(64),
            scorer=Planted(prior),
            informed=prior is not None,
            seed=seed,
        ).run()
        found.append(np.minimum.accumulate([record.latency_s for record in records]))
    return found


def test_a_misleading_prior_costs_little() -> None:
    logs = [np.log([run[-1] for run in runs(name)]) for name in ("cold", "reversed")]
    quality = np.exp(logs[0] - logs[1])
    assert np.exp(np.mean(logs[0] - logs[1])) > 0.95, quality


def test_a_good_prior_needs_fewer_trials() -> None:
    cold = [run[-1] for run in runs("cold")]
    trials = [
        int(np.argmax(run <= best)) + 1 if (run <= best).any() else 64
        for run, best in zip(runs("good"), cold, strict=True)
    ]
    assert np.median(trials) <= 32, trials
    after = [np.log([run[15] for run in runs(name)]).mean() for name in ("cold", "good")]
    assert after[1] < after[0], "the first batch is better already"
