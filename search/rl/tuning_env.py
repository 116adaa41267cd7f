"""What all environments share: the spaces that they are over, episodes, and what those pay.

The speed of a candidate is a *potential*: what a step pays is what it adds to the logarithm of the
speed, so that the payments of an episode sum up to the gain of its end over its start, whether they
come at every step or at the end, and there is nothing to be had from going in circles.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
import tvm

from ...data.candidate import Candidate
from ...data.spaces import NamedSpace
from ...data.workload import Workload, WorkloadError
from .speed import Query, Remembered, Speed

Pay = Literal["step", "end"]
S = TypeVar("S", bound=NamedSpace)


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

    Attributes:
        known_masks: Masks by their states, for environments that are alike and of one space to
            share; None remembers nothing.
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
        self.known_masks: dict[Any, npt.NDArray[np.bool_]] | None = None
        self._state: Any = None
        self._mask: npt.NDArray[np.bool_] | None = None
        self._coming: tuple[Any, bytes, tuple[Any, bool]] | None = None
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
            known = {} if self.known_masks is None else self.known_masks
            if self._state not in known:
                known[self._state] = self._legal()
            self._mask = known[self._state]
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
        state, taken = self._state, np.asarray(action).tobytes()
        # `prefetch` looks ahead for what is done right after.
        if self._coming is None or self._coming[0] is not state or self._coming[1] != taken:
            found = self._next(action)
            after = (self._wasted(action), False) if found is None else (found, True)
            self._coming = state, taken, after
        return self._coming[2]

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
