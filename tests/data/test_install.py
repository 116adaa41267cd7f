import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tensortune.data.install import (
    EXTRAS,
    KNOWN_GOOD,
    RECORDED,
    InstallError,
    check_install,
    version_of,
    versions,
)


def test_the_installed_packages_are_fine() -> None:
    check_install()


@pytest.mark.parametrize("ffi", ["0.1.15", "0.1.15.post1", "0.1.15+local"])
def test_the_ffi_that_crashes_tvm_is_refused(ffi: str) -> None:
    found = {**KNOWN_GOOD, "apache-tvm-ffi": ffi}
    with pytest.raises(InstallError, match=f"apache-tvm-ffi {ffi[:6]}.*pip install") as caught:
        check_install(found.get)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("ffi", ["0.1.14.post1", "0.1.14", "0.1.150", "0.1.16"])
def test_other_releases_pass(ffi: str) -> None:
    check_install({**KNOWN_GOOD, "apache-tvm-ffi": ffi}.get)


@pytest.mark.parametrize("missing", ["apache-tvm", "apache-tvm-ffi"])
def test_a_missing_tvm_says_what_to_install(missing: str) -> None:
    found = {name: good for name, good in KNOWN_GOOD.items() if name != missing}
    with pytest.raises(InstallError, match=f"{missing} is not installed: pip install"):
        check_install(found.get)


def test_versions_leave_out_what_is_missing() -> None:
    assert versions({"numpy": "2.0"}.get) == {"numpy": "2.0"}
    assert set(versions()) <= set(RECORDED)
    assert version_of("no-such-package-at-all") is None


def test_known_good_is_what_the_constraints_pin(clone: Path) -> None:
    lines = (clone / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    assert {name: pins.get(name) for name in KNOWN_GOOD} == KNOWN_GOOD


def test_every_requirement_is_pinned_and_every_extra_known(clone: Path) -> None:
    project = tomllib.loads((clone / "pyproject.toml").read_text())["project"]
    lines = (clone / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    extras = project["optional-dependencies"]
    wanted = [Requirement(line) for line in sum(extras.values(), project["dependencies"])]
    for requirement in wanted:
        if requirement.name != "tensortune":
            assert requirement.specifier.contains(pins[requirement.name]), requirement
    assert set(EXTRAS) == set(extras) - {"dev", "all"}


def test_tvm_loads_without_torch_which_can_come_later() -> None:
    pytest.importorskip("torch")
    script = """
import sys
from tensortune.data.install import without
with without("torch"):
    import tvm
assert "torch" not in sys.modules
import torch
assert torch.ones(3).sum().item() == 3.0
with without("torch"):
    assert sys.modules["torch"] is torch
assert tvm.runtime.tensor(torch.ones(3).numpy()).numpy().sum() == 3.0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_a_search_loads_neither_torch_nor_scikit_learn_nor_pandas() -> None:
    script = """
import sys
from tensortune.data.install import load_bare
load_bare()
import tensortune.search.tune
assert not {"torch", "sklearn", "pandas", "scipy.stats"} & sys.modules.keys()
import sklearn.tree
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
