from __future__ import annotations

import json
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import pytest

from tensortune.data import record_set
from tensortune.data.candidate import Candidate
from tensortune.data.record import Record
from tensortune.data.record_set import (
    find_store,
    is_database,
    read_store,
    rewrite_store,
    write_store,
)
from tensortune.data.store import Store, StoreError


def _record(number: int, workload: str = "custom:f@1") -> Record:
    return Record(workload, "i", "t", Candidate("toy", (number,)), repeats=(1e-3,))


def _numbers(path: Path) -> list[object]:
    return [record.candidate.point[0] for record in Store(path).read().records]


MODULE = {"key": "custom:f@1", "module": "..."}
NAMED = {"key": "matmul(m=1,n=1,k=1)"}


def test_records_and_definitions_come_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.jsonl"
    unused = {"key": "custom:g@2", "module": "..."}
    records = [_record(0), _record(1, NAMED["key"])]
    definitions = {each["key"]: each for each in (MODULE, NAMED, unused)}
    write_store(path, records, definitions)
    found = read_store(path)
    assert (found.records, found.problems) == (records, [])
    # What the key says already, and what no record is of, is not written.
    assert found.definitions == {MODULE["key"]: MODULE}
    names = {each.name for each in path.parent.iterdir()}
    assert names == {"a.jsonl", "a.workloads.jsonl", "a.jsonl.lock"}


def test_the_folder_of_a_run(tmp_path: Path) -> None:
    Store(tmp_path / "records.jsonl").append([_record(0)])
    assert read_store(tmp_path).definitions == {}
    (tmp_path / "run.json").write_text(json.dumps({"definition": MODULE}))
    assert read_store(tmp_path).definitions == {MODULE["key"]: MODULE}
    assert find_store(tmp_path) == tmp_path / "records.jsonl"
    (tmp_path / "run.json").write_text("{")
    assert len(read_store(tmp_path).records) == 1


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"neither records\.jsonl nor a MetaSchedule database"):
        read_store(tmp_path)
    with pytest.raises(StoreError, match="does not exist"):
        read_store(tmp_path / "nothing.jsonl")
    assert not is_database(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_damaged_lines_are_reported_with_file_and_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_store(path, [_record(0)], {MODULE["key"]: MODULE})
    with path.open("a") as file:
        file.write('garbage\n{"torn')
    with (tmp_path / "a.workloads.jsonl").open("a") as file:
        file.write('[1]\n{"no": "key"}\n{')
    found = read_store(path)
    assert (len(found.records), list(found.definitions)) == (1, [MODULE["key"]])
    assert [problem.split(": ")[0] for problem in found.problems] == [
        f"{path}, line 2",
        f"{path}, line 3",
        *(f"{tmp_path}/a.workloads.jsonl, line {number}" for number in (2, 3, 4)),
    ]


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_store(path, [_record(0)], {MODULE["key"]: MODULE})
    with pytest.raises(StoreError, match="exists; choose another name, or add --force"):
        write_store(path, [_record(1)], {})
    assert _numbers(path) == [0]
    (tmp_path / "b.workloads.jsonl").write_text("mine\n")
    with pytest.raises(StoreError, match="exists"):
        write_store(tmp_path / "b.jsonl", [_record(1)], {MODULE["key"]: MODULE})
    write_store(tmp_path / "b.jsonl", [_record(1, "w")], {})
    assert (tmp_path / "b.workloads.jsonl").read_text() == "mine\n"
    with pytest.raises(StoreError, match="is a folder"):
        write_store(tmp_path, [_record(1)], {}, replace=True)
    write_store(path, [_record(1, "w")], {}, replace=True)
    assert _numbers(path) == [1]
    assert not (tmp_path / "a.workloads.jsonl").exists()


@contextmanager
def _small_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond the limit: the same kind of error as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with _small_disk(1000), pytest.raises(StoreError, match=r"cannot write: .*; free space"):
        write_store(path, [_record(n) for n in range(20)], {MODULE["key"]: MODULE})
    assert list(tmp_path.iterdir()) == []
    write_store(path, [_record(n) for n in range(20)], {})
    before = path.read_bytes()
    with _small_disk(1000), pytest.raises(StoreError, match=r"cannot rewrite: .*; free space"):
        rewrite_store(path, lambda records: list(range(10)))
    with _small_disk(1000), pytest.raises(StoreError, match="free space"):
        write_store(path, [_record(n) for n in range(10)], {}, replace=True)
    assert path.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {"a.jsonl", "a.jsonl.lock"}


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="cannot write"):
        write_store(tmp_path / "file" / "a.jsonl", [_record(0)], {})
    assert (tmp_path / "file").read_text() == "mine"


def test_rewriting_keeps_what_was_there_as_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Store(path).append(_record(n) for n in range(6))
    with path.open("a") as file:
        file.write("garbage\n")
    path.chmod(0o640)
    before = path.read_bytes()
    done = rewrite_store(path, lambda records: [0, 3, 5])
    assert _numbers(path) == [0, 3, 5]
    assert (done.kept, done.dropped, len(done.problems)) == (3, 3, 1)
    assert done.backup == tmp_path / "a.jsonl.bak"
    assert done.backup.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o640
    again = rewrite_store(path, lambda records: [0])
    assert again.backup == tmp_path / "a.jsonl.bak2"
    assert (tmp_path / "a.jsonl.bak").read_bytes() == before
    untouched = rewrite_store(path, lambda records: [0])
    assert (untouched.backup, untouched.dropped) == (None, 0)
    assert {each.name for each in tmp_path.iterdir()} == {
        *("a.jsonl", "a.jsonl.bak", "a.jsonl.bak2", "a.jsonl.lock")
    }


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    Store(tmp_path / "real.jsonl").append(_record(n) for n in range(2))
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    rewrite_store(tmp_path / "link.jsonl", lambda records: [1])
    assert (tmp_path / "link.jsonl").is_symlink()
    assert _numbers(tmp_path / "real.jsonl") == [1]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    Store(path).append(_record(n) for n in range(2))
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(record_set.os, "link", refuse)
    done = rewrite_store(path, lambda records: [1])
    assert done.backup is not None
    assert done.backup.read_bytes() == before
    assert _numbers(path) == [1]


def test_a_fault_while_rewriting_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Store(path).append([_record(0)])

    def fail(records: object) -> list[int]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rewrite_store(path, fail)
    assert _numbers(path) == [0]
    assert {each.name for each in tmp_path.iterdir()} == {"a.jsonl", "a.jsonl.lock"}


def test_a_lock_that_is_never_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    Store(path).append([_record(0)])
    monkeypatch.setattr(record_set, "_LOCK_TIMEOUT_S", 0.05)
    with (
        filelock.FileLock(f"{path}.lock"),
        pytest.raises(StoreError, match="another process has held"),
    ):
        rewrite_store(path, lambda records: [])
    assert _numbers(path) == [0]


def test_what_is_appended_while_rewriting_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    store = Store(path)
    store.append([_record(0)])
    stop = threading.Event()
    appended: list[int] = []

    def append() -> None:
        while not stop.is_set():
            store.append([_record(len(appended) + 1)])
            appended.append(1)

    writer = threading.Thread(target=append)
    writer.start()
    for _ in range(20):
        # Drops the oldest; every record is either here or in a backup.
        rewrite_store(path, lambda records: list(range(1, len(records))))
    stop.set()
    writer.join()
    kept = set(_numbers(path))
    backups = {n for each in tmp_path.glob("*.bak*") for n in _numbers(each)}
    assert kept | backups == set(range(len(appended) + 1))
    assert len(kept) >= len(appended) + 1 - 20


def test_of_two_writers_of_one_new_store_one_is_told(tmp_path: Path) -> None:
    told: list[str] = []

    def write(number: int) -> None:
        try:
            write_store(tmp_path / "a.jsonl", [_record(number)], {})
        except StoreError as error:
            told.append(str(error))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 3
    assert len(_numbers(tmp_path / "a.jsonl")) == 1
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "a.jsonl.lock"]
