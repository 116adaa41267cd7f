"""The folder of a comparison: whose it is, that one process works in it, and the machine's peak."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import filelock

from ..data.peak import measure_peak
from .compare_run import Say
from .run_folder import write_json

_SETTINGS = "settings.json"


def check_folder(out: Path, settings: Mapping[str, Any]) -> None:
    """Refuse a folder that holds a comparison with other settings.

    Raises:
        ValueError: it does; the message says which.
    """
    path = out / _SETTINGS
    if not path.exists():
        return
    held = json.loads(path.read_text())
    for name, value in settings.items():
        if held.get(name) != value:
            raise ValueError(
                f"{out} holds a comparison with {name} {held.get(name)}, not {value}; "
                "choose another --out"
            )


@contextlib.contextmanager
def claimed(out: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Have a folder to oneself, for a comparison with these settings.

    Raises:
        ValueError: another process is at work in it.
    """
    out.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(out / "compare.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(
            f"another process is comparing in {out}; wait for it, or choose another --out"
        ) from None
    try:
        write_json(out / _SETTINGS, settings)
        yield
    finally:
        lock.release()


def find_peak(target: Any, out: Path, say: Say) -> dict[str, Any] | None:
    """What the machine can do, measured once for a folder; None where its kernels do not run."""
    path = out / "peak.json"
    if path.exists():
        held: dict[str, Any] = json.loads(path.read_text())
        return held
    try:
        peak = asdict(measure_peak(target))
    except RuntimeError as error:
        say(f"the machine's peak is not known: {error}")
        return None
    write_json(path, peak)
    return peak
