"""The report as one HTML file that needs nothing else (jinja2, in the `report` extra)."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .plots_compare import draw, series_colour, swatches
from .report_parts import Bars, Figure, Section

_TEMPLATES = Path(__file__).parent / "templates"


def render_html(title: str, labels: list[str], sections: list[Section]) -> str:
    """The page.

    Args:
        title: Its heading.
        labels: The entrants, for the legend.
        sections: What it says.
    """
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"prose": _prose, "breakable": _breakable}
    template = environment.get_template("report.html.j2")
    page: str = template.render(
        title=title,
        legend=swatches(labels),
        sections=sections,
        draw=draw,
        parts_of=_parts_of,
    )
    return page


def _parts_of(figure: Figure) -> list[tuple[str, str]]:
    """The legend of a figure that has one of its own: names and colours."""
    if not isinstance(figure, Bars):
        return []
    return [(part, series_colour(number)) for number, part in enumerate(figure.parts)]


def _prose(text: str) -> str:
    """Text as HTML, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _breakable(text: str) -> str:
    """A workload's key as HTML that may be broken between its parameters."""
    return re.sub(r"([,(])", r"\1<wbr>", escape(text))
