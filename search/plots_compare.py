"""The figures of a report as SVG to be set into a page (matplotlib, in the `report` extra).

Colours are the page's: every figure is drawn in stand-ins, which become `var(--...)` at the end, so
that one figure does for light, dark and print. Text stays text, in the page's own type.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("agg")
import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from .report_parts import Bars, Curves, Figure, Forest, Line

SERIES = 8
"""How many colours there are; entrants beyond that share them, with other marks."""

MARKS = "osD^vPX"
"""Marks by entrant, seven against eight colours, so that few share both."""

# Stand-ins: a series' colour has its number for blue, a role's its place in the list.
_SERIES_COLOUR = "#fe01{:02x}"
_ROLES = ("ink", "quiet", "rule", "page")
_ROLE_COLOUR = {role: f"#fe02{place:02x}" for place, role in enumerate(_ROLES)}

_STYLE = {
    "svg.fonttype": "none",
    "font.size": 8,
    "text.color": _ROLE_COLOUR["ink"],
    "axes.edgecolor": _ROLE_COLOUR["rule"],
    "axes.labelcolor": _ROLE_COLOUR["quiet"],
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _ROLE_COLOUR["rule"],
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "xtick.color": _ROLE_COLOUR["rule"],
    "ytick.color": _ROLE_COLOUR["rule"],
    "xtick.labelcolor": _ROLE_COLOUR["ink"],
    "ytick.labelcolor": _ROLE_COLOUR["ink"],
}
_SIZE = (3.5, 2.5)
# The x at which the y axis has to have room for every curve, as a share of the way along x: before
# that curves come from far below and would flatten all the rest.
_FROM = 0.12
# Round numbers along a decade, from few to many; the first that give enough places are taken.
_STEPS = ((1,), (1, 2, 5), (1, 2, 3, 5, 7), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9))
_LEAST_PLACES = 3


def draw(figure: Figure) -> str:
    """An `<svg>` element that fits its container's width."""
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": figure.name}):
        if isinstance(figure, Curves):
            canvas = _curves(figure)
        elif isinstance(figure, Forest):
            canvas = _forest(figure)
        else:
            canvas = _bars(figure)
        text = io.StringIO()
        canvas.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return _settle(text.getvalue(), figure)


def series_colour(number: int) -> str:
    """The page's variable for an entrant's colour."""
    return f"var(--s{number % SERIES})"


def _colour(number: int) -> str:
    return _SERIES_COLOUR.format(number % SERIES)


def _curves(figure: Curves) -> Canvas:
    canvas = Canvas(figsize=_SIZE, layout="constrained")
    axes = canvas.add_subplot()
    ends = [line.band.x[-1] for line in figure.lines if line.band is not None]
    ends += [line.end[0] for line in figure.lines if line.end is not None]
    last = float(max(ends))
    for line in figure.lines:
        _line(axes, line, last)
    if figure.log_x:
        axes.set_xscale("log")
        first = min(line.band.x[0] for line in figure.lines if line.band is not None)
        low, high = float(first), last * 1.05
        places = _round_places(low, high)
        axes.xaxis.set_major_locator(FixedLocator(places))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlim(low, high)
    else:
        axes.set_xlim(0, last * 1.02)
    low, high = _y_limits(figure, last)
    for name, level in figure.levels.items():
        if low <= level <= high:
            axes.axhline(level, color=_ROLE_COLOUR["quiet"], linewidth=0.8, linestyle=(0, (3, 2)))
            axes.annotate(
                name,
                (1, level),
                xycoords=("axes fraction", "data"),
                xytext=(-2, 2),
                textcoords="offset points",
                ha="right",
                color=_ROLE_COLOUR["quiet"],
                fontsize=7,
                bbox={"facecolor": _ROLE_COLOUR["page"], "linewidth": 0, "alpha": 0.8, "pad": 0.6},
            )
    axes.set_ylim(low, high)
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label)
    return canvas


def _line(axes: Any, line: Line, last: float) -> None:
    colour, mark = _colour(line.number), MARKS[line.number % len(MARKS)]
    if line.band is None:
        if line.end is not None:
            axes.plot(*line.end, mark, color=colour, markersize=6)
        return
    band = line.band
    x = np.append(band.x, last)  # a run that is over keeps what it has; shown thin
    options = {"step": "post", "color": colour, "linewidth": 0, "alpha": 0.15}
    axes.fill_between(band.x, band.low, band.high, **options)
    axes.step(band.x, band.middle, where="post", color=colour)
    if band.x[-1] < last:
        tail = [band.middle[-1]] * 2
        axes.plot(x[-2:], tail, color=colour, linewidth=0.6, linestyle=(0, (1, 2)))
    axes.plot(band.x[-1], band.middle[-1], mark, color=colour, clip_on=False, zorder=5)


def _y_limits(figure: Curves, last: float) -> tuple[float, float]:
    """Room for all curves but their first steps, and for levels that are not far above."""
    lows, highs = [], []
    for line in figure.lines:
        if line.band is None:
            lows += [line.end[1]] if line.end else []
            highs += [line.end[1]] if line.end else []
            continue
        x = line.band.x
        start = x[0] * (last / x[0]) ** (2 * _FROM) if figure.log_x else last * _FROM
        shown = max(0, int(np.searchsorted(x, start, side="right")) - 1)
        lows.append(line.band.low[shown])
        highs.append(line.band.high[-1])
    top = max(highs)
    highs += [level for level in figure.levels.values() if level <= 1.3 * top]
    low, high = float(min(lows)), float(max(highs))
    margin = 0.06 * (high - low) or 0.05 * high
    return max(0.0, low - margin), high + margin


def _round_places(low: float, high: float) -> list[float]:
    """Round numbers along a logarithmic axis; at least three of them where that can be."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    found: list[float] = []
    for steps in _STEPS:
        found = [step * 10.0**power for power in powers for step in steps]
        found = [value for value in found if low <= value <= high]
        if len(found) >= _LEAST_PLACES:
            break
    return found


def _forest(figure: Forest) -> Canvas:
    rows = 1 + len(figure.ratios)
    canvas = Canvas(figsize=(_SIZE[0], 0.42 + 0.17 * rows), layout="constrained")
    axes = canvas.add_subplot()
    _row_label(axes, 0, f"against {figure.against}", weight="bold")
    for place, one in enumerate(figure.ratios, start=1):
        low, high = one.low or one.ratio, one.high or one.ratio
        colour = _colour(one.number)
        axes.plot([low, high], [place, place], color=colour, linewidth=2.2, alpha=0.5)
        mark = MARKS[one.number % len(MARKS)]
        axes.plot(one.ratio, place, mark, color=colour, markersize=4.5)
        _row_label(axes, place, one.label)
    axes.axvline(1, color=_ROLE_COLOUR["quiet"], linewidth=0.8)
    axes.set_xscale("log")
    low, high = figure.span[0] * 0.98, figure.span[1] * 1.02
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(_ratio_places(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(rows - 0.3, -0.7)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("speed ratio")
    return canvas


def _row_label(axes: Any, place: int, text: str, weight: str = "normal") -> None:
    across = axes.get_yaxis_transform()
    axes.text(-0.02, place, text, transform=across, ha="right", va="center", weight=weight)


def _ratio_places(low: float, high: float) -> list[float]:
    """Round ratios on an axis, 1 always among them."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        first = int(np.ceil((low - 1) / step))
        found = [round(1 + step * k, 2) for k in range(first, int((high - 1) / step) + 1)]
        if len(found) <= 7:
            return found
    return [1.0, *_round_places(1.5, high)]


def _bars(figure: Bars) -> Canvas:
    canvas = Canvas(figsize=(_SIZE[0], 0.55 + 0.22 * len(figure.rows)), layout="constrained")
    axes = canvas.add_subplot()
    labels = list(figure.rows)
    left = np.zeros(len(labels))
    for number, part in enumerate(figure.parts):
        width = np.array([figure.rows[label].get(part, 0.0) for label in labels])
        axes.barh(
            labels,
            width,
            left=left,
            height=0.7,
            color=_colour(number),
            edgecolor=_ROLE_COLOUR["page"],
            linewidth=0.8,
        )
        left += width
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("seconds of a run")
    return canvas


def _settle(svg: str, figure: Figure) -> str:
    """Fit an SVG document into a page: no prologue, ids of its own, the page's colours and type."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    # A group's id is of no use here and the same in every figure; those referred to are kept.
    used = set(re.findall(r'(?:url\(#|href="#)([\w-]+)', svg))
    svg = re.sub(r' id="([\w.:-]+)"', lambda m: m[0] if m[1] in used else "", svg)
    for name in used:
        for form in ('id="{}"', "url(#{})", 'href="#{}"'):
            svg = svg.replace(form.format(name), form.format(f"{figure.name}-{name}"))
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r"#fe01([0-9a-f]{2})", lambda m: f"var(--s{int(m[1], 16)})", svg)
    svg = re.sub(r"#fe02([0-9a-f]{2})", lambda m: f"var(--{_ROLES[int(m[1], 16)]})", svg)
    alt = figure.alt.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return svg.replace("<svg", f'<svg role="img" aria-label="{alt}"', 1).strip()


def swatches(labels: Sequence[str]) -> list[tuple[str, str, str]]:
    """Label, colour and mark of each entrant, for a legend."""
    return [
        (label, series_colour(number), MARKS[number % len(MARKS)])
        for number, label in enumerate(labels)
    ]
