"""What about this machine makes measurements wrong or noisy: cores, threads, clock, load, noise."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .finding import Finding
from .host import cgroup_cpus, this_host, usable_cores, usable_cpus
from .noise import Busy, Noise, measure_load

# A step of a search is often worth a few per cent, so noise above the first hides steps, and above
# the second the order of the best candidates is chance.
_NOISE_WARN, _NOISE_HIGH = 0.05, 0.15
_DRIFT_WARN = 0.05
# A process that takes more than this share of a core disturbs a kernel that wants all of them.
_BUSY = 0.10
_STEAL_WARN = 0.02
# Cores do less together than each alone, since the clock falls; half of it lost is another matter.
_PEAK_WARN = 0.6


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


def judge_peak(flops_core: float, flops: float, bandwidth: float, threads: int) -> Finding:
    """What to say of the arithmetic of one core and of all threads, and of the memory's traffic."""
    found = f"{flops_core / 1e9:.0f} GFLOP/s in float32 on one core"
    if threads > 1:
        found += f", {flops / 1e9:.0f} on {threads}"
    found += f"; {bandwidth / 1e9:.1f} GB/s of memory"
    if flops < _PEAK_WARN * threads * flops_core:
        advice = "cores get in each other's way: end other programs, or see `cores` above"
        return Finding("peak", "warn", found, advice)
    return Finding("peak", "ok", found)


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
