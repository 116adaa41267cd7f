from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import filelock
import pytest

from tensortune.data import store as store_module
from tensortune.data.candidate import Candidate
from tensortune.data.record import SCHEMA_VERSION, Record
from tensortune.data.store import Problem, Store, StoreContents, StoreError


def _record(number: int, **fields: object) -> Record:
    record = Record("w", "i", "t", Candidate("toy", (number,)), repeats=(1e-3,), detail="x" * 80)
    return replace(record, **fields)  # type: ignore[arg-type]


def _numbers(contents: StoreContents) -> list[object]:
    return [record.candidate.point[0] for record in contents.records]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "records.jsonl")


def test_reads_what_was_appended_in_order(store: Store) -> None:
    store.append(_record(n) for n in range(3))
    store.append([_record(3), _record(0)])  # a log: a repeated candidate stays
    assert store.read() == StoreContents([_record(n) for n in (0, 1, 2, 3, 0)], [])
    assert all(json.loads(line)["schema"] == 1 for line in store.path.open())


def test_a_store_without_a_file_is_empty_and_stays_so(store: Store) -> None:
    assert store.read() == StoreContents([], [])
    store.append([])
    assert list(store.path.parent.iterdir()) == []


def test_makes_missing_folders(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "a" / "b" / "records.jsonl"))
    store.append([_record(0)])
    assert _numbers(store.read()) == [0]


def test_reading_makes_no_lock_and_waits_for_none(store: Store) -> None:
    store.append([_record(0)])
    lock = Path(f"{store.path}.lock")
    lock.unlink()
    store.read()
    assert not lock.exists()
    with filelock.FileLock(lock):
        assert _numbers(store.read()) == [0]


def test_records_for_one_computation_and_target(store: Store) -> None:
    store.append([_record(0), _record(1, identity="j"), _record(2, target="u"), _record(3)])
    found = store.read().records_for("i", "t")
    assert [record.candidate.point[0] for record in found] == [0, 3]


def test_any_text_is_one_line(store: Store) -> None:
    detail = "a\nb\r\n\u2028\x00\udc80 \N{SNOWMAN}"
    store.append([_record(0, detail=detail), _record(1)])
    assert [record.detail for record in store.read().records] == [detail, "x" * 80]


def test_a_record_that_is_no_json_changes_nothing(store: Store) -> None:
    store.append([_record(0)])
    with pytest.raises(ValueError, match="JSON"):
        store.append([_record(1), _record(2, time=float("nan"))])
    assert _numbers(store.read()) == [0]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"schema": 1, "workl', "not JSON at column"),
        (b"\xff\xfe\x00\x01\x80garbage", "not UTF-8 at byte 0"),
        (b"\x00" * 4096, "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"schema": ' + b"9" * 5000 + b"}", "limit"),
        (b"[1, 2]", "JSON object"),
        (b'{"schema": 1}', "`failure` is missing"),
        (b'{"schema": 99}', "schema 99, this tensortune reads schema 1"),
    ],
)
def test_a_line_that_is_no_record_is_reported_and_skipped(
    store: Store, line: bytes, why: str
) -> None:
    store.append([_record(0)])
    with store.path.open("ab") as file:
        file.write(line + b"\n\n")
    store.append([_record(1)])
    before = store.path.read_bytes()
    contents = store.read()
    assert _numbers(contents) == [0, 1]
    assert [problem.line for problem in contents.problems] == [2]
    assert why in contents.problems[0].why
    assert str(contents.problems[0]).startswith("line 2: ")
    assert store.path.read_bytes() == before


def test_a_later_schema_is_a_problem_of_its_line(store: Store) -> None:
    text = json.dumps(_record(0).to_json() | {"schema": SCHEMA_VERSION + 1})
    store.path.write_text(text + "\n")
    why = f"the record is of schema {SCHEMA_VERSION + 1}, this tensortune reads schema 1"
    assert store.read() == StoreContents([], [Problem(1, why)])


def test_a_torn_tail_stays_and_the_next_append_starts_its_own_line(store: Store) -> None:
    store.append([_record(0), _record(1)])
    torn = store.path.read_bytes()[:-40]
    store.path.write_bytes(torn)
    contents = store.read()
    assert _numbers(contents) == [0]
    assert contents.problems[0].line == 2
    assert contents.problems[0].why.startswith("torn")
    store.append([_record(2), _record(3)])
    assert store.path.read_bytes().startswith(torn + b"\n")
    contents = store.read()
    assert _numbers(contents) == [0, 2, 3]
    assert [problem.line for problem in contents.problems] == [2]


def test_only_the_newline_lost_loses_no_record_before_or_after_an_append(store: Store) -> None:
    store.append([_record(0), _record(1)])
    store.path.write_bytes(store.path.read_bytes()[:-1])
    assert _numbers(store.read()) == [0, 1]
    store.append([_record(2)])
    assert store.read() == StoreContents([_record(n) for n in range(3)], [])


def test_every_cut_of_the_file_keeps_its_whole_lines(store: Store) -> None:
    store.append(_record(n) for n in range(2))
    whole = store.path.read_bytes()
    first = whole.index(b"\n")
    for size in range(len(whole)):
        store.path.write_bytes(whole[:size])
        contents = store.read()
        assert len(contents.records) == (size >= first) + (size >= len(whole) - 1)
        assert len(contents.problems) <= 1


def _short_writes(monkeypatch: pytest.MonkeyPatch, fail: Callable[[int], None]) -> None:
    """Makes each write take half of what it is given; `fail` sees the bytes written so far."""
    real = os.write
    done = 0

    def write(fd: int, data: bytes) -> int:
        nonlocal done
        fail(done)
        count = real(fd, data[: (len(data) + 1) // 2])
        done += count
        return count

    monkeypatch.setattr(store_module.os, "write", write)


def test_partial_writes_are_continued(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _short_writes(patch, lambda done: None)
        store.append(_record(n) for n in range(3))
    assert store.read() == StoreContents([_record(n) for n in range(3)], [])


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failed_write_keeps_whole_lines_and_says_how_many(
    store: Store, monkeypatch: pytest.MonkeyPatch, code: int, torn: bool
) -> None:
    store.append([_record(0), _record(1)])
    if torn:
        store.path.write_bytes(store.path.read_bytes()[:-40])
    before = store.path.read_bytes()
    line = len(before.split(b"\n")[0])

    def fail(done: int) -> None:
        if done > 2.4 * line:
            raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        _short_writes(patch, fail)
        with pytest.raises(StoreError, match="2 of 5 records kept") as error:
            store.append(_record(n) for n in range(2, 7))
    assert ("--resume" in str(error.value)) == (code != errno.EIO)
    assert str(store.path) in str(error.value)
    after = store.path.read_bytes()
    assert after.startswith(before)
    assert after.endswith(b"\n")
    store.append([_record(9)])
    assert _numbers(store.read()) == ([0, 2, 3, 9] if torn else [0, 1, 2, 3, 9])


def test_a_write_that_fails_at_once_leaves_the_file_as_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([_record(0)])
    torn = store.path.read_bytes()[:-40]
    store.path.write_bytes(torn)

    def fail(done: int) -> None:
        if done > 20:
            raise OSError(errno.ENOSPC, "No space left on device")

    _short_writes(monkeypatch, fail)
    with pytest.raises(StoreError, match="0 of 1 records kept"):
        store.append([_record(1)])
    assert store.path.read_bytes() == torn


def test_a_lock_that_is_never_released(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_LOCK_TIMEOUT_S", 0.05)
    with (
        filelock.FileLock(f"{store.path}.lock"),
        pytest.raises(StoreError, match=r"another process has held .*records\.jsonl\.lock"),
    ):
        store.append([_record(0)])


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder; name a file in it"):
        Store(tmp_path).read()
    with pytest.raises(StoreError, match="is a folder; name a file in it"):
        Store(tmp_path).append([_record(0)])
    assert not Path(f"{tmp_path}.lock").exists()


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="not a regular file"):
        Store(tmp_path / "pipe").read()


def test_a_file_in_place_of_the_folder(store: Store) -> None:
    store.path.write_text("")
    below = Store(store.path / "records.jsonl")
    with pytest.raises(StoreError, match="cannot read: Not a directory"):
        below.read()
    with pytest.raises(StoreError, match="cannot write"):
        below.append([_record(0)])


def test_permission_denied(store: Store) -> None:
    store.append([_record(0)])
    store.path.chmod(0o400)
    if os.access(store.path, os.W_OK):
        pytest.skip("this user (root) may write every file")
    assert _numbers(store.read()) == [0]
    with pytest.raises(StoreError, match="cannot write: Permission denied"):
        store.append([_record(1)])
    store.path.chmod(0)
    with pytest.raises(StoreError, match="cannot read: Permission denied"):
        store.read()


def test_denied_by_the_system(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append([_record(0)])

    def denied(path: object, *_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(store_module.os, "open", denied)
    with pytest.raises(StoreError, match="cannot write: Permission denied"):
        store.append([_record(1)])
