"""What machine this is: its CPU, the cores we may use, and how many threads TVM runs on.

Nothing here imports TVM; the target is in `target.py`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

# The extensions that change what code is worth generating, as the Linux kernel calls them and as
# everybody else does, from the weakest to the strongest.
_NOTABLE = {
    "sse4_2": "sse4.2",
    "avx": "avx",
    "fma": "fma",
    "avx2": "avx2",
    "avx_vnni": "avxvnni",
    "avx512f": "avx512f",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "amx_tile": "amx",
    "asimd": "neon",
    "asimdhp": "fp16",
    "asimddp": "dotprod",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
}

# `config_threadpool`'s mode for one worker per CPU of a given list. TVM's own default takes the
# CPUs from number 0 on instead, also where the process may not run on those.
_ONE_CPU_PER_THREAD = -2


@dataclass(frozen=True, slots=True)
class Host:
    """A machine, as far as it decides how long a kernel takes.

    Attributes:
        cpu: The CPU's name as it calls itself.
        model: Vendor, family, model and stepping; virtual machines share a name, not these.
        arch: `x86_64`, `aarch64`, ...
        physical_cores: Cores of the machine, whoever may use them.
        logical_cpus: The same with hyper-threads counted.
        isa: Extensions that matter to a kernel (`avx2`, `avx512vnni`, `neon`, ...).
        memory_gib: Main memory in GiB, rounded.
        os: Name of the operating system.
    """

    cpu: str
    model: str
    arch: str
    physical_cores: int
    logical_cpus: int
    isa: tuple[str, ...]
    memory_gib: int
    os: str

    @property
    def key(self) -> str:
        """A short name that can be read and is the same after a reboot: `amd-epyc-2c-1f0a9c`.

        Memory is left out, since its size as reported differs from one kernel to the next.
        """
        words = re.sub(r"\([^)]*\)|@.*|\b(\d+-core|cpu|processor)\b", " ", self.cpu.lower())
        slug = "-".join(re.findall(r"[a-z0-9.]+", words)[:4]) or self.arch
        identity = (self.cpu, self.model, self.arch, self.physical_cores, self.logical_cpus)
        digest = hashlib.sha256(repr((*identity, self.isa, self.os)).encode()).hexdigest()
        return f"{slug}-{self.physical_cores}c-{digest[:6]}"


def _read(path: Path) -> str:
    """A small file's text, or nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


@cache
def _cpuinfo() -> dict[str, str]:
    """The first CPU's lines of `/proc/cpuinfo`; empty on other systems than Linux."""
    first = _read(Path("/proc/cpuinfo")).split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def cpu_flags() -> frozenset[str]:
    """The CPU's extensions in the Linux kernel's spelling; empty where they cannot be read."""
    info = _cpuinfo()
    return frozenset((info.get("flags") or info.get("features") or "").lower().split())


@cache
def this_host() -> Host:
    """The machine this process runs on."""
    info, flags = _cpuinfo(), cpu_flags()
    model = ("vendor_id", "cpu implementer", "cpu family", "model", "cpu part", "stepping")
    logical = psutil.cpu_count() or 1
    return Host(
        cpu=info.get("model name") or platform.processor() or platform.machine(),
        model="/".join(info[name] for name in model if name in info),
        arch=platform.machine().lower(),
        physical_cores=psutil.cpu_count(logical=False) or logical,
        logical_cpus=logical,
        isa=tuple(name for flag, name in _NOTABLE.items() if flag in flags),
        memory_gib=round(psutil.virtual_memory().total / 2**30),
        os=platform.system(),
    )


def _affinity() -> frozenset[int]:
    """The CPUs that this process was given."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset(range(psutil.cpu_count() or 1))
    mask = os.sched_getaffinity(0)
    if "tvm" in sys.modules:
        # TVM pins the thread that ran its first parallel kernel, so this thread's own mask may be
        # half of what the process was given. Threads that began earlier still have all of it.
        for task in Path("/proc/self/task").iterdir():
            try:
                mask |= os.sched_getaffinity(int(task.name))
            except OSError:  # the thread has ended
                continue
    return frozenset(mask)


# Read once, early: TVM narrows it later on, and child processes inherit what it has become.
_GIVEN = _affinity()


_GROUPS = Path("/proc/self/cgroup")
_GROUP_ROOT = Path("/sys/fs/cgroup")


def cgroup_cpus(groups: Path = _GROUPS, root: Path = _GROUP_ROOT) -> float | None:
    """CPUs' worth of time that a container's quota grants, or None where there is no quota.

    Args:
        groups: The list of this process's control groups.
        root: Where the control groups are mounted (version 1 or 2).
    """
    quotas: list[float] = []
    for line in _read(groups).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "cpu" if controllers else root
        # Inside a container the path may be the outer one, of which only the root is mounted.
        folder = mount / path.lstrip("/")
        for level in (folder, *folder.parents):
            if not level.is_relative_to(mount):
                break
            quota, period = _quota(level)
            if quota > 0 and period > 0:
                quotas.append(quota / period)
    return min(quotas, default=None)


def _quota(group: Path) -> tuple[int, int]:
    """Microseconds of CPU time per period, and the period; not positive where unlimited."""
    words = _read(group / "cpu.max").split() or [
        _read(group / "cpu.cfs_quota_us"),
        _read(group / "cpu.cfs_period_us"),
    ]
    quota, period = [*words, ""][:2]
    return (int(quota), int(period)) if quota.isdigit() and period.isdigit() else (-1, -1)


def _core_of(cpu: int) -> str:
    """What hyper-threads of one core have in common."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return _read(topology) or str(cpu)


def order_by_core(cpus: Iterable[int], cores: Iterable[str]) -> tuple[int, ...]:
    """CPUs so that each core comes once before any core comes a second time.

    Args:
        cpus: Numbers of the CPUs.
        cores: For each of them, a name of its core.
    """
    seen: dict[str, int] = {}
    ranked: list[tuple[int, int]] = []
    for cpu, core in sorted(zip(cpus, cores, strict=True)):
        ranked.append((seen.get(core, 0), cpu))
        seen[core] = seen.get(core, 0) + 1
    return tuple(cpu for _, cpu in sorted(ranked))


def usable_cpus() -> tuple[int, ...]:
    """The CPUs this process may use: its affinity, cut to a container's quota.

    One CPU of every core comes first, so a prefix of it is what that many threads should run on.
    A quota of 1.5 CPUs counts as one: a second thread would be stopped for half of each period.
    """
    cpus = order_by_core(_GIVEN, map(_core_of, _GIVEN))
    quota = cgroup_cpus()
    return cpus if quota is None else cpus[: max(1, int(quota))]


def usable_cores() -> int:
    """Cores this process may use, hyper-threads not counted: the default number of threads.

    Two hyper-threads share one set of vector units, so tuned kernels gain nothing from the second.
    TVM's own default means the same but takes half of the logical CPUs, which is too few on
    machines without hyper-threads (most Arm ones, many virtual ones).
    """
    return len({_core_of(cpu) for cpu in usable_cpus()})


def set_threads(n: int) -> int:
    """Have TVM run kernels on `n` threads, in this thread and in processes started from here.

    TVM makes a pool of threads for each thread that runs a parallel kernel, on the first one, and
    reads `TVM_NUM_THREADS` then. So this works too when TVM was imported before, as long as the
    calling thread has run nothing parallel: **a pool can shrink and never grow**. Where the result
    is less than `n`, measure in a new thread or a new process.

    Returns:
        The number of threads that kernels called from this thread will run on.

    Raises:
        ValueError: `n` is not between one and the number of CPUs this process may use.
    """
    cpus = usable_cpus()
    if not 1 <= n <= len(cpus):
        raise ValueError(f"{n} threads asked for; this process may use {len(cpus)} CPUs")
    os.environ["TVM_NUM_THREADS"] = str(n)
    tvm = sys.modules.get("tvm")
    if tvm is None:
        return n
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(_ONE_CPU_PER_THREAD, n, [str(cpu) for cpu in cpus[:n]])
    if before is not None:
        os.sched_setaffinity(0, before)  # it pinned the calling thread too, and thus its children
    return int(tvm.get_global_func("runtime.NumThreads")())
