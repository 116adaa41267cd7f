"""A comparison's figures as a report takes them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..data.workload import Workload, WorkloadError
from .compare import Entrant
from .peers.autotvm import OLD_TVM
from .peers.run import PEERS
from .report_curves import Curve, final

RESULT = "compare.json"
PEAK = "machine's peak"
"""What the machine can do, as far as arithmetic goes, as a reference."""

STORED = "best-stored"
"""The reference of a comparison that was played back: the fastest stored candidate."""

# Baselines by which an operator's table gives ratios, at most.
_MOST_BASELINES = 3


class ReportError(ValueError):
    """There is nothing to report on; the message says what to do."""


@dataclass(frozen=True)
class Work:
    """What one run of a workload takes.

    Attributes:
        flops: Arithmetic operations; 0 where that is not known.
        bytes: Bytes of all arguments.
        dtype: Element type of the inputs.
    """

    flops: float
    bytes: float
    dtype: str


@dataclass(frozen=True)
class Comparison:
    """What `compare` found, and what each workload computes.

    Attributes:
        result: The contents of `compare.json`.
        work: What a run takes, by workload; those that are not known are missing.
    """

    result: Mapping[str, Any]
    work: Mapping[str, Work]

    @cached_property
    def flops(self) -> dict[str, float]:
        """Arithmetic operations of one run, by workload; those that are not known are missing."""
        return {key: work.flops for key, work in self.work.items() if work.flops > 0}

    @property
    def settings(self) -> Mapping[str, Any]:
        """Budget, seeds, target, host and entrants."""
        found: Mapping[str, Any] = self.result.get("settings", {})
        return found

    @property
    def workloads(self) -> Mapping[str, Mapping[str, Any]]:
        """By workload and label, what the runs came to."""
        found: Mapping[str, Mapping[str, Any]] = self.result["workloads"]
        return found

    @cached_property
    def labels(self) -> list[str]:
        """The entrants, in the order in which they were named."""
        return list(self.result["strategies"])

    @cached_property
    def references(self) -> list[str]:
        """What has a latency and is no entrant: the untuned program, NumPy, ..."""
        found = [label for by_label in self.workloads.values() for label in by_label]
        return [label for label in dict.fromkeys(found) if label not in self.labels]

    @cached_property
    def entrants(self) -> dict[str, Mapping[str, Any]]:
        """The entrants' settings by label."""
        return {entrant["label"]: entrant for entrant in self.settings.get("entrants", [])}

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds of the comparison."""
        found = self.settings.get("seeds", [])
        return list(range(found)) if isinstance(found, int) else list(found)

    @property
    def peak(self) -> Mapping[str, float]:
        """What the machine can do, see `data.peak.Peak`; empty where it was not measured."""
        found: Mapping[str, float] | None = self.result.get("peak")
        return found or {}

    def peak_flops(self, key: str) -> float | None:
        """What the machine can do for a workload, in FLOP/s, where that was measured: float32."""
        work = self.work.get(key)
        single = work is not None and work.flops > 0 and work.dtype == "float32"
        return self.peak.get("flops") if single else None

    @cached_property
    def told(self) -> dict[str, dict[str, set[str]]]:
        """What each entrant tells of itself, by label and name: versions, templates, ..."""
        found: dict[str, dict[str, set[str]]] = {}
        for by_label in self.workloads.values():
            for label in self.labels:
                for name, value in by_label.get(label, {}).get("about", {}).items():
                    found.setdefault(label, {}).setdefault(name, set()).add(value)
        return found

    @cached_property
    def peers(self) -> list[str]:
        """The entrants that are other people's tuners."""
        strategies = {label: self.entrants.get(label, {}).get("strategy") for label in self.labels}
        return [label for label in self.labels if (strategies[label] or label) in PEERS]

    @cached_property
    def baselines(self) -> list[str]:
        """What each operator's table gives ratios to: peers, or else random search, or else..."""
        ratios = [figures["geomean_speed_vs"] for figures in self.result["strategies"].values()]
        peers = [peer for peer in self.peers if any(peer in found for found in ratios)]
        others = [
            label for label in ("random", STORED) if label in (*self.labels, *self.references)
        ]
        return (peers or others or self.references)[:_MOST_BASELINES]

    @property
    def replayed(self) -> str | None:
        """The dataset that was played back, where nothing was measured."""
        return self.settings.get("replay")

    def curves(self, key: str, label: str) -> list[Curve]:
        """The runs' curves of an entrant on a workload."""
        found: list[Curve] = self.workloads[key].get(label, {}).get("curves", [])
        return found

    @cached_property
    def best_s(self) -> dict[str, float]:
        """The best of each workload: what any run found, by its own timing, or what is stored."""
        found = {}
        for key, by_label in self.workloads.items():
            ends = [final(curve) for label in self.labels for curve in self.curves(key, label)]
            if self.replayed and STORED in by_label:
                ends.append(by_label[STORED]["best_s"])
            found[key] = min(ends, default=float("inf"))
        return {key: best for key, best in found.items() if best < float("inf")}

    @property
    def command(self) -> str:
        """The command that makes the same comparison."""
        if "command" in self.settings:
            return str(self.settings["command"])
        entrants = ",".join(entrant_text(entrant) for entrant in self.entrants.values())
        words = ["tensortune", "compare", *self.workloads]
        words += ["--strategies", entrants or ",".join(self.labels)]
        options = {
            "trials": self.settings.get("trials"),
            "seeds": seeds_text(self.seeds),
            "target": self.settings.get("asked_target"),
            "replay": self.replayed,
        }
        if any(entrant["strategy"] in OLD_TVM for entrant in self.entrants.values()):
            options["autotvm-python"] = "PATH"
        for name, value in options.items():
            words += [f"--{name}", str(value)] if value else []
        return shlex.join(words)


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds as `--seeds` takes them."""
    if list(seeds) == list(range(len(seeds))):
        return str(len(seeds) or "")
    return ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")


def entrant_text(entrant: Mapping[str, Any]) -> str:
    """An entrant as `--strategies` takes it."""
    strategy, label = entrant["strategy"], entrant["label"]
    text = strategy if label == strategy.rpartition(":")[2] else f"{label}={strategy}"
    defaults = asdict(Entrant(label, strategy))
    for name, value in entrant.items():
        ours = name in ("trials", "batch", "seeds") or strategy not in PEERS
        if value is not None and ours and value != defaults.get(name):
            text += f":{name}={value}"
    return text


def read_comparison(source: Path) -> Comparison:
    """Read the results of a comparison.

    Args:
        source: The folder that `compare` was given, or the file of its `--json`.

    Raises:
        ReportError: there is no finished comparison in it.
    """
    path = source / RESULT if source.is_dir() else source
    if not path.exists():
        if (source / "runs").is_dir():
            raise ReportError(
                f"the comparison in {source} is not finished; run `tensortune compare` with "
                f"--out {source} again, which goes on from there"
            )
        raise ReportError(
            f"{source} holds no comparison; `tensortune compare ... --out {source}` makes one"
        )
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} can't be read: {error}") from None
    if not isinstance(result, dict) or not {"strategies", "workloads"} <= result.keys():
        raise ReportError(f"{path} holds no results of `tensortune compare`")
    return Comparison(result, _work(result["workloads"], path.parent))


def _work(keys: Sequence[str] | Mapping[str, Any], folder: Path) -> dict[str, Work]:
    """What each workload takes: by its key, or else by what a run in the folder was given."""
    definitions: dict[str, Any] = {}
    for path in sorted(folder.glob("runs/*/*/job.json")):
        value = json.loads(path.read_text()).get("workload", {})
        definitions.setdefault(value.get("key", ""), value)
    found = {}
    for key in keys:
        try:
            one = Workload.from_json(definitions.get(key, {"key": key}))
        except WorkloadError:  # another machine's own operator
            continue
        found[key] = Work(one.flops, one.bytes, one.dtype)
    return found
