"""The bare import is light, and no file of a user's own gets in its way."""

import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import tensortune
from tensortune.data import operators

HEAVY = (
    "matplotlib",
    "numpy",
    "pandas",
    "pyarrow",
    "sklearn",
    "torch",
    "tvm",
    "tvm_ffi",
    "xgboost",
)


def python(code: str, folder: Path) -> str:
    """Run code in a fresh interpreter whose current folder is first on its path."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_else(tmp_path: Path) -> None:
    loaded = json.loads(
        python("import json, sys, tensortune; print(json.dumps(sorted(sys.modules)))", tmp_path)
    )
    ours = [name for name in loaded if name.split(".")[0] == "tensortune"]
    assert ours == ["tensortune"]
    assert not {name.split(".")[0] for name in loaded} & set(HEAVY)


def test_import_takes_less_than_starting_python_twice(tmp_path: Path) -> None:
    # A ratio, since CI machines differ tenfold: importing one standard module of some size
    # (asyncio, 30-60 ms) takes several times longer than our import does.
    code = (
        "import time; a = time.perf_counter(); import tensortune; b = time.perf_counter();"
        "import asyncio; c = time.perf_counter(); print((b - a) / (c - b), b - a)"
    )
    ratios = [tuple(map(float, python(code, tmp_path).split())) for _ in range(5)]
    assert min(ratio for ratio, _ in ratios) < 1
    assert min(seconds for _, seconds in ratios) < 0.3


def test_users_own_modules_do_not_get_in_the_way(tmp_path: Path) -> None:
    for name in ("data", "search", "costmodel", "cli", "metaschedule", "host"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the library took my file')")
    python("import tensortune, tensortune.data.doctor; tensortune.Workload", tmp_path)


def test_ours_do_not_get_in_users_way(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("mine = True")
    (tmp_path / "search.py").write_text("mine = True")
    python("import tensortune, data, search; assert data.mine and search.mine", tmp_path)


def test_every_name_of_the_face_is_there() -> None:
    for name in tensortune.__all__:
        assert getattr(tensortune, name) is not None
    assert set(tensortune.__all__) <= set(dir(tensortune))


def test_every_operator_is_there_and_gives_a_workload() -> None:
    assert set(operators.names()) == set(dir(tensortune)) - set(tensortune.__all__)
    assert tensortune.matmul(8, 16, 32).key == tensortune.workload("matmul", 8, 16, 32).key
    assert tensortune.sum(8, 16).operator == "sum"


def test_a_star_import_leaves_the_built_ins_alone(tmp_path: Path) -> None:
    assert python("from tensortune import *; print(max(1, 2), sum([1]))", tmp_path) == "2 1\n"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tunee'"):
        tensortune.tunee  # noqa: B018


def test_the_version_is_said_once_more_the_same(clone: Path) -> None:
    project = tomllib.loads((clone / "pyproject.toml").read_text())["project"]
    assert tensortune.__version__ == project["version"]
    try:
        installed = metadata.version("tensortune")
    except metadata.PackageNotFoundError:
        pytest.skip("not installed: run from the sources")
    assert installed == tensortune.__version__
