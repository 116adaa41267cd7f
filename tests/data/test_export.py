from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import meta_schedule as ms
from tvm_ffi import structural_equal

from tensortune.data.export import ExportError, write_database
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.space import Scheduled
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, workload


@pytest.fixture(scope="module")
def target() -> Any:
    # Two threads, however many there are: what is tested is not how fast they are.
    return tvm.target.Target({**dict(cpu_target().export()), "num-cores": 2})


def _schedules(subject: Workload, target: Any, n: int) -> list[Scheduled]:
    space = SketchSpace(subject, target)
    return [space.schedule(c) for c in space.sample(np.random.default_rng(0), n)]


@pytest.fixture(scope="module")
def matmul(target: Any) -> tuple[Workload, list[Scheduled]]:
    subject = workload("matmul", 48, 64, 32)
    return subject, _schedules(subject, target, 12)


def _open(folder: Path) -> Any:
    return ms.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )


def test_metaschedule_finds_the_best(
    matmul: tuple[Workload, list[Scheduled]], target: Any, tmp_path: Path
) -> None:
    subject, schedules = matmul
    times: list[list[float] | None] = [[3e-3], None, [1e-3, 1.5e-3], [1.4e-3, 1.4e-3], []]
    folder = tmp_path / "out" / "database"
    write_database(
        folder,
        subject,
        target,
        [(s.trace, seconds) for s, seconds in zip(schedules, times, strict=False)],
    )
    database = _open(folder)
    assert len(database) == len(times)
    for schedule in (
        database.query_schedule(subject.mod, target, "main"),
        ms.tir_integration.compile_tir(database, subject.mod, target),
        ms.tir_integration.compile_tir(database, subject.mod["main"], target),
    ):
        assert structural_equal(schedule.mod, schedules[2].mod)
    record = database.query_tuning_record(subject.mod, target, "main")
    assert [float(second) for second in record.run_secs] == [1e-3, 1.5e-3]
    assert str(record.target) == str(target)
    lines = (folder / "database_tuning_record.json").read_text().splitlines()
    assert [json.loads(line)[1][1] for line in lines] == [*times[:1], [1e10], *times[2:4], [1e10]]
    # The intrinsics of every GPU take 15 s to import.
    assert "tvm.s_tir.tensor_intrin" not in sys.modules


def test_database_is_replaced(
    matmul: tuple[Workload, list[Scheduled]], target: Any, tmp_path: Path
) -> None:
    subject, schedules = matmul
    other = workload("softmax", 8, 8)
    folder = tmp_path / "database"
    write_database(folder, other, target, [(_schedules(other, target, 1)[0].trace, [1.0])])
    write_database(folder, subject, target, [(schedules[0].trace, [1.0])])
    database = _open(folder)
    assert len(database) == 1
    assert not database.has_workload(other.mod)
    found = database.query_schedule(subject.mod, target, "main")
    assert structural_equal(found.mod, schedules[0].mod)
    assert [path.name for path in tmp_path.iterdir()] == ["database"]


def test_database_without_entries(target: Any, tmp_path: Path) -> None:
    subject = workload("softmax", 8, 8)
    write_database(tmp_path / "database", subject, target, [])
    database = _open(tmp_path / "database")
    assert len(database) == 0
    assert database.has_workload(subject.mod)


@pytest.mark.parametrize("make", [lambda p: p.write_text(""), lambda p: p.mkdir()])
def test_a_foreign_folder_is_left_alone(
    make: Callable[[Path], Any], target: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "database"
    make(folder)
    if folder.is_dir():
        (folder / "thesis.tex").write_text("irreplaceable")
    with pytest.raises(ExportError, match="choose another"):
        write_database(folder, workload("softmax", 8, 8), target, [])
    if folder.is_dir():
        assert (folder / "thesis.tex").read_text() == "irreplaceable"
