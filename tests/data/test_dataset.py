"""Records as a table: exact round trips, refusals, appending, figures and checks."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensortune.data import parquet
from tensortune.data.candidate import Candidate
from tensortune.data.dataset import (
    Dataset,
    DatasetError,
    append_records,
    parts,
    read_dataset,
    write_dataset,
)
from tensortune.data.dataset_checks import Check, Floors, validate
from tensortune.data.dataset_import import import_log, sift
from tensortune.data.dataset_stats import describe, measured_programs, noise_pairs
from tensortune.data.families import ANSOR_FAMILIES, family_of, operator_of
from tensortune.data.operators import OPERATORS
from tensortune.data.record import FAILURES, Record
from tensortune.data.record_set import RecordSet, read_store, write_store
from tensortune.data.store import StoreError
from tensortune.data.suites import suite
from tensortune.data.workload import Workload, workload

LOGS = Path(__file__).parent / "logs"
SMALL = workload("matmul", 16, 24, 40)
TARGET = '{"kind":"llvm","mcpu":"znver4","num-cores":2}'


def record(number: int = 0, latency_s: float = 1.0, **fields: Any) -> Record:
    made = Record(
        SMALL.key,
        SMALL.identity,
        TARGET,
        Candidate("sketch", (0, ((number, 4), 3))),
        repeats=(latency_s, latency_s * 1.01),
        host="amd-epyc",
        versions={"apache-tvm": "0.27.0"},
        time=1000.0 + number,
        strategy="random",
    )
    return replace(made, **fields)


def failed(number: int = 0, failure: str = "timeout", **fields: Any) -> Record:
    return record(number, repeats=(), failure=failure, **fields)


# Any text that a record may hold, lone surrogates of an undecodable message among it.
TEXTS = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(['"', '"a"', "\udc80"])
POINTS = st.recursive(
    st.integers(-(2**70), 2**70) | TEXTS, lambda inner: st.tuples(inner, inner), max_leaves=6
)
TIMES = st.floats(0, exclude_min=True, allow_infinity=False)
INT64 = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def any_record(draw: st.DrawFn) -> Record:
    failure = draw(st.sampled_from([None, *FAILURES]))
    repeats = draw(st.lists(TIMES, min_size=failure is None, max_size=4))
    return Record(
        *(draw(TEXTS) for _ in range(3)),
        Candidate(draw(TEXTS), tuple(draw(st.lists(POINTS, max_size=3)))),
        repeats=tuple(repeats),
        failure=failure,
        detail=draw(TEXTS),
        cut=draw(st.booleans()),
        compile_s=draw(FINITE),
        host=draw(TEXTS),
        versions=draw(st.dictionaries(TEXTS, TEXTS, max_size=3)),
        seed=draw(INT64),
        batch=draw(INT64),
        time=draw(FINITE),
        strategy=draw(TEXTS),
    )


@given(records=st.lists(any_record(), max_size=8))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_record_comes_back_exactly(tmp_path: Path, records: list[Record]) -> None:
    path = write_dataset(tmp_path / "a.parquet", records, replace=True)
    found = read_dataset(path).records
    assert [r.to_json() for r in found] == [r.to_json() for r in records]
    assert list(found) == records


def test_store_to_parquet_to_store(tmp_path: Path) -> None:
    source = tvm.IRModule({"main": workload("relu", 8, 8).mod["main"]})
    custom = Workload.from_module(source, "mine")
    records = [
        record(0),
        failed(1, detail='what "it" said\n\udcff'),
        record(2, workload=custom.key, identity=custom.identity, cut=True),
    ]
    definitions = {custom.key: custom.to_json(), SMALL.key: SMALL.to_json()}
    write_store(tmp_path / "a.jsonl", records, definitions)
    stored = read_store(tmp_path / "a.jsonl")
    write_dataset(tmp_path / "a.parquet", stored.records, stored.definitions)
    table = read_dataset(tmp_path / "a.parquet")
    write_store(tmp_path / "b.jsonl", table.records, table.definitions)
    for name in ("jsonl", "workloads.jsonl"):
        first, second = (tmp_path / f"{store}.{name}" for store in "ab")
        assert first.read_bytes() == second.read_bytes()
    again = Workload.from_json(table.definitions[custom.key])
    assert again.identity == custom.identity


def test_other_programs_can_read_the_file(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "a.parquet", [record(3), failed(4)])
    table = pd.read_parquet(path)
    assert table["workload"].tolist() == [SMALL.key] * 2
    assert table["family"].tolist() == ["GMM"] * 2
    assert json.loads(table["point"][0]) == [0, [[3, 4], 3]]
    assert table["repeats"][0].tolist() == [1.0, 1.01]
    assert table["failure"][1] == "timeout" and pd.isna(table["failure"][0])


def test_a_file_of_another_version_is_refused_with_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "DATASET_VERSION", 7)
        write_dataset(tmp_path / "a.parquet", [record()])
    with pytest.raises(DatasetError, match=r"schema 7 with record schema 1; .* reads 1 with 1"):
        read_dataset(tmp_path / "a.parquet")


def test_what_is_no_dataset_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"does not exist; .*dataset build"):
        read_dataset(tmp_path / "none")
    with pytest.raises(DatasetError, match=r"holds no \.parquet file"):
        read_dataset(tmp_path)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(DatasetError, match="not one of tensortune's"):
        read_dataset(tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(DatasetError, match=r"text\.parquet is damaged"):
        read_dataset(tmp_path / "text.parquet")


def test_damage_anywhere_is_found(tmp_path: Path) -> None:
    records = [record(n, 1.0 + n / 7) for n in range(200)]
    path = write_dataset(tmp_path / "a.parquet", records)
    good = path.read_bytes()
    for length in (0, 3, 100, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(DatasetError, match="is damaged"):
            read_dataset(path)
    # A flipped bit is found, or it hit bytes that say nothing about the records.
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(300):
        bad = bytearray(good)
        bad[rng.integers(len(bad))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        try:
            assert read_dataset(path).records == records
        except DatasetError:
            found += 1
    assert found > 150


def test_writing_replaces_nothing_unasked_and_leaves_no_draft(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "a.parquet", [record()])
    with pytest.raises(DatasetError, match="exists"):
        write_dataset(path, [])
    with pytest.raises(DatasetError, match="does not fit the table"):
        write_dataset(path, [record(seed=2**64)], replace=True)
    with pytest.raises(DatasetError, match="is a folder"):
        write_dataset(tmp_path, [])
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        write_dataset(tmp_path / "file" / "a.parquet", [record()])
    assert read_dataset(path).records == [record()]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "file"]


def test_parts_are_appended_and_what_is_there_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    first = append_records(folder, [record(0), record(1), record(0)])
    assert (first.records, first.known) == (2, 1)
    # Versions are no part of a record's hash, and yet make another record of it.
    other = record(1, versions={"apache-tvm": "0.28"})
    second = append_records(folder, [record(1), record(2), other])
    assert (second.records, second.known) == (2, 1)
    assert append_records(folder, [record(2)]).part is None
    assert [part.name for part in parts(folder)] == ["part-0001.parquet", "part-0002.parquet"]
    assert read_dataset(folder).records == [record(0), record(1), record(2), other]
    with pytest.raises(DatasetError, match="is a file"):
        append_records(parts(folder)[0], [record(5)])
    parts(folder)[0].write_bytes(b"")
    with pytest.raises(DatasetError, match="part-0001"):
        append_records(folder, [record(5)])
    assert len(parts(folder)) == 2


APPEND = """
import sys
from dataclasses import replace
from pathlib import Path
from tensortune.data.candidate import Candidate
from tensortune.data.dataset import append_records
from tensortune.data.parquet import read_file

folder, source, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
[one] = read_file(Path(source)).records
for number in (*range(start, start + 5), 1000):
    made = replace(one, candidate=Candidate("sketch", (0, ((number, 4), 3))))
    append_records(folder, [made])
"""


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "source.parquet", [record()])
    folder = tmp_path / "set"
    command = [sys.executable, "-c", APPEND, str(folder), str(source)]
    workers = [subprocess.Popen([*command, str(10 * n)]) for n in range(2)]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    found = sorted(r.candidate.point[1][0][0] for r in read_dataset(folder).records)
    assert found == [*range(5), *range(10, 15), 1000]


def test_twenty_thousand_records_take_few_megabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    items = suite("looptune-train")[:120]
    records = [
        record(
            workload=items[n % 120].key,
            identity=f"{n % 120:016x}",
            candidate=Candidate("sketch", (0, tuple(map(int, rng.integers(1, 512, 12))))),
            repeats=tuple(map(float, rng.lognormal(-8, 1, 3))),
            compile_s=float(rng.random()),
            time=float(rng.random() * 1e9),
        )
        for n in range(20_000)
    ]
    path = write_dataset(tmp_path / "a.parquet", records)
    # Numbers at random can't be compressed: the bound is what real records stay far below.
    assert path.stat().st_size < 3e6
    assert len(read_dataset(path)) == 20_000


def test_the_table_says_what_follows_from_the_records() -> None:
    records = [record(0, 2.0), record(1, 1.0), failed(2), record(3, host="other"), record(4)]
    records.append(failed(4, "wrong"))
    data = Dataset(records)
    table = data.table
    assert table["group"].tolist() == [0, 0, 0, 1, 0, 0]
    assert data.group_keys[1] == (SMALL.identity, TARGET, "other")
    assert table["speed"].tolist() == pytest.approx([0.5, 1, 0, 1, 0, 0])
    assert table["valid"].tolist() == [True, True, False, True, False, False]
    assert np.isinf(data.latency_s[[2, 4, 5]]).all()  # 4 was found wrong after it was timed
    assert table["failure"].tolist() == ["", "", "timeout", "", "", "wrong"]
    assert table["repeats"].tolist() == [2, 2, 0, 2, 2, 0]
    assert data.take([3, 0]).records == [records[3], records[0]]
    assert data.take(table["valid"]).records == [records[0], records[1], records[3]]
    assert len(data.take([])) == 0 and not len(Dataset([]).table)


def test_families() -> None:
    # Each item of Ansor's suite is of the family that the suite has it in.
    assert {family_of(item.key) for item in suite("ansor")} == set(ANSOR_FAMILIES)
    for family in ANSOR_FAMILIES:
        assert {family_of(item.key) for item in suite(family)} == {family}
    assert family_of(SMALL.key) == "GMM"
    one = workload("conv2d", 1, 8, 8, 4, 4, 3, dilation=2)
    assert family_of(one.key) == family_of(workload("dilated_conv2d", 1, 8, 8, 4, 4, 3).key)
    assert family_of(workload("grouped_conv2d", 1, 8, 8, 4, 4, 3, groups=1).key) == "C2D"
    assert family_of("matmul(m=1,n=2,k=3,dtype=int8)") == "GMM"
    assert family_of("add(m=1,n=2)") == family_of("gelu(m=1,n=2)") == "elementwise"
    assert family_of("my.module:f(a=1)") == operator_of("my.module:f(a=1)") == "my.module:f"
    assert family_of("custom:attention@0f3a") == "custom:attention"
    assert operator_of('autotvm:dense.x86["TENSOR",[1,2]]') == "autotvm:dense.x86"
    for operator in OPERATORS.values():
        assert operator_of(workload(operator.name, *operator.example).key) == operator.name


def test_pairs_of_occasions() -> None:
    late = [record(n, 1.1, time=1e6 + n) for n in (0, 1)]
    soon = record(2, time=1003.0)
    other_host = record(3, host="other", time=1e6)
    records = [record(0), record(1), record(2), record(3), failed(1, time=2e6), soon, other_host]
    data = Dataset([*records, *late])
    pairs = noise_pairs(data)
    assert pairs.positions == ((0, 7), (1, 8))
    assert pairs.latency_s[0] == (records[0].latency_s, late[0].latency_s)
    assert pairs.groups.tolist() == [0, 0]
    assert measured_programs(data) == 5  # four here, and one of these on the other host too
    assert len(noise_pairs(data, apart_s=0.5)) == 3
    assert len(noise_pairs(Dataset([]))) == 0


def test_a_description_counts() -> None:
    records = [
        record(0, 4.0), record(1, 1.0), record(2, 2.0), record(0, 5.0, time=1e6),
        failed(3), failed(4, "compile"), failed(5, "compile"),
        record(6, candidate=Candidate("loop", (1,)), workload="softmax(m=4,n=8)", identity="s"),
    ]  # fmt: skip
    found = describe(Dataset(records))
    assert (found["records"], found["valid"], found["identities"]) == (8, 5, 2)
    assert found["failures"] == {"compile": 2, "timeout": 1}
    assert found["spaces"] == {"sketch": 7, "loop": 1}
    assert [row["family"] for row in found["families"]] == ["GMM", "SFM"]
    first = found["per_workload"][0]
    assert first["best_s"] == pytest.approx(1.005)
    assert first["spread"] == pytest.approx(3.0)  # the median of 1, 2, 4 and 5 over 1
    assert found["again"]["median"] == pytest.approx(0.25)
    assert found["measured_again"] == 1 and found["measured_programs"] == 4
    assert found["repeat_noise"]["median"] == pytest.approx(math.log(1.01) / math.sqrt(2))
    assert found["first"] == "1970-01-01T00:16:40+00:00"
    json.dumps(found)
    assert describe(Dataset([])) == {"records": 0}


NO_FLOORS = Floors(0, 0, 0, 0, 0.0, 0.0, 30.0)


def checks(path: Path, floors: Floors = NO_FLOORS) -> dict[str, Check]:
    return {check.name: check for check in validate(path, floors)}


def failing(path: Path, floors: Floors = NO_FLOORS) -> list[str]:
    return [check.name for check in checks(path, floors).values() if not check.ok]


def test_a_sound_dataset_passes_and_floors_are_looked_at(tmp_path: Path) -> None:
    looptune = suite("looptune-train")[0]
    loop = Candidate("loop", (1, 2))
    records = [
        record(0),
        record(0, time=1e6),
        record(1, workload=looptune.key, identity=looptune.identity, candidate=loop),
    ]
    write_dataset(tmp_path / "a.parquet", records)
    assert failing(tmp_path) == []
    assert failing(tmp_path, Floors(3, 2, 1, 1, 1 / 3, 0.5, 0.1)) == []
    assert failing(tmp_path, Floors(4, 3, 2, 2, 0.34, 0.51, 0.001)) == [
        *("records", "workloads", "Ansor families", "LoopTune training workloads"),
        *("share of loop programs", "share measured again", "megabytes"),
    ]


@pytest.mark.parametrize(
    "planted",
    [
        workload("matmul", 384, 384, 384),
        workload("batch_matmul", 1, 384, 384, 384),  # the same computation under another key
        suite("ansor")[9],
        suite("looptune-test")[100],
    ],
    ids=str,
)
def test_a_planted_leak_is_found(tmp_path: Path, planted: Workload) -> None:
    leak = record(5, workload=planted.key, identity=planted.identity)
    append_records(tmp_path, [record(n) for n in range(50)])
    append_records(tmp_path, [leak])
    assert failing(tmp_path) == ["held-out workloads"]
    assert planted.key in checks(tmp_path)["held-out workloads"].found
    # Under a made-up identity it is found all the same, and so is the identity under a made-up key.
    for forged in (replace(leak, identity="f" * 16), replace(leak, workload=SMALL.key)):
        path = write_dataset(tmp_path / "forged.parquet", [record(0), forged], replace=True)
        assert failing(path) == ["identities", "held-out workloads"]


def test_gaps_in_the_provenance_and_double_records_are_found(tmp_path: Path) -> None:
    unknown = record(1, workload="ansor:f[1]", identity="0" * 16)
    bare = record(2, host="", versions={}, time=0.0, strategy="unknown")
    path = write_dataset(tmp_path / "a.parquet", [record(0), unknown, bare, record(0)])
    found = checks(path)
    assert "host is missing in 1" in found["provenance"].found
    assert "versions" in found["provenance"].found and "time" in found["provenance"].found
    assert found["records that are there twice"].found == "1"
    assert "ansor:f[1]" in found["identities"].found
    names = ["identities", "provenance", "records that are there twice"]
    assert failing(path) == names
    path.write_bytes(b"")
    assert failing(path) == ["schema"]


def test_sifting_leaves_out_what_is_held_out() -> None:
    leak = workload("batch_matmul", 1, 384, 384, 384)
    hidden = record(1, workload=leak.key, identity="f" * 16)
    found = sift(RecordSet([record(0), hidden, record(2)]))
    assert found.records == [record(0), record(2)]
    assert found.held_out == {leak.key: 1}


def test_logs_of_other_tuners_come_with_what_was_left_out(tmp_path: Path) -> None:
    found = import_log(LOGS / "autotvm_conv2d.jsonl", host="h")
    assert found.lines == len(found.records) == 80
    assert set(found.workloads.values()) == {found.records[0].workload}
    assert {r.host for r in found.records} == {"h"}
    unknown = import_log(LOGS / "ansor_dense.jsonl")
    assert not unknown.records and sum(unknown.unknown.values()) == unknown.lines == 144
    assert len(import_log(LOGS / "ansor_dense.jsonl", allow_unknown=True).records) == 144
    task = next(iter(unknown.unknown))
    held = {task: "matmul(m=384,n=384,k=384)"}
    named = import_log(LOGS / "ansor_dense.jsonl", workloads=held)
    assert not named.records and named.held_out == {held[task]: 144}
    log = tmp_path / "log"
    log.write_bytes((LOGS / "autotvm_dense.jsonl").read_bytes()[:-100] + b"\n{}\n")
    damaged = import_log(log)
    assert (damaged.lines, len(damaged.records)) == (81, 79)
    assert [problem.line for problem in damaged.problems] == [80, 81]
    assert damaged.failures == {"timeout": sum(not r.valid for r in damaged.records)}


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "a.parquet", [record()])
    file = pq.ParquetFile(path)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    header = json.loads(file.schema_arrow.metadata[b"tensortune"])
    assert (header["dataset"], header["record"], header["definitions"]) == (1, 1, {})
