"""Features of a dataset's programs: equal to fresh ones, kept, and computed once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from tensortune.costmodel import feature_cache
from tensortune.costmodel.ceiling import dataset_ceiling
from tensortune.costmodel.feature_cache import cache_folder, samples
from tensortune.costmodel.features import loops, relations, statements
from tensortune.costmodel.features.schemas import LOOPS, RELATIONS, STATEMENTS
from tensortune.data.candidate import Candidate
from tensortune.data.dataset import Dataset, append_records, read_dataset
from tensortune.data.loop_space import LoopSpace
from tensortune.data.record import Record
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.target import cpu_target, target_string
from tensortune.data.workload import Workload, workload

ITEMS = (workload("matmul", 16, 24, 32), workload("softmax", 8, 16))
CUSTOM = Workload.from_module(workload("relu", 8, 12).mod, "mine")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Eight programs of each workload in each of the spaces."""
    rng = np.random.default_rng(0)
    target = cpu_target()
    return [
        Record(
            item.key,
            item.identity,
            target_string(target),
            candidate,
            repeats=(1.0 + number,),
            host="h",
            time=float(number),
        )
        for item in (*ITEMS, CUSTOM)
        for space in (SketchSpace(item, target), LoopSpace(item, target))
        for number, candidate in enumerate(list(dict.fromkeys(space.sample(rng, 40)))[:8])
    ]


@pytest.fixture
def data(records: list[Record], tmp_path: Path) -> Dataset:
    """The records in a folder."""
    append_records(tmp_path / "set", records, {CUSTOM.key: CUSTOM.to_json()})
    return read_dataset(tmp_path / "set")


class Counter:
    """Counts the programs that are extracted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs = 0
        monkeypatch.setitem(feature_cache.KINDS, "statements", (STATEMENTS, self.extract))

    def extract(self, scheduled: Any, target: Any, threads: int | None) -> Any:
        self.programs += len(scheduled)
        return statements.extract(scheduled, target, threads)


def test_features_are_those_of_a_fresh_replay(data: Dataset) -> None:
    found = samples(data)
    assert not found.missing
    assert found.positions.tolist() == list(range(len(data)))
    target = cpu_target()
    for item in (*ITEMS, CUSTOM):
        for made in (SketchSpace(item, target), LoopSpace(item, target)):
            where = [
                i
                for i, record in enumerate(data.records)
                if record.workload == item.key and record.candidate.space == made.name
            ]
            assert where
            scheduled = [made.schedule(data.records[i].candidate) for i in where]
            fresh = statements.samples(scheduled, target)
            kept = found.samples.take(where)
            np.testing.assert_array_equal(kept.rows, fresh.rows)
            np.testing.assert_array_equal(kept.counts, fresh.counts)
    np.testing.assert_array_equal(found.samples.groups, data.groups)
    np.testing.assert_array_equal(found.samples.latency_s, data.latency_s)


def test_relations_are_made_of_the_loops_that_are_kept(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = 0

    def counted(scheduled: Any, target: Any, threads: int | None) -> Any:
        nonlocal replayed
        replayed += len(scheduled)
        return loops.extract(scheduled, target, threads)

    monkeypatch.setitem(feature_cache.KINDS, "loops", (LOOPS, counted))
    made = samples(data, "relations")
    assert replayed == len(data) and made.samples.schema == RELATIONS
    assert cache_folder(data, "relations") == cache_folder(data, "loops")
    assert cache_folder(data, "loops").name == "loops-v1"
    kept = samples(data, "loops")
    assert replayed == len(data) and kept.samples.schema == LOOPS
    expected = relations.of(kept.samples)
    np.testing.assert_array_equal(made.samples.rows, expected.rows)
    np.testing.assert_array_equal(made.samples.latency_s, data.latency_s)
    np.testing.assert_array_equal(made.positions, kept.positions)
    assert np.isfinite(made.samples.rows).all()


def test_loops_are_those_of_a_fresh_replay(data: Dataset) -> None:
    found = samples(data, "loops")
    assert not found.missing
    target = cpu_target()
    space = SketchSpace(ITEMS[0], target)
    where = [
        i
        for i, record in enumerate(data.records)
        if record.workload == ITEMS[0].key and record.candidate.space == space.name
    ]
    fresh = loops.samples([space.schedule(data.records[i].candidate) for i in where], target)
    np.testing.assert_array_equal(found.samples.take(where).rows, fresh.rows)


def test_what_is_kept_is_not_computed_again(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter(monkeypatch)
    first = samples(data)
    assert counter.programs == len(data)
    second = samples(data)
    assert counter.programs == len(data)
    np.testing.assert_array_equal(first.samples.rows, second.samples.rows)
    # The same program measured again, or in another place, is the same program.
    again = [replace(r, time=1e6, repeats=(9.0,), host="other") for r in data.records[:5]]
    assert data.path is not None
    append_records(data.path, again)
    more = samples(read_dataset(data.path))
    assert counter.programs == len(data) and len(more.samples) == len(data) + 5
    assert more.samples.groups[-1] != more.samples.groups[4]
    np.testing.assert_array_equal(more.samples.take([-1]).rows, more.samples.take([4]).rows)
    part = samples(data.take([3, 1]), folder=cache_folder(data))
    assert counter.programs == len(data)
    np.testing.assert_array_equal(part.samples.rows, first.samples.take([3, 1]).rows)


def test_an_interrupted_build_goes_on(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_cache, "_CHUNK", 4)
    counter = Counter(monkeypatch)

    def stop(done: int, total: int) -> None:
        assert total == len(data)
        if done >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        samples(data, progress=stop)
    assert counter.programs == 12
    said: list[tuple[int, int]] = []
    found = samples(data, progress=lambda *at: said.append(at))
    assert counter.programs == len(data) and len(found.samples) == len(data)
    assert said[-1] == (len(data) - 12, len(data) - 12)


def test_another_schema_or_tvm_is_not_mixed_up(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)
    samples(data)
    with monkeypatch.context() as patch:
        patch.setattr(tvm, "__version__", "0.99")
        samples(data)
        assert counter.programs == 2 * len(data)
    newer = replace(STATEMENTS, version=2)
    monkeypatch.setitem(feature_cache.KINDS, "statements", (newer, counter.extract))
    assert cache_folder(data).name == "statements-v2"
    samples(data)
    assert counter.programs == 3 * len(data)


def test_a_damaged_file_is_computed_again(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter(monkeypatch)
    first = samples(data)
    files = sorted(cache_folder(data).glob("*.npz"))
    assert len(files) == 6
    size = files[1].stat().st_size
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[: size // 2])
    flipped = bytearray(files[2].read_bytes())
    flipped[len(flipped) // 2] ^= 4
    files[2].write_bytes(flipped)
    second = samples(data)
    np.testing.assert_array_equal(first.samples.rows, second.samples.rows)
    assert len(data) < counter.programs <= 2 * len(data)
    assert [path.name for path in sorted(cache_folder(data).iterdir())] == [f.name for f in files]


def test_processes_give_the_same(data: Dataset, tmp_path: Path) -> None:
    alone = samples(data, folder=tmp_path / "one", workers=1)
    said: list[tuple[int, int]] = []
    shared = samples(data, folder=tmp_path / "two", workers=2, progress=lambda *at: said.append(at))
    np.testing.assert_array_equal(alone.samples.rows, shared.samples.rows)
    np.testing.assert_array_equal(alone.samples.counts, shared.samples.counts)
    assert said[-1] == (len(data), len(data))


def test_what_has_no_features_is_counted(data: Dataset, tmp_path: Path) -> None:
    good = data.records[0]
    records = [
        good,
        replace(good, candidate=Candidate("sketch", (99, ()))),
        replace(good, candidate=Candidate("ansor", (("CI", 1),))),
        replace(good, workload="custom:gone@0"),
        replace(good, target='{"kind": "no such"}'),
        replace(good, repeats=(), failure="timeout"),
    ]
    found = samples(Dataset(records), folder=tmp_path)
    assert found.positions.tolist() == [0, 5]
    assert found.samples.latency_s.tolist() == [1.0, np.inf]
    assert sum(found.missing.values()) == 4
    words = ("illegal here: this workload has no sketch 99", "reads `ansor`", "custom workload")
    for word in words:
        assert any(word in why for why in found.missing), found.missing
    assert samples(Dataset(records), folder=tmp_path).missing == found.missing
    assert len(samples(Dataset([]), folder=tmp_path).samples) == 0


def test_a_target_of_another_machine_is_replayed(data: Dataset, tmp_path: Path) -> None:
    target = '{"kind":"llvm","mcpu":"haswell","mtriple":"x86_64-linux-gnu","num-cores":64}'
    item = ITEMS[0]
    space = SketchSpace(item, tvm.target.Target(json.loads(target)))
    drawn = space.sample(np.random.default_rng(0), 2)
    records = [Record(item.key, item.identity, target, c, repeats=(1.0,)) for c in drawn]
    assert not samples(Dataset(records), folder=tmp_path).missing


def test_what_cannot_be_asked(data: Dataset) -> None:
    with pytest.raises(ValueError, match="made in memory"):
        samples(Dataset(data.records))
    with pytest.raises(ValueError, match=r"no features `pictures`.*statements, loops, relations"):
        samples(data, "pictures")


def test_the_ceiling_is_high_where_measurements_agree_and_chance_where_they_do_not() -> None:
    rng = np.random.default_rng(0)
    one = Record("k", "i", "t", Candidate("s", ()), repeats=(1.0,), host="h")

    def measured(noise: float) -> Dataset:
        true = rng.lognormal(0, 0.5, 200)
        return Dataset(
            [
                replace(
                    one,
                    candidate=Candidate("s", (n,)),
                    repeats=(float(true[n] * rng.lognormal(0, noise)),),
                    time=1e6 * occasion,
                )
                for n in range(200)
                for occasion in range(2)
            ]
        )

    good, bad = dataset_ceiling(measured(0.005)), dataset_ceiling(measured(20.0))
    assert (good.programs, good.workloads) == (200, 1)
    assert good.pairwise > 0.98
    # Chance. Two independent rankings of 200 agree on half of the pairs, with a standard deviation
    # of 0.024: four of these.
    assert abs(bad.pairwise - 0.5) < 0.1
    assert np.isnan(dataset_ceiling(Dataset([one])).pairwise)
