"""How fast candidates are: predicted, measured, or made up.

What is paid for in the environments: see `tuning_env`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import tvm

from ...costmodel.base import CostModel, Samples
from ...costmodel.features import statements
from ...costmodel.features.schemas import STATEMENTS
from ...data.candidate import Candidate, InvalidCandidate
from ...data.loop_space import LoopSpace
from ...data.loops.nest import Nest
from ...data.measure import UNTUNED, LocalMeasurer
from ...data.space import Scheduled
from ...data.spaces import NamedSpace
from ...data.workload import Workload
from .nest_features import SCHEMA as NESTS
from .nest_features import features, nest_of

Floats = npt.NDArray[np.float64]
Query = tuple[NamedSpace, Candidate]

FAILED = -math.log(100.0)
"""The speed of what does not run, and the least that is measured: a hundredth of untuned."""


class Speed(Protocol):
    """How fast candidates are; any callable of this form will do."""

    def __call__(self, queries: Sequence[Query]) -> Floats:
        """Natural logarithms of the speed-up over the untuned program, of shape (queries,).

        The queries may be of several workloads. A constant may be off for each workload.
        """


class Remembered:
    """A speed that asks another one about every candidate once.

    Args:
        speed: What is asked.
        size: Candidates to remember.
    """

    def __init__(self, speed: Speed, size: int = 1 << 17) -> None:
        self.speed = speed
        self.size = size
        self._known: dict[tuple[str, Candidate], float] = {}

    def __call__(self, queries: Sequence[Query]) -> Floats:
        """See `Speed`."""
        keys = [(space.workload.key, candidate) for space, candidate in queries]
        new = {
            key: query for key, query in zip(keys, queries, strict=True) if key not in self._known
        }
        found = dict(zip(new, self.speed(list(new.values())).tolist(), strict=True)) if new else {}
        values = np.array([found[key] if key in found else self._known[key] for key in keys])
        if len(self._known) + len(found) > self.size:
            self._known.clear()
        self._known.update(found)
        return values


class ModelSpeed:
    """What a cost model on statement features says. Some 2 ms a candidate.

    Args:
        model: A fitted model.
        target: The target that the programs are scheduled for.
        scale: What a unit of the model's scores is worth; 1 for a model of the logarithm of speed
            (`XGBModel("regression")`).
        threads: Programs analysed at once.
    """

    def __init__(
        self, model: CostModel, target: tvm.target.Target, scale: float = 1.0, threads: int = 1
    ) -> None:
        self.model = model
        self.target = target
        self.scale = scale
        self.threads = threads
        self._untuned: dict[str, float] = {}

    def __call__(self, queries: Sequence[Query]) -> Floats:
        """See `Speed`."""
        programs: list[Scheduled] = []
        places: list[int] = []
        for place, (space, candidate) in enumerate(queries):
            try:
                programs.append(space.schedule(candidate))
            except InvalidCandidate:
                continue
            places.append(place)
        new = {space.workload.key: space.workload for space, _ in queries}
        new = {key: item for key, item in new.items() if key not in self._untuned}
        programs += [Scheduled(UNTUNED, item.mod, None) for item in new.values()]
        values = np.full(len(queries), FAILED)
        if not programs:
            return values
        rows = statements.extract(programs, self.target, self.threads)
        scores = self.scale * self.model.predict(Samples.of(STATEMENTS, rows))
        self._untuned.update(zip(new, scores[len(places) :].tolist(), strict=True))
        for place, score in zip(places, scores.tolist(), strict=False):  # the untuned ones go last
            values[place] = score - self._untuned[queries[place][0].workload.key]
        return values


class NestSpeed:
    """What a cost model on the numbers of loop nests says. Some 0.1 ms a candidate, without TVM.

    Args:
        model: A fitted model of the logarithm of speed, on `nest_features`.
        threads: Threads that kernels run with.
    """

    def __init__(self, model: CostModel, threads: int) -> None:
        self.model = model
        self.threads = threads
        self._untuned: dict[str, float] = {}

    def __call__(self, queries: Sequence[Query]) -> Floats:
        """See `Speed`.

        Raises:
            ValueError: a space is not the loop space, or a candidate not of its space.
        """
        nests = []
        for space, candidate in queries:
            if not isinstance(space, LoopSpace) or candidate.space != LoopSpace.name:
                raise ValueError(
                    f"a model of loop nests can't pay for {candidate.space} candidates: take "
                    "`reward = measured`"
                )
            nests.append(nest_of(space.frame, candidate))
        new = {space.workload.key: space for space, _ in queries}
        new = {key: space for key, space in new.items() if key not in self._untuned}
        nests += [space.start for space in new.values() if isinstance(space, LoopSpace)]
        rows = [np.array(features(nest, self.threads), np.float32) for nest in nests]
        scores = self.model.predict(Samples.of(NESTS, rows)).tolist()
        self._untuned.update(zip(new, scores[len(queries) :], strict=True))
        keys = (space.workload.key for space, _ in queries)
        return np.array(
            [score - self._untuned[key] for key, score in zip(keys, scores, strict=False)]
        )


class MeasuredSpeed:
    """What measuring says. A second or so a candidate: for a few workloads, and for little else.

    Use it in a `with` block, or `close` it: workers run for the last few workloads.

    Args:
        target: The target.
        repeats: Measurements of each candidate.
        keep: Workloads whose workers are kept.
    """

    def __init__(self, target: tvm.target.Target, repeats: int = 3, keep: int = 4) -> None:
        self.target = target
        self.repeats = repeats
        self.keep = keep
        self._open: OrderedDict[str, LocalMeasurer] = OrderedDict()
        self._untuned_s: dict[str, float] = {}

    def __enter__(self) -> MeasuredSpeed:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        while self._open:
            self._open.popitem()[1].close()

    def __call__(self, queries: Sequence[Query]) -> Floats:
        """See `Speed`.

        Raises:
            RuntimeError: a workload's untuned program does not compile or run.
        """
        values = np.full(len(queries), FAILED)
        for key in dict.fromkeys(space.workload.key for space, _ in queries):
            places = [i for i, (space, _) in enumerate(queries) if space.workload.key == key]
            space = queries[places[0]][0]
            measurer = self._measurer(space.workload)
            records = measurer.measure(space, [queries[place][1] for place in places])
            for place, record in zip(places, records, strict=True):
                if record.valid:
                    gain = math.log(self._untuned_s[key] / record.latency_s)
                    values[place] = max(FAILED, gain)
        return values

    def _measurer(self, workload: Workload) -> LocalMeasurer:
        """The workload's measurer, which has measured the untuned program."""
        key = workload.key
        if key not in self._open:
            while len(self._open) >= self.keep:
                self._open.popitem(last=False)[1].close()
            self._open[key] = LocalMeasurer(workload, self.target, repeats=self.repeats)
        self._open.move_to_end(key)
        measurer = self._open[key]
        if key not in self._untuned_s:
            (record,) = measurer.measure_modules([(UNTUNED, workload.mod)])
            if not record.valid:
                why = record.detail or record.failure
                raise RuntimeError(f"{key} does not run even untuned: {why}")
            self._untuned_s[key] = record.latency_s
        measurer.limit_runs(self._untuned_s[key])
        return measurer


class ToySpeed:
    """A made-up speed of loop nests with a known best, to see whether a learner learns.

    It is that of a register tile: the extent of the innermost loop, if the output goes along it,
    times the iterations between it and the innermost reduction loop. Either counts for itself up to
    its bound, and the less the further it is above.

    Args:
        rows: The best number of rows.
        lanes: The best length of one.
    """

    def __init__(self, rows: int = 8, lanes: int = 32) -> None:
        self.rows = rows
        self.lanes = lanes

    @property
    def best(self) -> float:
        """The highest speed there is, where the axes are long enough."""
        return math.log(self.rows * self.lanes)

    def __call__(self, queries: Sequence[Query]) -> Floats:
        """See `Speed`."""
        return np.array(
            [
                self._of(space.nest(candidate)) if isinstance(space, LoopSpace) else 0.0
                for space, candidate in queries
            ]
        )

    def _of(self, nest: Nest) -> float:
        frame, rows = nest.frame, 1
        if not nest.loops or nest.loops[-1].axis == frame.partial_axis:
            return 0.0
        last = nest.loops[-1]
        if frame.accesses[-1].strides[last.axis] != 1:
            return 0.0
        for loop in nest.loops[-2::-1]:
            if nest.is_reduction(loop):
                break
            rows *= loop.extent
        parts = ((rows, self.rows), (last.extent, self.lanes))
        return sum(math.log(min(size, best * best / size)) for size, best in parts)
