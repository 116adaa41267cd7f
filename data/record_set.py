"""Records together with what their workloads are, in files that are written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock

from .record import Record
from .store import Store, StoreError

# The files of a MetaSchedule database; named here so that one is known without loading TVM.
DATABASE_WORKLOADS = "database_workload.json"
DATABASE_RECORDS = "database_tuning_record.json"

# The files of a tuning run's folder.
_RUN_RECORDS = "records.jsonl"
_RUN_SETTINGS = "run.json"

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LOCK_TIMEOUT_S = 60.0  # as for an append, see `store.py`

Choose = Callable[[Sequence[Record]], list[int]]
"""Says which records to keep, as positions in the order of the file."""


@dataclass(frozen=True)
class RecordSet:
    """Records, and the definitions of their workloads.

    A record names its workload by key, and of a program that is no named operator the key can't
    bring the program back; its definition can.

    Attributes:
        records: The records, in the order they were stored.
        definitions: By key what `Workload.to_json` gave. A named operator needs none.
        problems: What was found in the files and is not in here, each with its file and line.
    """

    records: list[Record]
    definitions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Rewritten:
    """What a rewriting did.

    Attributes:
        kept: How many records are left.
        dropped: How many are not.
        problems: Lines that held no record, which are not kept either.
        backup: Where the file as it was before is, or None where there was nothing to change.
    """

    kept: int
    dropped: int
    problems: list[str]
    backup: Path | None


def is_database(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of a MetaSchedule database."""
    names = (DATABASE_WORKLOADS, DATABASE_RECORDS)
    return all((Path(path) / name).is_file() for name in names)


def find_store(path: str | os.PathLike[str]) -> Path:
    """The file of records that a path means: itself, or the one in a tuning run's folder.

    Raises:
        StoreError: there is none.
    """
    path = Path(path)
    found = path / _RUN_RECORDS if path.is_dir() else path
    if found.exists():
        return found
    if path.is_dir():
        raise StoreError(
            f"{path} holds neither {_RUN_RECORDS} nor a MetaSchedule database "
            f"({DATABASE_WORKLOADS} and {DATABASE_RECORDS})"
        )
    raise StoreError(f"{path} does not exist; name a file of records, a run's folder or a database")


def definitions_path(store: Path) -> Path:
    """The file beside a store that holds its workloads' definitions."""
    return store.with_name(f"{store.name.removesuffix('.jsonl')}.workloads.jsonl")


def read_store(path: str | os.PathLike[str]) -> RecordSet:
    """Read a store, or the one in a run's folder, with its workloads' definitions.

    Raises:
        StoreError: there is none, or it can't be read.
    """
    store = find_store(path)
    contents = Store(store).read()
    problems = [f"{store}, {problem}" for problem in contents.problems]
    definitions, more = _read_definitions(store)
    return RecordSet(contents.records, definitions, problems + more)


def _read_definitions(store: Path) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    path = definitions_path(store)
    found: dict[str, Mapping[str, Any]] = {}
    problems = []
    with explained(path, "read"):
        lines = path.read_bytes().splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            found[value["key"]] = value
        except (ValueError, TypeError, KeyError, RecursionError):
            problems.append(f"{path}, line {number}: not the definition of a workload")
    if store.name == _RUN_RECORDS:
        with suppress(OSError, ValueError, TypeError, KeyError):  # it is no run's, or needs none
            value = json.loads((store.parent / _RUN_SETTINGS).read_bytes())["definition"]
            found.setdefault(value["key"], value)
    return found, problems


def write_store(
    path: str | os.PathLike[str],
    records: Sequence[Record],
    definitions: Mapping[str, Mapping[str, Any]],
    *,
    replace: bool = False,
) -> None:
    """Write a new store, and beside it the definitions that no key can bring back.

    Args:
        path: The file; its folder is made if it does not exist.
        records: What it is to hold.
        definitions: The workloads' definitions, by key.
        replace: Take the place of a file that is there.

    Raises:
        StoreError: it exists already, or can't be written; nothing was changed then.
    """
    path = Path(path)
    keys = {record.workload for record in records}
    needed = [value for key, value in definitions.items() if key in keys and value.get("module")]
    beside = definitions_path(path)
    # The store last: with it the definitions are there too.
    files: dict[Path, Iterable[bytes]] = {beside: map(_line, needed)} if needed else {}
    _check_free([path, *files], replace)
    with explained(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        files[path] = (_line(record.to_json()) for record in records)
        with _drafts(files) as drafts, _lock(path):
            _check_free(files, replace)
            for final, draft in drafts.items():
                os.replace(draft, final)
            if replace and not needed:
                beside.unlink(missing_ok=True)  # it was the replaced store's


def rewrite_store(path: str | os.PathLike[str], choose: Choose) -> Rewritten:
    """Drop records from a store in its place, and keep the file as it was as a backup.

    The store is locked meanwhile, so that nothing another process appends is lost.

    Raises:
        StoreError: there is none, or it can't be written; it is as it was then.
    """
    store = find_store(path)
    with explained(store, "rewrite"), _lock(store):
        contents = Store(store).read()
        kept = choose(contents.records)
        problems = [f"{store}, {problem}" for problem in contents.problems]
        lines = [_line(contents.records[i].to_json()) for i in kept]
        changed = problems or len(kept) < len(contents.records)
        backup = replace_file(store, lines) if changed else None
    return Rewritten(len(kept), len(contents.records) - len(kept), problems, backup)


def replace_file(path: Path, lines: Iterable[bytes]) -> Path:
    """Put lines in the place of a file's, at once.

    Returns:
        Where the file as it was is now: `<name>.bak`, or `.bak2`, ... where that is taken.
    """
    real = path.resolve()  # a link stays one
    with _drafts({real: lines}) as drafts:
        shutil.copymode(real, drafts[real])
        backup = _back_up(real)
        os.replace(drafts[real], real)
    return backup


def _back_up(path: Path) -> Path:
    number = 1
    while (backup := path.with_name(f"{path.name}.bak{number if number > 1 else ''}")).exists():
        number += 1
    try:
        os.link(path, backup)  # takes no space, which may be what is short
    except OSError:  # this file system has no links
        shutil.copy2(path, backup)
    return backup


@contextmanager
def _drafts(files: Mapping[Path, Iterable[bytes]]) -> Iterator[dict[Path, Path]]:
    """Files beside the ones to be written, on the disk; those not taken are removed at the end."""
    made: dict[Path, Path] = {}
    try:
        for path, lines in files.items():
            made[path] = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.draft")
            write_lines(made[path], lines)
        yield made
    finally:
        for draft in made.values():
            draft.unlink(missing_ok=True)


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file, and return when it is on the disk."""
    with path.open("wb") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _check_free(paths: Iterable[Path], replace: bool) -> None:
    for path in paths:
        if path.is_dir():
            raise StoreError(f"{path} is a folder; name a file, such as {path}/{_RUN_RECORDS}")
        if path.exists() and not replace:
            raise StoreError(f"{path} exists; choose another name, or add --force to replace it")


def _lock(path: Path) -> filelock.FileLock:
    """The lock that `Store.append` takes."""
    return filelock.FileLock(f"{path}.lock", timeout=_LOCK_TIMEOUT_S, poll_interval=0.01)


@contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """Turn the system's errors into a `StoreError` that says what to do."""
    try:
        yield
    except StoreError:
        raise
    except filelock.Timeout as error:
        raise StoreError(
            f"{path}: another process has held {error.lock_file} for {_LOCK_TIMEOUT_S:.0f} s; "
            "end it and try again"
        ) from error
    except OSError as error:
        full = error.errno in _FULL
        fix = "; free space and try again" if full else ""
        where = f" ({error.filename})" if error.filename else ""
        raise StoreError(f"{path}: cannot {verb}: {error.strerror}{where}{fix}") from error
