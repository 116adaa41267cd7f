import os
import time
from pathlib import Path

import numpy as np
import pytest

from tensortune.data.doctor import (
    check_compiler,
    check_cores,
    check_disk,
    check_extras,
    check_ffi,
    check_frequency,
    check_noise,
    check_openblas,
    check_packages,
    check_python,
    check_threads,
    check_tvm,
    diagnose,
    judge_load,
)
from tensortune.data.install import EXTRAS, KNOWN_GOOD
from tensortune.data.noise import Busy, Noise, measure_load, measure_noise, summarise


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


def test_a_quota_is_told() -> None:
    assert check_cores(0.5).status == "warn"
    assert "0.5 CPUs" in check_cores(0.5).found


@pytest.mark.parametrize(
    ("environ", "cores", "logical", "arch", "status"),
    [
        ({}, 2, 4, "x86_64", "ok"),
        ({}, 2, 2, "x86_64", "warn"),  # no hyper-threads: TVM's half is too few
        ({}, 2, 2, "aarch64", "ok"),
        ({"TVM_NUM_THREADS": "2"}, 2, 2, "x86_64", "ok"),
        ({"TVM_NUM_THREADS": "1"}, 2, 4, "x86_64", "warn"),
        ({"OMP_NUM_THREADS": "1"}, 2, 4, "x86_64", "warn"),
        ({"TVM_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}, 2, 4, "x86_64", "ok"),
    ],
)
def test_threads(environ: dict[str, str], cores: int, logical: int, arch: str, status: str) -> None:
    assert check_threads(environ, cores, logical, arch).status == status


def test_openblas() -> None:
    assert check_openblas({}).status == "ok"
    assert "unset OPENBLAS_CORETYPE" in check_openblas({"OPENBLAS_CORETYPE": "Haswell"}).advice


@pytest.mark.parametrize(
    ("governor", "boost", "status", "told"),
    [("powersave", "1", "warn", "turbo on"), ("performance", "0", "ok", "turbo off")],
)
def test_clock(tmp_path: Path, governor: str, boost: str, status: str, told: str) -> None:
    (tmp_path / "cpu0/cpufreq").mkdir(parents=True)
    (tmp_path / "cpufreq").mkdir()
    (tmp_path / "cpu0/cpufreq/scaling_governor").write_text(governor + "\n")
    (tmp_path / "cpufreq/boost").write_text(boost + "\n")
    finding = check_frequency(tmp_path)
    assert finding.status == status
    assert told in finding.found


def test_clock_that_cannot_be_read(tmp_path: Path) -> None:
    assert check_frequency(tmp_path).status == "ok"


def test_load() -> None:
    assert judge_load([Busy(0.02, 1, "init")], 0.0).status == "ok"
    assert "make (pid 7, 90%)" in judge_load([Busy(0.9, 7, "make")], 0.0).found
    assert "other virtual machines" in judge_load([], 0.2).found
    processes, stolen = measure_load(0.05)
    assert os.getpid() not in {process.pid for process in processes}
    assert stolen >= 0


def test_noise_is_in_proportion_to_the_spread_put_in() -> None:
    times = np.linspace(0.95, 1.05, 101)
    rng = np.random.default_rng(0)
    noise = summarise(rng.permutation(times).tolist())
    assert noise.spread == pytest.approx(0.08)  # 0.99 to 1.01 of it lies between the deciles
    assert noise.runs == 101
    assert summarise([1.0] * 10 + [1.2] * 10).drift == pytest.approx(0.2)
    with pytest.raises(ValueError, match="at least two"):
        summarise([1.0])


def test_noise_is_measured_on_one_thread_and_on_several() -> None:
    for threads in (1, 2):
        noise = measure_noise(0.05, threads)
        assert noise.median_s > 0
        assert noise.spread >= 0
        assert noise.runs >= 20


@pytest.mark.parametrize(
    ("spread", "drift", "status", "advice"),
    [
        (0.01, 0.0, "ok", ""),
        (0.10, 0.0, "warn", "compare medians"),
        (0.50, 0.0, "warn", "chance"),
        (0.01, -0.2, "warn", "settle"),
    ],
)
def test_noise_is_judged(spread: float, drift: float, status: str, advice: str) -> None:
    finding = check_noise("noise", Noise(3e-3, spread, drift, 300))
    assert finding.status == status
    assert advice in finding.advice
