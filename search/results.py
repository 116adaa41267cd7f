"""The files that a run ends with."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..data.export import ExportError, write_database, write_library, write_script
from ..data.install import version_of
from ..data.target import target_string
from .run_folder import write_json

if TYPE_CHECKING:
    from .tune import TuneResult

# How many of the fastest records go into the MetaSchedule database.
_DATABASE_RECORDS = 32


def save_results(result: TuneResult, folder: Path) -> list[str]:
    """Write `best.json`, `best.py`, `library/`, `database/` and `best_so_far.png`.

    A part that this machine can't write (no C compiler, no matplotlib) is left out.

    Returns:
        Notes on what was left out, and why.
    """
    notes: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    scheduled = result.schedule()
    workload, target = result.workload, result.target
    write_json(folder / "best.json", best_json(result))
    write_script(folder / "best.py", workload, scheduled.mod, target)
    try:
        name = "".join(c if c.isalnum() else "_" for c in workload.key).strip("_").lower()
        write_library(folder / "library", name, workload, scheduled.mod, target)
    except ExportError as error:
        notes.append(f"no shared library: {error}")
    _write_database(result, folder / "database")
    if version_of("matplotlib") is None:
        notes.append("no plot: pip install 'tensortune[report]'")
    else:
        # Loaded on use: matplotlib is optional, and takes as long to import as TVM.
        plots = import_module(".plots", __package__)
        plots.plot_best_so_far(result.records, result.best, folder / "best_so_far.png", workload)
    return notes


def best_json(result: TuneResult) -> dict[str, Any]:
    """The run's figures, with what is needed to make the winner again."""
    scheduled = result.schedule()
    return {
        **result.summary(),
        "definition": result.workload.to_json(),
        "identity": result.workload.identity,
        "target": target_string(result.target),
        "candidate": result.best.candidate.to_json(),
        "trace": _plain(scheduled.trace.as_json()),
    }


def _plain(value: Any) -> Any:
    """TVM's containers and constants as plain JSON values."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if hasattr(value, "value"):  # IntImm, FloatImm, StringImm
        return value.value
    return [_plain(item) for item in value]


def _write_database(result: TuneResult, folder: Path) -> None:
    valid = sorted((r for r in result.records if r.valid), key=lambda record: record.latency_s)
    entries = [
        (result.space.schedule(record.candidate).trace, record.repeats)
        for record in valid[:_DATABASE_RECORDS]
        if record.candidate != result.best.candidate
    ]
    # The winner with the least time of all, so that a query, which goes by means, finds it: the
    # records' own times were taken one by one, and a slower candidate may have had a better moment.
    fastest = min([fmean(r.repeats) for r in valid] + [result.best.latency_s])
    entries.insert(0, (result.schedule().trace, (fastest,)))
    write_database(folder, result.workload, result.target, entries)
