"""The part of a report that says how the comparison was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .report_data import Comparison, entrant_text
from .report_parts import Cell, Section, Table


def title(data: Comparison) -> str:
    """The report's heading."""
    settings = data.settings
    text = _count(len(data.labels), "tuner") + " on " + _count(len(data.workloads), "operator")
    text += f", {settings['trials']} trials" if "trials" in settings else ""
    return text + (f", {_count(len(data.seeds), 'seed')}" if data.seeds else "")


def _count(n: float, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def where_and_when(data: Comparison) -> str:
    """The machine and the time in a sentence; empty where neither is known."""
    period = _period(data.result.get("began"), data.result.get("ended"))
    host = data.settings.get("host")
    parts = [f"on `{host}`" if host else "", f"from {period}" if " to " in period else period]
    found = [part for part in parts if part]
    return f"Measured {', '.join(found)}." if found and not data.replayed else ""


def how_it_was_made(data: Comparison) -> Section:
    """Machine, time, settings, versions, and the command."""
    settings, versions = data.settings, data.result.get("versions", {})
    facts: Mapping[str, Any] = {
        "host": settings.get("host"),
        "target": settings.get("target"),
        "peak": _peak(data.peak),
        "measured": _period(data.result.get("began"), data.result.get("ended")),
        "trials": settings.get("trials"),
        "seeds": ", ".join(map(str, data.seeds)),
        "entrants": ", ".join(entrant_text(entrant) for entrant in data.entrants.values()),
        "records": data.replayed,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "peers' versions": _peers(data),
    }
    rows = [[Cell(name), Cell(str(value))] for name, value in facts.items() if value]
    return Section("How it was made", [], [], [Table(("", ""), rows, words=True)], [], data.command)


def _period(began: str | None, ended: str | None) -> str:
    """From when to when; a moment where there is one only."""
    return " to ".join(dict.fromkeys(moment for moment in (began, ended) if moment))


def _peers(data: Comparison) -> str:
    """Versions of the packages that peers ran on in interpreters of their own."""
    texts = []
    for label, told in data.told.items():
        found = [(name, told[name]) for name in ("tvm", "xgboost") if name in told]
        texts += [
            f"{label}: " + ", ".join(f"{name} {' and '.join(sorted(of))}" for name, of in found)
        ]
    return "; ".join(texts)


def _peak(peak: Mapping[str, Any]) -> str:
    """What the machine can do, in words; nothing where it was not measured."""
    if not peak:
        return ""
    return (
        f"{peak['flops'] / 1e9:.0f} GFLOP/s in float32 on {_count(peak['threads'], 'thread')} "
        f"({peak['flops_core'] / 1e9:.0f} on one), {peak['bandwidth'] / 1e9:.1f} GB/s of memory"
    )
