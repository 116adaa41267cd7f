"""`tensortune compare --replay`: the same comparison against stored measurements, in seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from tvm.target import Target

from ..data.dataset import Dataset, read_dataset
from ..data.install import versions
from ..data.record import Record
from ..data.replay import ReplayMeasurer, ReplaySpace
from ..data.spaces import NamedSpace, make_space
from ..data.workload import Workload
from .compare import Entrant, seed_list
from .compare_stats import summarise
from .outcome import Outcome
from .peers.run import PEERS
from .report_data import RESULT, STORED
from .run_folder import write_json
from .strategies import find_strategy
from .tune import make_scorer
from .tuner import Budget, Tuner

# A search among few more candidates than it has trials would find the best of them anyhow.
_CANDIDATES_PER_TRIAL = 2
_BATCH = 16
_MOST_NAMED = 5

Say = Callable[[str], None]
# The records of a workload in each space.
Spaces = dict[str, list[Record]]


class ReplayError(ValueError):
    """The dataset can't be played back as asked; the message says why."""


@dataclass(frozen=True)
class Stored:
    """What a dataset holds of one workload, on one target and host.

    Attributes:
        workload: The workload.
        target: The target, as the records name it.
        spaces: The records by the space of their candidates.
    """

    workload: Workload
    target: str
    spaces: Spaces

    @property
    def best_s(self) -> float:
        """The fastest stored candidate's latency, of any space; infinity without a valid one."""
        found = (_answers(records) for records in self.spaces.values())
        return min((r.latency_s for records in found for r in records), default=float("inf"))


def _answers(records: Sequence[Record]) -> list[Record]:
    """What a replay says of every candidate, which may have several records."""
    measurer = ReplayMeasurer(records)
    # It looks candidates up and never asks the space.
    return measurer.measure(cast(Any, None), measurer.candidates())


def compare_replay(
    dataset: Path,
    entrants: Sequence[Entrant],
    workloads: Sequence[Workload] = (),
    *,
    seeds: int | Sequence[int] = 3,
    trials: int = 64,
    out: Path | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Run every entrant on stored measurements: no kernel is run, and nothing is noisy.

    Each strategy may propose stored candidates only, and is told what is stored of them. So one
    dataset and one seed give the same figures on every machine, up to the models' rounding. Only
    strategies of ours, and the user's own, can take part: a peer proposes what no record holds.

    Args:
        dataset: A Parquet file or a folder of them, see `data.dataset`.
        entrants: Who takes part; their labels differ.
        workloads: What to search; by default all that the dataset has enough candidates of.
        seeds: Runs of each entrant on each workload, or their seeds.
        trials: Budget of a run.
        out: Folder for the results; None writes nothing.
        say: Called with a line of progress now and then.

    Returns:
        The figures, in the form of `compare`'s. There is no wall-clock in them, and in the place
        of the untuned program and NumPy the fastest stored candidate (`STORED`).

    Raises:
        ValueError: there are no seeds, or an entrant is to have more than there are.
        ReplayError: two entrants of one label, no entrant that can take part, a workload that the
            dataset has too little of, or a folder of another comparison.
        DatasetError: there is no dataset, or a damaged one.
    """
    if trials < 1:
        raise ReplayError(f"trials must be at least 1, not {trials}")
    all_seeds = seed_list(seeds)
    labels = [entrant.label for entrant in entrants]
    if len(set(labels)) < len(labels):
        raise ReplayError("two entrants have one label; name them apart with label=strategy")
    able = [entrant for entrant in entrants if entrant.strategy not in PEERS]
    for entrant in entrants:
        entrant.seeds_of(all_seeds)
    if not able:
        raise ReplayError("peers propose what no record holds; name a strategy of ours or yours")
    stored = _choose(read_dataset(dataset), able, workloads, trials, say)
    settings = {
        "replay": str(dataset),
        "trials": trials,
        "target": stored[0].target,
        "host": next(iter(stored[0].spaces.values()))[0].host,
    }
    if out is not None:
        _claim(out, settings)
    cells: list[dict[str, Any]] = []
    for one in stored:
        say(f"playing back {one.workload.key}: {_sizes(one)}")
        cells += _play(one, able, all_seeds, trials)
        cells += [_absent(one, peer) for peer in entrants if peer not in able]
    result = _summary(cells, labels)
    result |= {
        "settings": {**settings, "seeds": all_seeds, "entrants": [asdict(e) for e in entrants]},
        "versions": versions(),
    }
    if out is not None:
        write_json(out / RESULT, result)
    return result


def _summary(cells: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> dict[str, Any]:
    """The figures, with the best stored candidate as a reference and no strategy."""
    result = summarise(cells, [*labels, STORED])
    del result["strategies"][STORED]
    return result


def _sizes(stored: Stored) -> str:
    return ", ".join(
        f"{len({r.candidate for r in records})} candidates of the {name} space"
        for name, records in stored.spaces.items()
    )


def _claim(out: Path, settings: Mapping[str, Any]) -> None:
    """Take a folder, unless it holds a comparison that was measured, or one of other records."""
    path = out / "settings.json"
    held = json.loads(path.read_text()) if path.exists() else settings
    if held != settings or (not path.exists() and (out / RESULT).exists()):
        raise ReplayError(f"{out} holds another comparison; choose another --out")
    write_json(path, settings)


def _choose(
    dataset: Dataset,
    entrants: Sequence[Entrant],
    workloads: Sequence[Workload],
    trials: int,
    say: Say,
) -> list[Stored]:
    """What is played back: workloads with enough records in every space that is searched.

    A comparison is of one target and host: those that the dataset has most records of.
    """
    spaces = list(dict.fromkeys(entrant.space for entrant in entrants))
    groups: dict[tuple[str, str], dict[str, Spaces]] = {}
    for record in dataset.records:
        if record.candidate.space in spaces:
            keys = groups.setdefault((record.target, record.host), {})
            keys.setdefault(record.workload, {}).setdefault(record.candidate.space, []).append(
                record
            )
    if not groups:
        raise ReplayError(f"the dataset holds no records of the space {' or '.join(spaces)}")
    (_, host), found = max(groups.items(), key=lambda item: _count(item[1]))
    if len(groups) > 1:
        others = sum(map(_count, groups.values())) - _count(found)
        say(f"{others} records of other targets or hosts than {host} are not played back")
    needed = _CANDIDATES_PER_TRIAL * max(entrant.trials or trials for entrant in entrants)
    asked = {workload.identity: workload for workload in workloads}
    ready: list[Stored] = []
    problems: list[str] = []
    for key, by_space in found.items():
        identity = next(iter(by_space.values()))[0].identity
        if asked and identity not in asked:
            continue
        try:
            ready.append(_ready(key, dataset, {s: by_space.get(s, []) for s in spaces}, needed))
        except ReplayError as error:
            problems.append(f"{key}: {error}")
    return _checked(ready, problems, asked, say)


def _count(keys: Mapping[str, Spaces]) -> int:
    return sum(len(records) for spaces in keys.values() for records in spaces.values())


def _ready(key: str, dataset: Dataset, spaces: Spaces, needed: int) -> Stored:
    """A workload's records, if there are enough of them and it can be made again."""
    for name, records in spaces.items():
        count = len({record.candidate for record in records})
        if count < needed:
            raise ReplayError(f"{count} candidates of the {name} space, {needed} are needed")
        if not any(record.valid for record in records):
            raise ReplayError(f"no valid record of the {name} space")
    try:
        workload = Workload.from_json(dataset.definitions.get(key, {"key": key}))
    except ValueError as error:
        raise ReplayError(str(error)) from None
    return Stored(workload, next(iter(spaces.values()))[0].target, spaces)


def _checked(
    ready: list[Stored], problems: list[str], asked: Mapping[str, Workload], say: Say
) -> list[Stored]:
    """What can be played back; said, or an error, what can't."""
    there = {stored.workload.identity for stored in ready}
    missing = [workload.key for identity, workload in asked.items() if identity not in there]
    named = problems[:_MOST_NAMED]
    if len(problems) > _MOST_NAMED:
        named.append(f"and {len(problems) - _MOST_NAMED} more")
    if missing or not ready:
        what = ", ".join(missing) if missing else "any workload"
        why = "; ".join(named) or "it holds no records of it"
        raise ReplayError(
            f"the dataset has too little to play back {what} ({why}); "
            "take fewer --trials, or collect more"
        )
    for problem in named:
        say(f"left out: {problem}")
    return ready


def _play(
    stored: Stored, entrants: Sequence[Entrant], seeds: Sequence[int], trials: int
) -> list[dict[str, Any]]:
    """All runs on one workload, and the best stored candidate as often as there are seeds."""
    target = Target(json.loads(stored.target))  # never run here, so it may be another machine's
    spaces = {name: make_space(name, stored.workload, target) for name in stored.spaces}
    cells = [
        _run(stored, spaces[entrant.space], entrant, entrant.trials or trials, seed)
        for seed in seeds
        for entrant in entrants
        if seed in entrant.seeds_of(seeds)
    ]
    key, best_s = stored.workload.key, stored.best_s
    cells += [{"workload": key, "label": STORED, "seed": seed, "best_s": best_s} for seed in seeds]
    return cells


def _run(
    stored: Stored, space: NamedSpace, entrant: Entrant, trials: int, seed: int
) -> dict[str, Any]:
    """One run, as `compare` would have measured it."""
    records = stored.spaces[entrant.space]
    searched = ReplaySpace(space, records)
    # A scorer is only asked about candidates, and takes the space itself.
    scorer = make_scorer(
        entrant.strategy, entrant.model, space, seed, acquisition=entrant.acquisition
    )
    tuner = Tuner(
        searched,
        find_strategy(entrant.strategy, entrant.policy)(searched, seed),
        ReplayMeasurer(records),
        None,
        Budget(trials),
        scorer=scorer,
        informed=scorer is not None and scorer.informed,
        batch=entrant.batch or _BATCH,
        seed=seed,
    )
    latencies = [record.latency_s for record in tuner.run() if record.failure != "invalid"]
    failures = {kind: n for kind, n in tuner.status.failures.items() if n}
    outcome = Outcome(None, latencies, [None] * len(latencies), failures, tuner.status.seconds)
    best_s = min(latencies, default=float("inf"))
    cell = {
        "workload": stored.workload.key,
        "label": entrant.label,
        "seed": seed,
        "best_s": best_s,
        "trials": len(latencies),
        "failures": failures,
        "seconds": dict(outcome.seconds),
        "curve": outcome.curve(),
    }
    return cell if best_s < float("inf") else {**cell, "error": "no valid candidate was found"}


def _absent(stored: Stored, peer: Entrant) -> dict[str, Any]:
    why = "it proposes what no record holds, so it can't be played back"
    cell = {"workload": stored.workload.key, "label": peer.label, "seed": None}
    return {**cell, "trials": 0, "error": why}
