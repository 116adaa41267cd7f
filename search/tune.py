"""`tensortune.tune`: from a workload to a checked kernel."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from tvm.s_tir import Schedule

from ..costmodel.acquisition import make_acquisition
from ..costmodel.base import ModelFileError
from ..costmodel.files import load_model, make_model
from ..data.candidate import InvalidCandidate
from ..data.finals import make_reference
from ..data.kernel import Kernel
from ..data.measure import UNTUNED, LocalMeasurer
from ..data.record import Record
from ..data.space import Scheduled, Space
from ..data.spaces import NamedSpace, check_space, make_space
from ..data.store import Problem
from ..data.target import cpu_target, target_string
from ..data.workload import Workload
from .progress import TuneProgress
from .results import save_results
from .run_folder import Held, RunFolder
from .scoring import Scorer
from .strategies import default_space, find_strategy
from .tuner import Budget, OnStatus, Status, Tuner
from .winner import Winner, choose_winner

MODELS = ("pretrained", "xgb", "none")
"""The cost models that have a name: the package's trained one, one that knows nothing, none."""


@dataclass(frozen=True)
class TuneResult:
    """What tuning found.

    Attributes:
        workload: What was tuned.
        target: For which target.
        best: The winner: its candidate and its times.
        records: Every trial, stored ones of a resumed run included.
        failures: Failures by kind, `invalid` candidates (which cost no trial) included.
        wall_s: Seconds of wall-clock in this process.
        seconds: The same by part: `setup`, `compile`, `time`, `model`, `search`.
        tunable: Whether there was anything to tune.
        problems: Lines of a resumed run's records that could not be read.
    """

    workload: Workload
    target: Any
    best: Winner
    records: list[Record]
    failures: Counter[str]
    wall_s: float
    seconds: dict[str, float]
    tunable: bool
    problems: list[Problem]
    space: Space

    @property
    def trials(self) -> int:
        """How many candidates were measured, failures included."""
        return len(self.records)

    def schedule(self) -> Scheduled:
        """The winner's scheduled module and its trace (an empty one for the untuned program)."""
        if self.best.candidate == UNTUNED:
            return untuned(self.workload)
        return self.space.schedule(self.best.candidate)

    def compile(self) -> Kernel:
        """The winner as a callable on NumPy arrays."""
        return Kernel(self.workload, self.schedule().mod, self.target)

    def save(self, folder: str | os.PathLike[str]) -> list[str]:
        """Write the results into a folder (see `results.save_results`).

        Returns:
            Notes on what could not be written, and why.
        """
        return save_results(self, Path(folder))

    def summary(self) -> dict[str, Any]:
        """The figures of `tensortune tune --json`."""
        best = self.best
        return {
            "workload": self.workload.key,
            "trials": self.trials,
            "failures": dict(self.failures),
            "untuned_s": best.untuned_s,
            "best_s": best.latency_s,
            "reference_s": best.numpy_s,
            "checked": best.checked,
            "checked_against": best.checked_against,
            "wall_s": self.wall_s,
            "seconds": self.seconds,
        }


def untuned(workload: Workload) -> Scheduled:
    """The workload's own program as if it were a candidate's."""
    return Scheduled(UNTUNED, workload.mod, Schedule(workload.mod).trace)


def tune(
    workload: Workload,
    *,
    trials: int = 64,
    seconds: float | None = None,
    strategy: str = "annealing",
    model: str = "pretrained",
    acquisition: str = "mean",
    space: str | None = None,
    policy: str | os.PathLike[str] | None = None,
    target: Any = None,
    seed: int = 0,
    batch: int = 16,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    quiet: bool = False,
    on_status: OnStatus | None = None,
) -> TuneResult:
    """Tune a workload on this machine's CPU.

    Args:
        workload: What to tune, e.g. `tensortune.matmul(512, 512, 512)`.
        trials: Candidates to measure at most.
        seconds: Seconds of search at most; the last batch is finished, and the final timing and
            check (a few seconds) come on top.
        strategy: Name of the search strategy: `annealing`, `beam`, `evolution`, `random`; `rl` or
            `rl+learning`, `rl+annealing`, which follow a trained policy and need the extra `rl`; or
            `package.module:Name` for one of your own.
        model: The cost model that guides it: `pretrained`, which has seen other workloads on a
            machine like this one; `xgb`, which learns from this run alone; the path of a saved
            model, `package.module:Name` for one of your own, or `none`. `random` takes no
            guidance.
        acquisition: What a candidate is worth: its expected speed (`mean`), or with how unsure the
            model is taken in, `ei` or `ucb` (see `costmodel.acquisition`).
        space: `sketch`, the space that MetaSchedule generates, or `loop`, free transformations of
            one loop nest. By default `loop` for the strategies that follow a policy, else `sketch`.
        policy: The file of a policy of your own for these strategies; by default they follow the
            one that comes with the package.
        target: A TVM target, its string, or None for this machine.
        seed: One seed and the same measurements give the same proposals.
        batch: Trials between two calls of the strategy.
        out: Folder for records and results; None keeps the records in memory.
        resume: Go on with the run that `out` holds.
        quiet: Show no progress.
        on_status: Called after every trial, in the place of the progress that is shown.

    Returns:
        The winner, whose output was checked, and every record.

    Raises:
        ValueError: bad arguments, a target this machine can't run, a folder of another run.
        StoreError: the folder can't be written; what was measured before is kept.
        KeyboardInterrupt: interrupted; what was measured is kept, and `resume` goes on.
        RuntimeError: the workload's own, untuned program does not compile or run.
    """
    began = time.monotonic()
    budget = Budget(trials, seconds)
    made_strategy = find_strategy(strategy, policy)
    check_model(model)
    check_acquisition(acquisition)
    space = space or default_space(strategy)
    check_space(space)
    if resume and out is None:
        raise ValueError("there is nothing to resume without a folder; name the run's with `out`")
    tvm_target = cpu_target(target)
    settings = {
        "strategy": strategy,
        "model": model,
        "acquisition": acquisition,
        "space": space,
        "seed": seed,
        "batch": batch,
        **({} if policy is None else {"policy": os.fspath(policy)}),
    }
    with ExitStack() as stack:
        folder = None if out is None else stack.enter_context(RunFolder(out))
        held = (
            Held()
            if folder is None
            else folder.begin(workload, target_string(tvm_target), settings, resume)
        )
        if on_status is None:
            progress = TuneProgress(workload.key, workload.flops, Console(quiet=quiet))
            on_status = stack.enter_context(progress).update
        measurer = stack.enter_context(LocalMeasurer(workload, tvm_target))
        # Only measuring has to wait for the untuned program, which takes a second or more: the
        # models are loaded and the first batch is proposed meanwhile.
        side = ThreadPoolExecutor(1)
        stack.callback(side.shutdown, wait=False)
        reference = side.submit(make_reference, measurer)
        searched = make_space(space, workload, tvm_target)
        scorer = make_scorer(strategy, model, searched, seed, acquisition)
        stored = [record for record in held.records if _replays(searched, record)]
        measurer.best_s = min((r.latency_s for r in stored), default=float("inf"))
        setup_s = time.monotonic() - began

        def wait() -> None:
            nonlocal setup_s
            start = time.monotonic()
            reference.result()
            setup_s += time.monotonic() - start

        tuner = Tuner(
            searched,
            made_strategy(searched, seed),
            measurer,
            None if folder is None else folder.store,
            budget,
            scorer=scorer,
            informed=scorer is not None and scorer.informed,
            batch=batch,
            seed=seed,
            stored=stored,
            spent_s=held.spent_s,
            on_status=_saving(folder, on_status),
            ready=wait,
        )
        records = tuner.run()
        finals = time.monotonic()
        best = choose_winner(measurer, searched, reference.result(), records)
        if folder is not None and best.wrong:
            folder.store.append(best.wrong)
        measurer.seconds["time"] += time.monotonic() - finals
    wrong = {record.candidate: record for record in best.wrong}
    tuner.status.failures.update(record.failure or "" for record in best.wrong)
    return TuneResult(
        workload=workload,
        target=tvm_target,
        best=best,
        records=[wrong.get(record.candidate, record) for record in records],
        failures=tuner.status.failures,
        wall_s=time.monotonic() - began,
        seconds={"setup": setup_s, **measurer.seconds, **tuner.status.seconds},
        tunable=searched.size > 1,
        problems=held.problems,
        space=searched,
    )


def check_model(name: str) -> None:
    """Check the name of a cost model.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in MODELS:  # those need no check, and XGBoost would take a second to load here
        load_prior(name)


def check_acquisition(name: str) -> None:
    """Check the name of an acquisition.

    Raises:
        ValueError: there is none of that name.
    """
    make_acquisition(name)


def load_prior(name: str, seed: int = 0) -> Any:
    """A cost model that a run is named after: a saved one, or one of the user's own.

    Raises:
        ValueError: there is none of that name.
    """
    if not Path(name).is_file():
        if ":" not in name:
            raise ValueError(
                f"there is no model `{name}`, and no file of that name; the models are "
                f"{', '.join(MODELS)}, package.module:Name, and paths of saved models"
            )
        return make_model(name, seed)
    loaded = load_model(name)
    if loaded.kind == "validity":
        raise ModelFileError(f"{name} holds a model of validity, which does not rank programs")
    return loaded


def make_scorer(
    strategy: str, model: str, space: NamedSpace, seed: int, acquisition: str = "mean"
) -> Scorer | None:
    """What scores the strategy's candidates, or None; arguments as those of `tune`."""
    if model == "none" or strategy == "random":
        return None
    # XGBoost takes a second to load.
    learned = import_module(".learned_scorer", __package__)
    known: dict[str, Any] = {}
    if model != "xgb":
        found = import_module("..costmodel.pretrained", __package__).named(model)
        if found is not None:
            known = {"prior": found.verify, "draft_prior": found.draft}
        else:
            prior = load_prior(model, seed)
            schema = getattr(prior, "schema", None)
            of_decisions = schema is not None and schema.name == "general"
            known = {"draft_prior" if of_decisions else "model": prior}
    scorer: Scorer = learned.LearnedScorer(
        space,
        space.workload.identity,
        space.target,
        acquisition=acquisition,
        seed=seed,
        **known,
    )
    return scorer


def _replays(space: Space, record: Record) -> bool:
    """Whether a stored record is of this space as it is now (another TVM may make another)."""
    try:
        return space.schedule(record.candidate).candidate == record.candidate
    except InvalidCandidate:
        return False


def _saving(folder: RunFolder | None, on_status: OnStatus | None) -> OnStatus:
    def note(status: Status) -> None:
        if folder is not None:
            folder.save_progress(status.elapsed_s)
        if on_status is not None:
            on_status(status)

    return note
