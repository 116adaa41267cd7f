"""`tensortune collect`: measured records of many workloads, to train models on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from ..data.candidate import Candidate, InvalidCandidate
from ..data.measure import UNTUNED, LocalMeasurer
from ..data.record import Record
from ..data.space import Space
from ..data.spaces import make_space
from ..data.suites import suite
from ..data.target import cpu_target, target_string
from ..data.workload import Workload, WorkloadError
from .annealing import SimulatedAnnealing
from .base import Strategy, Trial
from .collect_folder import CollectFolder
from .collect_plan import AGAIN, CollectSettings, Plan, Stream, second_sample, session_seed
from .collect_session import Collected, OnProgress, Session
from .evolution import Evolution
from .learned_scorer import LearnedScorer
from .random_search import RandomSearch
from .tuner import Budget, Tuner

# Either guides, by chance: what one of them overlooks the other may find.
_GUIDED: tuple[Callable[[Space, int], Strategy], ...] = (SimulatedAnnealing, Evolution)
# Trials between two fits of the models.
_BATCH = 16
# A workload whose untuned program takes longer, in seconds, is left out: its slow candidates would
# take up the time of hundreds of others.
_SLOWEST_S = 5.0


def collect(
    settings: CollectSettings,
    samples: int,
    out: str | os.PathLike[str],
    *,
    hours: float | None = None,
    target: Any = None,
    on_progress: OnProgress | None = None,
) -> Collected:
    """Measure candidates of every workload of a suite, or go on with what a folder holds.

    Workloads have short turns, round after round, so that a collection that is stopped early is
    balanced too. In its turn a workload gets random candidates, and candidates that models guide
    which have learnt from all of its records so far.

    Args:
        settings: What to collect. A folder that holds a collection of others is refused.
        samples: Records that the folder is to hold in the end. More than before goes on.
        out: The folder; one store for each workload.
        hours: When to stop, in hours; what is being measured then is finished.
        target: A TVM target, its string, or None for this machine.
        on_progress: Called after every record, and when a turn begins and ends.

    Returns:
        What this session came to. A workload that fails is named there and ends nothing.

    Raises:
        ValueError: bad arguments, no such suite, a folder that holds something else or that
            another process is collecting into.
        StoreError: the folder can't be written; what was measured before is kept.
        KeyboardInterrupt: interrupted; what was measured is kept.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    workloads = suite(settings.suite)
    tvm_target = cpu_target(target)
    with CollectFolder(out) as folder:
        folder.begin(settings, target_string(tvm_target))
        plan = Plan.of(workloads, settings, samples)
        for workload in plan.workloads:
            plan.count(folder.records(workload.key))
        session = Session(folder, tvm_target, samples, plan.held, hours, on_progress)
        try:
            for number, level, workload in plan.turns():
                if session.late:
                    break
                session.begin_turn(workload, number)
                work = partial(_Turn.collect, plan=plan, settings=settings, level=level)
                if not _try(session, workload, work):
                    plan.give_up(workload, folder.records(workload.key))
                session.end_turn()
        finally:
            session.save()
        return session.collected()


def measure_again(
    out: str | os.PathLike[str],
    share: float,
    *,
    hours: float | None = None,
    target: Any = None,
    on_progress: OnProgress | None = None,
) -> Collected:
    """Measure a random share of a collection's timed candidates a second time.

    On another occasion, that is: how far the two agree is how far any model of them can get. The
    new records carry the strategy `again`. Interrupted, it goes on where it was.

    Args:
        out: The folder of the collection.
        share: Which share, from 0 to 1.
        hours: When to stop, in hours; looked at between workloads.
        target: As it was for the collection.
        on_progress: Called after every record, and when a turn begins and ends.

    Raises:
        ValueError: bad arguments, a folder without a collection, or of another machine.
        StoreError: the folder can't be written; what was measured before is kept.
        KeyboardInterrupt: interrupted; what was measured is kept.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share to measure again is above 0 and at most 1, not {share}")
    tvm_target = cpu_target(target)
    with CollectFolder(out, make=False) as folder:
        settings = folder.resume(target_string(tvm_target))
        chosen: dict[Workload, list[Candidate]] = {}
        for workload in suite(settings.suite):
            found = second_sample(folder.records(workload.key), share, settings.seed)
            if found:
                chosen[workload] = found
        wanted = sum(map(len, chosen.values()))
        session = Session(folder, tvm_target, wanted, 0, hours, on_progress)
        try:
            for workload, candidates in chosen.items():
                if session.late:
                    break
                session.begin_turn(workload, 1)
                again = partial(_Turn.measure, candidates=candidates, seed=settings.seed)
                _try(session, workload, again)
                session.end_turn()
        finally:
            session.save()
        return session.collected()


def _try(session: Session, workload: Workload, work: Callable[[_Turn], None]) -> bool:
    """Do a workload's turn; a failure is noted, for the others are to have theirs."""
    session.folder.forget_failed(workload.key)
    try:
        with ExitStack() as stack:
            work(_Turn(session, workload, stack))
    except OSError:  # the folder can't be written: no other workload will fare better
        raise
    # A program of the suite can make anything fail: TVM, the models, the workers.
    except Exception as error:
        session.folder.note_failed(workload.key, f"{type(error).__name__}: {error}")
        return False
    return True


class _Turn:
    """A workload's turn: its measurer, its spaces, its records."""

    def __init__(self, session: Session, workload: Workload, stack: ExitStack) -> None:
        self.session = session
        self.workload = workload
        self.store = session.store(workload)
        self.records = session.folder.records(workload.key)
        # Its workers start in the background, while the space is made.
        self.measurer = stack.enter_context(LocalMeasurer(workload, session.target))
        stack.callback(self._count_seconds)
        self._ready = False

    def collect(self, plan: Plan, settings: CollectSettings, level: int) -> None:
        """Bring the workload's streams to a level."""
        for stream in plan.of_workload(self.workload):
            if stream.goal(level) > stream.held and not self.session.late:
                self._collect_stream(plan, settings, stream, level)

    def measure(self, candidates: Sequence[Candidate], seed: int) -> None:
        """Measure candidates a second time."""

        def keep(record: Record) -> None:
            # The next one is not cut short either: the question is how well a timing repeats.
            self.measurer.best_s = float("inf")
            if record.failure == "invalid":
                self._note_failed(record.candidate.space, f"no longer legal: {record.detail}")
            else:
                self.store.append([replace(record, seed=seed, strategy=AGAIN)])

        by_space = sorted(candidates, key=lambda candidate: candidate.space)
        for name, group in groupby(by_space, key=lambda candidate: candidate.space):
            space = self._space(name)
            self._get_ready()
            self.measurer.best_s = float("inf")
            self.measurer.measure(space, list(group), keep)

    def _collect_stream(
        self, plan: Plan, settings: CollectSettings, stream: Stream, level: int
    ) -> None:
        try:
            space = self._space(stream.space)
        except WorkloadError as error:  # not every program has a nest to transform
            self._note_failed(stream.space, str(error))
            stream.cap = stream.held
            return
        self._get_ready()
        stream.cap = min(stream.cap, space.size)
        known = self._known(space)
        random, guided = stream.wanted(level, plan.guided_share, plan.samples - plan.held)
        seed = session_seed(settings, stream)
        found = self._run(space, RandomSearch(space, seed), seed, random, known)
        stream.random += len(found)
        exhausted = len(found) < random
        if not exhausted:
            guide = _GUIDED[seed % len(_GUIDED)](space, seed)
            known += found
            found = self._run(space, guide, seed, guided, known)
            stream.guided += len(found)
            exhausted = len(found) < guided
        if exhausted and not self.session.late:
            stream.cap = stream.held

    def _run(
        self, space: Space, strategy: Strategy, seed: int, count: int, known: Sequence[Trial]
    ) -> list[Trial]:
        """A short tuning run, by one who knows all that was measured before."""
        left_s = self.session.left_s
        if not count or (left_s is not None and left_s <= 0):
            return []
        scorer = None
        if not isinstance(strategy, RandomSearch):
            scorer = LearnedScorer(space, self.workload.identity, self.session.target, seed=seed)
        tuner = Tuner(
            space,
            strategy,
            self.measurer,
            self.store,
            Budget(count, left_s),
            scorer=scorer,
            batch=_BATCH,
            seed=seed,
        )
        if known:
            tuner.proposer.tell(known)
        found = [Trial(record.candidate, record) for record in tuner.run()]
        for part, seconds in tuner.status.seconds.items():
            self.session.spend(part, seconds)
        return found

    def _space(self, name: str) -> Space:
        with self.session.timed("setup"):
            return make_space(name, self.workload, self.session.target)

    def _known(self, space: Space) -> list[Trial]:
        """The stored trials of a space, as far as it still makes them."""
        known: dict[Candidate, Trial] = {}
        with self.session.timed("search"):
            for record in self.records:
                if record.candidate.space == space.name and record.strategy != AGAIN:
                    try:
                        made = space.schedule(record.candidate).candidate
                    except InvalidCandidate:
                        continue
                    if made == record.candidate:
                        known.setdefault(made, Trial(made, record))
        return list(known.values())

    def _get_ready(self) -> None:
        """Set the measurer's limits, from the untuned program's time and the best so far."""
        if self._ready:
            return
        with self.session.timed("setup"):
            untuned_s = self._untuned_s()
        self.measurer.seconds.update(compile=0.0, time=0.0)
        if untuned_s > _SLOWEST_S:
            raise RuntimeError(
                f"the untuned program takes {untuned_s:.1f} s, and {_SLOWEST_S:.0f} s is the most"
            )
        self.measurer.limit_runs(untuned_s)
        self.measurer.best_s = min([untuned_s, *(record.latency_s for record in self.records)])
        self._ready = True

    def _untuned_s(self) -> float:
        """How long the untuned program takes, from the folder or measured."""
        folder, key = self.session.folder, self.workload.key
        known_s = folder.untuned_s(key)
        if known_s is not None:
            return known_s
        (record,) = self.measurer.measure_modules([(UNTUNED, self.workload.mod)])
        if not record.valid:
            raise RuntimeError(f"the untuned program does not run: {record.detail}")
        folder.note_untuned(key, record.latency_s)
        return record.latency_s

    def _note_failed(self, space: str, why: str) -> None:
        self.session.folder.note_failed(f"{self.workload.key}, {space} space", why)

    def _count_seconds(self) -> None:
        for part, seconds in self.measurer.seconds.items():
            self.session.spend(part, seconds)
