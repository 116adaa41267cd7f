"""`tensortune compare`: workloads x strategies x seeds, interleaved, resumable run by run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm

from ..data.finals import Contestant, judge, make_reference, time_interleaved
from ..data.host import this_host
from ..data.install import versions
from ..data.measure import LocalMeasurer
from ..data.peak import measure_peak
from ..data.pool import worker_environment
from ..data.spaces import check_space
from ..data.target import cpu_target, num_cores, target_string
from ..data.worker import Artifact, Program
from ..data.workload import Workload
from .compare_stats import REFERENCES, summarise
from .peers.autotvm import OLD_TVM, find_python, probe
from .peers.metaschedule import TRIALS_PER_ITER
from .peers.references import missing_references, reference_programs
from .peers.run import PEERS
from .run_folder import write_json
from .tune import check_acquisition, check_model, find_strategy

# A run that takes longer is given up: MetaSchedule's 64 trials take up to 4 minutes.
_RUN_LIMIT_S = 3600.0
# Trials between two calls of ours, and of MetaSchedule's search on our workers.
_DEFAULT_BATCH = {False: 16, True: TRIALS_PER_ITER}
# Rounds of the interleaved timing of all winners of a workload.
_ROUNDS = 15
_REPEAT_S = 0.02


@dataclass(frozen=True)
class Entrant:
    """A strategy under the name that it is compared by.

    Attributes:
        label: The name; by default the strategy's own.
        strategy: A strategy of ours, or a peer.
        model: The cost model of one of ours.
        trials: Its budget, where it is not the comparison's.
        batch: Trials between two calls of the strategy; None for its default.
        space: The space that one of ours searches.
        acquisition: What candidates of one of ours are worth; see `tune`.
    """

    label: str
    strategy: str
    model: str = "pretrained"
    trials: int | None = None
    batch: int | None = None
    space: str = "sketch"
    acquisition: str = "mean"

    @classmethod
    def parse(cls, text: str) -> Entrant:
        """Read `[label=]strategy[:NAME=VALUE]...`, names as in the error below.

        Raises:
            ValueError: it is not of that form, or names what there is not.
        """
        head, *options = text.split(":")
        label, equals, strategy = head.partition("=")
        if not equals:
            strategy = label
        if options and "=" not in options[0]:  # package.module:Name
            strategy = f"{strategy}:{options.pop(0)}"
            label = label if equals else strategy.rpartition(":")[2]
        chosen: dict[str, Any] = {}
        for option in options:
            name, _, value = option.partition("=")
            if name in ("trials", "batch") and value.isdigit() and int(value) > 0:
                chosen[name] = int(value)
            elif name == "model":
                check_model(value)
                chosen["model"] = value
            elif name == "space":
                check_space(value)
                chosen["space"] = value
            elif name == "acquisition":
                check_acquisition(value)
                chosen["acquisition"] = value
            else:
                raise ValueError(
                    f"`{option}` in `{text}` is none of model=NAME, space=NAME, acquisition=NAME, "
                    "trials=N, batch=N"
                )
        if label in REFERENCES or not re.fullmatch(r"[\w.+-]+", label):
            raise ValueError(f"`{label}` can't be a label: a word that is no reference's name")
        if strategy in PEERS:
            unused = chosen.keys() - (
                {"trials", "batch"} if strategy == "metaschedule-fast" else {"trials"}
            )
            if unused:
                raise ValueError(f"`{strategy}` takes no {' or '.join(sorted(unused))}")
        else:
            try:
                find_strategy(strategy)
            except ValueError as error:
                raise ValueError(f"{error}; the peers are {', '.join(PEERS)}") from None
        return cls(label, strategy, **chosen)


@dataclass(frozen=True)
class Run:
    """One cell of the comparison."""

    workload: Workload
    entrant: Entrant
    seed: int

    def folder(self, out: Path) -> Path:
        """Where its files are."""
        name = "".join(c if c.isalnum() or c in "=.-" else "_" for c in self.workload.key)
        return out / "runs" / name.strip("_") / f"{self.entrant.label}-{self.seed}"


def compare(
    workloads: Sequence[Workload],
    entrants: Sequence[Entrant],
    *,
    seeds: int = 3,
    trials: int = 64,
    target: Any = None,
    out: Path,
    say: Any = print,
) -> dict[str, Any]:
    """Run every entrant on every workload with every seed, and time the winners side by side.

    Each run has a process of its own; what is finished in `out` is not run again, so an interrupted
    comparison goes on, and more seeds or entrants can be added later.

    Args:
        workloads: What is tuned.
        entrants: Who takes part; their labels differ.
        seeds: Runs of each entrant on each workload.
        trials: Budget of a run.
        target: The target; by default this machine.
        out: Folder for the runs and the results.
        say: Called with a line of progress now and then.

    Returns:
        The figures; see `compare_stats.summarise`.

    Raises:
        ValueError: two entrants of one label, or a folder of another comparison's settings.
        AutoTVMError: an entrant is AutoTVM or Ansor, and there is no interpreter for it.
    """
    if seeds < 1 or trials < 1:
        raise ValueError(f"seeds and trials must be at least 1, not {seeds} and {trials}")
    workloads = list(dict.fromkeys(workloads))
    labels = [entrant.label for entrant in entrants]
    if len(set(labels)) < len(labels):
        raise ValueError("two entrants have one label; name them apart with label=strategy")
    chosen = cpu_target(target)
    if any(entrant.strategy in OLD_TVM for entrant in entrants):
        probe(find_python())
    settings: dict[str, Any] = {
        "trials": trials,
        "target": target_string(chosen),
        "host": this_host().key,
        "replay": None,
    }
    _claim(out, settings)
    runs = [
        Run(workload, entrant, seed)
        for seed in range(seeds)
        for workload in workloads
        for entrant in entrants
    ]
    for number, run in enumerate(runs, start=1):
        _carry_out(run, trials, chosen, out, f"[{number}/{len(runs)}]", say)
    cells: list[dict[str, Any]] = []
    for workload in workloads:
        own = [run for run in runs if run.workload == workload]
        say(f"timing the winners of {workload.key} side by side")
        cells += _time_winners(workload, own, chosen, out)
    result = {
        **summarise(cells, labels),
        "settings": {**settings, "seeds": seeds, "entrants": [asdict(e) for e in entrants]},
        "versions": versions(),
        "peak": asdict(measure_peak(chosen)),
        "missing": {workload.key: missing_references(workload) for workload in workloads},
    }
    write_json(out / "compare.json", result)
    return result


def _claim(out: Path, settings: dict[str, Any]) -> None:
    path = out / "settings.json"
    if path.exists():
        held = json.loads(path.read_text())
        for name, value in settings.items():
            if held.get(name) != value:
                raise ValueError(
                    f"{out} holds a comparison with {name} {held.get(name)}, not {value}; "
                    "choose another --out"
                )
    write_json(path, settings)


def _carry_out(run: Run, trials: int, target: Any, out: Path, number: str, say: Any) -> None:
    """Run one cell in a process of its own, unless it is there already."""
    folder = run.folder(out)
    title = f"{number} {run.entrant.label}, seed {run.seed}, {run.workload.key}"
    job = {
        "workload": run.workload.to_json(),
        "strategy": run.entrant.strategy,
        "model": run.entrant.model,
        "batch": run.entrant.batch or _DEFAULT_BATCH[run.entrant.strategy == "metaschedule-fast"],
        "trials": run.entrant.trials or trials,
        "seed": run.seed,
        "target": target_string(target),
        "space": run.entrant.space,
        "acquisition": run.entrant.acquisition,
    }
    if (folder / "done.json").exists():
        if json.loads((folder / "job.json").read_text()) != job:
            raise ValueError(f"{folder} holds a run with other settings; choose another --out")
        say(f"{title}: done before")
        return
    shutil.rmtree(folder, ignore_errors=True)
    write_json(folder / "job.json", job)
    start = time.monotonic()
    error = _run_process(folder, num_cores(target))
    wall_s = time.monotonic() - start
    if error is not None:
        write_json(folder / "error.json", {"error": error, "wall_s": wall_s})
        say(f"{title}: failed after {wall_s:.1f} s: {error}")
        return
    write_json(folder / "done.json", {"wall_s": wall_s})
    say(f"{title}: {wall_s:.1f} s")


def _run_process(folder: Path, threads: int) -> str | None:
    """Run the job of a folder; why it failed, or None."""
    command = (
        "import sys; sys.path[:] = sys.argv[2:]; "
        "from tensortune.search.peers.run import main; main()"
    )
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", command, str(folder), *sys.path],
            env=worker_environment(threads),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            code = process.wait(_RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"it took longer than {_RUN_LIMIT_S:.0f} s"
        finally:
            process.kill()
            process.wait()
    if code:
        lines = (folder / "log.txt").read_text(errors="replace").strip().splitlines()
        return f"exit code {code}: {lines[-1][:200] if lines else 'no output'}"
    return None


def _time_winners(
    workload: Workload, runs: Sequence[Run], target: Any, out: Path
) -> list[dict[str, Any]]:
    """Time all winners of a workload in one interleaved run, and check their outputs."""
    cells = [_read_cell(run, out) for run in runs]
    found = [cell for cell in cells if cell["mod"] is not None]
    times: list[Contestant] = []
    try:
        with LocalMeasurer(workload, target) as measurer:
            reference = make_reference(measurer)
            mods = [cell["mod"] for cell in found]
            packed = [cell for cell in found if cell["packed"]]
            programs = [_program(measurer, mod) for mod in mods]
            programs += [_program(measurer, Path(cell["packed"])) for cell in packed]
            references = reference_programs(measurer)
            times = time_interleaved(
                measurer,
                [*programs, *references.values()],
                rounds=_ROUNDS,
                repeat_s=_REPEAT_S,
                run=len(mods),
            )
            verdicts = [judge(reference, timed) for timed in times[: len(mods)]]
    except RuntimeError as error:  # the untuned program does not run: the others' cells still count
        for cell in found:
            cell["error"] = str(error)
    else:
        for cell, timed, verdict in zip(found, times[: len(found)], verdicts, strict=True):
            cell["best_s"] = timed.latency_s
            if timed.failure or not verdict.right:
                cell["error"] = timed.failure or verdict.detail
        for cell, timed in zip(packed, times[len(found) : len(programs)], strict=True):
            cell["packed_s"] = timed.latency_s
        for name, timed in zip(references, times[len(programs) :], strict=True):
            cells.append(
                {"workload": workload.key, "label": name, "seed": 0, "best_s": timed.latency_s}
            )
    for cell in cells:
        cell.pop("mod", None)
    return cells


def _program(measurer: LocalMeasurer, winner: Any) -> Program | Artifact:
    """A winner, ready for a worker: a scheduled module, or the path of a compiled library."""
    if isinstance(winner, Path):
        return Artifact(str(winner), measurer.inputs, measurer.memory_bytes)
    return measurer.program(winner)


def _read_cell(run: Run, out: Path) -> dict[str, Any]:
    folder = run.folder(out)
    cell: dict[str, Any] = {"workload": run.workload.key, "label": run.entrant.label}
    cell |= {"seed": run.seed, "mod": None, "packed": None}
    if not (folder / "done.json").exists():
        error = json.loads((folder / "error.json").read_text())
        return {**cell, "error": error["error"], "wall_s": error["wall_s"]}
    cell |= json.loads((folder / "outcome.json").read_text())
    cell |= json.loads((folder / "done.json").read_text())
    if (folder / "winner.json").exists():
        cell["mod"] = tvm.ir.load_json((folder / "winner.json").read_text())
    elif cell.get("library"):
        cell["mod"] = folder / cell["library"]
        cell["packed"] = cell["packed"] and str(folder / cell["packed"])
    else:
        cell["error"] = cell.get("reason") or "no valid candidate was found"
    return cell
