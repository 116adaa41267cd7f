"""Collecting on this machine: whole, resumable, alone in its folder, never ended by one fault."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tensortune.data.record import Record
from tensortune.data.store import Store
from tensortune.data.suites import suite
from tensortune.data.workload import Workload
from tensortune.search import collect as module
from tensortune.search.collect import collect, measure_again
from tensortune.search.collect_folder import CollectError, CollectFolder
from tensortune.search.collect_plan import AGAIN, CollectSettings
from tensortune.search.collect_session import Progress, summarise_folder

from ..planted import Crash

SMOKE = CollectSettings("smoke", loop_share=0.25)


def records_in(folder: Path) -> list[Record]:
    return list(CollectFolder(folder).every_record())


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The matmul and the relu of `smoke`, 20 records."""
    out = tmp_path_factory.mktemp("collected") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "suite", lambda name: suite(name)[::3])
        seen: list[tuple[str, int, bool]] = []

        def note(progress: Progress) -> None:
            seen.append((progress.workload, progress.held, progress.ended))

        result = collect(SMOKE, 20, out, on_progress=note)
    assert (result.wanted, result.held, result.new) == (20, 20, 20)
    assert result.failed == {} and result.problems == [] and not result.late
    assert result.seconds.keys() >= {"setup", "compile", "time", "model", "search"}
    assert sum(result.seconds.values()) < result.elapsed_s * 1.01
    assert [held for _, held, _ in seen] == sorted(held for _, held, _ in seen)
    assert seen[-1][1:] == (20, True)
    return out


def test_records_are_whole_distinct_and_of_all_kinds(collected: Path) -> None:
    records = records_in(collected)
    assert len(records) == len({(r.workload, r.candidate) for r in records}) == 20
    assert {record.workload for record in records} == {w.key for w in suite("smoke")[::3]}
    loops = sum(record.candidate.space == "loop" for record in records)
    assert loops >= 0.15 * len(records)
    assert {record.strategy for record in records} > {"random"}
    for record in records:
        assert record.identity and record.host and record.versions and record.time
        assert record.failure != "invalid"
    # Of the relu there is one sketch only, and the matmul has what it leaves.
    sketches = Counter(r.workload for r in records if r.candidate.space == "sketch")
    assert sketches["relu(m=32,n=32)"] == 1 < sketches["matmul(m=48,n=48,k=40)"]


def test_a_finished_collection_measures_nothing(
    collected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in collected.glob("*.jsonl")}
    monkeypatch.setattr(module, "suite", lambda name: suite(name)[::3])
    result = collect(SMOKE, 20, collected)
    assert (result.held, result.new) == (20, 0)
    assert {path.name: path.read_bytes() for path in collected.glob("*.jsonl")} == before


def test_the_summary_counts_what_is_there(collected: Path) -> None:
    summary = summarise_folder(collected)
    assert summary["records"] == 20 == sum(summary["spaces"].values())
    assert summary["workloads"] == 2 and summary["again"] == 0
    assert set(summary["families"]) == {"GMM", "elementwise"}
    assert sum(each["records"] for each in summary["families"].values()) == 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (CollectSettings("smoke", loop_share=0.25, seed=3), "seed 0, not 3"),
        (CollectSettings("ansor", ("sketch",)), "suite smoke, not ansor; spaces sketch,loop, not"),
    ],
)
def test_other_settings_are_refused_by_name(
    collected: Path, settings: CollectSettings, message: str
) -> None:
    before = (collected / "collection.json").read_bytes()
    with pytest.raises(CollectError) as caught:
        collect(settings, 20, collected)
    assert message in str(caught.value) and "choose another --out" in str(caught.value)
    assert (collected / "collection.json").read_bytes() == before


def test_a_folder_of_something_else_is_refused(tmp_path: Path, collected: Path) -> None:
    stranger = tmp_path / "records.jsonl"
    Store(stranger).append(records_in(collected)[:1])
    with pytest.raises(CollectError, match=r"holds records\.jsonl but no collection\.json"):
        collect(SMOKE, 10, tmp_path)
    for text in ("nonsense", "[]", '{"settings": 3}'):
        (tmp_path / "collection.json").write_text(text)
        with pytest.raises(CollectError, match="choose another --out"):
            collect(SMOKE, 10, tmp_path)
    with pytest.raises(CollectError, match="does not exist"):
        measure_again(tmp_path / "nowhere", 0.5)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("samples", "hours", "message"),
    [(0, None, "samples must be at least 1"), (10, 0.0, "hours must be above 0")],
)
def test_what_cannot_be_asked_for(
    tmp_path: Path, samples: int, hours: float | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        collect(SMOKE, samples, tmp_path / "out", hours=hours)
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        measure_again(tmp_path, 0.0)


def test_a_second_measurement_goes_on_where_it_was(
    collected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "suite", lambda name: suite(name)[::3])
    first = records_in(collected)
    candidates = {record.candidate for record in first if record.valid}

    def dying(progress: Progress) -> None:
        if progress.new == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_again(collected, 0.6, on_progress=dying)
    assert summarise_folder(collected)["again"] == 3
    result = measure_again(collected, 0.6)
    again = [record for record in records_in(collected) if record.strategy == AGAIN]
    assert result.new == result.wanted == len(again) - 3 > 0
    assert len({record.candidate for record in again}) == len(again)
    assert {record.candidate for record in again} < candidates
    assert min(record.time for record in again) > max(record.time for record in first)
    assert not any(record.cut for record in again)
    assert measure_again(collected, 0.6).new == 0
    assert [r for r in records_in(collected) if r.strategy != AGAIN] == first
    # They are no part of the plan.
    assert collect(SMOKE, 20, collected).new == 0


def test_a_workload_that_fails_is_named_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Workload.from_module(Crash, "crash")
    relu = suite("smoke")[3]
    monkeypatch.setattr(module, "suite", lambda name: (crash, relu))
    out = tmp_path / "out"
    result = collect(CollectSettings("smoke", ("sketch",)), 5, out)
    assert (result.held, result.wanted) == (1, 5), "there is one sketch of the relu"
    assert list(result.failed) == [crash.key]
    assert "the untuned program does not run" in result.failed[crash.key]
    assert json.loads((out / "failed.json").read_text()) == result.failed
    # What is held is enough now, so that nothing has a turn; the report stays as it is.
    assert collect(CollectSettings("smoke", ("sketch",)), 1, out).failed == result.failed
    monkeypatch.setattr(module, "suite", lambda name: (relu,))
    assert measure_again(out, 1.0).new == 1


_COLLECT = """
import sys
from tensortune.search.collect import collect
from tensortune.search.collect_plan import CollectSettings
collect(CollectSettings("smoke", ("sketch",)), 14, sys.argv[1])
"""


def test_a_killed_collection_goes_on_and_no_other_gets_in(tmp_path: Path) -> None:
    out, settings = tmp_path / "out", CollectSettings("smoke", ("sketch",))
    collector = subprocess.Popen([sys.executable, "-c", _COLLECT, str(out)])
    try:
        deadline = time.monotonic() + 120
        while len(before := records_in(out)) < 4:
            assert collector.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(CollectError, match="another process is collecting into"):
            collect(settings, 14, out)
    finally:
        os.kill(collector.pid, signal.SIGKILL)
        collector.wait()
    killed = records_in(out)
    assert len(before) <= len(killed) < 14
    with next(out.glob("*.jsonl")).open("ab") as file:
        file.write(b'{"schema": 1, "workl')  # the line it was writing
    result = collect(settings, 14, out)
    records = records_in(out)
    assert len(records) == result.held == 14 and result.new == 14 - len(killed)
    assert len({(r.workload, r.candidate) for r in records}) == 14
    kept = {(r.workload, r.candidate, r.time) for r in killed}
    assert kept <= {(r.workload, r.candidate, r.time) for r in records}
    assert len(result.problems) == 1 and "torn" in result.problems[0]
