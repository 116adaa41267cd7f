"""The references: what there is of them, what they compute, and that they are timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from tensortune.data import operators
from tensortune.data.finals import make_reference, time_interleaved
from tensortune.data.measure import LocalMeasurer
from tensortune.data.target import cpu_target
from tensortune.data.verify import judge_array
from tensortune.data.workload import Workload, workload
from tensortune.search.compare import Entrant, compare
from tensortune.search.peers import references
from tensortune.search.peers.references import (
    TORCH_OPERATORS,
    missing_references,
    reference_programs,
)

SMALL = {
    "matmul": (8, 12, 16),
    "matmul_relu": (8, 12, 16),
    "dense": (8, 12, 16),
    "batch_matmul": (2, 8, 12, 16),
    "transpose_batch_matmul": (1, 6, 3, 8),
    "conv1d": (1, 10, 4, 6, 3, 2, 1),
    "conv2d": (2, 9, 9, 4, 6, 3, 2, 1),
    "conv3d": (1, 4, 6, 6, 4, 6, 3, 1, 1),
    "grouped_conv2d": (1, 8, 8, 8, 12, 3, 1, 1),
    "dilated_conv2d": (1, 9, 9, 4, 6, 3, 1, 1),
    "depthwise_conv2d": (1, 9, 9, 6, 3, 2, 1),
    "transposed_conv2d": (1, 5, 5, 4, 6, 4, 2, 1),
    "conv2d_bn_relu": (1, 8, 8, 4, 6, 3, 2, 1),
    "max_pool2d": (1, 8, 8, 6, 3, 2, 1),
    "avg_pool2d": (1, 8, 8, 6, 3, 2, 1),
    "batch_norm": (1, 4, 4, 6),
    "norm": (3, 8, 8),
    "take": (20, 8, 5),
}


def _subject(name: str) -> Workload:
    return workload(name, *SMALL.get(name, (6, 20)))


def test_a_missing_reference_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "NumPy has no call" in missing_references(_subject("conv2d"))["numpy"]
    half = workload("matmul", 8, 8, 8, dtype="bfloat16")
    assert set(missing_references(half)) == {"numpy", "torch"}
    own = Workload.from_module(_subject("matmul").mod, "mine")
    assert set(missing_references(own)) == {"numpy", "torch"}
    monkeypatch.setattr(references, "find_spec", lambda name: None)
    assert "tensortune[neural]" in missing_references(_subject("matmul"))["torch"]
    assert "capsule" in missing_references(workload("capsule_conv2d", 1, 4, 4, 2, 2, 3))["torch"]


def test_untuned_and_numpy_need_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "find_spec", lambda name: None)
    with LocalMeasurer(_subject("matmul"), cpu_target()) as measurer:
        make_reference(measurer)
        programs = reference_programs(measurer)
        assert list(programs) == ["untuned", "numpy"]
        times = time_interleaved(measurer, list(programs.values()), rounds=2, repeat_s=1e-3)
    assert all(timed.latency_s < 1 for timed in times)


def test_torch_knows_the_operators_that_are_said() -> None:
    pytest.importorskip("torch")
    calls = pytest.importorskip("tensortune.search.peers.torch_calls")
    assert set(calls._CALLS) == TORCH_OPERATORS
    assert set(operators.names()) >= TORCH_OPERATORS


@pytest.mark.parametrize("name", sorted(TORCH_OPERATORS))
def test_torch_computes_what_the_operator_does(name: str) -> None:
    pytest.importorskip("torch")
    calls = pytest.importorskip("tensortune.search.peers.torch_calls")
    subject = _subject(name)
    arrays = subject.make_inputs(3)
    expected = _run(subject, [array.copy() for array in arrays])
    given = [array.copy() for array in arrays]
    found = calls.bind(subject, given)().numpy()
    assert judge_array(np.ascontiguousarray(found), expected, None) is None
    calls.torch_call(subject)(given)  # the form that is timed
    for before, after in zip(arrays[:-1], given[:-1], strict=True):
        np.testing.assert_array_equal(before, after)


def _run(subject: Workload, arrays: list[Any]) -> Any:
    """The output of the untuned program."""
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(subject.mod, target=cpu_target()).jit()["main"](*tensors)
    return tensors[-1].numpy()


def test_torch_is_timed_in_a_worker_of_its_own() -> None:
    pytest.importorskip("torch")
    subject = workload("softmax", 256, 256)
    with LocalMeasurer(subject, cpu_target()) as measurer:
        make_reference(measurer)
        programs = reference_programs(measurer)
        times = time_interleaved(measurer, list(programs.values()), rounds=3, repeat_s=2e-3)
    assert list(programs) == ["untuned", "numpy", "torch"]
    # Not which is the fastest: where others are at work too, torch's threads wait for each other.
    assert all(timed.failure is None for timed in times)
    assert all(len(timed.times_s) == 3 for timed in times)


@pytest.mark.slow
def test_a_comparison_shows_the_references_and_the_peak(tmp_path: Path) -> None:
    subject = workload("matmul", 64, 64, 64)
    result = compare(
        [subject],
        [Entrant("random", "random")],
        seeds=1,
        trials=4,
        out=tmp_path,
        say=lambda _: None,
    )
    shown = result["workloads"][subject.key]
    there = {"untuned", "numpy", "torch"} - set(result["missing"][subject.key])
    assert {name for name in shown if name != "random"} == there
    assert all(shown[name]["best_s"] > 0 for name in there)
    assert result["peak"]["flops"] > subject.flops / shown["random"]["best_s"]
