"""What an episode pays: gains in the logarithm of speed, predicted or measured.

The speed of a candidate is a *potential*: what a step pays is what it adds, so that the payments of
an episode sum up to the gain of its end over its start, whether they come at every step or at the
end, and there is nothing to be had from going in circles.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

import gymnasium
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
from ...data.workload import Workload, WorkloadError

Floats = npt.NDArray[np.float64]
Query = tuple[NamedSpace, Candidate]
Pay = Literal["step", "end"]
S = TypeVar("S", bound=NamedSpace)

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


class Spaces(Generic[S]):
    """The spaces of a set of workloads, each made when it is first needed.

    Args:
        workloads: The workloads.
        target: The target.
        make: Makes the space of a workload.
        keep: Spaces that are held; one weighs some hundred kB and takes tens of ms to make.
    """

    def __init__(
        self,
        workloads: Sequence[Workload],
        target: tvm.target.Target,
        make: Callable[[Workload, tvm.target.Target], S],
        keep: int = 256,
    ) -> None:
        if not workloads:
            raise ValueError("an environment needs a workload at least")
        self.workloads = tuple(workloads)
        self.target = target
        self.keep = keep
        self._make = make
        self._held: OrderedDict[str, S] = OrderedDict()

    def draw(self, rng: np.random.Generator) -> S:
        """The space of one of the workloads, each as likely as another."""
        return self.of(self.workloads[int(rng.integers(len(self.workloads)))])

    def of(self, workload: Workload) -> S:
        """The space of a workload, be it one of the set or not.

        Raises:
            WorkloadError: there is nothing to tune in it.
        """
        key = workload.key
        if key not in self._held:
            space = self._make(workload, self.target)
            if space.size <= 1:
                raise WorkloadError(
                    f"there is nothing to tune in {key}: leave it out of the workloads"
                )
            self._held[key] = space
            while len(self._held) > self.keep:
                self._held.popitem(last=False)
        self._held.move_to_end(key)
        return self._held[key]


class TuningEnv(gymnasium.Env, Generic[S]):  # type: ignore[type-arg,unused-ignore]
    """An environment whose states stand for candidates, and which pays for the speed they gain.

    Every state is a value: an action leads from one to the next, or is not legal. An action that is
    not legal changes nothing, pays nothing, and is told by `info["legal"]`; `action_masks` says
    which ones are legal (sb3-contrib's `MaskablePPO` asks for it by that name).

    `reset` draws a workload; `options={"workload": ...}` chooses one, as a `Workload` or as its
    key. The `info` of an episode's last step holds its `workload`, its `candidate` and its
    `log_speedup` over where it began.

    Args:
        spaces: The workloads and their spaces.
        speed: What is paid for. Several environments may share a `Remembered` one.
        reward: Whether every step pays what it gains, or the last one for all.
        limit: Steps after which an episode is cut off.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's own declaration)
    space: S

    def __init__(self, spaces: Spaces[S], speed: Speed, reward: Pay, limit: int) -> None:
        if reward not in ("step", "end"):
            raise ValueError(f"`reward` is 'step' or 'end', not {reward!r}")
        if limit < 1:
            raise ValueError(f"an episode has one step at least, not {limit}")
        self.spaces = spaces
        self.speed = speed if isinstance(speed, Remembered) else Remembered(speed)
        self.reward = reward
        self.limit = limit
        self.steps = 0
        self._state: Any = None
        self._mask: npt.NDArray[np.bool_] | None = None
        self._began = self._paid = 0.0

    @abstractmethod
    def _start(self, space: S, options: dict[str, Any]) -> Any:
        """The state that an episode begins with."""

    @abstractmethod
    def _next(self, action: Any) -> Any | None:
        """The state after an action; None if it is not legal. Changes nothing."""

    @abstractmethod
    def _wasted(self, action: Any) -> Any:
        """The state after an action that is not legal: it costs a step."""

    @abstractmethod
    def _over(self, state: Any) -> bool:
        """Whether an episode ends in a state."""

    @abstractmethod
    def _candidate(self, state: Any) -> Candidate:
        """The candidate that a state stands for."""

    @abstractmethod
    def _observe(self) -> Any:
        """The observation of the state."""

    @abstractmethod
    def _legal(self) -> npt.NDArray[np.bool_]:
        """The mask of the state."""

    @property
    def candidate(self) -> Candidate:
        """The candidate that the state stands for; after the last step what the episode made."""
        return self._candidate(self._state)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions are legal: one flag an action, or one for each value of each dimension."""
        if self._mask is None:
            self._mask = self._legal()
        return self._mask.copy()

    def upcoming(self, action: Any) -> Query | None:
        """What a step with this action will ask the speed of, if anything. Changes nothing."""
        state = self._after(action)[0]
        over = self._over(state) or self.steps + 1 >= self.limit
        return (self.space, self._candidate(state)) if over or self.reward == "step" else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; see `gymnasium.Env.reset`."""
        super().reset(seed=seed)
        options = options or {}
        workload = options.get("workload")
        if workload is None:
            self.space = self.spaces.draw(self.np_random)
        else:
            self.space = self.spaces.of(
                Workload.from_key(workload) if isinstance(workload, str) else workload
            )
        self._state = self._start(self.space, options)
        self._mask = None
        self.steps = 0
        self._began = self._paid = self._value()
        return self._observe(), {"workload": self.space.workload.key}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action; see `gymnasium.Env.step`."""
        self._state, legal = self._after(action)
        self._mask = None
        self.steps += 1
        terminated = self._over(self._state)
        truncated = not terminated and self.steps >= self.limit
        info: dict[str, Any] = {"legal": legal}
        gain = 0.0
        if terminated or truncated or self.reward == "step":
            value = self._value()
            gain, self._paid = value - self._paid, value
        if terminated or truncated:
            info["workload"] = self.space.workload.key
            info["candidate"] = self.candidate
            info["log_speedup"] = self._paid - self._began
        return self._observe(), gain, terminated, truncated, info

    def _after(self, action: Any) -> tuple[Any, bool]:
        """The state after an action, and whether it was legal."""
        state = self._next(action)
        return (self._wasted(action), False) if state is None else (state, True)

    def _value(self) -> float:
        return float(self.speed([(self.space, self.candidate)])[0])


def prefetch(envs: Sequence[TuningEnv[Any]], actions: Sequence[Any]) -> None:
    """Ask at once for all speeds that environments will ask for when they take these actions.

    Args:
        envs: Environments, unwrapped, that share one `Remembered` speed.
        actions: The action that each is about to take.
    """
    found = [env.upcoming(action) for env, action in zip(envs, actions, strict=True)]
    queries = [query for query in found if query is not None]
    if queries:
        envs[0].speed(queries)
