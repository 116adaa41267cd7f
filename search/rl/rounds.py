"""The programs that the model which pays learns from: chosen and measured, round after round.

A model knows what it has seen. Were it fitted once, to random programs, a policy would soon be
where it is wrong; so what the policy makes is measured, the model fitted again, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import tvm

from ...data.candidate import Candidate
from ...data.loop_space import LoopSpace
from ...data.loops.nest import Loop, Nest, canonical, round_up
from ...data.loops.points import to_point
from ...data.measure import LocalMeasurer
from ...data.record import Record
from ...data.store import Store
from ...data.workload import Workload
from .config import Rounds
from .cursor_env import finish
from .policy import Policy
from .speed import Speed
from .tuning_env import Spaces, TuningEnv

OnRecord = Callable[[int, int], None]
"""Called with how many programs of the round are measured, and of how many."""

# Episodes of the policy that a workload's programs are chosen from.
_ROLLOUTS = 64

PREFERRED, POLICY, RANDOM = "preferred", "policy", "random"
"""What the records' `strategy` says: who proposed them."""


class Programs:
    """Measured programs of some of a training's workloads.

    Args:
        settings: How many programs, and of how many workloads.
        spaces: The spaces of the workloads.
        store: Where records are kept.
        seed: Seed of what is drawn.
    """

    def __init__(
        self, settings: Rounds, spaces: Spaces[LoopSpace], store: Store, seed: int
    ) -> None:
        self.settings = settings
        self.spaces = spaces
        self.store = store
        self.seed = seed
        rng = np.random.default_rng([seed, 1])
        count = min(settings.shapes, len(spaces.workloads))
        chosen = rng.choice(len(spaces.workloads), count, replace=False)
        self.workloads = [spaces.workloads[int(at)] for at in chosen]
        self._preferred: dict[str, Candidate] = {}
        known = {workload.key for workload in self.workloads}
        # Kept as they were measured: a run that is resumed has them in another order at most.
        self.records = [record for record in store.read().records if record.workload in known]

    def measure(
        self,
        number: int,
        policy: Policy,
        speed: Speed | None,
        env: TuningEnv[Any],
        on_record: OnRecord,
    ) -> int:
        """Measure a round's programs, but for those that are measured already.

        Args:
            number: The round, from 0 on.
            policy: Proposes most of them, but in the first round.
            speed: The model that the policy was trained by; None in the first round.
            env: The environment that random episodes are made in.
            on_record: Told how far it is.

        Returns:
            How many were measured now.
        """
        plan = self._plan(number, policy, speed, env)
        total = sum(map(len, plan.values()))
        there = {(r.workload, r.candidate) for r in self.records if r.batch == number}
        missing = {
            workload: {c: who for c, who in wanted.items() if (workload.key, c) not in there}
            for workload, wanted in plan.items()
        }
        left = sum(map(len, missing.values()))
        done = total - left

        def keep(record: Record) -> None:
            nonlocal done
            done += 1
            self.store.append([record])
            self.records.append(record)
            on_record(done, total)

        on_record(done, total)
        wanted = [workload for workload, candidates in missing.items() if candidates]
        with _measurers(wanted, self.spaces.target) as measurers:
            for measurer in measurers:
                who = missing[measurer.workload]
                space = self.spaces.of(measurer.workload)
                noted = _noting(keep, who, number, self.seed)
                measurer.measure(space, list(who), noted)
        return left

    def _plan(
        self, number: int, policy: Policy, speed: Speed | None, env: TuningEnv[Any]
    ) -> dict[Workload, dict[Candidate, str]]:
        """What to measure in a round, with who proposed it."""
        settings = self.settings
        count = settings.programs if number else settings.first_programs
        share = settings.random if number else 1.0
        plan: dict[Workload, dict[Candidate, str]] = {}
        for place, workload in enumerate(self.workloads):
            rng = np.random.default_rng([self.seed, 2, number, place])
            space = self.spaces.of(workload)
            known = {
                record.candidate
                for record in self.records
                if record.workload == workload.key and record.batch < number
            }
            random = round(share * count)
            chosen: dict[Candidate, str] = {}
            if speed is not None and random < count:
                proposed = policy.rollouts(space, _ROLLOUTS, rng)
                self._preferred[workload.key] = proposed[0]
                new = [candidate for candidate in proposed if candidate not in known]
                # Where the model is too hopeful shows in what it ranks first.
                first = np.argsort(-speed([(space, candidate) for candidate in new]), kind="stable")
                ranked = [new[at] for at in first.tolist()]
                for candidate in [*ranked[: (count - random + 1) // 2], *new]:
                    if len(chosen) < count - random:
                        chosen.setdefault(candidate, POLICY)
            for candidate in _random_nests(space, env, 2 * count, rng):
                if candidate not in known and len(chosen) < count:
                    chosen.setdefault(candidate, RANDOM)
            plan[workload] = chosen
        return plan

    def of(self, number: int) -> list[Record]:
        """The records of a round."""
        return [record for record in self.records if record.batch == number]

    def until(self, number: int) -> list[Record]:
        """The records of the rounds up to one."""
        return [record for record in self.records if record.batch <= number]

    def fared(self, number: int) -> dict[str, float]:
        """How a round's programs fared: speeds over the fastest that was measured until then.

        Returns:
            Geometric means over the workloads: of the fastest program that the policy proposed, of
            the fastest drawn one, and of the one that the policy preferred to all others.
        """
        found: dict[str, list[float]] = {PREFERRED: [], POLICY: [], RANDOM: []}
        for workload in self.workloads:
            own = [r for r in self.records if r.workload == workload.key and r.batch <= number]
            fastest = min((r.latency_s for r in own), default=math.inf)
            if math.isinf(fastest):
                continue
            preferred = self._preferred.get(workload.key)
            times = {
                who: [r.latency_s for r in own if r.batch == number and r.strategy == who]
                for who in (POLICY, RANDOM)
            }
            times[PREFERRED] = [r.latency_s for r in own if r.candidate == preferred]
            for who, seconds in times.items():
                if seconds:
                    found[who].append(fastest / min(seconds))
        return {
            who: float(np.exp(np.mean(np.log(np.maximum(ratios, 1e-9)))))
            for who, ratios in found.items()
            if ratios
        }


def _noting(
    keep: Callable[[Record], None], who: Mapping[Candidate, str], number: int, seed: int
) -> Callable[[Record], None]:
    def note(record: Record) -> None:
        strategy = who.get(record.candidate, RANDOM)
        keep(replace(record, batch=number, seed=seed, strategy=strategy))

    return note


@contextmanager
def _measurers(
    workloads: Sequence[Workload], target: tvm.target.Target
) -> Iterator[Iterator[LocalMeasurer]]:
    """A measurer for each workload in turn; the next one's workers start meanwhile."""
    with ExitStack() as stack:

        def turns() -> Iterator[LocalMeasurer]:
            coming: LocalMeasurer | None = None
            for number, workload in enumerate(workloads):
                now = coming or stack.enter_context(LocalMeasurer(workload, target))
                coming = None
                if number + 1 < len(workloads):
                    coming = stack.enter_context(LocalMeasurer(workloads[number + 1], target))
                yield now
                now.close()

        yield turns()


def _random_nests(
    space: LoopSpace, env: TuningEnv[Any], n: int, rng: np.random.Generator
) -> list[Candidate]:
    """Random nests of a workload: half are what random episodes end with, half the space draws.

    Episodes alone end with nests that are slow, nearly all of them. What the space draws is tiled
    well; it is stripped of its marks and finished as the environment's nests are.
    """
    found: dict[Candidate, None] = {}
    drawn = space.sample(rng, n)
    for number in range(n):
        if number % 2:
            found.setdefault(_episode(space, env, rng))
        else:
            found.setdefault(_stripped(space, drawn[number], env))
    return list(found)


def _episode(space: LoopSpace, env: TuningEnv[Any], rng: np.random.Generator) -> Candidate:
    env.reset(seed=int(rng.integers(2**31)), options={"workload": space.workload})
    while True:
        if any(env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))[2:4]):
            return env.candidate


def _stripped(space: LoopSpace, candidate: Candidate, env: Any) -> Candidate:
    if not env.finished:
        return candidate
    nest = space.nest(candidate)
    if nest.factored is not None:
        return candidate
    loops = tuple(Loop(loop.axis, loop.extent) for loop in nest.loops)
    plain = round_up(Nest(nest.frame, loops, None, (0,) * len(nest.stages), None))
    return Candidate(LoopSpace.name, to_point(canonical(finish(plain, env.threads))))
