"""`tensortune compare`: workloads x strategies x seeds, interleaved, resumable run by run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..data.host import this_host
from ..data.install import version_of, versions
from ..data.spaces import check_space
from ..data.target import cpu_target, num_cores, target_string
from ..data.workload import Workload
from .compare_folder import check_folder, claimed, find_peak
from .compare_run import Say, carry_out, finished
from .compare_stats import REFERENCES, summarise
from .compare_timing import Entry, time_winners
from .peers.autotvm import OLD_TVM, PYTHON_VARIABLE, find_python, probe
from .peers.metaschedule import TRIALS_PER_ITER
from .peers.references import missing_references
from .peers.run import PEERS
from .run_folder import write_json
from .strategies import default_space, find_strategy
from .tune import check_acquisition, check_model

# Trials between two calls of ours, and of MetaSchedule's search on our workers.
_DEFAULT_BATCH = {False: 16, True: TRIALS_PER_ITER}


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
        seeds: How many of the comparison's seeds it runs with, from the first on; None for all.
        policy: The file of the policy that one of ours follows; None for the package's.
    """

    label: str
    strategy: str
    model: str = "pretrained"
    trials: int | None = None
    batch: int | None = None
    space: str = "sketch"
    acquisition: str = "mean"
    seeds: int | None = None
    policy: str | None = None

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
            if name in ("trials", "batch", "seeds") and value.isdigit() and int(value) > 0:
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
            elif name == "policy" and value:
                chosen["policy"] = value
            else:
                raise ValueError(
                    f"`{option}` in `{text}` is none of model=NAME, space=NAME, acquisition=NAME, "
                    "policy=FILE, trials=N, batch=N, seeds=N"
                )
        if label in REFERENCES or not re.fullmatch(r"[\w.+-]+", label):
            raise ValueError(f"`{label}` can't be a label: a word that is no reference's name")
        if strategy in PEERS:
            unused = chosen.keys() - {"trials", "seeds"}
            if strategy == "metaschedule-fast":
                unused -= {"batch"}
            if unused:
                raise ValueError(f"`{strategy}` takes no {' or '.join(sorted(unused))}")
        else:
            try:
                find_strategy(strategy, chosen.get("policy"))
            except ValueError as error:
                raise ValueError(f"{error}; the peers are {', '.join(PEERS)}") from None
            chosen.setdefault("space", default_space(strategy))
        return cls(label, strategy, **chosen)

    def seeds_of(self, seeds: Sequence[int]) -> Sequence[int]:
        """The seeds that it runs with, of those of the comparison.

        Raises:
            ValueError: the comparison has too few.
        """
        if self.seeds is not None and self.seeds > len(seeds):
            raise ValueError(
                f"{self.label} is to run with {self.seeds} seeds, and the comparison has "
                f"{len(seeds)}"
            )
        return seeds[: self.seeds]


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

    def job(self, trials: int, target: Any) -> dict[str, Any]:
        """What its process is told, see `peers.run`."""
        entrant = self.entrant
        return {
            "workload": self.workload.to_json(),
            "strategy": entrant.strategy,
            "model": entrant.model,
            "batch": entrant.batch or _DEFAULT_BATCH[entrant.strategy == "metaschedule-fast"],
            "trials": entrant.trials or trials,
            "seed": self.seed,
            "target": target_string(target),
            "space": entrant.space,
            "acquisition": entrant.acquisition,
            **({} if entrant.policy is None else {"policy": entrant.policy}),
        }


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """Seeds by their number, `0, 1, ...`, or as they are given, each once.

    Raises:
        ValueError: there is none, or a negative one.
    """
    found = list(range(seeds)) if isinstance(seeds, int) else list(dict.fromkeys(seeds))
    if not found or min(found) < 0:
        raise ValueError(f"seeds are a number of them from 1, or numbers from 0, not {seeds}")
    return found


def compare(
    workloads: Sequence[Workload],
    entrants: Sequence[Entrant],
    *,
    seeds: int | Sequence[int] = 3,
    trials: int = 64,
    target: Any = None,
    out: Path,
    autotvm_python: str | os.PathLike[str] | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Run every entrant on every workload with every seed, and time the winners side by side.

    Each run has a process of its own. What is finished in `out` is neither run nor timed again, so
    an interrupted comparison goes on, and seeds, entrants and workloads can be added later; a run
    that failed is tried again.

    Args:
        workloads: What is tuned.
        entrants: Who takes part; their labels differ.
        seeds: Runs of each entrant on each workload, or their seeds.
        trials: Budget of a run.
        target: The target; by default this machine.
        out: Folder for the runs and the results.
        autotvm_python: The interpreter that has AutoTVM and Ansor; by default what the environment
            names. It is needed only if one of them is still to be run.
        say: Called with a line of progress now and then.

    Returns:
        The figures; see `compare_stats.summarise`.

    Raises:
        ValueError: two entrants of one label, a folder of another comparison's settings, or one
            that another process is at work in.
        AutoTVMError: an entrant is AutoTVM or Ansor, and there is no interpreter for it.
    """
    if trials < 1:
        raise ValueError(f"trials must be at least 1, not {trials}")
    all_seeds = seed_list(seeds)
    workloads = list(dict.fromkeys(workloads))
    labels = [entrant.label for entrant in entrants]
    if len(set(labels)) < len(labels):
        raise ValueError("two entrants have one label; name them apart with label=strategy")
    chosen = cpu_target(target)
    runs = [
        Run(workload, entrant, seed)
        for seed in all_seeds
        for workload in workloads
        for entrant in entrants
        if seed in entrant.seeds_of(all_seeds)
    ]
    settings: dict[str, Any] = {
        "trials": trials,
        "target": target_string(chosen),
        "host": this_host().key,
        "replay": None,
    }
    # What can't be is found out here, before hours are spent.
    check_folder(out, settings)
    missing = [run for run in runs if not finished(run.folder(out), run.job(trials, chosen))]
    environment = {}
    if any(run.entrant.strategy in OLD_TVM for run in missing):
        python = find_python(autotvm_python)
        probe(python)
        environment[PYTHON_VARIABLE] = str(python)
    with claimed(out, settings):
        for number, run in enumerate(runs, start=1):
            title = f"[{number}/{len(runs)}] {run.entrant.label}, seed {run.seed}, "
            carry_out(
                run.folder(out),
                run.job(trials, chosen),
                num_cores(chosen),
                environment,
                title + run.workload.key,
                say,
            )
        result = _time_all(runs, labels, chosen, out, say)
        result["settings"] = {
            **settings,
            "seeds": all_seeds,
            "entrants": [asdict(entrant) for entrant in entrants],
            "asked_target": target if isinstance(target, str) else None,
        }
        write_json(out / "compare.json", result)
    return result


def _time_all(
    runs: Sequence[Run], labels: Sequence[str], target: Any, out: Path, say: Say
) -> dict[str, Any]:
    """Time what the runs found, and draw the figures up."""
    by_workload: dict[Workload, list[Entry]] = {}
    for run in runs:
        entry = Entry(run.entrant.label, run.seed, run.folder(out))
        by_workload.setdefault(run.workload, []).append(entry)
    cells: list[dict[str, Any]] = []
    moments: list[float] = []
    for workload, entries in by_workload.items():
        found, timed_at = time_winners(workload, entries, target, say)
        cells += found
        moments += [] if timed_at is None else [timed_at]
    moments += [cell["ended"] - cell["wall_s"] for cell in cells if "ended" in cell]
    torch = version_of("torch")
    return {
        **summarise(cells, labels),
        "versions": versions() | ({"torch": torch} if torch else {}),
        "began": _moment(min(moments, default=None)),
        "ended": _moment(max(moments, default=None)),
        "peak": find_peak(target, out, say),
        "missing": {workload.key: missing_references(workload) for workload in by_workload},
    }


def _moment(seconds: float | None) -> str | None:
    """A time as people read it, with its offset from UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "minutes")
