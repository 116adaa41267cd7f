from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from tensortune.costmodel.features import statements
from tensortune.costmodel.features.schemas import STATEMENTS
from tensortune.data.sketch_space import SketchSpace, tune_context
from tensortune.data.space import Scheduled
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, workload

TARGET = cpu_target("llvm -num-cores=2")


@pytest.fixture(scope="module")
def item() -> Workload:
    return workload("softmax", 64, 48)


@pytest.fixture(scope="module")
def scheduled(item: Workload) -> list[Scheduled]:
    space = SketchSpace(item, TARGET)
    return [space.schedule(c) for c in space.sample(np.random.default_rng(0), 12)]


def test_features_are_those_of_the_schedule_itself(
    item: Workload, scheduled: list[Scheduled]
) -> None:
    candidates = []
    for one in scheduled:
        schedule = Schedule(item.mod)
        one.trace.apply_to_schedule(schedule, remove_postproc=False)
        candidates.append(ms.MeasureCandidate(schedule, []))
    context = tune_context(item.mod, TARGET)
    expected = ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)
    found = statements.extract(scheduled, TARGET)
    assert len(found) == len(scheduled)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == np.float32
        assert ours.shape[1] == STATEMENTS.width
        assert np.array_equal(ours, theirs.numpy().astype(np.float32))


def test_features_are_finite_logarithms(scheduled: list[Scheduled]) -> None:
    rows = np.concatenate(statements.extract(scheduled, TARGET))
    assert np.isfinite(rows).all()
    # log2 of a count of operations or bytes: 100 would be 10**30 of them.
    assert (np.abs(rows) < 100).all()


def test_schedules_differ_in_their_features(scheduled: list[Scheduled]) -> None:
    found = {features.tobytes() for features in statements.extract(scheduled, TARGET)}
    assert len(found) > len(scheduled) / 2


def test_neither_batch_nor_threads_matter(scheduled: list[Scheduled]) -> None:
    together = statements.extract(scheduled, TARGET, threads=2)
    for one, features in zip(scheduled, together, strict=True):
        assert np.array_equal(statements.extract([one], TARGET, threads=1)[0], features)


def test_nothing_to_extract() -> None:
    assert statements.extract([], TARGET) == []
    assert len(statements.samples([], TARGET)) == 0


def test_a_program_that_cannot_be_analysed_costs_its_own_features_only(
    scheduled: list[Scheduled],
) -> None:
    class Broken:
        pass

    broken = Scheduled(scheduled[0].candidate, Broken(), None)
    found = statements.extract([scheduled[0], broken, scheduled[1]], TARGET)
    assert found[1].shape == (1, STATEMENTS.width)
    assert np.isnan(found[1]).all()
    assert np.array_equal(found[0], statements.extract(scheduled[:1], TARGET)[0])
    assert np.array_equal(found[2], statements.extract(scheduled[1:2], TARGET)[0])


def test_samples(scheduled: list[Scheduled]) -> None:
    samples = statements.samples(scheduled, TARGET, np.ones(len(scheduled)))
    assert samples.schema == STATEMENTS
    assert len(samples) == len(scheduled)
    assert samples.latency_s.tolist() == [1.0] * len(scheduled)


def test_no_gpu_intrinsic_is_imported() -> None:
    code = (
        "import sys\n"
        "from tensortune.costmodel.features import statements\n"
        "from tensortune.data.space import Scheduled\n"
        "from tensortune.data.target import cpu_target\n"
        "from tensortune.data.workload import workload\n"
        "mod = workload('softmax', 8, 8).mod\n"
        "statements.extract([Scheduled(None, mod, None)], cpu_target('llvm -num-cores=1'))\n"
        "sys.exit('tvm.s_tir.tensor_intrin' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
