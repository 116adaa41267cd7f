"""The report of a comparison: one HTML file, and the same in Markdown and CSV."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ..data.install import EXTRAS, InstallError, VersionOf, version_of
from .report_data import ReportError, read_comparison
from .report_made import title
from .report_text import render_csv, render_markdown
from .report_view import sections

NAME = "report.html"


def check_packages(version_of: VersionOf = version_of) -> None:
    """Check that what the report needs is installed, before hours are spent on its figures.

    Args:
        version_of: Gives a package's installed version, or None.

    Raises:
        InstallError: it is not; the message says what to install.
    """
    missing = [package for package in EXTRAS["report"] if version_of(package) is None]
    if missing:
        raise InstallError(
            f"a report needs {' and '.join(missing)}: pip install 'tensortune[report]'"
        )


def write_report(source: Path, out: Path | None = None) -> list[Path]:
    """Write a comparison's report.

    Args:
        source: The folder that `compare` was given, or the file of its `--json`.
        out: The HTML file; the Markdown and the CSV go beside it under the same name. By default
            `report.html` in the folder.

    Returns:
        The three files.

    Raises:
        ReportError: there is no finished comparison, or the name is no HTML file's.
        InstallError: a package is missing.
    """
    check_packages()
    if out is None:
        out = (source if source.is_dir() else source.parent) / NAME
    if out.suffix not in (".html", ".htm"):
        raise ReportError(f"{out} is no HTML file's name; choose one such as {NAME}")
    data = read_comparison(source)
    shown, heading = sections(data), title(data)
    # Loaded on use: what draws is optional.
    page = import_module(".report_html", __package__).render_html(heading, data.labels, shown)
    texts = {
        out: page,
        out.with_suffix(".md"): render_markdown(heading, shown),
        out.with_suffix(".csv"): render_csv(data),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)
