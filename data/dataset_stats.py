"""What a dataset holds, in figures: counts, failures, spread and noise. Loads no TVM."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from .dataset import Dataset, parts
from .families import ANSOR_FAMILIES
from .record import Record

OCCASION_S = 600.0
"""Measurements that are at least so far apart were made on different occasions."""


@dataclass(frozen=True)
class NoisePairs:
    """Programs that were measured on several occasions.

    Attributes:
        positions: Of each program one record an occasion, in time.
        latency_s: Seconds of each of these.
        groups: Which workload each program is of (`Dataset.groups`), of shape (programs,).
    """

    positions: tuple[tuple[int, ...], ...]
    latency_s: tuple[tuple[float, ...], ...]
    groups: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.positions)


def noise_pairs(dataset: Dataset, apart_s: float = OCCASION_S) -> NoisePairs:
    """The programs with sound timings from at least two occasions, on one host each.

    Timings that were cut short count too: models are judged by them as well.

    Args:
        dataset: The records.
        apart_s: Seconds between two occasions at least.
    """
    records = dataset.records
    programs: dict[tuple[int, Any], list[int]] = {}
    for i in np.flatnonzero(np.isfinite(dataset.latency_s)).tolist():
        key = int(dataset.groups[i]), records[i].candidate
        programs.setdefault(key, []).append(i)
    found: list[tuple[int, ...]] = []
    for members in programs.values():
        chosen: list[int] = []
        for i in sorted(members, key=lambda i: records[i].time):
            if not chosen or records[i].time - records[chosen[-1]].time >= apart_s:
                chosen.append(i)
        if len(chosen) > 1:
            found.append(tuple(chosen))
    return NoisePairs(
        tuple(found),
        tuple(tuple(records[i].latency_s for i in chosen) for chosen in found),
        np.array([dataset.groups[chosen[0]] for chosen in found], dtype=np.int64),
    )


def measured_programs(dataset: Dataset) -> int:
    """How many programs have a sound timing that was not cut short."""
    timed = np.flatnonzero(np.isfinite(dataset.latency_s)).tolist()
    records = dataset.records
    return len(
        {(int(dataset.groups[i]), records[i].candidate) for i in timed if not records[i].cut}
    )


def describe(dataset: Dataset) -> dict[str, Any]:
    """Counts, failures by kind, spread and noise, as plain JSON.

    `spread` is a workload's best throughput over its median one. `repeat_noise` is the standard
    deviation of the logarithms of a record's repeats; `again` compares two occasions: the ratio of
    the slower median to the faster one, less 1.
    """
    if not len(dataset):
        return {"records": 0}
    table, records = dataset.table, dataset.records
    per_workload = _per_workload(table)
    pairs = noise_pairs(dataset)
    again = [max(times) / min(times) - 1 for times in pairs.latency_s]
    times = [record.time for record in records if record.time > 0]
    return {
        "records": len(records),
        "workloads": table["workload"].nunique(),
        "identities": table["identity"].nunique(),
        "valid": int(table["valid"].sum()),
        "cut": int(table["cut"].sum()),
        "failures": _counts(r.failure for r in records if r.failure),
        "spaces": _counts(table["space"]),
        "families": _per_family(table, per_workload),
        "ansor_families": len(set(table["family"]) & set(ANSOR_FAMILIES)),
        "hosts": _counts(table["host"]),
        "targets": _counts(table["target"]),
        "strategies": _counts(table["strategy"]),
        "versions": _counts(_versions(record) for record in records),
        "first": _date(min(times, default=0.0)),
        "last": _date(max(times, default=0.0)),
        "bytes": sum(p.stat().st_size for p in parts(dataset.path)) if dataset.path else None,
        "spread": _quantiles([row["spread"] for row in per_workload if row["spread"]]),
        "repeat_noise": _quantiles(_repeat_noise(records)),
        "measured_programs": measured_programs(dataset),
        "measured_again": len(pairs),
        "again": _quantiles(again),
        "per_workload": per_workload,
    }


def _per_workload(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A row for each computation on each target and host."""
    rows = []
    for _, group in table.groupby("group", sort=False):
        valid = group.loc[group["valid"], "latency_s"]
        best = float(valid.min()) if len(valid) else None
        median = float(valid.median()) if len(valid) else None
        first = group.iloc[0]
        rows.append(
            {
                "workload": first["workload"],
                "identity": first["identity"],
                "family": first["family"],
                "host": first["host"],
                "records": len(group),
                "valid": len(valid),
                "loop": int((group["space"] == "loop").sum()),
                "best_s": best,
                "median_s": median,
                "spread": median / best if best and median else None,
            }
        )
    return rows


def _per_family(table: pd.DataFrame, per_workload: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for family, group in table.groupby("family"):
        spreads = [r["spread"] for r in per_workload if r["family"] == family and r["spread"]]
        rows.append(
            {
                "family": family,
                "operators": sorted(set(group["operator"])),
                "records": len(group),
                "workloads": group["identity"].nunique(),
                "valid": int(group["valid"].sum()),
                "loop": int((group["space"] == "loop").sum()),
                "spread": statistics.median(spreads) if spreads else None,
            }
        )
    return rows


def _counts(values: Iterable[Any]) -> dict[str, int]:
    """How often each comes, the most frequent first."""
    return {str(value): count for value, count in Counter(values).most_common()}


def _versions(record: Record) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()))


def _date(time: float) -> str | None:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds") if time else None


def _repeat_noise(records: Iterable[Record]) -> list[float]:
    several = (r.repeats for r in records if r.valid and not r.cut and len(r.repeats) > 1)
    return [statistics.stdev(np.log(repeats).tolist()) for repeats in several]


def _quantiles(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    found = np.quantile(values, (0.1, 0.5, 0.9))
    return dict(zip(("p10", "median", "p90"), map(float, found), strict=True))
