"""The model that pays: what it learns from, and how it is judged."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from tensortune.data.record import Record
from tensortune.data.suites import suite
from tensortune.data.target import cpu_target
from tensortune.search.rl.config import Rounds
from tensortune.search.rl.environments import make_spaces
from tensortune.search.rl.program_model import Judged, fit, judge, samples_of, to_json
from tensortune.search.rl.speed import ToySpeed
from tensortune.search.rl.tuning_env import Spaces

TARGET = cpu_target("llvm -num-cores=1")
SETTINGS = Rounds(trees=60)


@cache
def measured() -> tuple[Spaces[Any], list[Record]]:
    """Candidates of ten workloads, with made-up latencies."""
    spaces = make_spaces("cursor", suite("looptune-train")[::200], TARGET)
    rng, speed, records = np.random.default_rng(0), ToySpeed(), []
    for workload in spaces.workloads:
        space = spaces.of(workload)
        candidates = list(dict.fromkeys(space.sample(rng, 40)))
        gains = speed([(space, candidate) for candidate in candidates])
        for candidate, gain in zip(candidates, gains.tolist(), strict=True):
            latency_s = workload.flops / 1e9 * math.exp(-gain)
            records.append(Record(workload.key, "", "", candidate, (latency_s,)))
    return spaces, records


def test_a_fit_ranks_nests_of_other_shapes() -> None:
    spaces, records = measured()
    fitted = fit(records, spaces, SETTINGS, 0)
    assert fitted.programs == len(records)
    assert fitted.held_out is not None
    assert fitted.held_out.pairwise > 0.85
    assert fitted.held_out.top1 > 0.8
    assert fitted.held_out.log_rmse < 0.8


def test_what_it_pays_is_the_gain_over_the_untuned_program() -> None:
    spaces, records = measured()
    speed = fit(records, spaces, SETTINGS, 0).speed
    space = spaces.of(spaces.workloads[0])
    candidates = space.sample(np.random.default_rng(5), 6)
    untuned = space.candidate_of(space.start)
    values = speed([(space, untuned), *((space, candidate) for candidate in candidates)])
    assert values[0] == 0
    assert np.ptp(values) > 0
    one = np.concatenate([speed([(space, candidate)]) for candidate in candidates])
    assert one == pytest.approx(values[1:])


def test_the_order_of_the_records_does_not_matter() -> None:
    spaces, records = measured()
    one, other = samples_of(records, spaces), samples_of(records[::-1], spaces)
    assert (one[0].rows == other[0].rows).all()
    assert (one[1] == other[1]).all()


def test_failures_are_as_slow_as_the_slowest() -> None:
    spaces, records = measured()
    failed = [replace(records[0], repeats=(), failure="timeout"), *records[1:]]
    samples, owners = samples_of(failed, spaces)
    own = samples.latency_s[owners == 0]
    assert np.isfinite(samples.latency_s).all()
    assert (own == own.max()).sum() >= 2


def test_where_nothing_ran_there_is_nothing_to_learn_from() -> None:
    spaces, records = measured()
    failed = [replace(record, repeats=(), failure="compile") for record in records[:3]]
    with pytest.raises(ValueError, match="no program of the workloads has run"):
        fit(failed, spaces, SETTINGS, 0)
    assert fit(records[:30], spaces, SETTINGS, 0).held_out is None  # of a single workload


def test_judgements() -> None:
    spaces, records = measured()

    class Perfect:
        def predict(self, samples: Any) -> Any:
            return -np.log(samples.latency_s)

    samples, owners = samples_of(records, spaces)
    found = judge(Perfect(), samples, owners)  # type: ignore[arg-type]
    assert (found.pairwise, found.top1) == (1.0, 1.0)
    assert found.log_rmse == pytest.approx(0, abs=1e-9)
    assert to_json(Judged(1, math.nan, 0.0, 1.0)) == {
        "programs": 1,
        "pairwise": None,
        "log_rmse": 0.0,
        "top1": 1.0,
    }
    assert to_json(None) is None
