from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tensortune.costmodel.base import FeatureSchema, ModelFileError
from tensortune.costmodel.features.schemas import STATEMENTS
from tensortune.costmodel.files import load_model
from tensortune.costmodel.model_file import MAGIC, ModelFile
from tensortune.costmodel.validity import ValidityModel
from tensortune.costmodel.xgb import XGBModel

FILE = ModelFile(
    kind="xgb",
    arguments={"rounds": 3, "objective": "rank"},
    schema=STATEMENTS,
    parts={"trees": bytes(range(256)), "more": b""},
    state={"base": 0.1 + 0.2},
    workloads=("0123", "4567"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FILE.write(tmp_path / "folder" / "model")
    return tmp_path / "folder" / "model"


def test_round_trip(path: Path) -> None:
    assert ModelFile.read(path) == FILE
    assert "xgboost" in ModelFile.read(path).versions


def test_the_file_is_the_same_each_time(path: Path) -> None:
    first = path.read_bytes()
    FILE.write(path)
    assert path.read_bytes() == first


def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"`xgb`, not `validity`"):
        ModelFile.read(path, "validity")
    with pytest.raises(ModelFileError, match=r"`xgb`, not `validity`"):
        ValidityModel.load(path)


def test_an_unknown_kind_is_refused(path: Path) -> None:
    replace(FILE, kind="oracle").write(path)
    with pytest.raises(ModelFileError, match=r"`oracle`; known are .*xgb"):
        load_model(path)


def test_a_file_of_an_older_schema_names_both_versions(path: Path) -> None:
    replace(FILE, schema=replace(STATEMENTS, version=0)).write(path)
    with pytest.raises(ModelFileError, match=r"`statements` version 0 .*`statements` version 1"):
        ModelFile.read(path)


def test_a_file_of_other_features_is_refused(path: Path) -> None:
    wanted = FeatureSchema("decisions", 1, 14, "sketch/abc")
    with pytest.raises(ModelFileError, match=r"`statements` version 1 .*`decisions` version 1"):
        ModelFile.read(path, schema=wanted)


def test_a_flipped_byte_anywhere_is_found(path: Path) -> None:
    whole = path.read_bytes()
    for position in [*range(len(MAGIC) + 8), *range(len(whole) - 256, len(whole), 17)]:
        broken = bytearray(whole)
        broken[position] ^= 0x80
        path.write_bytes(broken)
        with pytest.raises(ModelFileError):
            ModelFile.read(path)


def test_a_torn_or_a_grown_file_is_found(path: Path) -> None:
    whole = path.read_bytes()
    for content in [*(whole[:n] for n in range(0, len(whole), 7)), whole + b"x"]:
        path.write_bytes(content)
        with pytest.raises(ModelFileError):
            ModelFile.read(path)


def test_a_header_that_is_not_one_is_refused(path: Path) -> None:
    for header in (b"[]", b"{}", b'{"format": 2}', b'{"format": 1}', b'{"format":1,"kind":"xgb"}'):
        path.write_bytes(MAGIC + len(header).to_bytes(8, "little") + header)
        with pytest.raises(ModelFileError):
            ModelFile.read(path)


def test_arguments_that_the_model_does_not_take_are_refused(path: Path) -> None:
    for arguments in ({"colour": "red"}, {"objective": "luck"}):
        replace(FILE, arguments=arguments).write(path)
        with pytest.raises(ModelFileError, match=r"`xgb` model"):
            XGBModel.load(path)


def test_trees_that_xgboost_cannot_read_are_refused(path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"trees"):
        XGBModel.load(path)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "model")


def test_writing_replaces_the_file_or_leaves_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="no space"):
        replace(FILE, state={"base": 2.0}).write(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_the_file_has_the_usual_permissions(path: Path) -> None:
    mask = os.umask(0o022)
    try:
        FILE.write(path)
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644
