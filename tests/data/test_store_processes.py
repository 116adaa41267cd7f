"""The store under processes that are killed, that run out of disk, and that write at once."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.record import Record
from tensortune.data.store import Store

# Appends batches of three, and tells the number of each batch once `append` has returned.
WRITER = """
import sys
from tensortune.data.candidate import Candidate
from tensortune.data.record import Record
from tensortune.data.store import Store

path, name, start, stop = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = Store(path)
for batch in range(start, stop):
    candidates = [Candidate("toy", (name, batch, i)) for i in range(3)]
    store.append(
        Record("w", "i", "t", c, failure="compile", detail="x" * 700, batch=batch)
        for c in candidates
    )
    print(batch, flush=True)
"""


def _record(number: int) -> Record:
    return Record("w", "i", "t", Candidate("toy", (number,)), repeats=(1e-3,), detail="x" * 80)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "records.jsonl")


def _writer(path: Path, name: str, start: int, stop: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(start), str(stop)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/")


def test_a_disk_that_is_full(store: Store) -> None:
    """A limit on the file's size is the full disk that any machine can make."""
    store.append([_record(0)])
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store.path), "a", "0", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    told, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "free space and run again with --resume" in error
    assert 0 < store.path.stat().st_size <= 20_000
    assert store.path.read_bytes().endswith(b"\n")
    contents = store.read()
    assert contents.problems == []
    complete = [record for record in contents.records if record.batch in map(int, told.split())]
    assert len(complete) >= 3 * len(told.split()) > 0
    store.append([_record(1)])
    assert store.read().records[-1] == _record(1)


def test_a_writer_killed_inside_a_line(store: Store) -> None:
    store.append([_record(0)])
    killed = f"""
import os, signal
from tensortune.data import store
real = os.write
def write(fd, data):
    real(fd, data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
store.os.write = write
{WRITER}"""
    command = [sys.executable, "-c", killed, str(store.path), "a", "0", "1"]
    assert subprocess.run(command, cwd="/", check=False, timeout=60).returncode == -9
    assert store.read().problems[0].why.startswith("torn")
    store.append([_record(1)])  # the dead process holds no lock
    assert store.read().records == [_record(0), _record(1)]


def test_kill_at_any_moment_loses_nothing_that_was_acknowledged(store: Store) -> None:
    rng = random.Random(0)
    kills, told = 10, []
    for _ in range(kills):
        start = told[-1] + 1 if told else 0
        with _writer(store.path, "a", start, 10**9) as process:
            assert process.stdout is not None
            told.append(int(process.stdout.readline()))
            time.sleep(rng.uniform(0, 0.03))
            process.kill()
            told += [int(line) for line in process.stdout.read().split("\n") if line.strip()]
    contents = store.read()
    points = [record.candidate.point for record in contents.records]
    assert len(contents.problems) <= kills
    for batch in told:
        for i in range(3):
            assert ("a", batch, i) in points
    # Only the batch in flight at each kill can be there twice: it was stored, not acknowledged.
    assert len(points) - len(set(points)) <= 3 * kills


def test_two_writers_and_a_reader_at_once(store: Store) -> None:
    batches = 40
    writers = [_writer(store.path, name, 0, batches) for name in ("a", "b")]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        contents = store.read()
        assert len(contents.records) >= seen
        assert all(problem.why.startswith("torn") for problem in contents.problems)
        seen = len(contents.records)
    assert [writer.wait() for writer in writers] == [0, 0]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.close()
    contents = store.read()
    assert contents.problems == []
    points = [record.candidate.point for record in contents.records]
    for name in ("a", "b"):
        expected = [(name, batch, i) for batch in range(batches) for i in range(3)]
        assert [point for point in points if point[0] == name] == expected
