"""Entries of a report's tables: ratios, latencies, workloads."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .report_parts import Cell

NONE = Cell("-")
_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"))
_NAMES = re.compile(r"(?<=[(,])(?!dtype)[a-z]\w*=")


def ratio_cell(ratio: Sequence[float | None] | None) -> Cell:
    """A speed ratio with its interval; strong where the interval is above 1."""
    if ratio is None:
        return NONE
    middle, low, high = ratio
    if middle is None:
        return NONE
    if low is None or high is None or low == middle == high:
        return Cell(_short(middle))
    return Cell(_short(middle), f"{_short(low)}–{_short(high)}", strong=low > 1)


def _short(value: float) -> str:
    """Three digits behind the point near 1, where they matter."""
    return f"{value:.3f}" if 0.1 <= value < 2 else f"{value:.3g}"


def seconds_text(*values: float) -> str:
    """A latency in three digits, or a range of latencies in the unit of the largest."""
    factor, unit = next((pair for pair in _UNITS if max(values) * pair[0] >= 0.9995), _UNITS[-1])
    texts = []
    for value in values:
        scaled = value * factor
        digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
        texts.append(f"{scaled:.{digits}f}")
    return f"{'–'.join(texts)} {unit}"


def short_key(key: str) -> str:
    """A workload's key without the names of its parameters, as a command line takes it too."""
    return _NAMES.sub("", key)
