"""Features of other tuners' logs, and that a model learns from them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensortune.costmodel.base import Samples
from tensortune.costmodel.features import logs
from tensortune.costmodel.features.logs import KnobEncoder, step_rows, steps_samples
from tensortune.costmodel.metrics import pairwise_accuracy
from tensortune.costmodel.xgb import XGBModel
from tensortune.data.candidate import Candidate, Point
from tensortune.data.logs.entry import LogEntry
from tensortune.data.logs.reader import read_log

LOGS = Path(__file__).parents[2] / "data/logs"
NAMES = ("autotvm_dense", "autotvm_conv2d", "ansor_dense", "ansor_conv2d")
FOLDS = 4


def entries(name: str) -> list[LogEntry]:
    return read_log(LOGS / f"{name}.jsonl").entries


def with_point(entry: LogEntry, *point: Point) -> LogEntry:
    return replace(entry, candidate=Candidate(entry.candidate.space, point))


def samples(found: Sequence[LogEntry]) -> Samples:
    if found[0].tuner == "autotvm":
        return KnobEncoder.of(found).samples(found)
    return steps_samples(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_learns_from_a_real_log(name: str) -> None:
    # Tuners measure some configurations twice; these must not be in both halves.
    distinct = {entry.candidate: entry for entry in entries(name) if entry.outcome.repeats}
    data = samples(list(distinct.values()))
    order = np.random.default_rng(0).permutation(len(data))
    accuracy = []
    for fold in range(FOLDS):
        held_out = order[fold::FOLDS]
        model = XGBModel()
        model.fit(data.take(np.setdiff1d(order, held_out)))
        test = data.take(held_out)
        accuracy.append(pairwise_accuracy(model.predict(test), test.latency_s))
    # By chance, the accuracy on n programs is 0.5 with a standard deviation of half of Kendall's
    # tau's; of the mean over the folds it is that over the root of their number. Three of them.
    n = len(data) / FOLDS
    deviation = math.sqrt(2 * (2 * n + 5) / (9 * n * (n - 1))) / 2 / math.sqrt(FOLDS)
    assert np.mean(accuracy) > 0.5 + 3 * deviation


def test_columns_are_named_by_the_knobs() -> None:
    found = entries("autotvm_conv2d")
    encoder = KnobEncoder.of(found)
    assert [name for name in encoder.columns if not name.startswith("shape")] == [
        *("tile_ic.0", "tile_ic.1", "tile_oc.0", "tile_oc.1", "tile_ow.0", "tile_ow.1"),
        "unroll_kw",
    ]
    row = dict(zip(encoder.columns, encoder.encode(found)[0].tolist(), strict=True))
    knobs = {name: value for name, _, value in json.loads(json.dumps(found[0].candidate.point))}
    assert row["tile_oc.1"] == math.log2(knobs["tile_oc"][1])
    assert row["unroll_kw"] == float(knobs["unroll_kw"] == "true")
    assert row["shape 1.0"] == 6.0  # 64 channels come out
    assert math.isnan(row["tile_oc.0"])  # -1: what is left


def test_knobs_of_every_kind() -> None:
    (entry, *_) = entries("autotvm_bitserial")
    first = with_point(
        entry,
        ("split", "sp", (-1, 8)),
        ("order", "re", (2, 0, 1)),
        ("ann", "an", ("none", "vec")),
        *(("number", "ot", 16), ("share", "ot", "0.5"), ("flag", "ot", "true")),
        ("layout", "ot", "NCHW"),
    )
    second = with_point(entry, ("ann", "an", ("unroll", "vec")), ("layout", "ot", "NHWC"))
    encoder = KnobEncoder.of([first, second])
    rows = encoder.encode([first, second])
    one, two = (dict(zip(encoder.columns, row.tolist(), strict=True)) for row in rows)
    known = {name: value for name, value in one.items() if not name.startswith("shape")}
    assert math.isnan(known.pop("split.0"))
    assert {name for name, value in known.items() if value == 0.0} == {
        *("order.1", "ann.0=unroll", "layout=NHWC")
    }
    assert {name: value for name, value in known.items() if value != 0.0} == {
        "split.1": 3.0,
        "order.0": 2.0,
        "order.2": 1.0,
        "ann.0=none": 1.0,
        "ann.1=vec": 1.0,
        "number": 16.0,
        "share": 0.5,
        "flag": 1.0,
        "layout=NCHW": 1.0,
    }
    # A knob that isn't there is unknown, an option that wasn't taken is 0.
    assert math.isnan(two["number"])
    assert (two["ann.0=none"], two["layout=NHWC"]) == (0.0, 1.0)


def test_an_encoder_keeps_its_columns() -> None:
    found = entries("autotvm_dense")
    encoder = KnobEncoder.of(found)
    stranger = with_point(found[0], ("tile_x", "sp", (-1, 4)), ("new", "ot", "a"))
    row = dict(zip(encoder.columns, encoder.encode([stranger])[0].tolist(), strict=True))
    assert row["tile_x.1"] == 2.0
    assert "new=a" not in row
    assert KnobEncoder(encoder.task, encoder.columns).schema == encoder.schema
    assert KnobEncoder.of([*found, stranger]).schema != encoder.schema


def test_templates_are_not_mixed() -> None:
    dense, conv = entries("autotvm_dense"), entries("autotvm_conv2d")
    with pytest.raises(ValueError, match=r"one AutoTVM template, not conv2d_NCHWc.x86, dense_nop"):
        KnobEncoder.of([dense[0], conv[0]])
    with pytest.raises(ValueError, match="of Ansor: choose by"):
        KnobEncoder.of(entries("ansor_conv2d"))
    with pytest.raises(ValueError, match="not none"):
        KnobEncoder.of([])
    with pytest.raises(ValueError, match=r"line 1 is of conv2d_NCHWc.x86, not of dense_nopack"):
        KnobEncoder.of(dense).encode(conv)
    model = XGBModel(rounds=2)
    model.fit(KnobEncoder.of(dense).samples(dense))
    with pytest.raises(ValueError, match="dense_nopack"):
        model.predict(KnobEncoder.of(conv).samples(conv))


def test_failures_are_infinitely_slow() -> None:
    found = entries("autotvm_dense")
    data = KnobEncoder.of(found).samples(found)
    failed = [entry.outcome.failure is not None for entry in found]
    assert np.array_equal(np.isinf(data.latency_s), failed)
    assert any(failed)


def test_a_step_is_its_kind_and_its_numbers() -> None:
    (entry, *_) = entries("ansor_dense")
    kinds = logs.STEP_WIDTH - 12
    point: tuple[Point, ...] = (
        ("SP", 2, 0, 128, (1, 7), 1),
        ("AN", 3, 0, 3),
        ("PR", 2, 1, "auto_unroll_max_step$511"),
        ("CHW", 0, "local"),
        ("RE", 1, tuple(range(20))),
        ("SA", 0, 0, -3, 0),
        ("AN", 0, 0, 99),
    )
    rows = step_rows(with_point(entry, *point))
    assert rows.shape == (7, logs.STEP_WIDTH)
    assert (rows[:, :kinds].sum(axis=1) == 1).all()
    assert len({row[:kinds].tobytes() for row in rows}) == 7
    log = np.log2
    assert np.allclose(rows[0, kinds : kinds + 6], log([3, 1, 129, 2, 8, 2]))
    assert not rows[0, kinds + 6 :].any()
    assert np.allclose(rows[1, kinds : kinds + 3], [2, 0, 0])  # what it is is in the kind
    assert np.allclose(rows[2, kinds : kinds + 3], log([3, 2, 512]))
    assert np.allclose(rows[4, kinds:], log([2, *range(1, 12)]))
    assert rows[5, kinds + 2] == -2.0


def test_short_and_long_schedules_have_one_width() -> None:
    (entry, *_) = entries("ansor_dense")
    few, many = (with_point(entry, *[("CI", 1)] * n) for n in (2, 9))
    data = steps_samples([few, many, with_point(entry)])
    # How many there are, and the stage's number, log2(1 + 1); the last slot has the rest.
    short, long, empty = data.rows.reshape(3, sum(logs.SLOTS), -1)
    assert short[short[:, 0] > 0, :2].tolist() == [[1, 1]] * 2
    assert long[long[:, 0] > 0, :2].tolist() == [[1, 1]] * 3 + [[6, 6]]
    assert not empty.any()


def test_a_step_more_leaves_the_others_in_their_columns() -> None:
    (entry, *_) = entries("ansor_dense")
    split, other = ("SP", 2, 0, 128, (4, 2), 1), ("SP", 2, 3, 64, (8, 1), 1)
    plain = with_point(entry, split, other, ("AN", 2, 0, 3))
    cached = with_point(entry, ("CHW", 2, "local"), split, other, ("AN", 2, 5, 2), ("AN", 2, 0, 3))
    first, second = steps_samples([plain, cached]).rows
    assert np.array_equal(first[first != 0], second[first != 0])
    assert (first != 0).sum() < (second != 0).sum()


def test_all_of_ansors_tasks_share_the_columns() -> None:
    both = entries("ansor_dense") + entries("ansor_softmax")
    data = steps_samples(both)
    assert data.schema == logs.STEPS_SCHEMA
    tasks = [entry.task for entry in both]
    assert [tasks[0] == task for task in tasks] == [group == 0 for group in data.groups]
    assert set(data.groups) == {0, 1}
    assert len(steps_samples([])) == 0


def test_an_autotvm_entry_has_no_steps() -> None:
    with pytest.raises(ValueError, match="line 1 is of autotvm"):
        steps_samples(entries("autotvm_dense"))


def test_it_does_without_tvm() -> None:
    code = (
        "import sys\n"
        "from tensortune.costmodel.features import logs\n"
        "sys.exit('tvm' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
