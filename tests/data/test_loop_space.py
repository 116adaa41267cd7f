"""The loop space: what it finds to tune, and that its programs are right and can be fast."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tvm.script import tirx as T

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.finals import check_outputs, make_reference, time_interleaved
from tensortune.data.loop_space import LoopSpace
from tensortune.data.loops.steps import apply_step, legal_steps
from tensortune.data.measure import LocalMeasurer
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, WorkloadError, workload

TARGET = cpu_target(None)

OPERATORS: dict[str, tuple[str, tuple[int, ...]]] = {
    "matmul": ("matmul", (48, 64, 40)),
    "primes": ("matmul", (37, 53, 29)),
    "units": ("matmul", (64, 1, 1)),
    "one": ("matmul", (1, 1, 1)),
    "batch": ("batch_matmul", (3, 17, 24, 16)),
    "conv2d": ("conv2d", (1, 7, 9, 6, 17, 3, 1, 1)),
    "depthwise": ("depthwise_conv2d", (1, 13, 13, 24, 3, 2, 1)),
    "transposed": ("transposed_conv2d", (1, 4, 4, 8, 12, 4, 2, 1)),
    "fused": ("conv2d_bn_relu", (1, 7, 7, 8, 16, 3, 1, 1)),
    "pooling": ("avg_pool2d", (1, 11, 11, 16, 3, 1, 1)),
    "softmax": ("softmax", (37, 64)),
    "layer norm": ("layer_norm", (24, 96)),
    "norm": ("norm", (1, 32, 48)),
    "mean": ("mean", (7, 101)),
    "attention": ("transpose_batch_matmul", (1, 24, 3, 20)),
    "elementwise": ("add", (37, 64)),
    "gather": ("take", (50, 33, 20)),
}


@cache
def space_of(name: str) -> LoopSpace:
    operator, shape = OPERATORS[name]
    return LoopSpace(workload(operator, *shape), TARGET)


@pytest.fixture(params=sorted(OPERATORS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def walked(space: LoopSpace, rng: np.random.Generator, steps: int) -> Candidate:
    """A candidate that random legal steps lead to."""
    nest = space.start
    for _ in range(steps):
        legal = legal_steps(nest)
        if not legal:
            break
        kinds = sorted({str(step[0]) for step in legal})
        kind = kinds[int(rng.integers(len(kinds)))]
        options = [step for step in legal if step[0] == kind]
        nest = apply_step(nest, options[int(rng.integers(len(options)))])
    return space.candidate_of(nest)


def some(space: LoopSpace, rng: np.random.Generator, n: int) -> list[Candidate]:
    """Drawn, moved, crossed and walked candidates."""
    drawn = space.sample(rng, n)
    moved = space.neighbours(drawn, rng)
    crossed = [space.crossover(a, b, rng) for a, b in zip(drawn, moved[::-1], strict=True)]
    return [*drawn, *moved, *crossed, *(walked(space, rng, 15) for _ in range(n))]


def test_every_candidate_is_scheduled(name: str) -> None:
    space = space_of(name)
    for candidate in some(space, np.random.default_rng(0), 8):
        canonical = space.schedule(candidate).candidate
        assert space.schedule(canonical).candidate == canonical
        assert space.candidate(space.steps(canonical)) == canonical


@pytest.mark.parametrize("name", ["primes", "conv2d", "fused", "softmax", "norm"])
def test_programs_compute_what_they_should(name: str) -> None:
    """A small part of `docs/scripts/check_loop_space.py`, which does a thousand and more."""
    space = space_of(name)
    candidates = some(space, np.random.default_rng(1), 1)
    with LocalMeasurer(space.workload, TARGET) as measurer:
        reference = make_reference(measurer)
        mods = [space.schedule(candidate).mod for candidate in candidates]
        verdicts = check_outputs(measurer, reference, mods)
    for candidate, verdict in zip(candidates, verdicts, strict=True):
        assert verdict.right, (space.describe(candidate), verdict.detail)


def test_what_is_tuned_is_the_heaviest_reduction() -> None:
    found = {name: space_of(name).frame for name in OPERATORS}
    assert found["matmul"].block == "C"
    assert [axis.name for axis in found["matmul"].axes] == ["i", "j", "k"]
    assert [axis.reduction for axis in found["matmul"].axes] == [False, False, True]
    assert [axis.contiguous for axis in found["matmul"].axes] == [False, True, False]
    assert [producer.name for producer in found["conv2d"].producers] == ["PadInput"]
    assert found["fused"].consumed  # batch normalisation and ReLU, in one block
    assert found["softmax"].block == "total"
    assert found["norm"].factors
    assert [producer.name for producer in found["attention"].producers] == ["Q_T", "K_T"]
    assert found["elementwise"].block == "out"
    assert space_of("one").size == 1


def test_accesses_have_strides() -> None:
    frame = space_of("matmul").frame
    strides = {access.tensor: access.strides for access in frame.accesses}
    assert strides == {"A": (40, 0, 1), "B": (0, 1, 64), "C": (64, 1, 0)}
    # What an index from data moves by is not known; along the other axis it is.
    gathered = space_of("gather").frame.accesses[0]
    assert gathered.strides == (None, 1)


def test_steps_that_lead_to_one_nest_are_one_candidate() -> None:
    space = space_of("matmul")
    one = space.candidate([("split", 0, 8), ("split", 2, 16), ("move", 2, 1), ("parallel", 1)])
    other = space.candidate([("split", 1, 16), ("split", 0, 8), ("swap", 1), ("parallel", 1)])
    assert one == other
    assert space.candidate([("split", 0, 8)]) == space.candidate([])


def test_an_illegal_step_says_which_and_why() -> None:
    with pytest.raises(InvalidCandidate, match=r"step 1.*parallel"):
        space_of("matmul").candidate([("swap", 1), ("parallel", 1)])


def test_another_workloads_candidate_is_refused() -> None:
    candidate = space_of("matmul").sample(np.random.default_rng(0), 1)[0]
    with pytest.raises(InvalidCandidate, match=r"\S"):
        space_of("conv2d").schedule(candidate)


def test_a_program_without_a_nest_is_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def pairs(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(4):
            with T.sblock("pair"):
                v = T.axis.spatial(4, i)
                b[v * 2] = a[v * 2 + 1]
                b[v * 2 + 1] = a[v * 2]

    with pytest.raises(WorkloadError, match=r"no loop nest to tune.*pair"):
        LoopSpace(Workload.from_module(pairs), TARGET)


def register_tile(space: LoopSpace) -> Candidate:
    """Eight rows of two vectors, accumulated in registers."""
    return space.candidate(
        [
            ("split", 0, 8),
            ("split", 2, 32),
            ("move", 2, 1),
            ("move", 4, 2),
            ("parallel", 1),
            ("accumulate", 2),
            ("vectorize",),
            ("unroll", 3),
        ]
    )


def test_a_register_tile_is_many_times_as_fast_as_the_program_as_it_stands() -> None:
    space = LoopSpace(workload("matmul", 256, 256, 256), cpu_target("llvm -num-cores=1"))
    mods = [space.schedule(c).mod for c in (register_tile(space), space.candidate([]))]
    with LocalMeasurer(space.workload, space.target) as measurer:
        programs = [measurer.program(mod) for mod in mods]
        fast, plain = time_interleaved(measurer, programs, rounds=5)
    # 40 to 60 times here; 4 is far from both, whatever else the machine does.
    assert min(fast.times_s) * 4 < min(plain.times_s)


def test_ragged_tiles_of_primes_are_fast_too() -> None:
    """Only the last round of a loop is guarded, so a prime extent keeps its vectors."""
    space = LoopSpace(workload("matmul", 127, 131, 67), cpu_target("llvm -num-cores=1"))
    steps = [("split", 0, 8), ("split", 2, 32), ("move", 2, 1), ("move", 4, 2)]
    candidates = [
        space.candidate([*steps, ("accumulate", 2), ("vectorize",), ("unroll", 3)]),
        space.candidate([("swap", 1)]),  # whole loops, in the order i, k, j
    ]
    mods = [space.schedule(candidate).mod for candidate in candidates]
    with LocalMeasurer(space.workload, space.target) as measurer:
        tiled, whole = time_interleaved(measurer, [measurer.program(m) for m in mods], rounds=5)
    # 1.6 to 1.8 times here.
    assert min(tiled.times_s) < min(whole.times_s)
