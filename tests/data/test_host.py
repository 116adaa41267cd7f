import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tensortune.data import host
from tensortune.data.host import (
    Host,
    cgroup_cpus,
    cpu_flags,
    order_by_core,
    set_threads,
    this_host,
    usable_cores,
    usable_cpus,
)

EPYC = Host(
    cpu="AMD EPYC 9654 96-Core Processor",
    model="AuthenticAMD/25/17/1",
    arch="x86_64",
    physical_cores=96,
    logical_cpus=192,
    isa=("avx2", "avx512f"),
    memory_gib=768,
    os="Linux",
)


def python(code: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "TVM_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_this_host_is_this_machine() -> None:
    found = this_host()
    assert found is this_host()
    assert found.cpu
    assert 1 <= found.physical_cores <= found.logical_cpus == psutil.cpu_count()
    if sys.platform == "linux":
        assert cpu_flags()
        assert found.isa


def test_the_key_can_be_read_and_does_not_change() -> None:
    assert EPYC.key.startswith("amd-epyc-9654-96c-")
    assert EPYC.key == replace(EPYC, memory_gib=767).key
    assert python("from tensortune.data.host import this_host; print(this_host().key)") == (
        this_host().key
    )


@pytest.mark.parametrize(
    "change",
    [
        {"model": "AuthenticAMD/26/2/1"},
        {"isa": ("avx2",)},
        {"physical_cores": 48},
        {"cpu": "other"},
    ],
)
def test_another_machine_has_another_key(change: dict[str, object]) -> None:
    assert replace(EPYC, **change).key != EPYC.key  # type: ignore[arg-type]


def test_each_core_comes_once_before_its_hyper_thread() -> None:
    assert order_by_core([3, 2, 1, 0], ["b", "a", "b", "a"]) == (0, 1, 2, 3)
    assert order_by_core([0, 1, 2, 3], ["a", "a", "b", "b"]) == (0, 2, 1, 3)


def test_hyper_threads_are_not_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_GIVEN", frozenset({0, 1, 2, 3, 6}))
    monkeypatch.setattr(host, "_core_of", lambda cpu: str(cpu // 2))
    monkeypatch.setattr(host, "cgroup_cpus", lambda: None)
    assert usable_cpus() == (0, 2, 6, 1, 3)
    assert usable_cores() == 3
    monkeypatch.setattr(host, "cgroup_cpus", lambda: 2.5)
    assert usable_cpus() == (0, 2)
    monkeypatch.setattr(host, "cgroup_cpus", lambda: 0.3)
    assert usable_cores() == 1


def test_quota_of_version_2_is_the_tightest_on_the_way_up(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    groups.write_text("0::/outer/inner\n")
    inner = tmp_path / "fs/outer/inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    assert cgroup_cpus(groups, tmp_path / "fs") is None
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    assert cgroup_cpus(groups, tmp_path / "fs") == 1.5


@pytest.mark.parametrize(("quota", "cpus"), [("-1", None), ("400000", 4.0)])
def test_quota_of_version_1(tmp_path: Path, quota: str, cpus: float | None) -> None:
    groups = tmp_path / "cgroup"
    # The path is the outer one, as a container sees it: only the mount's root is there.
    groups.write_text("3:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n")
    (tmp_path / "fs/cpu").mkdir(parents=True)
    (tmp_path / "fs/cpu/cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "fs/cpu/cpu.cfs_period_us").write_text("100000")
    assert cgroup_cpus(groups, tmp_path / "fs") == cpus


def test_no_control_groups_no_quota(tmp_path: Path) -> None:
    assert cgroup_cpus(tmp_path / "none", tmp_path) is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is Linux's")
def test_affinity_limits_what_may_be_used() -> None:
    first = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{first}}});"
        "from tensortune.data.host import usable_cpus; print(usable_cpus())"
    )
    assert python(code) == f"({first},)"


@pytest.mark.parametrize("n", [0, -1, 100_000])
def test_threads_out_of_range(n: int) -> None:
    with pytest.raises(ValueError, match="threads asked for"):
        set_threads(n)


def test_threads_before_tvm_is_imported() -> None:
    n = len(usable_cpus())
    code = (
        f"from tensortune.data.host import set_threads; print(set_threads({n}));"
        "import tvm; print(tvm.get_global_func('runtime.NumThreads')())"
    )
    assert python(code).split() == [str(n), str(n)]


@pytest.mark.skipif(len(usable_cpus()) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("inherited", [{}, {"TVM_NUM_THREADS": "1"}])
def test_threads_after_tvm_was_imported(inherited: dict[str, str]) -> None:
    n = len(usable_cpus())
    code = f"""
import os, threading, tvm
from tensortune.data.host import set_threads
threads = tvm.get_global_func("runtime.NumThreads")
before = os.sched_getaffinity(0)
print(set_threads({n}), threads(), os.sched_getaffinity(0) == before)
print(set_threads(1), set_threads({n}))
"""
    assert python(code, **inherited).split() == [str(n), str(n), "True", "1", str(n)]


@pytest.mark.skipif(len(usable_cpus()) < 2, reason="needs two CPUs")
def test_a_pool_that_is_there_cannot_grow_but_a_new_thread_has_its_own() -> None:
    code = """
import threading, tvm
threads = tvm.get_global_func("runtime.NumThreads")
print(threads())
from tensortune.data.host import set_threads, usable_cpus
print(len(usable_cpus()))
print(set_threads(2))
thread = threading.Thread(target=lambda: print(set_threads(2)))
thread.start(); thread.join()
"""
    first, cpus, same_thread, new_thread = python(code, TVM_NUM_THREADS="1").split()
    assert first == same_thread == "1"
    assert int(cpus) == len(usable_cpus())  # though TVM has pinned the thread to one of them
    assert new_thread == "2"
