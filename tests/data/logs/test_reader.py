"""What both tuners' logs have in common: every line is read, or reported by its number."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensortune.costmodel.features.logs import KnobEncoder, steps_samples
from tensortune.data.logs.reader import LogRead, read_log
from tensortune.data.logs.records import to_records
from tensortune.data.record import FAILURES
from tensortune.data.store import Store

LOGS = Path(__file__).parent
FILES = sorted(LOGS.glob("*.jsonl"))
AUTOTVM = (LOGS / "autotvm_conv2d.jsonl").read_bytes().splitlines(keepends=True)
ANSOR = (LOGS / "ansor_conv2d.jsonl").read_bytes().splitlines(keepends=True)


def read(tmp_path: Path, *lines: bytes, **options: Any) -> LogRead:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(lines))
    return read_log(path, **options)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_line_of_a_real_log_is_read(path: Path) -> None:
    log = read_log(path)
    assert log.problems == []
    assert [entry.line for entry in log.entries] == list(
        range(1, len(path.read_bytes().splitlines()) + 1)
    )
    for entry in log.entries:
        assert entry.outcome.failure in (None, *FAILURES)
        assert bool(entry.outcome.repeats) == (entry.outcome.failure is None)
        assert entry.outcome.time > 1.7e9
        assert "znver4" in entry.target


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_records_of_a_log_go_through_the_store(path: Path, tmp_path: Path) -> None:
    records = to_records(read_log(path).entries, host="there")
    store = Store(tmp_path / "records.jsonl")
    store.append(records)
    contents = store.read()
    assert contents.problems == []
    assert contents.records == records
    assert {record.host for record in records} == {"there"}


def test_good_lines_between_bad_ones_are_kept(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        b"# a comment\n",
        AUTOTVM[0],
        b"\n",
        AUTOTVM[1][:-30] + b"\n",
        ANSOR[0],
        b"\xff\xfe\n",
        b'{"schema": 1}\n',
        b"[1, 2]\n",
        b"[" * 100_000 + b"\n",
        AUTOTVM[2],
        ANSOR[1][:100],
    )
    assert [(entry.line, entry.tuner) for entry in log.entries] == [
        (2, "autotvm"),
        (5, "ansor"),
        (10, "autotvm"),
    ]
    assert [problem.line for problem in log.problems] == [4, 6, 7, 8, 9, 11]
    reasons = [problem.why for problem in log.problems]
    for reason, part in zip(
        reasons, ("JSON at col", "UTF-8", "neither", "neither", "deep", "torn"), strict=True
    ):
        assert part in reason


def test_a_whole_last_line_without_its_newline_counts(tmp_path: Path) -> None:
    log = read(tmp_path, AUTOTVM[0], ANSOR[0].rstrip())
    assert len(log.entries) == 2
    assert log.problems == []


def test_an_empty_log(tmp_path: Path) -> None:
    assert read(tmp_path) == LogRead([], [])


@pytest.mark.parametrize("line", [AUTOTVM[0], ANSOR[0]], ids=["autotvm", "ansor"])
def test_a_line_torn_anywhere_is_a_problem(line: bytes, tmp_path: Path) -> None:
    cuts = range(1, len(line) - 1, 7)
    log = read(tmp_path, *(line[:cut] + b"\n" for cut in cuts))
    assert log.entries == []
    assert [problem.line for problem in log.problems] == list(range(1, len(cuts) + 1))


ODD: tuple[Any, ...] = (None, True, -1, 2.5, 1e400, "", "x", [], {}, [[]], 10**400, {"a": [None]})


def with_odd_values(line: bytes) -> list[bytes]:
    """The line once for each of its fields and each odd value, which stands in that field."""
    value = json.loads(line)
    changed: list[bytes] = []
    for container, key in list(leaves(value)):
        kept = container[key]
        for odd in ODD:
            container[key] = odd
            changed.append(json.dumps(value).encode() + b"\n")
        container[key] = kept
    return changed


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value, as its container and its key."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from leaves(value[key])


@pytest.mark.parametrize("line", [AUTOTVM[0], ANSOR[0]], ids=["autotvm", "ansor"])
def test_whatever_stands_in_a_field_no_line_is_lost(line: bytes, tmp_path: Path) -> None:
    changed = with_odd_values(line)
    log = read(tmp_path, *changed)
    lines = [entry.line for entry in log.entries] + [problem.line for problem in log.problems]
    assert sorted(lines) == list(range(1, len(changed) + 1))
    # Few places take anything: arguments of the task, names, and what is not read at all.
    assert len(log.problems) > len(changed) / 3
    assert all(problem.why for problem in log.problems)
    to_records(log.entries)
    # They have features too, whatever the task's arguments hold.
    for entry in log.entries:
        ansor = entry.tuner == "ansor"
        found = steps_samples([entry]) if ansor else KnobEncoder.of([entry]).samples([entry])
        assert len(found) == 1


def with_target(line: bytes, target: str) -> bytes:
    value = json.loads(line)
    if "input" in value:
        value["input"][0] = target
    else:
        value["i"][0][1] = target
    return json.dumps(value).encode() + b"\n"


@pytest.mark.parametrize("line", [AUTOTVM[0], ANSOR[0]], ids=["autotvm", "ansor"])
@pytest.mark.parametrize(
    ("target", "wanted", "why"),
    [
        ("cuda -keys=cuda,gpu -arch=sm_70", None, "'cuda', which is no CPU's"),
        ('{"kind": "cuda"}', None, "'cuda', which is no CPU's"),
        ("llvm -mcpu=skylake", "llvm -mcpu=znver4", "for mcpu skylake, not znver4"),
        ("llvm", "llvm -mcpu=znver4", "for mcpu generic, not znver4"),
        (
            "llvm -mtriple=aarch64-linux-gnu",
            "llvm -mtriple=x86_64-linux-gnu",
            "aarch64, not x86_64",
        ),
        ("llvm -target aarch64-linux-gnu", '{"kind":"llvm","mtriple":"x86_64-a-b"}', "not x86_64"),
        ('{"mcpu": "znver4"}', None, "names no kind"),
        ("", None, "the target is like"),
        ("llvm -mcpu='znver4", None, "the target is like"),
    ],
)
def test_a_foreign_target_is_reported(
    line: bytes, target: str, wanted: str | None, why: str, tmp_path: Path
) -> None:
    log = read(tmp_path, line, with_target(line, target), target=wanted or "llvm -mcpu=znver4")
    assert [entry.line for entry in log.entries] == [1]
    (problem,) = [one for one in log.problems if one.line == 2]
    assert why in problem.why


def test_any_cpu_is_read_where_no_target_is_asked_for(tmp_path: Path) -> None:
    targets = ("llvm", "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu", '{"kind":"llvm"}')
    log = read(tmp_path, *(with_target(AUTOTVM[0], target) for target in targets))
    assert [entry.target for entry in log.entries] == list(targets)


def test_a_caller_names_the_workload(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, ANSOR[0]).entries
    exact = {entry.task + entry.args: "matmul(m=1,n=2,k=3)", entry.task: "matmul(m=4,n=5,k=6)"}
    assert read(tmp_path, ANSOR[0], workloads=exact).entries[0].workload == "matmul(m=1,n=2,k=3)"
    any_args = {entry.task: "matmul(m=4,n=5,k=6)"}
    (named,) = read(tmp_path, ANSOR[0], workloads=any_args).entries
    assert named.workload == "matmul(m=4,n=5,k=6)"


def test_what_can_not_be_read_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="the target is like"):
        read_log(FILES[0], target="")


def test_reading_loads_no_tvm() -> None:
    code = (
        "import sys\n"
        "from tensortune.data.logs.reader import read_log\n"
        "read_log(sys.argv[1])\n"
        "sys.exit('tvm' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(FILES[0])], check=True)
