"""The folder of a collection: its settings, a store for each workload, what failed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import filelock

from ..data.host import this_host
from ..data.record import Record
from ..data.store import Store, StoreError
from .collect_plan import CollectSettings
from .run_folder import write_json

_SETTINGS = "collection.json"
_FAILED = "failed.json"
_LOCK = "collection.lock"


class CollectError(ValueError):
    """The folder can't take this collection; the message says what to do."""


class CollectFolder:
    """A folder that holds a collection, claimed while the context lasts.

    Args:
        path: The folder.
        make: Whether it is made when the context is entered and it does not exist.

    Raises:
        CollectError: another process is collecting into it.
        StoreError: it can't be made.
    """

    def __init__(self, path: str | os.PathLike[str], *, make: bool = True) -> None:
        self.path = Path(path)
        self._make = make
        self.problems: list[str] = []
        self._state: dict[str, Any] = {}
        self._failed: dict[str, str] = {}
        self._lock = filelock.FileLock(self.path / _LOCK)

    def __enter__(self) -> CollectFolder:
        if not self._make and not self.path.is_dir():
            raise CollectError(f"{self.path} does not exist; name the folder of a collection")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            raise CollectError(
                f"another process is collecting into {self.path}; wait for it, or choose another "
                "--out"
            ) from None
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written: {error.strerror}") from error
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def begin(self, settings: CollectSettings, target: str) -> None:
        """Take the folder for a collection, or go on with the one that it holds.

        Raises:
            CollectError: it holds another collection, or records of something else.
        """
        mine = {**asdict(settings), "target": target, "host": this_host().key}
        mine["spaces"] = list(settings.spaces)
        held = self._read(_SETTINGS)
        if held is None:
            strangers = sorted(path.name for path in self.path.glob("*.jsonl"))
            if strangers:
                raise CollectError(
                    f"{self.path} holds {strangers[0]} but no {_SETTINGS}; choose another --out"
                )
            held = {"settings": mine}
        differing = [
            f"{name} {_show(held['settings'].get(name))}, not {_show(value)}"
            for name, value in mine.items()
            if held["settings"].get(name) != value
        ]
        if differing:
            raise CollectError(
                f"{self.path} holds a collection of {'; '.join(differing)}; go on with its own "
                "settings, or choose another --out"
            )
        self._state = {"spent_s": 0.0, "untuned_s": {}} | held
        self._failed = self._read_failed()
        self._write()

    def resume(self, target: str) -> CollectSettings:
        """The settings of the collection that the folder holds.

        Raises:
            CollectError: it holds none, or one of another machine or target.
        """
        held = self._read(_SETTINGS)
        if held is None:
            raise CollectError(
                f"{self.path} holds no collection; name the folder of one with --out"
            )
        names = CollectSettings.__dataclass_fields__
        values = {name: held["settings"][name] for name in names}
        settings = CollectSettings(**{**values, "spaces": tuple(values["spaces"])})
        self.begin(settings, target)
        return settings

    def store(self, key: str) -> Store:
        """The store of a workload."""
        name = "".join(c if c.isalnum() or c in "=.-" else "_" for c in key).strip("_")
        return Store(self.path / f"{name}.jsonl")

    def records(self, key: str) -> list[Record]:
        """A workload's records; lines that hold none are noted in `problems`."""
        store = self.store(key)
        contents = store.read()
        self.problems += [f"{store.path}, {problem}" for problem in contents.problems]
        return [record for record in contents.records if record.workload == key]

    def every_record(self) -> Iterator[Record]:
        """The records of all stores of the folder."""
        for path in sorted(self.path.glob("*.jsonl")):
            yield from Store(path).read().records

    @property
    def spent_s(self) -> float:
        """Seconds that the collection took so far, earlier sessions included."""
        return float(self._state["spent_s"])

    def spend(self, seconds: float) -> None:
        """Add to `spent_s`."""
        self._state["spent_s"] += seconds
        self._write()

    def untuned_s(self, key: str) -> float | None:
        """How long a workload's untuned program takes, or None when that is not known yet."""
        found = self._state["untuned_s"].get(key)
        return None if found is None else float(found)

    def note_untuned(self, key: str, seconds: float) -> None:
        """Remember how long a workload's untuned program takes."""
        self._state["untuned_s"][key] = seconds
        self._write()

    @property
    def failed(self) -> Mapping[str, str]:
        """What gave no records on its last turn, or not all, and why."""
        return self._failed

    def note_failed(self, what: str, why: str) -> None:
        """Write down that a workload, or one of its spaces, gives no more records."""
        self._failed[what] = why
        write_json(self.path / _FAILED, self._failed)

    def forget_failed(self, key: str) -> None:
        """A workload has another turn: what failed on its last one counts no more."""
        kept = {
            what: why
            for what, why in self._failed.items()
            if what != key and not what.startswith(f"{key}, ")
        }
        if len(kept) < len(self._failed):
            self._failed = kept
            write_json(self.path / _FAILED, kept)

    def _write(self) -> None:
        write_json(self.path / _SETTINGS, self._state)

    def _read_failed(self) -> dict[str, str]:
        try:
            value = json.loads((self.path / _FAILED).read_text())
        except (OSError, ValueError):  # there is none; what still fails is found again
            return {}
        found = value if isinstance(value, dict) else {}
        return {what: str(why) for what, why in found.items()}

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        try:
            value = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CollectError(
                f"{path} can't be read ({error}); restore it, or choose another --out"
            ) from None
        if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
            raise CollectError(f"{path} is not a collection's settings; choose another --out")
        return value


def _show(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
