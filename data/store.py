"""The append-only file of records: one JSON object a line."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import filelock

from .record import Record

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# An append takes milliseconds; a lock held for this long belongs to a stopped process.
_LOCK_TIMEOUT_S = 60.0


class StoreError(OSError):
    """The store's file cannot be read or written; the message says what to do about it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A line of the store that is no record.

    Attributes:
        line: Its number, from 1.
        why: What is wrong with it.
    """

    line: int
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}"


@dataclass(frozen=True, slots=True)
class StoreContents:
    """What a store holds.

    Attributes:
        records: Its records, in the order they were appended. It is a log: a candidate measured
            twice is there twice.
        problems: The lines that were skipped.
    """

    records: list[Record]
    problems: list[Problem]

    def records_for(self, identity: str, target: str) -> list[Record]:
        """The records of one computation on one target."""
        return [r for r in self.records if r.identity == identity and r.target == target]


class Store:
    """Records in a JSON-lines file that is only ever appended to.

    Any number of processes may append and read at once. A process killed while it appends
    leaves at most one torn line; that line stays, reading reports it, and the next append
    starts a line of its own.

    Attributes:
        path: The file. It need not exist; the first append makes it, and its folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, records: Iterable[Record]) -> None:
        """Add records, and return when they are on the disk.

        All are encoded before the first is written, so a record that is no JSON stops the
        append with the file unchanged.

        Raises:
            StoreError: the disk is full, or the file cannot be written. The message says how
                many of the records were kept; those are whole lines, and no part of another.
        """
        lines = [_encode(record) for record in records]
        if not lines:
            return
        with _errors_explained(self.path, "write"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _require_file(self.path)
            # A lock of its own for every call: it works between threads as between processes.
            with filelock.FileLock(
                f"{self.path}.lock", timeout=_LOCK_TIMEOUT_S, poll_interval=0.01
            ):
                fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
                try:
                    _append_lines(fd, lines, self.path)
                finally:
                    os.close(fd)

    def read(self) -> StoreContents:
        """Read every record; what is no record is reported and skipped.

        Takes no lock and makes no file. A store that does not exist yet is empty. A last line
        without its newline counts when it is whole (its newline alone was lost), because the
        next append completes it; otherwise it is torn, or still being written.

        Raises:
            StoreError: the file is there and cannot be read.
        """
        contents = StoreContents([], [])
        with _errors_explained(self.path, "read"):
            if not _require_file(self.path):
                return contents
            with self.path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if not line.strip():
                        continue
                    try:
                        contents.records.append(_decode(line))
                    except ValueError as error:
                        torn = "" if line.endswith(b"\n") else "torn, the file ends inside it; "
                        contents.problems.append(Problem(number, f"{torn}{error}"))
        return contents


def _encode(record: Record) -> bytes:
    # ASCII, so that any text (lone surrogates of an undecodable compiler message too) survives.
    text = json.dumps(record.to_json(), separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def _decode(line: bytes) -> Record:
    """Raises ValueError, whatever the bytes are."""
    try:
        value = json.loads(line.decode("utf-8"))
        return Record.from_json(value)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON at column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _append_lines(fd: int, lines: list[bytes], path: Path) -> None:
    """Write whole lines at the end, or as many of them as fit; the caller holds the lock."""
    end = os.fstat(fd).st_size
    # A writer was killed inside its line: end that line instead of continuing it.
    torn = end > 0 and os.pread(fd, 1, end - 1) != b"\n"
    kept = 0
    try:
        for line in lines:
            data = b"\n" + line if torn and kept == 0 else line
            _write_all(fd, data)
            end += len(data)
            kept += 1
    except OSError as error:
        os.ftruncate(fd, end)
        with suppress(OSError):  # the first error is the one to tell
            os.fsync(fd)
        raise _write_error(path, error, kept, len(lines)) from error
    os.fsync(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _write_error(path: Path, error: OSError, kept: int, total: int) -> StoreError:
    what = f"{kept} of {total} records kept"
    if error.errno in _FULL:
        fix = "free space and run again with --resume"
        return StoreError(f"{path}: no space left ({error.strerror}); {what}; {fix}")
    return StoreError(f"{path}: cannot write ({error.strerror}); {what}")


def _require_file(path: Path) -> bool:
    """Whether the file exists; an error if it is something else (a pipe would block)."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise StoreError(f"{path}: is a folder; name a file in it, such as {path}/records.jsonl")
    if not stat.S_ISREG(mode):
        raise StoreError(f"{path}: is not a regular file; name another")
    return True


@contextmanager
def _errors_explained(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except filelock.Timeout as error:
        raise StoreError(
            f"{path}: another process has held {error.lock_file} for {_LOCK_TIMEOUT_S:.0f} s; "
            "end it and run again with --resume"
        ) from error
    except OSError as error:
        where = error.filename or path
        full = error.errno in _FULL
        fix = "; free space and run again with --resume" if full else ""
        raise StoreError(f"{path}: cannot {verb}: {error.strerror} ({where}){fix}") from error
