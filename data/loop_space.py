"""The space of free loop transformations of one block, as TVM schedules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tvm

from .candidate import Candidate, InvalidCandidate
from .loops import features
from .loops.apply import schedule_nest
from .loops.crossing import cross
from .loops.draw import draw
from .loops.moves import neighbour
from .loops.nest import Frame, Nest, canonical, initial
from .loops.points import describe, from_point, to_point
from .loops.program import prepare
from .loops.steps import Step, apply_steps, steps_to
from .space import Scheduled
from .workload import Workload

# A scheduled module weighs a few hundred kB, a nest a few kB.
_CACHE_SIZE = 512
_NESTS = 65536


class LoopSpace:
    """Loop nests of a workload's heaviest block, as a `Space`.

    The block is the reduction with the most work, or the heaviest block where nothing is reduced.
    What is computed around it is taken into its nest where a decision says so, and otherwise gets a
    nest that is good for most.

    A candidate is the nest that a list of steps leads to, so that lists which lead to one nest are
    one candidate: its point is `(loops, tile, stages, factored)` of `loops.nest.Nest`, a loop being
    `(axis, extent, mark)`. `candidate` makes one of steps, `steps` gives them back in a normal
    form, and `loops.steps` says which steps are legal next.

    Args:
        workload: What is tuned.
        target: The target.

    Raises:
        WorkloadError: the program has no loop nest to tune.
    """

    name = "loop"

    def __init__(self, workload: Workload, target: tvm.target.Target) -> None:
        self.workload = workload
        self.target = target
        self._prepared = prepare(workload.mod, target)
        self._names = features.names(self.frame)
        self._nests: dict[Candidate, Nest] = {}
        self._cache: OrderedDict[Candidate, Scheduled] = OrderedDict()

    @property
    def frame(self) -> Frame:
        """What all nests of the block have in common: its axes, operands and accesses."""
        return self._prepared.plan.frame

    @property
    def start(self) -> Nest:
        """The nest of the program as it stands, which steps start from."""
        return initial(self.frame)

    @property
    def size(self) -> float:
        """How many candidates there are, at most; infinity where there is a loop to shape."""
        return float("inf") if self.frame.axes or self.frame.producers else 1

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Draw candidates: tiled, vectorised and parallel nests for the most part."""
        return [self.candidate_of(draw(self.frame, rng)) for _ in range(n)]

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """As `sample`: no draw needs TVM."""
        return self.sample(rng, n)

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        """Change one thing of each candidate: a size, the order, a mark or a place. All legal."""
        return [self.candidate_of(neighbour(self.nest(c), rng)) for c in candidates]

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        """The loops of each axis from either parent, in an order that both would recognise."""
        return self.candidate_of(cross(self.nest(a), self.nest(b), rng))

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        """Decision features, one row a candidate; `feature_names` says what they are."""
        rows = [features.numbers(self.nest(candidate)) for candidate in candidates]
        return np.array(rows, dtype=np.float32).reshape(len(rows), len(self._names))

    def feature_names(self) -> list[str]:
        """What each column of `encode` is, in order."""
        return list(self._names)

    def schedule(self, candidate: Candidate) -> Scheduled:
        """Build a candidate's program.

        Raises:
            InvalidCandidate: it is of another space, or no legal nest of this workload.
        """
        if candidate in self._cache:
            self._cache.move_to_end(candidate)
            return self._cache[candidate]
        nest = canonical(self.nest(candidate))
        try:
            schedule = schedule_nest(self._prepared, nest)
        # TVM raises whatever its C++ side threw. No nest without a problem is known to get here.
        except Exception as error:
            raise InvalidCandidate(str(error).strip().splitlines()[-1]) from error
        scheduled = Scheduled(self.candidate_of(nest), schedule.mod, schedule.trace)
        for key in (candidate, scheduled.candidate):
            self._cache[key] = scheduled
        while len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)
        return scheduled

    def nest(self, candidate: Candidate) -> Nest:
        """A candidate's nest.

        Raises:
            InvalidCandidate: it is of another space, or no legal nest of this workload.
        """
        found = self._nests.get(candidate)
        if found is None:
            if candidate.space != self.name:
                raise InvalidCandidate(f"not a candidate of the loop space: {candidate}")
            found = self._remember(candidate, from_point(self.frame, candidate.point))
        return found

    def candidate_of(self, nest: Nest) -> Candidate:
        """The candidate of a legal nest."""
        candidate = Candidate(self.name, to_point(nest))
        self._remember(candidate, nest)
        return candidate

    def candidate(self, steps: Sequence[Step]) -> Candidate:
        """The candidate that steps lead to, from the program as it stands.

        Raises:
            InvalidCandidate: a step is not legal; the message says which and why.
        """
        return self.candidate_of(canonical(apply_steps(self.start, tuple(steps))))

    def steps(self, candidate: Candidate) -> list[Step]:
        """Legal steps that lead to a candidate, in a normal form."""
        return steps_to(self.nest(candidate))

    def describe(self, candidate: Candidate) -> str:
        """The candidate's nest in one line."""
        return describe(self.nest(candidate))

    def _remember(self, candidate: Candidate, nest: Nest) -> Nest:
        if len(self._nests) >= _NESTS:
            self._nests.clear()
        self._nests[candidate] = nest
        return nest
