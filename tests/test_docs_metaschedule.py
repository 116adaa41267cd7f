"""The scripts of docs/metaschedule.md run as they stand, one after the other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# The last line that each script prints.
EXPECTED = {
    "all four": r"16 trials",
    "the model": r"learnt from 16 programs",
    "the strategy": r"16 different schedules",
    "builder and runner": r"\d+ steps lead to the fastest of 16 programs",
    "their builder and runner": r"8 trials, found: True",
    "a network": r"7 of 7 functions scheduled, error below 1e-4: True",
    "saved and loaded": r"18 and 6 trials",
    "parts of one's own": r"16 trials",
}

# In one process: importing what they need takes longer than most of them.
RUN = """
import os, runpy, sys, traceback
for path in sys.argv[1:]:
    os.chdir(os.path.dirname(path))
    print("=== script", flush=True)
    try:
        runpy.run_path(path, run_name="__main__")
    except Exception:
        traceback.print_exc(file=sys.stdout)
"""


@pytest.fixture(scope="module")
def scripts(clone: Path) -> list[str]:
    text = (clone / "docs/metaschedule.md").read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def outputs(scripts: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    paths = []
    for script in scripts:
        paths.append(tmp_path_factory.mktemp("script") / "script.py")
        paths[-1].write_text(script)
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, paths)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=True,
    )
    return done.stdout.split("=== script\n")[1:]


def test_each_script_is_looked_at(scripts: list[str]) -> None:
    assert len(scripts) == len(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_script_ends_as_it_should(outputs: list[str], name: str) -> None:
    output = outputs[list(EXPECTED).index(name)]
    assert re.fullmatch(EXPECTED[name], output.strip().splitlines()[-1]), output[-3000:]
