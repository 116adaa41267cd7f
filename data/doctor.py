"""What on this machine makes tuning fail, or its measurements wrong, and what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from .doctor_machine import (
    check_cores,
    check_frequency,
    check_load,
    check_noise,
    check_openblas,
    check_threads,
    judge_peak,
)
from .finding import Finding, Status
from .host import usable_cores
from .install import EXTRAS, KNOWN_GOOD, InstallError, VersionOf, check_install, version_of
from .noise import measure_noise

_GIB = 2**30
_TVM = "TVM at work"

# What a user's first trial does first: it loads TVM, makes a target and saves JSON.
_TRY_TVM = """
import json, tvm
from {package}.target import cpu_target, num_cores, target_string
target = cpu_target()
tvm.ir.load_json(tvm.ir.save_json(tvm.ir.IRModule({{}})))
print(json.dumps([target_string(target), num_cores(target)]))
"""


def diagnose(
    folder: Path | None = None, noise_seconds: float = 2.0, peak: bool = False
) -> list[Finding]:
    """Look at everything; takes about five seconds.

    Args:
        folder: Where runs will be written; the current folder unless given.
        noise_seconds: How long to measure the machine's noise; 0 leaves it out.
        peak: Whether to measure what the machine can do, too: three seconds more.
    """
    findings = [check_python(), check_ffi(), check_packages()]
    if all(finding.status != "fail" for finding in findings):
        findings.append(check_tvm())
    tvm_works = findings[-1].name == _TVM and findings[-1].status == "ok"
    findings += [check_extras(), check_compiler(), check_disk(folder or Path.cwd())]
    findings += [check_cores(), check_threads(), check_openblas(), check_frequency(), check_load()]
    if noise_seconds > 0:
        cores = usable_cores()
        findings.append(check_noise("noise, one core", measure_noise(noise_seconds / 2)))
        if cores > 1:
            noise = measure_noise(noise_seconds / 2, cores)
            findings.append(check_noise(f"noise, {cores} cores", noise))
    if peak and tvm_works:
        findings.append(check_peak())
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
        return Finding(_TVM, "fail", "no answer within 60 s", "is the machine overloaded?")
    advice = "install again in a new environment: pip install -c constraints.txt ."
    if done.returncode < 0:
        died = signal.Signals(-done.returncode).name
        return Finding(_TVM, "fail", f"it died of {died}", advice)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Finding(_TVM, "fail", last, advice)
    target, cores = json.loads(done.stdout.splitlines()[-1])
    return Finding(_TVM, "ok", f"target {target}, num-cores {cores}")


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


def check_peak() -> Finding:
    """What the machine's cores and memory can do."""
    # Loaded on use: it needs TVM, and everything else here has to run without.
    measure = import_module(".peak", __package__).measure_peak
    try:
        peak = measure()
    except RuntimeError as error:
        return Finding("peak", "warn", str(error), "reports of comparisons will show no peak")
    return judge_peak(peak.flops_core, peak.flops, peak.bandwidth, peak.threads)
