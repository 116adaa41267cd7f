"""`tensortune rl evaluate`: a policy on shapes that it has not seen, beside its rivals.

All winners of a shape are timed in turn in one run, by one timer, and their outputs are checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...data.finals import judge, make_reference, time_interleaved
from ...data.host import this_host
from ...data.install import versions
from ...data.measure import LocalMeasurer
from ...data.suites import suite
from ...data.target import cpu_target, target_string
from ...data.verify import Reference
from ...data.workload import Workload, WorkloadError, workload
from ..peers.references import missing_references, reference_programs
from ..run_folder import write_json
from .chooser import Choice, Chooser, find_model, load_speed
from .evaluate_figures import MEASURED, geomean, ratios
from .policy import SHIPPED
from .rivals import Found, RandomTrials, fastest, search_beam, search_metaschedule
from .strategy import load_policy

ONE_CORE = {"kind": "llvm", "num-cores": 1}

# Rounds of the interleaved timing, and the least that a program runs in each, as in a comparison.
_ROUNDS = 15
_REPEAT_S = 0.02
# A workload that is chosen for first, so that what is loaded once is no shape's time.
_WARM_UP = ("matmul", 48, 48, 48)

Say = Callable[[str], None]


@dataclass(frozen=True)
class EvaluateSettings:
    """What makes two evaluations the same.

    Attributes:
        measurements: How many candidates the policy, and the beam, may measure. At 0 only what
            they choose without measuring is timed.
        rollouts: Episodes that a model chooses from.
        metaschedule: Trials of MetaSchedule's search; 0 leaves it out.
        random: Random candidates.
        seed: Seed of all draws.
    """

    measurements: int = 0
    rollouts: int = 12
    metaschedule: int = 64
    random: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("rollouts", 1), ("random", 1), ("measurements", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is at least {least}, not {getattr(self, name)}")
        if self.metaschedule < 0:
            raise ValueError(f"MetaSchedule has 0 trials or more, not {self.metaschedule}")


def held_out_shapes(n: int = 25) -> list[Workload]:
    """`n` of the products that LoopTune's test split has, spread evenly over it.

    Raises:
        ValueError: there are not so many.
    """
    found = suite("looptune-test")
    if not 1 <= n <= len(found):
        raise ValueError(f"there are 1 to {len(found)} shapes, not {n}")
    return [found[i * len(found) // n] for i in range(n)]


def evaluate(
    workloads: Sequence[Workload],
    settings: EvaluateSettings | None = None,
    *,
    policy: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    target: Any = None,
    out: Path | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Compare a policy with the untuned program, NumPy, MetaSchedule, random draws and a beam.

    Args:
        workloads: The shapes.
        settings: How much everyone may spend.
        policy: The policy's file; None for the one that comes with this package.
        model: What ranks its rollouts: see `chooser.find_model`.
        target: The target; by default this machine with one core.
        out: Folder; the shapes that are finished in it are not done again. None keeps nothing.
        say: Called with a line of progress now and then.

    Returns:
        `shapes` (by shape `speed_vs_...`, `seconds_per_shape`, and what these come from),
        `geomean` (the same over all shapes, each with `<name>_ci95`), `geomean_unmeasured` where
        something was measured, `left_out`, and the settings.

    Raises:
        ValueError: a folder of another evaluation, or bad settings.
        PolicyFileError, ModelFileError: the policy or the model can't be used.
        RuntimeError: an untuned program does not run.
    """
    settings = settings or EvaluateSettings()
    chosen = cpu_target(ONE_CORE if target is None else target)
    path = find_model(model, policy)
    chooser = Chooser(
        load_policy(policy),
        chosen,
        speed=None if path is None else load_speed(path, chosen),
        rollouts=settings.rollouts,
        seed=settings.seed,
    )
    told = {
        **asdict(settings),
        "policy": _digest(SHIPPED if policy is None else Path(policy)),
        "model": None if path is None else _digest(path),
        "target": target_string(chosen),
        "host": this_host().key,
    }
    if out is not None:
        _claim(out, told)
    chooser.choose(workload(*_WARM_UP))
    shapes = []
    for number, item in enumerate(dict.fromkeys(workloads), start=1):
        kept = None if out is None else out / "shapes" / f"{_name(item)}.json"
        title = f"[{number}/{len(workloads)}] {item.key}"
        if kept is not None and kept.exists():
            shape = json.loads(kept.read_text())
            say(f"{title}: done before")
        else:
            found = _Shape(item, chooser, settings).evaluate()
            shape = json.loads(json.dumps(found))  # as it is read when it is taken up again
            if kept is not None:
                write_json(kept, shape)
            say(f"{title}: {_line(shape)}")
        shapes.append(shape)
    return _result(shapes, told)


def _result(shapes: list[dict[str, Any]], told: Mapping[str, Any]) -> dict[str, Any]:
    right = [shape for shape in shapes if not shape.get("error")]
    result = {"shapes": shapes, "geomean": geomean(right)}
    if told["measurements"]:
        result["geomean_unmeasured"] = geomean([shape["unmeasured"] for shape in right])
    left_out = [s for s in shapes if s.get("error")]
    result["left_out"] = [{n: s[n] for n in ("workload", "error")} for s in left_out]
    return result | {"settings": dict(told), "versions": versions()}


class _Shape:
    """One shape: the policy's choice, the rivals', and the timing of them all."""

    def __init__(self, item: Workload, chooser: Chooser, settings: EvaluateSettings) -> None:
        self.item = item
        self.chooser = chooser
        self.settings = settings
        self.found: dict[str, Found] = {}
        self.seconds: dict[str, float] = {}

    def evaluate(self) -> dict[str, Any]:
        """Its entry in the result."""
        settings = self.settings
        entry: dict[str, Any] = {"workload": self.item.key, "flops": self.item.flops}
        with LocalMeasurer(self.item, self.chooser.target) as measurer:
            reference = make_reference(measurer)
            try:
                choice = self._choose(measurer)
            except WorkloadError as error:
                return {**entry, "error": f"the policy can't act on it: {error}"}
            self._search_beam(choice, measurer)
            self._draw(choice, measurer)
            if settings.metaschedule:
                found = search_metaschedule(measurer, settings.metaschedule, settings.seed)
                self._note("metaschedule", found)
            latency_s, errors = self._time(measurer, reference)
        entry |= {"latency_s": latency_s, "errors": errors, "seconds": self.seconds}
        entry["candidate"] = choice.candidates[0].to_json()
        entry["missing"] = missing_references(self.item)
        label = "policy" + MEASURED * bool(settings.measurements)
        for own in dict.fromkeys(("policy", label)):
            if own not in latency_s:
                return {**entry, "error": f"the policy's program: {errors[own]}"}
        entry |= ratios(latency_s, self.seconds[label], bool(settings.measurements))
        if settings.measurements:
            entry["unmeasured"] = ratios(latency_s, self.seconds["policy"], False)
        return entry

    def _choose(self, measurer: LocalMeasurer) -> Choice:
        """What the policy chooses, compiled; and the best of a few that are measured."""
        n = self.settings.measurements
        choice = self.chooser.choose(self.item, at_least=max(1, n))
        for part, seconds in choice.seconds.items():
            self.seconds[f"policy: {part}"] = seconds
        program = measurer.program(choice.scheduled.mod)
        (built,) = measurer.builder.build([program], patient=True)
        built.close()
        self.seconds["policy: compile"] = built.compile_s
        chosen_s = sum(choice.seconds.values())
        self._note("policy", Found(choice.scheduled.mod, chosen_s + built.compile_s))
        if n:
            began = time.monotonic()
            records = measurer.measure(choice.space, choice.candidates[:n])
            took = chosen_s + time.monotonic() - began
            self._note("policy" + MEASURED, fastest(choice.space, records, took))
        return choice

    def _search_beam(self, choice: Choice, measurer: LocalMeasurer) -> None:
        space, n = choice.space, self.settings.measurements
        ends, took = search_beam(space, self.chooser.speed, self.settings.seed)
        self._note("beam", Found(space.schedule(ends[0]).mod, took))
        if n:
            began = time.monotonic()
            records = measurer.measure(space, ends[:n])
            took += time.monotonic() - began
            self._note("beam" + MEASURED, fastest(space, records, took))

    def _draw(self, choice: Choice, measurer: LocalMeasurer) -> None:
        """Random candidates: as many as can be measured while the policy works, and all."""
        times = {
            "random" + label.removeprefix("policy"): self.seconds[label]
            for label in ("policy", "policy" + MEASURED)
            if label in self.seconds
        }
        settings = self.settings
        longest = max(times.values())
        trials = RandomTrials(choice.space, measurer, settings.random, longest, settings.seed)
        for label, seconds in times.items():
            self._note(label, trials.best(seconds))
        self._note("random_all", trials.best())

    def _note(self, label: str, found: Found) -> None:
        self.found[label] = found
        self.seconds[label] = found.seconds

    def _time(
        self, measurer: LocalMeasurer, reference: Reference
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Seconds per run of what is right, and what is wrong with the others, by label."""
        errors = {label: found.why for label, found in self.found.items() if found.mod is None}
        mods = {label: one.mod for label, one in self.found.items() if one.mod is not None}
        references = reference_programs(measurer)
        references.pop("torch", None)
        programs = [*(measurer.program(mod) for mod in mods.values()), *references.values()]
        timed = time_interleaved(
            measurer, programs, rounds=_ROUNDS, repeat_s=_REPEAT_S, run=len(mods)
        )
        latency_s: dict[str, float] = {}
        for label, contestant in zip([*mods, *references], timed, strict=True):
            verdict = judge(reference, contestant) if label in mods else None
            if contestant.failure or not contestant.times_s:
                errors[label] = contestant.failure or "it was not timed"
            elif verdict is not None and not verdict.right:
                errors[label] = f"its output is wrong: {verdict.detail}"
            else:
                latency_s[label] = contestant.latency_s
        return latency_s, errors


def _line(shape: Mapping[str, Any]) -> str:
    if shape.get("error"):
        return str(shape["error"])
    rivals = ("untuned", "numpy", "metaschedule", "random", "beam")
    speeds = {rival: shape[f"speed_vs_{rival}"] for rival in rivals}
    said = [f"{value:.2f}x {rival}" for rival, value in speeds.items() if value is not None]
    return f"{', '.join(said)}, chosen in {shape['seconds_per_shape']:.2f} s"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _name(item: Workload) -> str:
    return "".join(c if c.isalnum() or c in "=.-" else "_" for c in item.key).strip("_")


def _claim(out: Path, told: Mapping[str, Any]) -> None:
    """Make the folder this evaluation's.

    Raises:
        ValueError: it is another's.
    """
    path = out / "settings.json"
    if path.exists():
        held = json.loads(path.read_text())
        for name, value in told.items():
            if held.get(name) != value:
                raise ValueError(
                    f"{out} holds an evaluation with {name} {held.get(name)}, not {value}; choose "
                    "another --out"
                )
    write_json(path, told)
