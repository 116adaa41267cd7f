"""What a report is made of, before it becomes HTML or Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """An entry of a table.

    Attributes:
        text: What it says.
        note: What stands behind it in smaller type: an interval, a range.
        strong: Whether it is the best of its kind, or beyond doubt.
    """

    text: str
    note: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table; the first column names its rows.

    Attributes:
        columns: Heads of the columns.
        rows: As many cells each.
        words: Whether the cells are text, which is set to the left and may be broken.
    """

    columns: tuple[str, ...]
    rows: list[list[Cell]]
    words: bool = False

    @property
    def width(self) -> int:
        """How many columns it has."""
        return len(self.columns)


@dataclass(frozen=True)
class Band:
    """A curve over several runs: the geometric mean, the lowest and the highest of them."""

    x: Floats
    middle: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Line:
    """An entrant in a figure of curves.

    Attributes:
        number: Its place among the entrants, which gives it its colour.
        label: Its label.
        band: Its curve; None where there is no more to show than where it ended.
        end: Where it ended, for one without a curve.
    """

    number: int
    label: str
    band: Band | None
    end: tuple[float, float] | None = None


@dataclass(frozen=True)
class Curves:
    """A figure of curves, one an entrant.

    Attributes:
        name: A word that no other figure of the report has.
        alt: What it shows, for those who can't see it.
        lines: The entrants' curves.
        x_label: What the x axis counts.
        y_label: What the y axis counts; more is better.
        log_x: Whether the x axis is logarithmic.
        levels: Horizontal lines by name.
    """

    name: str
    alt: str
    lines: list[Line]
    x_label: str
    y_label: str
    log_x: bool = False
    levels: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ratio:
    """One entrant's speed against a reference: the ratio and, where there is one, its interval."""

    number: int
    label: str
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Forest:
    """A figure of ratios with their intervals, all against one reference.

    Attributes:
        name: A word that no other figure of the report has.
        alt: What it shows, for those who can't see it.
        against: The reference.
        ratios: The ratios, a row each.
        span: The least and the greatest ratio that the axis has room for.
    """

    name: str
    alt: str
    against: str
    ratios: list[Ratio]
    span: tuple[float, float]


@dataclass(frozen=True)
class Bars:
    """A figure of stacked bars: seconds by part for each label."""

    name: str
    alt: str
    parts: tuple[str, ...]
    rows: Mapping[str, Mapping[str, float]]


Figure = Curves | Forest | Bars


@dataclass(frozen=True)
class Section:
    """A part of the report under a heading of its own.

    Attributes:
        title: The heading.
        notes: Sentences below it.
        figures: Its figures, which Markdown leaves out.
        tables: Its tables.
        parts: Sections within it.
        code: Text to be shown as it is.
    """

    title: str
    notes: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    parts: list[Section] = field(default_factory=list)
    code: str = ""
