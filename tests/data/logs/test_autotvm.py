"""AutoTVM's logs: real ones (`docs/scripts/record_autotvm.py`), and what their lines may hold."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tensortune.data.logs.reader import read_log
from tensortune.data.logs.records import identity, to_records
from tensortune.data.workload import Workload, workload

LOGS = Path(__file__).parent
DENSE, CONV2D, BITS = (LOGS / f"autotvm_{name}.jsonl" for name in ("dense", "conv2d", "bitserial"))
PYTHON = os.environ.get("TENSORTUNE_AUTOTVM_PYTHON", "")


def raw(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def changed(tmp_path: Path, part: str, value: Any) -> str:
    """Why the first line of a real log is refused with another value in it."""
    line = raw(DENSE)[0]
    line[part] = value
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(line) + "\n")
    log = read_log(path)
    return log.problems[0].why if log.problems else ""


def test_repeats_errors_and_times_are_those_of_the_log() -> None:
    entries, lines = read_log(DENSE).entries, raw(DENSE)
    for entry, line in zip(entries, lines, strict=True):
        costs, error, seconds, time = line["result"]
        assert (entry.outcome.seconds, entry.outcome.time) == (seconds, time)
        assert list(entry.outcome.repeats) == ([] if error else costs)
        if not error:
            assert entry.latency_s == statistics.median(costs)
    assert dict(entries[0].versions) == {"autotvm log": "0.2", "tvm": "0.16.dev0"}
    kinds = Counter(entry.outcome.failure for entry in entries)
    errors = Counter(line["result"][1] for line in lines)
    assert kinds == {None: errors[0], "timeout": errors[6]}
    assert kinds["timeout"] > 0


def test_failures_of_the_template_and_of_the_compiler() -> None:
    entries, lines = read_log(BITS).entries, raw(BITS)
    expected = {0: None, 1: "invalid", 2: "compile"}
    errors = [line["result"][1] for line in lines]
    assert [entry.outcome.failure for entry in entries] == [expected[error] for error in errors]
    assert set(errors) == set(expected)
    assert "INSTANTIATION_ERROR" in entries[errors.index(1)].outcome.detail


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        *((1, "invalid"), (2, "compile"), (3, "compile"), (4, "runtime"), (5, "wrong")),
        *((6, "timeout"), (7, "timeout"), (8, "runtime")),
    ],
)
def test_every_error_number_has_a_kind(error: int, failure: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(raw(DENSE)[0] | {"result": [[1e9], error, 3.0, 1.8e9]}) + "\n")
    (entry,) = read_log(path).entries
    assert entry.outcome.failure == failure
    assert entry.outcome.repeats == ()
    assert f"error {error} (" in entry.outcome.detail


def test_knobs_of_every_kind() -> None:
    point = read_log(BITS).entries[0].candidate.point
    line = raw(BITS)[0]["config"]["entity"]
    assert json.loads(json.dumps(point)) == line
    assert {knob[1] for knob in line} == {"sp", "re", "an"}
    options = [entry.candidate.point[-1] for entry in read_log(CONV2D).entries]
    assert set(options) == {("unroll_kw", "ot", "true"), ("unroll_kw", "ot", "false")}


def test_candidates_of_different_templates_differ() -> None:
    assert read_log(DENSE).entries[0].candidate.space == "autotvm/dense_nopack.x86"


def test_a_log_of_dense_is_of_our_dense() -> None:
    ours = workload("dense", 128, 128, 128)
    (record, *_) = to_records(read_log(DENSE).entries)
    assert (record.workload, record.identity) == (ours.key, ours.identity)


def test_a_convolution_is_ours_whatever_its_layout() -> None:
    ours = workload("conv2d", 1, 28, 28, 32, 64, 3, 1, 1)
    assert {entry.workload for entry in read_log(CONV2D).entries} == {ours.key}


def test_an_unknown_template_has_an_identity_of_its_own() -> None:
    entries = read_log(BITS).entries
    (record, *_) = to_records(entries)
    assert record.workload.startswith("autotvm:bitserial_dense.x86[")
    assert len({identity(entry) for entry in entries}) == 1
    assert identity(entries[0]) != identity(read_log(DENSE).entries[0])


def tensor(*shape: int, dtype: str = "float32") -> list[Any]:
    return ["TENSOR", list(shape), dtype]


SAME = [[1, 1], [1, 1, 1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("task", "args", "key"),
    [
        (
            "dense_pack.x86",
            [tensor(8, 32), tensor(16, 32), None, "float32"],
            "dense(m=8,n=16,k=32)",
        ),
        (
            "dense_int8.x86",
            [tensor(8, 32, dtype="int8"), tensor(16, 32, dtype="int8"), None, "int32"],
            "dense(m=8,n=16,k=32,dtype=int8)",
        ),
        ("dense_nopack.x86", [tensor(8, 32), tensor(16, 32), tensor(16), "float32"], ""),
        ("dense_nopack.x86", [tensor(8, 32), tensor(16, 31), None, "float32"], ""),
        ("dense_nopack.x86", [tensor(8, 32), tensor(16, 32), None, "float16"], ""),
        ("dense_pack.x86", [tensor(8, 32), tensor(2, 32, 8), None, "float32"], ""),
        (
            "batch_matmul.x86",
            [tensor(4, 8, 32), tensor(4, 16, 32), [4, 8, 16], "float32", False, True],
            "batch_matmul(b=4,m=8,n=16,k=32)",
        ),
        (
            "batch_matmul.x86",
            [tensor(4, 32, 8), tensor(4, 32, 16), [4, 8, 16], "float32", True, False],
            "batch_matmul(b=4,m=8,n=16,k=32)",
        ),
        (
            "conv2d_NCHWc.x86",
            [tensor(1, 16, 14, 12), tensor(32, 16, 3, 3), *SAME, "NCHW", "NCHW", "float32"],
            "conv2d(n=1,h=14,w=12,ci=16,co=32,kernel=3,stride=1,padding=1,dilation=1,groups=1)",
        ),
        (
            "conv2d_nhwc.x86",
            [tensor(1, 14, 12, 16), tensor(3, 3, 16, 32), 2, 1, 1, "float32"],
            "conv2d(n=1,h=14,w=12,ci=16,co=32,kernel=3,stride=2,padding=1,dilation=1,groups=1)",
        ),
        (
            "group_conv2d_nchw.x86",
            [tensor(1, 16, 14, 12), tensor(32, 4, 3, 3), *SAME, 4, "float32"],
            "grouped_conv2d(n=1,h=14,w=12,ci=16,co=32,kernel=3,stride=1,padding=1,dilation=1,"
            "groups=4)",
        ),
        (
            "depthwise_conv2d_NCHWc.x86",
            [tensor(1, 16, 14, 12), tensor(16, 1, 3, 3), *SAME, "NCHW", "NCHW", "float32"],
            "depthwise_conv2d(n=1,h=14,w=12,c=16,kernel=3,stride=1,padding=1,dilation=1)",
        ),
        (
            "conv1d_ncw.x86",
            [tensor(1, 16, 30), tensor(32, 16, 3), [2], [1, 1], [1], "float32"],
            "conv1d(n=1,l=30,ci=16,co=32,kernel=3,stride=2,padding=1,dilation=1,groups=1)",
        ),
        (
            "conv3d_ncdhw.x86",
            [tensor(1, 4, 6, 7, 8), tensor(5, 4, 3, 3, 3), [1] * 3, [0] * 6, [1] * 3, "float32"],
            "conv3d(n=1,d=6,h=7,w=8,ci=4,co=5,kernel=3,stride=1,padding=0,dilation=1,groups=1)",
        ),
        # Not square, not the same padding on all sides, two channels of each, packed already.
        ("conv2d_nchw.x86", [tensor(1, 4, 9, 9), tensor(8, 4, 3, 1), *SAME, "float32"], ""),
        (
            "conv2d_nchw.x86",
            [tensor(1, 4, 9, 9), tensor(8, 4, 3, 3), 1, [0, 0, 1, 1], 1, "float32"],
            "",
        ),
        (
            "depthwise_conv2d_nchw.x86",
            [tensor(1, 4, 9, 9), tensor(4, 2, 3, 3), *SAME, "float32"],
            "",
        ),
        (
            "conv2d_NCHWc.x86",
            [tensor(1, 1, 9, 9, 4), tensor(2, 1, 3, 3, 4, 4), *SAME, "float32"],
            "",
        ),
        ("conv2d_transpose_nchw.x86", [tensor(1, 4, 9, 9), tensor(4, 8, 3, 3), *SAME], ""),
        ("dense_nopack.x86", [["TENSOR", [8, "n"], "float32"], tensor(16, 32), None], ""),
        ("some_template", [1, 2, 3], ""),
        ("dense_nopack.x86", [], ""),
    ],
)
def test_what_a_template_computes(task: str, args: list[Any], key: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    line = raw(DENSE)[0]
    line["input"][1:3] = [task, args]
    path.write_text(json.dumps(line) + "\n")
    (entry,) = read_log(path).entries
    assert entry.workload == key
    if key:
        assert Workload.from_key(key).key == key


@pytest.mark.parametrize(
    ("part", "value", "why"),
    [
        ("version", 0.3, "`version` is 0.2, not 0.3"),
        ("input", ["llvm", "dense_nopack.x86", []], "`input` is [target, task"),
        ("config", {"index": 1}, "`entity` is missing"),
        ("config", {"entity": [["tile_x", "sp", 4]]}, "'tile_x' is a list, not 4"),
        ("config", {"entity": [["tile_x", "sp", [4.5]]]}, "'tile_x' is an integer, not 4.5"),
        ("config", {"entity": [["tile_x", "zz", [4]]]}, "one of sp, re, an, ot, not 'zz'"),
        ("config", {"entity": [["a", "ot", 1], ["a", "ot", 2]]}, "'a' is there twice"),
        ("config", {"entity": [["a", "ot", [1]]]}, "'a' is a single value"),
        ("config", {"entity": [["a", "an", [1]]]}, "'a' is a string"),
        ("result", [[1e-3], 0, 1.0], "[costs, error, seconds, time]"),
        ("result", [[], 0, 1.0, 1e9], "neither a cost nor an error"),
        ("result", [[1e9], 0, 1.0, 1e9], "a cost of 1e+09 s is no time"),
        ("result", [[0.0], 0, 1.0, 1e9], "a cost of 0 s is no time"),
        ("result", [[-1.0], 0, 1.0, 1e9], "a cost of -1 s is no time"),
        ("result", [[float("nan")], 0, 1.0, 1e9], "a cost is a finite number"),
        ("result", [["slow"], 0, 1.0, 1e9], "a cost is a number, not 'slow'"),
        ("result", [[1e-3], 9, 1.0, 1e9], "error number 9 is none of 0 to 8"),
        ("result", [[1e-3], None, 1.0, 1e9], "the error number is an integer"),
    ],
)
def test_a_damaged_line_says_what_is_wrong(part: str, value: Any, why: str, tmp_path: Path) -> None:
    assert why in changed(tmp_path, part, value)


def test_older_formats_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    old = {"i": ["llvm", "dense", [], {}, [], {"i": 1, "e": []}], "r": [[1.0], 0, 1, 1], "v": 0.1}
    path.write_text(
        json.dumps(old) + "\n" + "\t".join(["llvm", "gA==", "gA==", "gA==", "0.2", "x"])
    )
    first, second = (problem.why for problem in read_log(path).problems)
    assert "format 0.1" in first
    assert "pickle" in second


@pytest.mark.autotvm
@pytest.mark.skipif(not PYTHON, reason="TENSORTUNE_AUTOTVM_PYTHON names no interpreter")
def test_a_log_that_autotvm_writes_now(clone: Path, tmp_path: Path) -> None:
    out = tmp_path / "now.jsonl"
    script = clone / "docs/scripts/record_autotvm.py"
    command = [
        PYTHON,
        str(script),
        *"dense 16 32 64 --tuner random --trials 4".split(),
        "--out",
        str(out),
    ]
    subprocess.run(command, check=True, capture_output=True)
    log = read_log(out)
    assert len(log.entries) == 4
    assert log.problems == []
    assert {entry.workload for entry in log.entries} == {"dense(m=16,n=32,k=64)"}
    assert any(entry.outcome.repeats for entry in log.entries)
