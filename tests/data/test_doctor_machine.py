import os
from pathlib import Path

import numpy as np
import pytest

from tensortune.data.doctor_machine import (
    check_cores,
    check_frequency,
    check_noise,
    check_openblas,
    check_threads,
    judge_load,
    judge_peak,
)
from tensortune.data.noise import Busy, Noise, measure_load, measure_noise, summarise


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


@pytest.mark.parametrize(
    ("flops", "threads", "status"),
    [(2e11, 1, "ok"), (3.6e11, 2, "ok"), (2e11, 2, "warn")],
)
def test_cores_that_share_one_peak_are_told(flops: float, threads: int, status: str) -> None:
    finding = judge_peak(2e11, flops, 2.5e10, threads)
    assert finding.status == status
    assert "200 GFLOP/s in float32 on one core" in finding.found
    assert "25.0 GB/s" in finding.found
    assert (threads > 1) == (f"{flops / 1e9:.0f} on {threads}" in finding.found)
