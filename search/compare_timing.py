"""All winners of a workload in one interleaved run, by one timer; kept, so that it is done once."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tvm

from ..data.finals import Contestant, judge, make_reference, time_interleaved
from ..data.measure import LocalMeasurer
from ..data.worker import Artifact, Program
from ..data.workload import Workload
from .compare_run import Say
from .peers.references import missing_references, reference_programs
from .run_folder import write_json

_FILE = "timing.json"
# Rounds of the interleaved timing.
_ROUNDS = 15
_REPEAT_S = 0.02

Cell = dict[str, Any]


class Entry(NamedTuple):
    """A run that is over: whose it was, and where its files are."""

    label: str
    seed: int
    folder: Path


class _Winner(NamedTuple):
    """What a run found.

    Attributes:
        path: A scheduled module as JSON, or a compiled library.
        packed: The library without conversions of layouts, where there is one.
        digest: Of their contents.
    """

    path: Path
    packed: Path | None
    digest: str


def time_winners(
    workload: Workload, entries: Sequence[Entry], target: Any, say: Say
) -> tuple[list[Cell], float | None]:
    """Time all winners of a workload and the references in turn, and check the winners' outputs.

    What was timed stays in the folder of the workload. It is taken from there when all that is
    asked for is in it and could be timed: ratios are taken within one interleaved run only.

    Args:
        workload: The workload.
        entries: Its runs.
        target: The target.
        say: Called with a line before something is timed.

    Returns:
        A cell for each run and each reference, see `compare_stats.summarise`; and when they were
        timed, in seconds since the epoch.
    """
    cells = [_read_cell(workload.key, entry) for entry in entries]
    winners = {
        entry.folder.name: winner
        for entry, cell in zip(entries, cells, strict=True)
        if (winner := _find_winner(entry.folder, cell)) is not None
    }
    path = entries[0].folder.parent / _FILE
    timing = _held(path, workload, winners)
    if timing is None:
        say(f"timing the winners of {workload.key} side by side")
        try:
            timing = _measure(workload, winners, target)
        except RuntimeError as error:  # the untuned program does not run: others' cells still count
            for cell in cells:
                cell.setdefault("error", str(error))
            return cells, None
        write_json(path, timing)
    for entry, cell in zip(entries, cells, strict=True):
        cell |= timing["winners"].get(entry.folder.name, {}) if entry.folder.name in winners else {}
        cell.pop("digest", None)
    for name, figures in timing["references"].items():
        cells.append({"workload": workload.key, "label": name, "seed": None, **figures})
    return cells, float(timing["time"])


def _read_cell(key: str, entry: Entry) -> Cell:
    """What a run tells of itself."""
    cell: Cell = {"workload": key, "label": entry.label, "seed": entry.seed}
    if not (entry.folder / "done.json").exists():
        cell |= json.loads((entry.folder / "error.json").read_text())
        return cell
    for name in ("outcome.json", "done.json"):
        cell |= json.loads((entry.folder / name).read_text())
    return cell


def _find_winner(folder: Path, cell: Cell) -> _Winner | None:
    """The winner of a run; without one, the cell is told why."""
    library, packed = cell.pop("library", None), cell.pop("packed", None)
    if "error" in cell:
        return None
    path = folder / (library or "winner.json")
    if not path.exists():
        cell["error"] = cell.get("reason") or "no valid candidate was found"
        return None
    paths = [path, *([folder / packed] if packed else [])]
    digest = hashlib.sha256()
    for one in paths:
        digest.update(one.read_bytes())
    return _Winner(path, folder / packed if packed else None, digest.hexdigest())


def _held(path: Path, workload: Workload, winners: Mapping[str, _Winner]) -> Cell | None:
    """What was timed before, if all that is asked for is in it."""
    if not path.exists():
        return None
    timing: Cell = json.loads(path.read_text())
    same = all(
        timing["winners"].get(name, {}).get("digest") == winner.digest
        for name, winner in winners.items()
    )
    references = {"untuned", "numpy", "torch"} - missing_references(workload).keys()
    # One that could not be timed may have been disturbed. Wrong outputs, in turn, stay wrong.
    timed = {name for name, figures in timing["references"].items() if "best_s" in figures}
    timed |= {name for name, figures in timing["winners"].items() if "best_s" in figures}
    complete = references | winners.keys() <= timed
    return timing if same and complete else None


def _measure(workload: Workload, winners: Mapping[str, _Winner], target: Any) -> Cell:
    """Time the winners and the references.

    Raises:
        RuntimeError: the untuned program does not run.
    """
    with LocalMeasurer(workload, target) as measurer:
        reference = make_reference(measurer)
        programs = [_program(measurer, winner.path) for winner in winners.values()]
        packed = {name: winner.packed for name, winner in winners.items() if winner.packed}
        programs += [_program(measurer, path) for path in packed.values()]
        references = reference_programs(measurer)
        times = time_interleaved(
            measurer,
            [*programs, *references.values()],
            rounds=_ROUNDS,
            repeat_s=_REPEAT_S,
            run=len(winners),
        )
        figures: dict[str, Cell] = {}
        for (name, winner), timed in zip(winners.items(), times, strict=False):
            verdict = judge(reference, timed)
            wrong = {} if verdict.right else {"error": verdict.detail}
            figures[name] = {"digest": winner.digest, **_figures(timed), **wrong}
    for name, timed in zip(packed, times[len(winners) :], strict=False):
        if timed.times_s:
            figures[name]["packed_s"] = timed.latency_s
    found = dict(zip(references, map(_figures, times[len(programs) :]), strict=True))
    return {"time": time.time(), "winners": figures, "references": found}


def _figures(timed: Contestant) -> Cell:
    if timed.times_s:
        return {"best_s": timed.latency_s}
    return {"error": timed.failure or "it was not timed"}


def _program(measurer: LocalMeasurer, path: Path) -> Program | Artifact:
    """A winner, ready for a worker."""
    if path.suffix != ".json":
        return Artifact(str(path), measurer.inputs, measurer.memory_bytes)
    return measurer.program(tvm.ir.load_json(path.read_text()))
