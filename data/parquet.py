"""Records in a Parquet file: what its columns are, and both directions. Loads no TVM."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from .candidate import Candidate
from .families import family_of, operator_of
from .record import SCHEMA_VERSION, Failure, Record
from .record_set import RecordSet, explained

DATASET_VERSION = 1
"""Raised whenever a column changes its meaning; files of another version are refused."""

_HEADER = b"tensortune"
_TEXT = pa.dictionary(pa.int32(), pa.string())
# `operator`, `family` and `space` follow from other columns or split one up: they are there for
# whoever reads the file without this library.
_SCHEMA = pa.schema(
    [
        pa.field("workload", _TEXT),
        pa.field("identity", _TEXT),
        pa.field("operator", _TEXT),
        pa.field("family", _TEXT),
        pa.field("target", _TEXT),
        pa.field("host", _TEXT),
        pa.field("space", _TEXT),
        pa.field("point", pa.string()),  # the candidate in its space, as JSON
        pa.field("repeats", pa.list_(pa.float64())),  # seconds a run
        pa.field("failure", _TEXT),  # null where there is none
        pa.field("detail", _TEXT),
        pa.field("cut", pa.bool_()),
        pa.field("compile_s", pa.float64()),
        pa.field("versions", _TEXT),  # as JSON
        pa.field("strategy", _TEXT),
        pa.field("seed", pa.int64()),
        pa.field("batch", pa.int64()),
        pa.field("time", pa.float64()),  # seconds since the epoch
    ]
)
_LEVEL = 15


class DatasetError(ValueError):
    """A dataset that can't be used; the message names the file and what is wrong with it."""


def encode(records: Sequence[Record], definitions: Mapping[str, Mapping[str, Any]]) -> bytes:
    """A Parquet file's bytes.

    Args:
        records: The rows, in this order.
        definitions: By key what `Workload.to_json` gave; kept for those of the records' workloads
            that no key can bring back.

    Raises:
        DatasetError: a seed or a batch's number does not fit 64 bits.
    """
    keys = {record.workload for record in records}
    kept = {k: v for k, v in definitions.items() if k in keys and v.get("module")}
    columns = _columns(records)
    header = {
        "dataset": DATASET_VERSION,
        "record": SCHEMA_VERSION,
        "sha256": _digest(columns, kept),
        "definitions": kept,
    }
    try:
        arrays = [pa.array(columns[field.name], field.type) for field in _SCHEMA]
    except (OverflowError, pa.ArrowException) as error:
        raise DatasetError(f"a record does not fit the table: {error}") from None
    schema = _SCHEMA.with_metadata({_HEADER: json.dumps(header).encode("ascii")})
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=schema),
        sink,
        compression="zstd",
        compression_level=_LEVEL,
        write_page_checksum=True,
    )
    return cast("bytes", sink.getvalue().to_pybytes())


def _digest(columns: Mapping[str, list[Any]], definitions: Mapping[str, Any]) -> str:
    """A hash of all that a file holds: Parquet's own checksums leave out its footer."""
    digest = hashlib.sha256(json.dumps(definitions, sort_keys=True).encode())
    for name in _SCHEMA.names:
        digest.update(json.dumps([name, columns[name]]).encode())
    return digest.hexdigest()


def _columns(records: Sequence[Record]) -> dict[str, list[Any]]:
    families = {key: family_of(key) for key in {r.workload for r in records}}
    values: dict[str, list[Any]] = {
        "operator": [_text(operator_of(r.workload)) for r in records],
        "family": [_text(families[r.workload]) for r in records],
        "space": [_text(r.candidate.space) for r in records],
        "point": [_json(r.candidate.point) for r in records],
        "repeats": [list(r.repeats) for r in records],
        "versions": [_json(r.versions) for r in records],
    }
    for name in ("workload", "identity", "target", "host", "detail", "strategy"):
        values[name] = [_text(getattr(r, name)) for r in records]
    for name in ("failure", "cut", "compile_s", "seed", "batch", "time"):
        values[name] = [getattr(r, name) for r in records]
    return values


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _text(value: str) -> str:
    """A text as the file holds it: itself, or as JSON.

    A compiler's message may hold what is no Unicode; JSON keeps it. A text that begins with a
    quotation mark becomes JSON too, so that reading can tell.
    """
    if value.startswith('"'):
        return json.dumps(value)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return value


def _untext(value: str) -> str:
    return cast("str", json.loads(value)) if value.startswith('"') else value


def read_file(path: Path) -> RecordSet:
    """Read a file that `encode` made.

    Raises:
        DatasetError: it is damaged, no dataset, or of another schema's version.
        StoreError: it can't be read.
    """
    with explained(path, "read"):
        data = path.read_bytes()
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        metadata = file.schema_arrow.metadata or {}
    except Exception as error:  # of a damaged footer Arrow raises whatever it stumbles over
        raise _damaged(path, error) from None
    digest, definitions = _check_header(path, metadata.get(_HEADER))
    try:
        columns = {name: file.read([name]).column(0).to_pylist() for name in _SCHEMA.names}
        if _digest(columns, definitions) != digest:
            raise ValueError("it does not hold what was written")
        return RecordSet(_decode(columns), definitions)
    except Exception as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> DatasetError:
    why = str(error).strip().splitlines() or [type(error).__name__]
    return DatasetError(f"{path} is damaged, or no Parquet file: {why[0]}; get it again")


def _check_header(path: Path, text: bytes | None) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """The hash of what the file holds and the workloads' definitions, if it is of this version."""
    if text is None:
        raise DatasetError(f"{path} is a Parquet file, but not one of tensortune's records")
    try:
        header = json.loads(text)
        found = (header["dataset"], header["record"])
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(path, error) from None
    if found != (DATASET_VERSION, SCHEMA_VERSION):
        raise DatasetError(
            f"{path} holds dataset schema {found[0]} with record schema {found[1]}; this "
            f"tensortune reads {DATASET_VERSION} with {SCHEMA_VERSION}: build it again with "
            "`tensortune dataset build`, or install the tensortune that wrote it"
        )
    try:
        return str(header["sha256"]), dict(header["definitions"])
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(path, error) from None


def _decode(columns: Mapping[str, list[Any]]) -> list[Record]:
    texts = {
        name: [_untext(value) for value in columns[name]]
        for name in ("workload", "identity", "target", "host", "space", "detail", "strategy")
    }
    versions = {text: json.loads(text) for text in set(columns["versions"])}
    return [
        Record(
            workload=texts["workload"][i],
            identity=texts["identity"][i],
            target=texts["target"][i],
            candidate=Candidate.from_json([texts["space"][i], json.loads(columns["point"][i])]),
            repeats=tuple(columns["repeats"][i]),
            failure=cast("Failure | None", columns["failure"][i]),  # the constructor checks which
            detail=texts["detail"][i],
            cut=columns["cut"][i],
            compile_s=columns["compile_s"][i],
            host=texts["host"][i],
            versions=dict(versions[columns["versions"][i]]),
            seed=columns["seed"][i],
            batch=columns["batch"][i],
            time=columns["time"][i],
            strategy=texts["strategy"][i],
        )
        for i in range(len(columns["point"]))
    ]
