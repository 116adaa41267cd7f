"""What on this machine makes tuning fail, or its measurements wrong, and what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .host import cgroup_cpus, this_host, usable_cores, usable_cpus
from .install import EXTRAS, KNOWN_GOOD, InstallError, VersionOf, check_install, version_of
from .noise import Busy, Noise, measure_load, measure_noise

Status = Literal["ok", "warn", "fail"]

# A step of a search is often worth a few per cent, so noise above the first hides steps, and above
# the second the order of the best candidates is chance.
_NOISE_WARN, _NOISE_HIGH = 0.05, 0.15
_DRIFT_WARN = 0.05
# A process that takes more than this share of a core disturbs a kernel that wants all of them.
_BUSY = 0.10
_STEAL_WARN = 0.02
_GIB = 2**30

# What a user's first trial does first: it loads TVM, makes a target and saves JSON.
_TRY_TVM = """
import json, tvm
from {package}.target import cpu_target, num_cores, target_string
target = cpu_target()
tvm.ir.load_json(tvm.ir.save_json(tvm.ir.IRModule({{}})))
print(json.dumps([target_string(target), num_cores(target)]))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: What was looked at.
        status: `fail`: tuning does not work; `warn`: it works, with a loss; `ok`.
        found: What was found.
        advice: What to do about it; empty where there is nothing to do.
    """

    name: str
    status: Status
    found: str
    advice: str = ""


def diagnose(folder: Path | None = None, noise_seconds: float = 2.0) -> list[Finding]:
    """Look at everything; takes about five seconds.

    Args:
        folder: Where runs will be written; the current folder unless given.
        noise_seconds: How long to measure the machine's noise; 0 leaves it out.
    """
    findings = [check_python(), check_ffi(), check_packages()]
    if all(finding.status != "fail" for finding in findings):
        findings.append(check_tvm())
    findings += [check_extras(), check_compiler(), check_disk(folder or Path.cwd())]
    findings += [check_cores(), check_threads(), check_openblas(), check_frequency(), check_load()]
    if noise_seconds > 0:
        cores = usable_cores()
        findings.append(check_noise("noise, one core", measure_noise(noise_seconds / 2)))
        if cores > 1:
            noise = measure_noise(noise_seconds / 2, cores)
            findings.append(check_noise(f"noise, {cores} cores", noise))
    return findings


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Python is new enough."""
    found = ".".join(map(str, version))
    if version < (3, 11):
        return Finding("Python", "fail", found, "install Python 3.11 or newer")
    return Finding("Python", "ok", found)


def check_ffi(version_of: VersionOf = version_of) -> Finding:
    """TVM is there, with an FFI that does not crash it."""
    found = " and ".join(
        f"{package} {version_of(package) or 'missing'}"
        for package in ("apache-tvm", "apache-tvm-ffi")
    )
    try:
        check_install(version_of)
    except InstallError as error:
        return Finding("TVM and its FFI", "fail", found, str(error))
    return Finding("TVM and its FFI", "ok", found)


def check_packages(version_of: VersionOf = version_of) -> Finding:
    """Packages have the versions that are known to work together."""
    found = {package: version_of(package) for package in KNOWN_GOOD}
    others = [
        f"{package} {version or 'missing'} (known to work: {KNOWN_GOOD[package]})"
        for package, version in found.items()
        if version is None or version.split("+")[0] != KNOWN_GOOD[package]
    ]
    if not others:
        return Finding("packages", "ok", f"{len(found)} at the versions known to work")
    status: Status = "fail" if None in found.values() else "warn"
    wanted = " ".join(
        f"{package}=={good}" for package, good in KNOWN_GOOD.items() if found[package] != good
    )
    return Finding("packages", status, ", ".join(others), f"pip install {wanted}")


def check_tvm(script: str = _TRY_TVM) -> Finding:
    """TVM does its first steps, in a process of its own since it may crash."""
    code = script.format(package=__package__)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("TVM at work", "fail", "no answer within 60 s", "is the machine overloaded?")
    advice = "install again in a new environment: pip install -c constraints.txt ."
    if done.returncode < 0:
        died = signal.Signals(-done.returncode).name
        return Finding("TVM at work", "fail", f"it died of {died}", advice)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Finding("TVM at work", "fail", last, advice)
    target, cores = json.loads(done.stdout.splitlines()[-1])
    return Finding("TVM at work", "ok", f"target {target}, num-cores {cores}")


def check_extras(version_of: VersionOf = version_of) -> Finding:
    """Which extras are installed; none of them is needed for `tensortune tune`."""
    missing = {
        extra: absent
        for extra, packages in EXTRAS.items()
        if (absent := [package for package in packages if version_of(package) is None])
    }
    here = [extra for extra in EXTRAS if extra not in missing]
    found = f"installed: {', '.join(here) or 'none'}"
    if not missing:
        return Finding("extras", "ok", found)
    found += "; without " + ", ".join(
        f"{extra} ({', '.join(absent)})" for extra, absent in missing.items()
    )
    return Finding(
        "extras", "ok", found, f"if wanted: pip install 'tensortune[{','.join(missing)}]'"
    )


def check_compiler(
    environ: Mapping[str, str] = os.environ, which: Callable[[str], str | None] = shutil.which
) -> Finding:
    """A C compiler is there; measuring needs none, exporting a shared library does."""
    named = environ.get("CXX") or environ.get("CC")
    # TVM's own order. What CXX names it takes without looking.
    names = (named,) if named else ("g++", "gcc", "clang++", "clang", "c++", "cc")
    for name in names:
        path = which(name)
        if path:
            return Finding("C compiler", "ok", path)
    found = f"{named} (from CXX or CC) is not there" if named else "none found"
    advice = "needed to export a shared library: install gcc or clang (apt install g++)"
    return Finding("C compiler", "warn", found, "unset it" if named else advice)


def check_disk(folder: Path, free: int | None = None) -> Finding:
    """Room for records. A run takes a few MB, a collected dataset some hundreds."""
    free = shutil.disk_usage(folder).free if free is None else free
    status: Status = "ok" if free >= _GIB else "warn" if free >= _GIB // 10 else "fail"
    advice = "" if status == "ok" else "free some space, or write to another disk with --out"
    return Finding("disk", status, f"{free / _GIB:.1f} GiB free in {folder}", advice)


def check_cores(quota: float | None = None) -> Finding:
    """Which of the machine's cores this process may use."""
    host, cpus = this_host(), usable_cpus()
    quota = cgroup_cpus() if quota is None else quota
    found = (
        f"{host.cpu} ({' '.join(host.isa)}): {host.physical_cores} cores, {host.logical_cpus} "
        f"logical; this process may use {len(cpus)} CPUs on {usable_cores()} cores"
    )
    if quota is not None and quota < host.logical_cpus:
        advice = (
            "a quota stops threads in mid-kernel: give the container whole CPUs (--cpuset-cpus)"
        )
        return Finding("cores", "warn", f"{found}, with a quota of {quota:g} CPUs", advice)
    return Finding("cores", "ok", found)


def check_threads(
    environ: Mapping[str, str] = os.environ,
    cores: int | None = None,
    logical: int | None = None,
    arch: str | None = None,
) -> Finding:
    """TVM's threads by default are as many as the default target's `num-cores`."""
    cores = usable_cores() if cores is None else cores
    logical = this_host().logical_cpus if logical is None else logical
    arch = this_host().arch if arch is None else arch
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):  # the order TVM looks in
        if name in environ:
            found = f"{name}={environ[name]}, targets have num-cores {cores}"
            if environ[name] == str(cores):
                return Finding("threads", "ok", found)
            advice = f"unset {name}, or tune with --target 'llvm -num-cores={environ[name]}'"
            return Finding("threads", "warn", found, advice)
    default = max(1, logical // 2 if arch in ("x86_64", "amd64") else logical)
    found = f"TVM runs {default} by default, targets have num-cores {cores}"
    if default == cores:
        return Finding("threads", "ok", found)
    advice = (
        "tensortune sets its own; where you run a tuned kernel yourself, "
        f"export TVM_NUM_THREADS={cores} first"
    )
    return Finding("threads", "warn", found, advice)


def check_openblas(environ: Mapping[str, str] = os.environ) -> Finding:
    """Nothing in the environment slows the NumPy that kernels are compared with."""
    core = environ.get("OPENBLAS_CORETYPE")
    if core is None:
        return Finding("NumPy's speed", "ok", "OPENBLAS_CORETYPE is not set")
    advice = "it can halve NumPy's speed and flatter every comparison: unset OPENBLAS_CORETYPE"
    return Finding("NumPy's speed", "warn", f"OPENBLAS_CORETYPE={core}", advice)


def check_frequency(root: Path = Path("/sys/devices/system/cpu")) -> Finding:
    """The clock does not wait for load before it rises."""
    governor = _word(root / "cpu0/cpufreq/scaling_governor")
    boost, no_turbo = _word(root / "cpufreq/boost"), _word(root / "intel_pstate/no_turbo")
    turbo = {"1": "on", "0": "off"}.get(boost) or {"0": "on", "1": "off"}.get(no_turbo)
    if not governor and turbo is None:
        return Finding("clock", "ok", "not readable, as in most virtual machines")
    found = f"governor {governor or 'unknown'}, turbo {turbo or 'unknown'}"
    if governor not in ("", "performance"):
        advice = "sudo cpupower frequency-set -g performance"
        return Finding("clock", "warn", found, advice)
    advice = (
        "for the steadiest timings switch turbo off (the kernels get slower)"
        if turbo == "on"
        else ""
    )
    return Finding("clock", "ok", found, advice)


def check_load(seconds: float = 0.5) -> Finding:
    """No other program is at work, nor another virtual machine on the same cores."""
    return judge_load(*measure_load(seconds))


def judge_load(busy: Sequence[Busy], stolen: float) -> Finding:
    """What to say of the processes at work and of the share of time that is stolen."""
    try:
        load = f"load average {os.getloadavg()[0]:.2f}"
    except OSError:
        load = "load average unknown"
    at_work = [process for process in busy if process.share > _BUSY]
    if at_work:
        names = ", ".join(f"{p.name} (pid {p.pid}, {p.share:.0%})" for p in at_work[:3])
        return Finding("load", "warn", f"{load}; busy: {names}", "end them or wait, then measure")
    if stolen > _STEAL_WARN:
        found = f"{load}; {stolen:.0%} of the time goes to other virtual machines"
        return Finding("load", "warn", found, "use a machine of your own, or repeat and compare")
    return Finding("load", "ok", f"{load}, no other busy process")


def check_noise(name: str, noise: Noise) -> Finding:
    """Repeated timings of the same work agree."""
    found = (
        f"{noise.spread:.1%} between the 10th and 90th percentile of {noise.runs} runs of "
        f"{noise.median_s * 1e3:.1f} ms, drift {noise.drift:+.1%}"
    )
    if noise.spread <= _NOISE_WARN and abs(noise.drift) <= _DRIFT_WARN:
        return Finding(name, "ok", found)
    if noise.spread > _NOISE_HIGH:
        advice = "the order of good candidates is chance here: find what else runs, or move"
    elif noise.spread > _NOISE_WARN:
        advice = "differences below this cannot be told apart: end other programs, compare medians"
    else:
        advice = "the clock or the load changes: let the machine settle, compare interleaved runs"
    return Finding(name, "warn", found, advice)


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
