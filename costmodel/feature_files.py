"""Feature matrices of programs in a folder of files, each written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .base import Floats

_ARRAYS = ("keys", "counts", "rows", "why")


@dataclass
class FeatureFiles:
    """Matrices of one kind of features by a program's key.

    Attributes:
        folder: Where the files are; made with the first one.
        width: Columns of every matrix.
        rows: The matrices that were read or added.
        illegal: Programs that have none, and why.
    """

    folder: Path
    width: int
    rows: dict[bytes, Floats] = field(default_factory=dict)
    illegal: dict[bytes, str] = field(default_factory=dict)

    def load(self) -> None:
        """Read every file; a damaged one is taken for one that was never written."""
        for path in sorted(self.folder.glob("*.npz")):
            try:
                with np.load(path, allow_pickle=False) as file:
                    chunk = [file[name] for name in _ARRAYS]
                self._take(*chunk)
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
                continue

    def add(self, keys: Sequence[bytes], found: Sequence[Floats], why: Sequence[str]) -> None:
        """Keep matrices, in memory and in a file.

        Args:
            keys: The programs' keys, all of one length.
            found: Their matrices; one without rows stands for a program that has no features.
            why: Why it has none; an empty text for the others.
        """
        chunk = {
            "keys": np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1),
            "counts": np.array([len(rows) for rows in found], dtype=np.int64),
            "rows": np.concatenate(found).astype(np.float32),
            "why": np.array(why, dtype=np.str_),
        }
        self._write(hashlib.sha256(b"".join(keys)).hexdigest()[:16], chunk)
        self._take(*(chunk[name] for name in _ARRAYS))

    def _write(self, name: str, chunk: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.npz"
        draft = self.folder / f".{name}.{os.getpid()}.draft"
        try:
            with draft.open("wb") as file:
                np.savez_compressed(file, **chunk)
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)

    def _take(self, keys: Any, counts: Any, rows: Any, why: Any) -> None:
        if rows.shape != (int(counts.sum()), self.width) or not (
            len(keys) == len(counts) == len(why)
        ):
            raise ValueError("a chunk whose parts do not fit each other")
        ends = np.cumsum(counts)
        for key, start, end, reason in zip(keys, ends - counts, ends, why, strict=True):
            if end > start:
                self.rows[key.tobytes()] = rows[start:end]
            else:
                self.illegal[key.tobytes()] = str(reason)
