"""The folder of one tuning run: its settings, its records, its results."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock

from ..data.host import this_host
from ..data.record import Record
from ..data.store import Problem, Store
from ..data.workload import Workload

_SETTINGS = "run.json"
_RECORDS = "records.jsonl"
_LOCK = "run.lock"


class RunFolderError(ValueError):
    """The folder can't take this run; the message says what to do."""


@dataclass(frozen=True)
class Held:
    """What a folder holds of a run that is taken up again.

    Attributes:
        records: The trials of the run so far.
        problems: Lines of the records that could not be read.
        spent_s: Seconds that the run took so far.
    """

    records: list[Record] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    spent_s: float = 0.0


class RunFolder:
    """A folder that holds one workload's run on one target.

    Args:
        path: The folder; made when the run begins.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.store = Store(self.path / _RECORDS)
        self._lock = filelock.FileLock(self.path / _LOCK)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def begin(
        self, workload: Workload, target: str, settings: Mapping[str, Any], resume: bool
    ) -> Held:
        """Claim the folder for a run, until the context is left.

        Returns:
            What it holds already.

        Raises:
            RunFolderError: it holds another workload's run, or a run that is not to be resumed, or
                another process is tuning in it.
            StoreError: it can't be read or written.
        """
        if self.path.exists():
            self._take_lock()
        held = self._read_settings()
        mine = {
            "workload": workload.key,
            "target": target,
            "host": this_host().key,
            "space": settings.get("space", "sketch"),
        }
        if held is not None:
            for name, value in mine.items():
                old = held.get(name, "sketch" if name == "space" else None)
                if old != value:
                    raise RunFolderError(
                        f"{self.path} holds a run of {name} {old}, not {value}; "
                        "choose another --out"
                    )
        elif self.store.path.exists() and self.store.read().records:
            raise RunFolderError(
                f"{self.path} holds records but no {_SETTINGS}; choose another --out"
            )
        contents = self.store.read()
        if contents.records and not resume:
            raise RunFolderError(
                f"{self.path} holds {len(contents.records)} records of this workload; "
                "add --resume to go on from there, or choose another --out"
            )
        records = [
            record
            for record in contents.records_for(workload.identity, target)
            if record.failure != "invalid"
        ]
        spent_s = float(held.get("spent_s", 0.0)) if held else 0.0
        if not self._lock.is_locked:
            self._take_lock()
        self._settings = {**mine, **settings}
        self._workload = workload.to_json()
        self.save_progress(spent_s)
        return Held(records, contents.problems, spent_s)

    def _take_lock(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            raise RunFolderError(
                f"another process is tuning in {self.path}; wait for it, or choose another --out"
            ) from None

    def save_progress(self, spent_s: float) -> None:
        """Write the settings down, with the seconds spent so far."""
        self.write_json(
            _SETTINGS,
            {**self._settings, "spent_s": spent_s, "definition": self._workload},
        )

    def write_json(self, name: str, value: Mapping[str, Any]) -> Path:
        """Write a file of the folder, whole or not at all."""
        return write_json(self.path / name, value)

    def _read_settings(self) -> dict[str, Any] | None:
        path = self.path / _SETTINGS
        try:
            value = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{path} can't be read ({error}); restore it or choose another --out"
            ) from None
        if not isinstance(value, dict):
            raise RunFolderError(f"{path} is not a run's settings; choose another --out")
        return value


def write_json(path: Path, value: Mapping[str, Any]) -> Path:
    """Write JSON to a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    try:
        draft.write_text(json.dumps(value, indent=2) + "\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
