import time
from pathlib import Path

import pytest

from tensortune.data.doctor import (
    check_compiler,
    check_disk,
    check_extras,
    check_ffi,
    check_packages,
    check_peak,
    check_python,
    check_tvm,
    diagnose,
)
from tensortune.data.install import EXTRAS, KNOWN_GOOD


def test_diagnose_looks_at_everything_in_seconds(tmp_path: Path) -> None:
    start = time.perf_counter()
    findings = diagnose(tmp_path, noise_seconds=0.2)
    # 5 s on a quiet machine; loading TVM in a process of its own is what varies.
    assert time.perf_counter() - start < 30
    names = [finding.name for finding in findings]
    assert len(names) == len(set(names))
    assert {"Python", "TVM at work", "threads", "load", "noise, one core"} <= set(names)
    for finding in findings:
        assert finding.found
        assert finding.status == "ok" or finding.advice
    assert not [finding for finding in findings if finding.status == "fail"]
    assert "peak" not in names, "it takes its time, so it has to be asked for"


def test_old_python() -> None:
    assert check_python((3, 10, 9)).status == "fail"
    assert check_python((3, 11, 0)).status == "ok"


def test_the_ffi_trap_is_found() -> None:
    assert check_ffi(KNOWN_GOOD.get).status == "ok"
    finding = check_ffi({**KNOWN_GOOD, "apache-tvm-ffi": "0.1.15"}.get)
    assert finding.status == "fail"
    assert "0.1.15" in finding.found
    assert "pip install" in finding.advice
    assert check_ffi({}.get).status == "fail"


def test_other_versions_are_a_warning_and_missing_ones_a_failure() -> None:
    assert check_packages({**KNOWN_GOOD, "numpy": KNOWN_GOOD["numpy"] + "+cpu"}.get).status == "ok"
    other = check_packages({**KNOWN_GOOD, "numpy": "1.0"}.get)
    assert (other.status, other.advice) == ("warn", f"pip install numpy=={KNOWN_GOOD['numpy']}")
    without = {name: good for name, good in KNOWN_GOOD.items() if name != "xgboost"}
    assert check_packages(without.get).status == "fail"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "it died of SIGSEGV"),
        ("raise ValueError('no TVM here')", "no TVM here"),
    ],
)
def test_a_tvm_that_crashes_is_told_not_suffered(script: str, found: str) -> None:
    finding = check_tvm(script)
    assert finding.status == "fail"
    assert found in finding.found


def test_extras_are_optional() -> None:
    everything = {package: "1" for packages in EXTRAS.values() for package in packages}
    assert check_extras(everything.get).advice == ""
    del everything["torch"]
    finding = check_extras(everything.get)
    assert finding.status == "ok"
    assert "neural (torch)" in finding.found
    assert "tensortune[neural]" in finding.advice


def test_compiler() -> None:
    assert check_compiler({}, {"gcc": "/usr/bin/gcc"}.get).found == "/usr/bin/gcc"
    assert check_compiler({}, {}.get).status == "warn"
    named = check_compiler({"CXX": "icpx"}, {"gcc": "/usr/bin/gcc"}.get)
    assert named.status == "warn"
    assert "icpx" in named.found


@pytest.mark.parametrize(("free", "status"), [(2**33, "ok"), (2**29, "warn"), (2**20, "fail")])
def test_disk(tmp_path: Path, free: int, status: str) -> None:
    assert check_disk(tmp_path, free).status == status


def test_the_peak_is_measured() -> None:
    finding = check_peak()
    assert finding.status in ("ok", "warn")
    assert "GFLOP/s" in finding.found
    assert "GB/s" in finding.found
