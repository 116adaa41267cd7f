"""Program features of a dataset's records, computed once and kept beside it.

A program's features follow from its workload, target and candidate, so they are kept under a hash
of these, of the features' schema and of TVM's version. Whatever changes one of them makes another
hash, and the program is replayed again; records that are added cost only their own replay, and a
build that is interrupted goes on from the last finished chunk.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from ..data.candidate import Candidate, InvalidCandidate
from ..data.dataset import Dataset
from ..data.host import usable_cpus
from ..data.record import Record
from ..data.space import Scheduled
from ..data.spaces import SPACES, NamedSpace, make_space
from ..data.workload import Workload
from .base import FeatureSchema, Floats, Samples
from .feature_files import FeatureFiles
from .features import loops, relations, statements
from .features.schemas import LOOPS, STATEMENTS

Extract = Callable[[Sequence[Scheduled], tvm.target.Target, int | None], list[Floats]]
Progress = Callable[[int, int], None]
"""Called with how many programs are done, and of how many."""

KINDS: dict[str, tuple[FeatureSchema, Extract]] = {
    "statements": (STATEMENTS, statements.extract),
    "loops": (LOOPS, loops.extract),
}
"""The kinds of features that all programs share: their schema, and what computes them."""

DERIVED: dict[str, tuple[str, Callable[[Samples], Samples]]] = {
    "relations": ("loops", relations.of),
}
"""The kinds that are computed from those of another kind each time, in no time: which, and how."""

# Raised when a space reads its candidates' points in another way than before.
_REPLAY_VERSION = 1
_CHUNK = 200  # programs; 1 to 2 s of one core
# For fewer missing programs a second process costs more (it loads TVM) than it brings.
_WORTH_WORKERS = 400


@dataclass(frozen=True)
class _Job:
    """Programs of one workload and space on one target, to be computed in one go."""

    kind: str
    workload: Mapping[str, Any]
    target: str
    space: str
    keys: tuple[bytes, ...]
    points: tuple[Any, ...]


@dataclass(frozen=True)
class Featured:
    """A dataset's records with features.

    Attributes:
        samples: The features with what was measured, one program a record; a group is a workload
            on one target and host (`Dataset.groups`).
        positions: Which record of the dataset each program is, of shape (programs,).
        missing: Why other records have no features, and how many.
    """

    samples: Samples
    positions: npt.NDArray[np.int64]
    missing: Mapping[str, int]


def featured(
    dataset: Dataset,
    schema: FeatureSchema,
    keys: Sequence[bytes | None],
    cache: FeatureFiles,
    failed: Mapping[bytes, str],
) -> Featured:
    """The records of a dataset whose features are in the cache, and why the others have none.

    Args:
        dataset: The records.
        schema: Of the features.
        keys: Each record's key in the cache; None where no space of ours reads its candidate.
        cache: The features.
        failed: Why there is nothing in the cache, by key.
    """
    chosen: list[int] = []
    missing: Counter[str] = Counter()
    for i, key in enumerate(keys):
        if key is None:
            missing[f"no space of ours reads `{dataset.records[i].candidate.space}`"] += 1
        elif key in cache.rows:
            chosen.append(i)
        else:
            missing[cache.illegal.get(key) or failed.get(key, "not replayed")] += 1
    positions = np.array(chosen, dtype=np.int64)
    features = [cache.rows[key] for key in keys if key is not None and key in cache.rows]
    made = Samples.of(schema, features, dataset.latency_s[positions], dataset.groups[positions])
    return Featured(made, positions, dict(missing))


def cache_folder(dataset: Dataset, kind: str = "statements") -> Path:
    """Where a dataset's features are kept: `features/<kind>-v<version>` beside its parts.

    Features that are derived from others are kept as those.

    Raises:
        ValueError: the dataset was made in memory, or there is no such kind.
    """
    if dataset.path is None:
        raise ValueError("a dataset made in memory has no folder: say where to keep its features")
    kind, _ = DERIVED.get(kind, (kind, None))
    schema, _ = _kind(kind)
    path = dataset.path
    beside = path / "features" if path.is_dir() else path.with_name(f"{path.stem}.features")
    return beside / f"{kind}-v{schema.version}"


def _kind(name: str) -> tuple[FeatureSchema, Extract]:
    if name not in KINDS:
        known = ", ".join([*KINDS, *DERIVED])
        raise ValueError(f"there are no features `{name}` of programs: choose {known}")
    return KINDS[name]


def samples(
    dataset: Dataset,
    kind: str = "statements",
    *,
    folder: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Featured:
    """A dataset's records with features; programs that the cache lacks are replayed first.

    Args:
        dataset: The records.
        kind: A kind of features, of `KINDS` or `DERIVED`.
        folder: Where features are kept; by default `cache_folder`.
        workers: Processes that replay; by default one a usable CPU, and none for a few hundred
            programs. 1 stays in this process; more are started afresh, so that a script needs its
            `if __name__ == "__main__":`.
        progress: Told how far the replay is.

    Raises:
        ValueError: see `cache_folder`.
        OSError: the folder can't be written.
        RuntimeError: a worker died; what was finished is kept.
    """
    if kind in DERIVED:
        source, derive = DERIVED[kind]
        base = samples(dataset, source, folder=folder, workers=workers, progress=progress)
        return replace(base, samples=derive(base.samples))
    schema, _ = _kind(kind)
    cache = FeatureFiles(folder or cache_folder(dataset, kind), schema.width)
    cache.load()
    keys = _keys(dataset.records, kind)
    failed: dict[bytes, str] = {}
    jobs = _jobs(dataset, kind, keys, cache)
    done, total = 0, sum(len(job.keys) for job in jobs)
    count = workers or (len(usable_cpus()) if total >= _WORTH_WORKERS else 1)
    with _results(jobs, min(count, len(jobs))) as results:
        for job, found, why in results:
            if found is None:
                failed |= dict.fromkeys(job.keys, why[0])
            else:
                cache.add(job.keys, found, why)
            done += len(job.keys)
            if progress is not None:
                progress(done, total)
    return featured(dataset, schema, keys, cache, failed)


def _keys(records: Sequence[Record], kind: str) -> list[bytes | None]:
    """The hash of each record's program; None where no space of ours reads its candidate."""
    schema, _ = _kind(kind)
    salt = [schema.name, schema.version, schema.width, tvm.__version__, _REPLAY_VERSION]
    return [
        hashlib.sha256(
            json.dumps([*salt, r.workload, r.target, r.candidate.to_json()]).encode()
        ).digest()[:16]
        if r.candidate.space in SPACES
        else None
        for r in records
    ]


def _jobs(
    dataset: Dataset, kind: str, keys: Sequence[bytes | None], cache: FeatureFiles
) -> list[_Job]:
    """What is to be replayed, in chunks; a program that several records share comes once."""
    wanted: dict[tuple[str, str, str], dict[bytes, Any]] = {}
    for record, key in zip(dataset.records, keys, strict=True):
        if key is not None and key not in cache.rows and key not in cache.illegal:
            group = record.workload, record.target, record.candidate.space
            wanted.setdefault(group, {})[key] = record.candidate.point
    return [
        _Job(
            kind,
            dataset.definitions.get(workload, {"key": workload}),
            target,
            space,
            tuple(list(points)[start : start + _CHUNK]),
            tuple(list(points.values())[start : start + _CHUNK]),
        )
        for (workload, target, space), points in wanted.items()
        for start in range(0, len(points), _CHUNK)
    ]


_Result = tuple[_Job, list[Floats] | None, list[str]]


@contextmanager
def _results(jobs: Sequence[_Job], workers: int) -> Iterator[Iterator[_Result]]:
    """The jobs' results as they come, from so many processes."""
    if workers < 2:
        yield (_run(job) for job in jobs)
        return
    # Not forked: TVM's threads would be missing in the copy.
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield _finished([pool.submit(_run, job) for job in jobs])
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _finished(futures: Sequence[Future[_Result]]) -> Iterator[_Result]:
    try:
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool:
        raise RuntimeError(
            "a process that computes features died; what was finished is kept. In a script, call "
            'from under `if __name__ == "__main__":`, or ask for workers=1'
        ) from None


def _run(job: _Job) -> _Result:
    """Features of a job's programs (none where one is illegal) and why; or what failed for all."""
    schema, extract = _kind(job.kind)
    try:
        space = _space(job.space, json.dumps(job.workload), job.target)
    except Exception as error:  # TVM raises whatever its C++ side threw
        return job, None, [f"its space can't be made: {last_line(error)}"]
    legal: list[Scheduled] = []
    why: list[str] = []
    for point in job.points:
        try:
            legal.append(space.schedule(Candidate(job.space, point)))
            why.append("")
        except InvalidCandidate as error:
            why.append(f"illegal here: {last_line(error)}")
    made = iter(extract(legal, space.target, 1))
    none = np.empty((0, schema.width), np.float32)
    return job, [none if reason else next(made) for reason in why], why


@lru_cache(maxsize=4)
def _space(name: str, workload: str, target: str) -> NamedSpace:
    """A space as it was when the records were made, also of a machine that isn't this one."""
    made = tvm.target.Target(json.loads(target))
    return make_space(name, Workload.from_json(json.loads(workload)), made)


def last_line(error: Exception) -> str:
    """What an error says last, which of TVM's is the point of it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1][:120]
