"""Speeds: remembered, predicted, measured, made up."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from tensortune.costmodel.features import statements
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.loop_space import LoopSpace
from tensortune.data.measure import LocalMeasurer
from tensortune.data.space import Scheduled
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload
from tensortune.search.rl.cursor_env import ACTIONS, CursorEnv, LeanLoopSpace, loop_spaces
from tensortune.search.rl.speed import (
    FAILED,
    MeasuredSpeed,
    ModelSpeed,
    Query,
    Remembered,
    ToySpeed,
)

TARGET = cpu_target("llvm -num-cores=1")
MATMUL = Workload.from_key("matmul(m=48,n=64,k=40)")
OTHER = Workload.from_key("matmul(m=64,n=32,k=64)")

# With the cursor, and in steps of the space.
REGISTER_TILE = (
    *("split_8", "down", "down", "split_32", "swap_up", "down", "down", "down"),
    *("swap_up", "swap_up"),
)
TILE = [("split", 0, 8), ("split", 2, 32), ("move", 2, 1), ("move", 4, 2)]
MARKS = [("accumulate", 2), ("vectorize",), ("unroll", 3)]


class Refusing(LoopSpace):
    """A space that refuses all candidates."""

    def schedule(self, candidate: Candidate) -> Scheduled:
        raise InvalidCandidate("refused")


def test_each_candidate_is_asked_for_once() -> None:
    asked: list[int] = []

    def speed(queries: list[Query]) -> np.ndarray:
        asked.append(len(queries))
        return np.arange(len(queries), dtype=float)

    spaces = loop_spaces([MATMUL, OTHER], TARGET)
    here, there = spaces.of(MATMUL), spaces.of(OTHER)
    a, b = here.candidate([]), here.candidate([("swap", 1)])
    remembered = Remembered(speed, size=3)
    assert remembered([(here, a), (here, b), (here, a)]).tolist() == [0.0, 1.0, 0.0]
    assert remembered([(here, b), (here, a)]).tolist() == [1.0, 0.0]
    assert asked == [2]
    assert remembered([(there, a), (here, a)]).tolist() == [0.0, 0.0]
    assert asked == [2, 1]
    c = here.candidate([("split", 0, 2), ("move", 1, 2)])
    assert remembered([(here, c)]).tolist() == [0.0]  # over its size: forgets, and goes on
    assert remembered([(here, b), (here, a), (here, c)]).tolist() == [0.0, 1.0, 0.0]


def fitted(space: LoopSpace) -> XGBModel:
    """A model that has learnt that tiled nests are fast."""
    rng = np.random.default_rng(0)
    candidates = [*space.sample(rng, 24), space.candidate([*TILE, *MARKS]), space.candidate([])]
    programs = [space.schedule(candidate) for candidate in candidates]
    latency = [1e-4 * 2.0 ** -len(space.nest(c).loops) for c in candidates]
    model = XGBModel("regression", seed=0)
    model.fit(statements.samples(programs, TARGET, latency))
    return model


def test_a_model_is_asked_in_one_batch_of_several_workloads() -> None:
    spaces = loop_spaces([MATMUL, OTHER], TARGET)
    here, there = spaces.of(MATMUL), spaces.of(OTHER)
    speed = ModelSpeed(fitted(here), TARGET)
    queries: list[Query] = [
        (here, here.candidate([*TILE, *MARKS])),
        (there, there.candidate([("swap", 1)])),
        (Refusing(MATMUL, TARGET), here.candidate([])),
        (here, here.candidate([])),
    ]
    values = speed(queries)
    assert values[0] > values[3]
    assert values[3] == pytest.approx(0)  # it is the untuned program
    assert values[2] == FAILED
    assert [speed([query])[0] for query in queries] == pytest.approx(values.tolist())
    half = ModelSpeed(speed.model, TARGET, scale=0.5)
    assert half(queries[:2]) == pytest.approx(values[:2] / 2)
    assert speed([]).shape == (0,)


def test_an_episode_is_paid_by_a_model() -> None:
    spaces = loop_spaces([MATMUL], TARGET)
    env = CursorEnv(spaces, ModelSpeed(fitted(spaces.of(MATMUL)), TARGET))
    env.reset(seed=0)
    gains = [env.step(ACTIONS.index(name))[1] for name in REGISTER_TILE]
    assert sum(gains) > 0
    # The cursor moves, and the parts of a loop run as the loop until something comes between.
    assert not any(gains[:4])


def test_measured_speeds_are_over_the_untuned_program() -> None:
    space = loop_spaces([MATMUL], TARGET).of(MATMUL)
    tile = space.candidate([*TILE, *MARKS])
    with MeasuredSpeed(TARGET) as speed:
        values = speed([(space, tile), (space, space.candidate([]))])
        # Tens of times, and several times over the plain loops with the sum decomposed.
        assert values[0] > math.log(4)
        assert values[0] > values[1] > FAILED
        assert speed([(Refusing(MATMUL, TARGET), tile)])[0] == FAILED
        assert list(speed._open) == [MATMUL.key]
    assert not speed._open


def test_what_does_not_run_untuned_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = loop_spaces([MATMUL], TARGET)
    space = spaces.of(MATMUL)

    def failing(self: LocalMeasurer, named: object, on_record: object = None) -> list[object]:
        return [self._record(space.candidate([]), failure="compile", detail="no such thing")]

    monkeypatch.setattr(LocalMeasurer, "measure_modules", failing)
    with MeasuredSpeed(TARGET) as speed, pytest.raises(RuntimeError, match="untuned: no such"):
        speed([(space, space.candidate([]))])


def test_the_toy_speed_has_its_best_at_a_register_tile() -> None:
    space = LoopSpace(MATMUL, TARGET)
    toy = ToySpeed()
    best = space.candidate(TILE)
    assert toy([(space, best)])[0] == pytest.approx(toy.best) == pytest.approx(math.log(256))
    assert toy([(space, space.candidate([]))])[0] == 0.0
    drawn = space.sample(np.random.default_rng(0), 200)
    values = toy([(space, candidate) for candidate in drawn])
    assert values.max() <= toy.best + 1e-9
    assert len(set(values.round(6))) > 10


def test_spaces_are_made_once_and_let_go() -> None:
    made: list[str] = []

    class Counted(LeanLoopSpace):
        def __init__(self, workload: Workload, target: object) -> None:
            made.append(workload.key)
            super().__init__(workload, target)

    spaces = loop_spaces([MATMUL, OTHER], TARGET, keep=1)
    spaces._make = Counted
    assert spaces.of(MATMUL) is spaces.of(MATMUL)
    spaces.of(OTHER)
    spaces.of(MATMUL)
    assert made == [MATMUL.key, OTHER.key, MATMUL.key]


def test_lean_spaces_hold_no_programs() -> None:
    space = loop_spaces([MATMUL], TARGET).of(MATMUL)
    for candidate in space.sample(np.random.default_rng(0), 5):
        assert space.schedule(candidate).candidate.space == "loop"
    assert not space._cache
    assert not space._nests
