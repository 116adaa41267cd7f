"""Our cost model behind MetaSchedule's interface: it learns, keeps tasks apart, is saved whole."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.utils import shash2hex

from tensortune.costmodel import pretrained
from tensortune.costmodel.base import FeatureSchema, ModelFileError, Samples
from tensortune.costmodel.features import loops, relations, statements
from tensortune.costmodel.features.schemas import STATEMENTS
from tensortune.costmodel.metaschedule import (
    MetaScheduleModel,
    latency_of,
    light_context,
    ours,
)
from tensortune.costmodel.metrics import pairwise_accuracy
from tensortune.costmodel.priors import kinds_of
from tensortune.costmodel.validity import ValidityModel
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.candidate import Candidate
from tensortune.data.sketch_space import SketchSpace, tune_context
from tensortune.data.space import Scheduled
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload

TARGET = cpu_target("llvm -num-cores=1")
INF = float("inf")
DECISIONS = FeatureSchema("decisions", 1, 3, "x")


@cache
def space_of(size: int) -> SketchSpace:
    return SketchSpace(workload("matmul", size, size, size), TARGET)


def result_of(latency_s: float) -> Any:
    if latency_s == INF:
        return ms.runner.RunnerResult(None, "compile: it does not")
    return ms.runner.RunnerResult([latency_s, 1.01 * latency_s, 0.99 * latency_s], None)


def latency(space: SketchSpace, trace: Any) -> float:
    """A formula of the decisions; programs that unroll most of all fail."""
    candidate = space.find(trace)
    assert candidate is not None
    row = np.nan_to_num(space.encode([candidate])[0])
    if row[space.feature_names().index("unroll")] > 9:  # log2(1 + 512)
        return INF
    return float(1e-4 * np.exp(row @ np.linspace(-0.2, 0.3, len(row))))


@cache
def programs(size: int = 64, n: int = 160, seed: int = 0) -> tuple[list[Any], list[float]]:
    """`MeasureCandidate`s of distinct programs, and their latencies."""
    space = space_of(size)
    found = {}
    for candidate in space.sample(np.random.default_rng(seed), n):
        scheduled = space.schedule(candidate)
        schedule = Schedule(space.workload.mod)
        scheduled.trace.apply_to_schedule(schedule, remove_postproc=False)
        found[candidate] = ms.MeasureCandidate(schedule, [])
    candidates = list(found.values())
    return candidates, [latency(space, one.sch.trace) for one in candidates]


def context_of(size: int = 64) -> Any:
    return light_context(space_of(size).workload.mod, TARGET)


def taught(model: Any, n: int = 100, size: int = 64) -> Any:
    candidates, latency_s = programs(size)
    model.update(context_of(size), candidates[:n], [result_of(s) for s in latency_s[:n]])
    return model


def held_out(model: Any, size: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Scores and latencies of programs that were not learnt."""
    candidates, latency_s = programs(size)
    return model.predict(context_of(size), candidates[100:]), np.array(latency_s[100:])


def accuracy(model: Any, size: int = 64) -> float:
    scores, latency_s = held_out(model, size)
    valid = np.isfinite(latency_s)
    return pairwise_accuracy(scores[valid], latency_s[valid])


@pytest.mark.parametrize(
    ("seconds", "error", "latency_s"),
    [
        ([3.0, 1.0, 2.0], None, 2.0),
        ([1.0], "it crashed", INF),
        (None, "it crashed", INF),
        (None, None, INF),
        ([], None, INF),
        ([1e10], None, INF),
        ([0.0], None, INF),
    ],
)
def test_failures_are_failures_however_they_are_told(
    seconds: Any, error: str | None, latency_s: float
) -> None:
    assert latency_of(ms.runner.RunnerResult(seconds, error)) == latency_s


def test_scores_are_equal_before_anything_is_learnt() -> None:
    scores, _ = held_out(MetaScheduleModel(XGBModel()))
    assert (scores == 0.5).all()


def test_learns_to_rank_with_scores_that_are_weights() -> None:
    model = taught(MetaScheduleModel(XGBModel()))
    scores, latency_s = held_out(model)
    # 0.5 is chance, and its standard deviation over some 45 programs' pairs is below 0.05.
    assert accuracy(model) > 0.75
    assert ((scores > 0) & (scores <= 1)).all()
    failing = ~np.isfinite(latency_s)
    assert failing.sum() > 2
    assert scores[failing].mean() < np.quantile(scores[~failing], 0.2)


def test_a_program_counts_once() -> None:
    once, twice = MetaScheduleModel(XGBModel()), MetaScheduleModel(XGBModel())
    taught(once)
    taught(taught(twice))
    assert twice.trials(context_of().mod) == once.trials(context_of().mod)
    assert (held_out(twice)[0] == held_out(once)[0]).all()


def test_tasks_have_models_of_their_own() -> None:
    model = taught(MetaScheduleModel(XGBModel()))
    assert np.ptp(held_out(model, 96)[0]) == 0
    before = held_out(model)[0]
    taught(model, size=96)
    assert (held_out(model)[0] == before).all()
    assert accuracy(model, 96) > 0.75


def test_goes_on_from_a_file_where_it_was(tmp_path: Path) -> None:
    model = taught(taught(MetaScheduleModel(XGBModel(rounds=20), 3)), 60, size=96)
    model.save(str(tmp_path / "model"))
    again = MetaScheduleModel(XGBModel(), 3)
    again.load(str(tmp_path / "model"))
    for size in (64, 96):
        assert again.trials(context_of(size).mod) == model.trials(context_of(size).mod)
        assert (held_out(again, size)[0] == held_out(model, size)[0]).all()
    taught(model)  # and learns nothing twice
    taught(again, 160)
    taught(model, 160)
    assert (held_out(again)[0] == held_out(model)[0]).all()
    again.save(str(tmp_path / "again"))
    third = MetaScheduleModel(XGBModel(), 3)
    third.load(str(tmp_path / "again"))
    assert (held_out(third)[0] == held_out(model)[0]).all()


def test_what_a_file_holds_serves_other_tasks_too(tmp_path: Path) -> None:
    taught(MetaScheduleModel(XGBModel())).save(str(tmp_path / "model"))
    model = MetaScheduleModel(XGBModel())
    model.load(str(tmp_path / "model"))
    assert model.informed(context_of(96).mod)
    assert accuracy(model, 96) > 0.6  # of a matmul of half as many elements


def test_a_model_file_of_ours_is_the_trained_model(tmp_path: Path) -> None:
    taught_rows = taught(MetaScheduleModel(XGBModel()))._tasks
    ranker = next(iter(taught_rows.values())).ranker
    trained = XGBModel()
    trained.fit(Samples.of(STATEMENTS, ranker.features, ranker.latency_s))
    trained.save(tmp_path / "xgb")
    model = MetaScheduleModel(XGBModel())
    model.load(str(tmp_path / "xgb"))
    assert accuracy(model) > 0.75


def test_what_the_pretrained_models_know_counts_from_the_first_program(tmp_path: Path) -> None:
    """A model on other features than statements does; it is saved with what was learnt."""
    found = pretrained.load()
    assert "relations" in kinds_of(found.verify)
    candidates, _ = programs()

    def made() -> Any:
        return MetaScheduleModel(XGBModel(), 3, priors=[found.verify], draft_prior=found.draft)

    model = made()
    assert model.informed(context_of().mod)
    scores = model.predict(context_of(), candidates)
    assert np.ptp(scores) > 0.1
    # In the order of the model itself, as long as nothing else is known.
    kinds = {
        "statements": statements.samples(scheduled(), TARGET),
        "relations": relations.of(loops.samples(scheduled(), TARGET)),
    }
    np.testing.assert_array_equal(np.argsort(scores), np.argsort(found.verify.predict(kinds)))
    taught(model)
    assert accuracy(model) > 0.75
    model.save(str(tmp_path / "model"))
    again = MetaScheduleModel(XGBModel(), 3)
    again.load(str(tmp_path / "model"))
    assert again.draft_prior is not None and len(again.priors) == 1
    assert (held_out(again)[0] == held_out(model)[0]).all()


def scheduled() -> list[Scheduled]:
    return [
        Scheduled(Candidate("x", (i,)), one.sch.mod, None) for i, one in enumerate(programs()[0])
    ]


def test_what_was_scored_for_a_strategy_is_learnt_as_anything_else() -> None:
    found = pretrained.load()
    results = []
    for ahead in (False, True):
        model = MetaScheduleModel(XGBModel(), 3, priors=[found.verify])
        if ahead:
            by_hash = {shash2hex(one.mod): one for one in scheduled()}
            model.score(context_of().mod, TARGET, by_hash)
        results.append(held_out(taught(model))[0])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("name", ["verify", "draft"])
def test_a_model_file_of_any_features_of_programs_is_taken(name: str) -> None:
    model = MetaScheduleModel(XGBModel())
    model.load(str(pretrained.path(name)))
    assert (len(model.priors), model.draft_prior is not None) == {
        "verify": (1, False),
        "draft": (0, True),
    }[name]


def test_a_file_of_something_else_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    model = taught(MetaScheduleModel(XGBModel()))
    before = held_out(model)[0]
    other = XGBModel()
    other.fit(Samples.of(DECISIONS, [np.ones((1, 3), np.float32)] * 4, [1.0] * 4))
    other.save(tmp_path / "decisions")
    ValidityModel().save(tmp_path / "validity")
    model.save(str(tmp_path / "whole"))
    (tmp_path / "text").write_text("no model")
    (tmp_path / "damaged").write_bytes((tmp_path / "whole").read_bytes()[:-1])
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name, told in [
        ("decisions", "`decisions` version 1"),
        ("validity", "kind `validity`"),
        ("text", "is not a model file of tensortune"),
        ("damaged", "is damaged"),
    ]:
        with pytest.raises(ModelFileError) as caught:
            model.load(str(tmp_path / name))
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        model.load(str(tmp_path / "nothing"))
    with pytest.raises(IsADirectoryError):
        model.load(str(tmp_path))
    assert (held_out(model)[0] == before).all()
    assert content == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_model_of_other_features_is_refused() -> None:
    model = XGBModel()
    model.fit(Samples.of(DECISIONS, [np.ones((1, 3), np.float32)] * 4, [1.0] * 4))
    with pytest.raises(ValueError, match=r"`decisions` version 1 .* give it a model of those"):
        MetaScheduleModel(model)


def test_a_model_without_save_says_so(tmp_path: Path) -> None:
    class Plain:
        def fit(self, samples: Samples) -> None: ...
        def predict(self, samples: Samples) -> np.ndarray:
            return np.arange(len(samples), dtype=np.float64)

    model = taught(MetaScheduleModel(Plain()))
    with pytest.raises(ValueError, match="Plain can't be saved"):
        model.save(str(tmp_path / "model"))
    assert not list(tmp_path.iterdir())


def test_learns_from_a_database(tmp_path: Path) -> None:
    candidates, latency_s = programs()
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    entry = database.commit_workload(space_of(64).workload.mod)
    for candidate, seconds in zip(candidates[:100], latency_s, strict=False):
        times = [1e10 if seconds == INF else seconds]
        info = ms.arg_info.ArgInfo.from_entry_func(candidate.sch.mod, remove_preproc=True)
        database.commit_tuning_record(
            ms.database.TuningRecord(candidate.sch.trace, entry, times, TARGET, info)
        )
    model = MetaScheduleModel(XGBModel())
    model.learn(ms.database.JSONDatabase(work_dir=str(tmp_path)))
    learnt = taught(MetaScheduleModel(XGBModel())).trials(context_of().mod)
    assert sorted(model.trials(context_of().mod)) == pytest.approx(sorted(learnt))
    assert accuracy(model) > 0.75


def test_is_known_behind_tvms_handle() -> None:
    model, other = MetaScheduleModel(XGBModel()), ms.cost_model.RandomModel()

    assert ours(None) is None
    assert ours(other) is None
    assert ours(model) is model._inst


def test_guides_metaschedules_own_search() -> None:
    """It proposes at random while nothing is known, and faster programs than that afterwards."""
    space = space_of(64)
    medians = []
    for model in (MetaScheduleModel(XGBModel()), taught(MetaScheduleModel(XGBModel()))):
        search = ms.search_strategy.EvolutionarySearch(population_size=128)
        context = tune_context(space.workload.mod, TARGET, search_strategy=search, seed=1)
        database = ms.database.MemoryDatabase()
        database.commit_workload(space.workload.mod)
        search.pre_tuning(32, 32, context.generate_design_space(), database, model)
        found = search.generate_measure_candidates()
        assert len(found) == 32
        kept = [one for one in found if space.find(one.sch.trace) is not None]
        medians.append(np.median([latency(space, one.sch.trace) for one in kept]))
    random = np.median(programs()[1])
    assert 0.4 * random < medians[0] < 2.5 * random
    assert medians[1] < 0.6 * medians[0]
