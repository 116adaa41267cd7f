"""The strategy of docs/strategies.md is short, keeps the contract, and its commands run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.replay import ReplayMeasurer
from tensortune.search.base import Trial
from tensortune.search.tuner import Budget, Tuner

from .contracts.synthetic import SyntheticSpace

SPACE = SyntheticSpace()
TABLE = ReplayMeasurer(SPACE.table())


@pytest.fixture(scope="module")
def text(clone: Path) -> str:
    return (clone / "docs/strategies.md").read_text()


@pytest.fixture(scope="module")
def script(text: str) -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def folder(script: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `my_module.py` in it."""
    path = tmp_path_factory.mktemp("own")
    (path / "my_module.py").write_text(script)
    return path


@pytest.fixture(scope="module")
def mine(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("my_module", folder / "my_module.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Mine


def fast(candidates: Sequence[Candidate]) -> np.ndarray:
    """What a perfect model would say."""
    found = TABLE.measure(SPACE, candidates)
    return np.array([1e-3 / r.latency_s if r.valid else 0.0 for r in found])


def test_it_is_short(script: str) -> None:
    assert len([line for line in script.splitlines() if line.strip()]) <= 20


def test_it_keeps_the_contract(mine: Any) -> None:
    first, again = mine(SPACE, 3), mine(SPACE, 3)
    told: set[Candidate] = set()
    for _ in range(4):
        batch = first.ask(16, fast)
        assert batch == again.ask(16, fast), "one seed gives one run"
        assert 0 < len(batch) <= 16
        assert len(set(batch)) == len(batch)
        assert not told & set(batch)
        told |= set(batch)
        trials = [Trial(c, r) for c, r in zip(batch, TABLE.measure(SPACE, batch), strict=True)]
        first.tell(trials)
        again.tell(trials)
    assert mine(SPACE, 3).ask(16, fast) != mine(SPACE, 4).ask(16, fast)


def test_it_ends_when_the_space_has_no_more(mine: Any) -> None:
    strategy = mine(SPACE, 0)
    everything = TABLE.candidates()
    strategy.tell(
        [Trial(c, r) for c, r in zip(everything, TABLE.measure(SPACE, everything), strict=True)]
    )
    assert all(c not in set(everything) for c in strategy.ask(4, fast))


def test_it_spends_its_budget(mine: Any) -> None:
    tuner = Tuner(SPACE, mine(SPACE, 0), TABLE, None, Budget(48), batch=16)
    assert sum(record.failure != "invalid" for record in tuner.run()) == 48


@pytest.mark.slow
def test_its_commands_run(text: str, folder: Path) -> None:
    block = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    lines = [line.removeprefix("$ ") for line in block.splitlines()]
    assert lines[0] == "export PYTHONPATH=."
    assert len(lines) == 3
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([".", *filter(None, [os.environ.get("PYTHONPATH")])])
    }
    for line in lines[1:]:
        name, *words = shlex.split(line)
        assert name == "tensortune"
        if words[0] == "report":
            pytest.importorskip("jinja2")
            pytest.importorskip("matplotlib")
        done = subprocess.run(
            [sys.executable, "-m", "tensortune.cli", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads((folder / "comparison/compare.json").read_text())
    assert list(result["strategies"]) == ["random", "mine"]
    assert result["left_out"] == []
    assert (folder / "comparison/report.html").exists()
