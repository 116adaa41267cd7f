"""Databases written by MetaSchedule's own search, through our records and back."""

from __future__ import annotations

import json
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm_ffi import structural_equal

from tensortune.data.candidate import Candidate
from tensortune.data.measure import UNTUNED
from tensortune.data.metaschedule import entries as entries_module
from tensortune.data.metaschedule.database import (
    export_records,
    read_database,
    rewrite_database,
)
from tensortune.data.metaschedule.traces import TRACE_SPACE, TraceReader
from tensortune.data.record import Record
from tensortune.data.record_set import RecordSet, read_store, write_store
from tensortune.data.sketch_space import SketchSpace, tune_context
from tensortune.data.store import StoreError
from tensortune.data.store_ops import matching
from tensortune.data.target import cpu_target, target_string
from tensortune.data.workload import Workload, workload

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"


@pytest.fixture(scope="module")
def target() -> Any:
    # Two threads, however many there are: what is tested is not how fast they are.
    return tvm.target.Target({**dict(cpu_target().export()), "num-cores": 2})


@pytest.fixture(scope="module")
def mods() -> list[Any]:
    matmul = workload("matmul", 48, 64, 32).mod
    # A function with a symbol of its own, as `ms.tune_tir` leaves it.
    named = matmul["main"].with_attr("global_symbol", "product")
    return [matmul, workload("softmax", 16, 16).mod, tvm.IRModule({"main": named})]


@pytest.fixture(scope="module")
def written(target: Any, mods: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of MetaSchedule's evolutionary search, its traces mutated and all.

    The loop is its task scheduler's; to each workload comes a schedule written by hand. The times
    are made up, and every fifth candidate fails.
    """
    folder = tmp_path_factory.mktemp("written")
    database = open_database(folder)
    rng = np.random.default_rng(0)
    for mod in mods:
        entry = database.commit_workload(mod)
        commit_by_hand(database, entry, target)
        if mod is mods[2]:
            continue
        search = ms.search_strategy.EvolutionarySearch(
            population_size=24, init_measured_ratio=0.5, genetic_num_iters=3
        )
        context = tune_context(mod, target, search_strategy=search)
        model = ms.cost_model.CostModel.create("random")
        search.pre_tuning(16, 8, context.generate_design_space(), database, model)
        while (found := search.generate_measure_candidates()) is not None:
            times = [[float(s) for s in rng.random(3)] for _ in found]
            results = []
            for number, candidate in enumerate(found):
                failed = number % 5 == 4
                seconds = [1e10] if failed else times[number]
                database.commit_tuning_record(
                    ms.database.TuningRecord(
                        candidate.sch.trace, entry, seconds, target, candidate.args_info
                    )
                )
                results.append(
                    ms.runner.RunnerResult(None, "failed")
                    if failed
                    else ms.runner.RunnerResult(seconds, None)
                )
            search.notify_runner_results(found, results)
        search.post_tuning()
    return folder


def commit_by_hand(database: Any, entry: Any, target: Any) -> None:
    schedule = Schedule(entry.mod)
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    schedule.parallel(schedule.get_loops(block)[0])
    info = ms.arg_info.ArgInfo.from_entry_func(entry.mod, remove_preproc=True)
    database.commit_tuning_record(
        ms.database.TuningRecord(schedule.trace, entry, [2.0], target, info)
    )


@pytest.fixture(scope="module")
def imported(written: Path) -> RecordSet:
    return read_database(written)


def open_database(folder: Path) -> Any:
    return ms.database.JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]


def copy_of(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def test_the_same_traces_and_times_come_back(
    written: Path, imported: RecordSet, target: Any, mods: list[Any], tmp_path: Path
) -> None:
    found = imported
    assert found.problems == []
    assert len(found.records) == len(lines(written)) > 30
    write_store(tmp_path / "records.jsonl", found.records, found.definitions)
    again = read_store(tmp_path / "records.jsonl")
    assert again.records == found.records
    assert export_records(tmp_path / "again", again) == []
    # Everything is the same: workloads, traces, times, targets, arguments, and their order.
    assert lines(tmp_path / "again") == lines(written)
    assert (tmp_path / "again" / WORKLOADS).read_text() == (written / WORKLOADS).read_text()
    before, after = open_database(written), open_database(tmp_path / "again")
    for mod in mods:
        for query in (
            lambda database, mod=mod: database.query_schedule(mod, target, "main"),
            lambda database, mod=mod: ms.tir_integration.compile_tir(database, mod, target),
        ):
            assert structural_equal(query(after).mod, query(before).mod)
            assert not structural_equal(query(after).mod, mod)
        best = [d.query_tuning_record(mod, target, "main").run_secs for d in (before, after)]
        assert list(map(float, best[0])) == list(map(float, best[1]))


def test_a_trace_of_a_sketch_becomes_its_candidate(
    written: Path, imported: RecordSet, target: Any
) -> None:
    found = imported
    definitions = {key: Workload.from_json(value) for key, value in found.definitions.items()}
    spaces = {key: SketchSpace(each, target) for key, each in definitions.items()}
    sketch = [record for record in found.records if record.candidate.space == "sketch"]
    traces = [record for record in found.records if record.candidate.space == TRACE_SPACE]
    assert len(sketch) + len(traces) == len(found.records)
    assert len(sketch) > 0.7 * len(found.records)
    # The ones written by hand, and those with a degree of parallelism that the search mutated.
    assert len(traces) >= 3
    for record, line in zip(found.records, lines(written), strict=True):
        mine = TraceReader(definitions[record.workload], record.target)
        text = json.dumps(line[1][0])
        theirs = mine.replay(Candidate(TRACE_SPACE, (text,))).mod
        if record in sketch:
            scheduled = spaces[record.workload].schedule(record.candidate)
            assert scheduled.candidate == record.candidate
            assert structural_equal(scheduled.mod, theirs)
        else:
            assert record.candidate.point == (json.dumps(line[1][0], separators=(",", ":")),)


def test_what_a_database_does_not_hold_is_not_made_up(
    written: Path, imported: RecordSet, target: Any
) -> None:
    records = imported.records
    for record, (_, (_, seconds, _, _)) in zip(records, lines(written), strict=True):
        if seconds == [1e10]:
            assert (record.failure, record.repeats) == ("runtime", ())
            assert record.detail.startswith("unknown")
        else:
            assert (record.valid, record.repeats) == (True, tuple(seconds))
        assert record.target == target_string(target)
        assert (record.host, record.strategy, record.time) == ("unknown", "unknown", 0.0)
        assert record.versions == {}
    assert sum(not record.valid for record in records) >= 3


def test_a_known_workload_goes_by_its_key(written: Path, imported: RecordSet) -> None:
    matmul = workload("matmul", 48, 64, 32)
    keys = {record.workload for record in read_database(written, [matmul]).records}
    assert matmul.key in keys
    # Its function under another symbol is another module to MetaSchedule, so it stays apart.
    assert len(keys) == 3
    same = [r for r in imported.records if r.identity == matmul.identity]
    assert len({record.workload for record in same}) == 2


def test_targets_are_kept_apart(written: Path, target: Any, tmp_path: Path) -> None:
    folder = copy_of(written, tmp_path / "two")
    other = {**lines(written)[0][1][2], "num-cores": 3}
    cuda = {"kind": "cuda", "keys": ["cuda", "gpu"], "max_num_threads": 1024, "arch": "sm_80"}
    changed = lines(written)
    changed[0][1][2] = other
    changed[1][1][2] = cuda
    write_lines(folder, changed)
    found = read_database(folder)
    assert found.problems == []
    targets = {record.target for record in found.records}
    assert len(targets) == 3
    # MetaSchedule would take the fastest of all, whatever it is for.
    with pytest.raises(StoreError, match="of 3 targets"):
        export_records(tmp_path / "out", found)
    assert not (tmp_path / "out").exists()
    for part, expected in (('"num-cores":3', changed[0]), ("sm_80", changed[1])):
        chosen = matching(found.records, target=part)
        export_records(tmp_path / part[-1], RecordSet(chosen, found.definitions))
        ((_, (trace, times, config, _)),) = lines(tmp_path / part[-1])
        assert (trace, times) == tuple(expected[1][:2])
        assert {k: v for k, v in config.items() if v} == {
            k: v for k, v in expected[1][2].items() if v
        }


def write_lines(folder: Path, values: list[Any]) -> None:
    (folder / RECORDS).write_text("".join(json.dumps(value) + "\n" for value in values))


def set_(*path: int, to: Any) -> Callable[[Any], str]:
    def change(line: Any) -> str:
        place = line
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to
        return json.dumps(line)

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: json.dumps(line)[:-40], "not JSON at column"),
        (lambda line: "\udcff\udcfe", "not UTF-8"),
        (lambda line: "[" * 100_000, "nested too deeply"),
        (lambda line: "{}", "not [workload"),
        (lambda line: "[0, [1, 2]]", "not [workload"),
        (set_(0, to=3), "no workload 3"),
        (set_(0, to=-1), "no workload -1"),
        (set_(0, to="0"), "no workload '0'"),
        (set_(1, 0, to=None), "a trace is"),
        (set_(1, 0, 0, 0, to=["GetSBlock"]), "an instruction of a trace"),
        (set_(1, 0, 0, 0, 2, 0, to="nowhere"), "can't replay the trace"),
        (set_(1, 0, 0, 0, 0, to="Unheard"), "can't replay the trace"),
        # Each of these makes TVM itself crash, or choose at random.
        (set_(1, 0, 1, 0, 0, to=10**6), "decisions"),
        (set_(1, 0, 1, 0, 0, to=None), "decisions"),
        (set_(1, 0, 1, 0, 1, to=None), "decisions"),
        (set_(1, 0, 1, to=[]), "decisions"),
        (set_(1, 1, to=None), "never timed"),
        (set_(1, 1, to=[]), "never timed"),
        (set_(1, 1, to=["1"]), "no numbers"),
        (set_(1, 1, to=[0.0]), "above zero"),
        (set_(1, 1, to=[float("nan")]), "finite"),
        (set_(1, 2, to="llvm"), "names no target"),
    ],
)
def test_a_damaged_line_is_reported_and_costs_nothing_else(
    written: Path, tmp_path: Path, change: Callable[[Any], str], why: str
) -> None:
    folder = copy_of(written, tmp_path / "damaged")
    good = lines(written)[:4]
    where = 3 if why.startswith("not JSON") else 1  # a torn line is the last one
    texts = [json.dumps(line) for line in good]
    texts[where] = change(json.loads(texts[where]))
    content = "\n".join(texts).encode(errors="surrogateescape")
    (folder / RECORDS).write_bytes(content)
    found = read_database(folder)
    assert len(found.records) == 3
    (problem,) = found.problems
    assert f"{folder / RECORDS}, line {where + 1}: " in problem
    assert why in problem
    export_records(tmp_path / "out", found)
    assert lines(tmp_path / "out") == good[:where] + good[where + 1 :]
    assert len(open_database(tmp_path / "out")) == 3


@pytest.mark.parametrize("text", ["[1]", '["1", "@@"]', '["1", "AAAA"]', "{", '["1", ""]'])
def test_a_damaged_workload_costs_its_own_records(written: Path, tmp_path: Path, text: str) -> None:
    folder = copy_of(written, tmp_path / "damaged")
    texts = (folder / WORKLOADS).read_text().splitlines()
    (folder / WORKLOADS).write_text("\n".join([texts[0], text, *texts[2:]]) + "\n")
    some = [line for line in lines(written) if line[0] != 1][::6]
    lost = next(line for line in lines(written) if line[0] == 1)
    write_lines(folder, [lost, *some])
    found = read_database(folder)
    assert len(found.records) == len(some)
    assert f"{folder / WORKLOADS}, line 2: " in found.problems[0]
    assert found.problems[1].endswith(f"{RECORDS}, line 1: there is no workload 1")
    assert len(found.problems) == 2


def test_no_database(tmp_path: Path) -> None:
    (tmp_path / WORKLOADS).write_text("")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / WORKLOADS):
        with pytest.raises(StoreError, match="no MetaSchedule database"):
            read_database(path)


@pytest.fixture(scope="module")
def ours(target: Any) -> tuple[Workload, SketchSpace, list[Record]]:
    """Records of our own: 4 s, 3 s, 2 s, 1 s."""
    subject = workload("matmul", 48, 64, 32)
    space = SketchSpace(subject, target)
    found = dict.fromkeys(space.sample(np.random.default_rng(0), 8))
    records = [
        Record(
            subject.key, subject.identity, target_string(target), candidate, (4.0 - i,), host="h"
        )
        for i, candidate in enumerate(list(found)[:4])
    ]
    return subject, space, records


def test_our_records_are_found_by_metaschedule(
    ours: tuple[Workload, SketchSpace, list[Record]], target: Any, tmp_path: Path
) -> None:
    subject, space, records = ours
    fails = [
        replace(records[3], repeats=(), failure="timeout", candidate=records[0].candidate),
        replace(records[3], failure="wrong"),  # found after it had been timed as the fastest
        replace(records[3], repeats=(), failure="invalid", candidate=Candidate("sketch", (9, ()))),
        replace(records[0], candidate=UNTUNED, repeats=(5.0,)),
        replace(records[0], candidate=Candidate("unheard-of", (1,))),
        replace(records[0], candidate=Candidate("sketch", (0, (1, 1)))),
        replace(records[0], candidate=Candidate(TRACE_SPACE, ("nonsense",))),
        replace(records[0], workload="custom:lost@0123"),
        replace(records[0], workload="matmul(m=8,n=8,k=8)"),
    ]
    left_out = export_records(tmp_path / "out", RecordSet([*records, *fails]))
    assert len(left_out) == 6
    reasons = ("`invalid`", "`unheard-of`", "decisions", "holds no trace", "custom:lost", "another")
    for part in reasons:
        assert sum(part in line for line in left_out) == 1, left_out
    times = [line[1][1] for line in lines(tmp_path / "out")]
    assert times == [[4.0], [3.0], [2.0], [1e10], [1e10], [1e10], [5.0]]
    database = open_database(tmp_path / "out")
    assert len(database) == 7
    best = space.schedule(records[2].candidate).mod
    for mod in (subject.mod, subject.mod["main"]):
        found = ms.tir_integration.compile_tir(database, mod, target)
        assert structural_equal(found.mod, best)
    again = read_database(tmp_path / "out", [subject]).records
    assert [record.candidate for record in again[:4]] == [r.candidate for r in records]
    assert [record.valid for record in again] == [True, True, True, False, False, False, True]


def test_a_network_takes_its_schedules_from_our_records(target: Any, tmp_path: Path) -> None:
    block = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([16, 32], "float32"))
    w = relax.Var("w", relax.TensorType([32, 48], "float32"))
    with block.function("main", [x, w]):
        with block.dataflow():
            out = block.emit_output(block.emit(relax.op.nn.relu(relax.op.matmul(x, w))))
        block.emit_func_output(out)
    network = relax.get_pipeline("zero")(block.get())
    (task,) = ms.relax_integration.extract_tasks(network, target, {})
    subject = Workload.from_module(task.dispatched[0])
    space = SketchSpace(subject, target)
    (candidate,) = space.sample(np.random.default_rng(0), 1)
    record = Record(
        subject.key, subject.identity, target_string(target), candidate, repeats=(1e-3,)
    )
    export_records(tmp_path / "out", RecordSet([record], {subject.key: subject.to_json()}))
    with target, open_database(tmp_path / "out"):
        applied = relax.transform.MetaScheduleApplyDatabase()(network)
    functions = [f for f in applied.functions.values() if isinstance(f, tirx.PrimFunc)]
    expected = space.schedule(candidate).mod["main"]
    assert any(structural_equal(f.body, expected.body, True) for f in functions)


def test_nothing_to_write(ours: tuple[Workload, SketchSpace, list[Record]], tmp_path: Path) -> None:
    invalid = replace(ours[2][0], repeats=(), failure="invalid")
    for records, why in (([], "no records"), ([invalid], "1 records: `invalid`")):
        with pytest.raises(StoreError, match=f"nothing to write: {why}"):
            export_records(tmp_path / "out", RecordSet(records))
    with pytest.raises(StoreError, match="no JSON"):
        export_records(tmp_path / "out", RecordSet([replace(ours[2][0], target="t")]))
    assert list(tmp_path.iterdir()) == []


@contextmanager
def small_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond the limit: the same kind of error as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("limit", [100, 20_000])
def test_a_full_disk_leaves_nothing_half_written(
    written: Path, imported: RecordSet, tmp_path: Path, limit: int, replaces: bool
) -> None:
    if replaces:
        copy_of(written, tmp_path / "out")
    with small_disk(limit), pytest.raises(StoreError, match=r"cannot write: .*; free space"):
        export_records(tmp_path / "out", imported, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == (["out"] if replaces else [])
    if replaces:
        assert lines(tmp_path / "out") == lines(written)


def test_a_place_that_cannot_be_written(
    written: Path, imported: RecordSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = RecordSet(imported.records[:3], imported.definitions)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="cannot write: File exists"):
        export_records(tmp_path / "file" / "out", few)
    with pytest.raises(StoreError, match="is a file: choose another"):
        export_records(tmp_path / "file", few, replace=True)
    assert (tmp_path / "file").read_text() == "mine"
    copy_of(written, tmp_path / "out")
    real = os.rename

    def denied(source: Path, to: Path) -> None:
        if Path(source).name == "made":
            raise PermissionError(13, "Permission denied", str(to))
        real(source, to)

    monkeypatch.setattr(entries_module.os, "rename", denied)
    with pytest.raises(StoreError, match="cannot write: Permission denied"):
        export_records(tmp_path / "out", few, replace=True)
    assert lines(tmp_path / "out") == lines(written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "out"]


def test_a_database_is_not_overwritten_unasked(
    written: Path, ours: tuple[Workload, SketchSpace, list[Record]], tmp_path: Path
) -> None:
    out = copy_of(written, tmp_path / "out")
    mine = RecordSet(ours[2])
    with pytest.raises(StoreError, match="holds a database"):
        export_records(out, mine)
    assert lines(out) == lines(written)
    export_records(out, mine, replace=True)
    assert len(lines(out)) == 4
    (out / "logs").mkdir()
    with pytest.raises(StoreError, match="holds logs"):
        export_records(out, mine, replace=True)
    (tmp_path / "empty").mkdir()
    export_records(tmp_path / "empty", mine)
    assert len(lines(tmp_path / "empty")) == 4


def test_of_two_writers_one_is_told(
    ours: tuple[Workload, SketchSpace, list[Record]], tmp_path: Path
) -> None:
    told: list[str] = []

    def write() -> None:
        try:
            export_records(tmp_path / "out", RecordSet(ours[2]))
        except StoreError as error:
            told.append(str(error))

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1
    assert len(lines(tmp_path / "out")) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_lines_are_dropped_in_place_and_the_others_not_touched(
    written: Path, tmp_path: Path
) -> None:
    folder = copy_of(written, tmp_path / "out")
    write_lines(folder, lines(written)[:8])
    before = (folder / RECORDS).read_bytes() + b'[0, ["torn'
    (folder / RECORDS).write_bytes(before)
    done = rewrite_database(folder, lambda records: list(range(1, len(records), 2)))
    kept = before.splitlines(keepends=True)[:-1][1::2]
    assert (folder / RECORDS).read_bytes() == b"".join(kept)
    assert (done.kept, done.dropped) == (4, 4)
    assert len(done.problems) == 1
    assert done.backup is not None
    assert done.backup.read_bytes() == before
    assert len(open_database(folder)) == len(kept)
    assert rewrite_database(folder, lambda records: list(range(len(records)))).backup is None
