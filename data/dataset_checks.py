"""Whether a dataset is fit to be shipped: its size, its provenance, and nothing held out in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .dataset import Dataset, DatasetError, parts, read_dataset
from .dataset_stats import measured_programs, noise_pairs
from .families import ANSOR_FAMILIES, family_of
from .record import Record
from .signature import WorkloadError
from .suites import held_out, suite
from .workload import Workload

_UNKNOWN = ("", "unknown")
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Floors:
    """The least (of the size: the most) that a dataset has to have.

    Attributes:
        records: Records.
        workloads: Canonical identities.
        families: Families of Ansor's suite.
        looptune: Workloads of LoopTune's training split.
        loop_share: Share of the records that are programs of the loop space.
        again: Share of the timed programs that were timed again on another occasion.
        megabytes: Size of the Parquet files, in 1e6 bytes.
    """

    records: int = 20_000
    workloads: int = 120
    families: int = 13
    looptune: int = 1
    loop_share: float = 0.15
    again: float = 0.05
    megabytes: float = 30.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        ok: Whether it is as it has to be.
        found: The figure, or what is wrong.
        wanted: What it has to be.
    """

    name: str
    ok: bool
    found: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The canonical identities of the workloads that records name.

    Attributes:
        identities: By key, for the workloads that could be built.
        problems: By key, why the others could not.
    """

    identities: Mapping[str, str]
    problems: Mapping[str, str]

    def held_out(self, record: Record) -> bool:
        """Whether a record is of a held-out computation, by what it says or by what it is."""
        found = self.identities.get(record.workload, record.identity)
        return not held_out().isdisjoint((found, record.identity))


def recompute(
    records: Iterable[Record], definitions: Mapping[str, Mapping[str, Any]]
) -> Recomputed:
    """Build the workloads of records again, and take their identities (milliseconds each)."""
    identities: dict[str, str] = {}
    problems: dict[str, str] = {}
    for key in dict.fromkeys(record.workload for record in records):
        try:
            value = definitions.get(key, {"key": key})
            identities[key] = Workload.from_json(value).identity
        except WorkloadError as error:
            problems[key] = str(error)
        # A definition of a damaged file: TVM raises whatever its C++ side threw.
        except Exception as error:
            problems[key] = f"its definition can't be read: {str(error).strip()[-80:]}"
    return Recomputed(identities, problems)


def validate(path: str | os.PathLike[str], floors: Floors | None = None) -> list[Check]:
    """Look at everything that a dataset has to have.

    Whether it is held out is judged by identities that are computed anew, not by those that the
    records have.

    Args:
        path: A Parquet file, or a folder of them.
        floors: How much there has to be.

    Raises:
        DatasetError: there is no dataset at all.
    """
    files = parts(path)
    try:
        dataset = read_dataset(path)
    except DatasetError as error:
        return [Check("schema", False, str(error), "one that this tensortune reads")]
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    schema = Check("schema", True, f"{len(files)} files read", "one that this tensortune reads")
    floors = floors or Floors()
    return [
        schema,
        *_amounts(dataset, floors),
        _check("megabytes", megabytes, floors.megabytes, most=True),
        *_leaks(dataset),
        _provenance(dataset.records),
        _doubles(dataset.records),
    ]


def _amounts(dataset: Dataset, floors: Floors) -> list[Check]:
    records = dataset.records
    keys = {record.workload for record in records}
    looptune = {item.key for item in suite("looptune-train")}
    loops = sum(record.candidate.space == "loop" for record in records)
    timed = measured_programs(dataset)
    again = len(noise_pairs(dataset))
    return [
        _check("records", len(records), floors.records),
        _check("workloads", len({record.identity for record in records}), floors.workloads),
        _check(
            "Ansor families",
            len({family_of(key) for key in keys} & set(ANSOR_FAMILIES)),
            floors.families,
        ),
        _check("LoopTune training workloads", len(keys & looptune), floors.looptune),
        _check("share of loop programs", loops / max(1, len(records)), floors.loop_share),
        _check("share measured again", again / max(1, timed), floors.again),
    ]


def _check(name: str, found: float, floor: float, *, most: bool = False) -> Check:
    ok = found <= floor if most else found >= floor
    return Check(name, ok, f"{found:.6g}", f"at {'most' if most else 'least'} {floor:g}")


def _leaks(dataset: Dataset) -> list[Check]:
    """Whether the identities are right, and none of them is held out."""
    again = recompute(dataset.records, dataset.definitions)
    stored = {(record.workload, record.identity) for record in dataset.records}
    other = [
        f"{key} has {identity}, its computation {again.identities[key]}"
        for key, identity in sorted(stored)
        if again.identities.get(key, identity) != identity
    ]
    other += [f"{key}: {why}" for key, why in again.problems.items()]
    leaked = sorted({r.workload for r in dataset.records if again.held_out(r)})
    return [
        Check("identities", not other, _named(other), "equal to those computed again"),
        Check("held-out workloads", not leaked, _named(leaked), "none"),
    ]


def _named(found: Sequence[str]) -> str:
    if not found:
        return "all right"
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f"{len(found)}: {'; '.join(found[:_MOST_NAMED])}{more}"


def missing_provenance(record: Record) -> list[str]:
    """The fields that say where a record comes from, and don't."""
    fields = ("workload", "identity", "target", "host", "strategy")
    missing = [name for name in fields if getattr(record, name) in _UNKNOWN]
    missing += [] if record.versions else ["versions"]
    return missing + ([] if record.time > 0 else ["time"])


def _provenance(records: Sequence[Record]) -> Check:
    counts: dict[str, int] = {}
    for record in records:
        for name in missing_provenance(record):
            counts[name] = counts.get(name, 0) + 1
    found = [f"{name} is missing in {count}" for name, count in counts.items()]
    return Check("provenance", not found, "; ".join(found) or "all right", "complete in all")


def _doubles(records: Sequence[Record]) -> Check:
    same = len(records) - len(set(records))
    return Check("records that are there twice", not same, str(same), "none")
