"""The one file format of the models: a JSON header and binary parts. No pickle.

Layout: the magic `TENSORTUNE-MODEL`, the header's length as 8 bytes (little-endian), the header as
UTF-8 JSON, the parts one after the other. The header lists each part's name, size and SHA-256.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..data.install import versions
from .base import FeatureSchema, ModelFileError, Samples
from .features.schemas import VERSIONS

MAGIC = b"TENSORTUNE-MODEL"
FORMAT = 1

StrPath = str | os.PathLike[str]
Model = TypeVar("Model")


@dataclass(frozen=True)
class Embedded:
    """A model file within another one, to be given in the place of a path.

    Attributes:
        name: What errors call it.
        content: What the file would hold.
    """

    name: str
    content: bytes

    def __fspath__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds.

    Attributes:
        kind: Which model wrote it: `xgb`, `validity`, ...
        arguments: The model's constructor arguments.
        schema: The features that it was trained on; None for a model that was not trained.
        parts: Binary parts by name.
        state: What else the model has to remember, as JSON.
        workloads: Identities of the workloads that it was trained on.
        versions: Versions of the packages that wrote it.
    """

    kind: str
    arguments: dict[str, Any]
    schema: FeatureSchema | None = None
    parts: Mapping[str, bytes] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    workloads: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=versions)

    def write(self, path: StrPath) -> None:
        """Write the file; another process sees the old one or the whole new one."""
        header = {
            "format": FORMAT,
            "kind": self.kind,
            "schema": None if self.schema is None else asdict(self.schema),
            "arguments": self.arguments,
            "state": self.state,
            "workloads": list(self.workloads),
            "versions": self.versions,
            "parts": [
                {"name": name, "size": len(part), "sha256": hashlib.sha256(part).hexdigest()}
                for name, part in self.parts.items()
            ],
        }
        encoded = json.dumps(header, allow_nan=False, sort_keys=True).encode()
        length = len(encoded).to_bytes(8, "little")
        _write_atomically(Path(path), b"".join([MAGIC, length, encoded, *self.parts.values()]))

    @classmethod
    def read(
        cls, path: StrPath, kind: str | None = None, schema: FeatureSchema | None = None
    ) -> ModelFile:
        """Read a file and check that it is whole and fits.

        Args:
            path: The file.
            kind: Which model is wanted; any by default.
            schema: Which features the model will be given; by default those that the file names,
                in the version that this library makes.

        Raises:
            ModelFileError: it is no model file or a damaged one, of another kind, or of features
                of another schema; both versions are named.
            FileNotFoundError: there is no such file.
        """
        header, body = _split(path)
        try:
            found = cls(
                kind=header["kind"],
                arguments=dict(header["arguments"]),
                schema=None if header["schema"] is None else FeatureSchema(**header["schema"]),
                parts=_parts(header["parts"], body, path),
                state=dict(header["state"]),
                workloads=tuple(header["workloads"]),
                versions=dict(header["versions"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"{path} is damaged: its header lacks {error}") from error
        if kind is not None and found.kind != kind:
            raise ModelFileError(f"{path} holds a model of kind `{found.kind}`, not `{kind}`")
        if found.schema is not None:
            _check_schema(path, found.schema, schema)
        return found

    def build(self, model: Callable[..., Model]) -> Model:
        """An untrained model with the file's constructor arguments.

        Raises:
            ModelFileError: the model takes no such arguments.
        """
        try:
            return model(**self.arguments)
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"a `{self.kind}` model can't be made from it: {error}") from error

    def number(self, name: str) -> float:
        """A number of the state.

        Raises:
            ModelFileError: it is not there.
        """
        value = self.state.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ModelFileError(f"a `{self.kind}` model needs the number `{name}`")
        return float(value)


def arguments_of(model: object) -> dict[str, Any]:
    """The constructor arguments of a model that stores them unchanged."""
    names = list(inspect.signature(type(model).__init__).parameters)[1:]
    return {name: getattr(model, name) for name in names}


def check_samples(schema: FeatureSchema | None, samples: Samples) -> None:
    """Refuse samples that are not of the schema that a model was fitted to.

    Raises:
        ValueError: they are of another; both are named.
    """
    if schema is not None and schema != samples.schema:
        raise ValueError(
            f"the model was trained on features {describe(schema)} "
            f"and is given {describe(samples.schema)}"
        )


def describe(schema: FeatureSchema) -> str:
    """A schema in words."""
    of = f" of {schema.space}" if schema.space else ""
    return f"`{schema.name}` version {schema.version} ({schema.width} columns{of})"


def _check_schema(path: StrPath, found: FeatureSchema, wanted: FeatureSchema | None) -> None:
    ours = VERSIONS.get(found.name, found.version)
    if found == wanted or (wanted is None and found.version == ours):
        return
    need = f"`{found.name}` version {ours}" if wanted is None else describe(wanted)
    raise ModelFileError(
        f"{path} was trained on features {describe(found)}, and {need} is what it would be given; "
        "train it again"
    )


def _split(path: StrPath) -> tuple[dict[str, Any], bytes]:
    """The header and what follows it."""
    content = path.content if isinstance(path, Embedded) else Path(path).read_bytes()
    start = len(MAGIC) + 8
    if not content.startswith(MAGIC) or len(content) < start:
        raise ModelFileError(f"{path} is not a model file of tensortune")
    end = start + int.from_bytes(content[len(MAGIC) : start], "little")
    try:
        header = json.loads(content[start:end])
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged: its header is no JSON") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        found = header.get("format") if isinstance(header, dict) else None
        raise ModelFileError(f"{path} is of format {found}, and this library reads {FORMAT}")
    return header, content[end:]


def _parts(listed: list[dict[str, Any]], body: bytes, path: StrPath) -> dict[str, bytes]:
    parts: dict[str, bytes] = {}
    start = 0
    for entry in listed:
        part = body[start : start + entry["size"]]
        start += len(part)
        if hashlib.sha256(part).hexdigest() != entry["sha256"]:
            raise ModelFileError(f"{path} is damaged: `{entry['name']}` is not what was written")
        parts[entry["name"]] = part
    if start != len(body):
        raise ModelFileError(f"{path} is damaged: {len(body) - start} bytes follow its end")
    return parts


def _write_atomically(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # `mkstemp` lets nobody else read; a model is as public as any file its user writes.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
