"""Ansor's logs: real ones (`docs/scripts/record_ansor.py`), and the forms of other versions."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tensortune.data.logs.entry import LogEntry
from tensortune.data.logs.reader import read_log
from tensortune.data.logs.records import identity
from tensortune.data.workload import Workload, workload

LOGS = Path(__file__).parent
DENSE, CONV2D, SOFTMAX = (LOGS / f"ansor_{name}.jsonl" for name in ("dense", "conv2d", "softmax"))
PYTHON = os.environ.get("TENSORTUNE_AUTOTVM_PYTHON", "")

# A line in the form of TenSet's files: the workload is a hash and sizes in one list, the target
# names a CPU's model. Made up after the format, not taken from TenSet.
TENSET = {
    "i": [
        [
            '["0123456789abcdef0123456789abcdef", 1, 56, 56, 64, 3, 3, 64, 128, 1, 28, 28, 128]',
            "llvm -keys=cpu -link-params=0 -mcpu=skylake-avx512 -model=platinum-8272",
        ],
        [[], [["SP", 3, 0, 1, [1, 1, 1], 1], ["FFSP", 4, 0, [0, 1], 2, 1], ["RF", 3, 1, 0]]],
    ],
    "r": [[0.0008, 0.0009, 0.00085], 0, 0.87, 1615900000],
    "v": "v0.6",
}
FULL_STEPS = [
    ["CHR", 0, "local", [2, 3]],
    ["CHW", 2, "local"],
    ["SP", 2, 0, 128, [2, 4, 1], 1],
    ["FSP", 3, 0, 2, 1],
    ["FFSP", 3, 0, [2, 3], 1, True],
    ["RE", 3, [0, 2, 1]],
    ["FU", 3, [0, 1]],
    ["CA", 2, 3, 1],
    ["CI", 1],
    ["CR", 4],
    ["RF", 2, 3, 0],
    ["SA", 2, 1, 8, 0],
    ["AN", 3, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$512"],
]


def raw(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(value) + "\n")
    return path


def one(tmp_path: Path, value: Any) -> LogEntry:
    log = read_log(written(tmp_path, value))
    assert log.problems == []
    return log.entries[0]


@pytest.mark.parametrize("path", [DENSE, CONV2D, SOFTMAX], ids=lambda path: path.stem)
def test_steps_and_costs_are_those_of_the_log(path: Path) -> None:
    for entry, line in zip(read_log(path).entries, raw(path), strict=True):
        costs, error, seconds, time = line["r"]
        assert json.loads(json.dumps(entry.candidate.point)) == line["i"][1][1]
        assert list(entry.outcome.repeats) == ([] if error else costs)
        assert (entry.outcome.seconds, entry.outcome.time) == (seconds, time)
        assert entry.target == line["i"][0][1]
        assert dict(entry.versions) == {"ansor log": "v0.6"}


def test_failures_of_a_real_log_are_failures() -> None:
    pairs = [
        (entry.outcome.failure, line["r"][1])
        for path in (DENSE, CONV2D, SOFTMAX)
        for entry, line in zip(read_log(path).entries, raw(path), strict=True)
    ]
    assert {(None, 0), ("timeout", 6)} <= set(pairs) <= {(None, 0), ("timeout", 6), ("timeout", 7)}


def test_functions_of_the_ansor_suite_are_known() -> None:
    assert {entry.workload for entry in read_log(CONV2D).entries} == {
        workload("conv2d", 1, 14, 14, 32, 64, 3, 1, 1).key
    }
    assert {entry.workload for entry in read_log(SOFTMAX).entries} == {
        workload("softmax", 128, 256).key
    }


def test_a_hash_is_its_own_identity_until_the_caller_names_it() -> None:
    entries = read_log(DENSE).entries
    assert {entry.workload for entry in entries} == {""}
    assert len({identity(entry) for entry in entries}) == 1
    assert len(entries[0].task) == 32
    ours = workload("dense", 128, 128, 128)
    named = read_log(DENSE, workloads={entries[0].task: ours.key}).entries
    assert {identity(entry) for entry in named} == {ours.identity}


@pytest.mark.parametrize(
    ("name", "args", "key"),
    [
        ("batch_matmul_nkkm", [4, 8, 16, 32], "batch_matmul(b=4,m=8,n=16,k=32)"),
        (
            "te_workload.conv1d_nlc",
            [1, 64, 8, 16, 3, 2, 1, 1, 1, "float32", "float32"],
            "conv1d(n=1,l=64,ci=8,co=16,kernel=3,stride=2,padding=1,dilation=1,groups=1)",
        ),
        (
            "depthwise_conv2d_nhwc",
            [1, 8, 8, 16, 3, 1, 1, 1, 1],
            "depthwise_conv2d(n=1,h=8,w=8,c=16,kernel=3,stride=1,padding=1,dilation=1)",
        ),
        ("depthwise_conv2d_nhwc", [1, 8, 8, 16, 3, 1, 1, 1, 2], ""),
        ("norm_bmn", [2, 8, 8], "norm(b=2,m=8,n=8)"),
        ("softmax_mn", [8, 16, "float16", "float16"], "softmax(m=8,n=16,dtype=float16)"),
        ("softmax_mn", [8, 16, "float16", "float32"], ""),
        ("softmax_mn", [8, 0], ""),
        ("softmax_mn", [8], ""),
        ("softmax_mn", [8, "float32", 16], ""),
        ("softmax_mn", [[8, 16]], ""),
        ("matmul", [8, 8, 8], ""),
        ("conv2d_layer", [1, 7, 7, 512, 512, 3, 3, 1, 1], ""),
    ],
)
def test_what_a_function_computes(name: str, args: list[Any], key: str, tmp_path: Path) -> None:
    line = raw(CONV2D)[0]
    line["i"][0][0] = json.dumps([name, *args])
    assert one(tmp_path, line).workload == key
    if key:
        assert Workload.from_key(key).key == key


def test_a_line_as_tenset_has_them(tmp_path: Path) -> None:
    entry = one(tmp_path, TENSET)
    assert entry.task == "0123456789abcdef0123456789abcdef"
    assert json.loads(entry.args)[:4] == [1, 56, 56, 64]
    assert entry.latency_s == 0.00085


@pytest.mark.parametrize(
    "extra",
    [
        [],
        [[8, 64, 64, 0, 0, 0, 0, 0]],
        [[8, 64, 64, 0, 0, 0, 0, 0], "", 1],
        [[8, 64, 64, 0, 0, 0, 0, 0], "", 2, ["placeholder_1"]],
        [1, [8, 64, 64, 0, 0, 0, 0, 0], ""],
    ],
)
def test_a_task_of_any_version_is_read(extra: list[Any], tmp_path: Path) -> None:
    line = json.loads(json.dumps(TENSET))
    line["i"][0] += extra
    assert one(tmp_path, line | {"v": "v0.2", "py_code": "s = ..."}).target == line["i"][0][1]


@pytest.mark.parametrize("key", ["conv2d", "[]", "3", '{"a": 1}', "[1, 2]"])
def test_a_key_that_is_no_list_is_a_name(key: str, tmp_path: Path) -> None:
    line = json.loads(json.dumps(TENSET))
    line["i"][0][0] = key
    entry = one(tmp_path, line)
    assert (entry.task, entry.args) == (key, "[]")


def test_every_step_there_is(tmp_path: Path) -> None:
    line = json.loads(json.dumps(TENSET))
    line["i"][1][1] = FULL_STEPS
    point = one(tmp_path, line).candidate.point
    assert json.loads(json.dumps(point)) == FULL_STEPS
    assert point[4] == ("FFSP", 3, 0, (2, 3), 1, 1)


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (["XX", 1], "a step is one of AN, FU"),
        ([], "a step is one of AN, FU"),
        ("CI", "a step is a list, not 'CI'"),
        (["CI"], "the step CI takes 1 values, not 0"),
        (["CI", 1, 2], "the step CI takes 1 values, not 2"),
        (["CI", True], "a value of the step CI is an integer, not True"),
        (["RE", 1, 2], "a value of the step RE is a list, not 2"),
        (["RE", 1, [None]], "a value of the step RE is an integer, not None"),
        (["PR", 1, 2, 3], "a value of the step PR is a string, not 3"),
        ([["CI"], 1], "a step is one of AN, FU"),
    ],
)
def test_a_damaged_step_is_reported(step: Any, why: str, tmp_path: Path) -> None:
    line = json.loads(json.dumps(TENSET))
    line["i"][1][1] = [step]
    (problem,) = read_log(written(tmp_path, line)).problems
    assert (problem.line, why in problem.why) == (1, True), problem


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"v": "v1.0"}, "`v` is v0.2 to v0.6, not 'v1.0'"),
        ({"v": 6}, "`v` is a string"),
        ({"i": [["key"], [[], []]]}, "the task is [workload key, target, ...]"),
        ({"i": [["key", "llvm"]]}, "`i` is [task, state]"),
        ({"i": [["key", "llvm"], [[]]]}, "the state is [stages, steps]"),
        ({"r": [[1e10], 0, 1.0, 1]}, "a cost of 1e+10 s"),
    ],
)
def test_a_damaged_line_says_what_is_wrong(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    (problem,) = read_log(written(tmp_path, TENSET | change)).problems
    assert why in problem.why


@pytest.mark.autotvm
@pytest.mark.skipif(not PYTHON, reason="TENSORTUNE_AUTOTVM_PYTHON names no interpreter")
def test_a_log_that_ansor_writes_now(clone: Path, tmp_path: Path) -> None:
    out = tmp_path / "now.jsonl"
    script = clone / "docs/scripts/record_ansor.py"
    command = [
        PYTHON,
        str(script),
        *"softmax_mn 16 32 --quick --trials 4".split(),
        "--out",
        str(out),
    ]
    subprocess.run(command, check=True, capture_output=True)
    log = read_log(out)
    assert len(log.entries) == 4
    assert log.problems == []
    assert {entry.workload for entry in log.entries} == {"softmax(m=16,n=32)"}
    assert any(entry.outcome.repeats for entry in log.entries)
