"""What is noted down while a policy learns."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

# Episodes that a point of the curve is the mean of.
_WINDOW = 200


@dataclass(frozen=True)
class Point:
    """How far a training is.

    Attributes:
        steps: Steps of the environments so far.
        episodes: Episodes that have ended so far.
        log_speedup: Mean gain of the last episodes, in the logarithm of the speed.
        length: Their mean length.
        illegal: Share of the steps since the last point that were not legal.
        seconds: Seconds of training so far.
        stage: Which round the training is in; 0 where there are none.
    """

    steps: int
    episodes: int
    log_speedup: float
    length: float
    illegal: float
    seconds: float
    stage: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values, rounded."""
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


OnPoint = Callable[[Point], None]


class Curve(BaseCallback):
    """Keeps the learning curve: a point after every rollout, or after so many steps.

    Args:
        every: Steps between two points, at least.
        on_point: Called with each.
    """

    def __init__(self, every: int, on_point: OnPoint | None = None) -> None:
        super().__init__()
        self.every = every
        self.on_point = on_point
        self.points: list[Point] = []
        self.stage = 0
        self.episodes = 0
        self.seconds = 0.0
        self._gains: deque[float] = deque(maxlen=_WINDOW)
        self._lengths: deque[int] = deque(maxlen=_WINDOW)
        self._taken = self._illegal = 0
        self._begun = 0.0
        self._next = 0
        self._long: list[int] = []

    def clear(self) -> None:
        """Forget the last episodes: they were another policy's."""
        self._gains.clear()
        self._lengths.clear()

    def to_json(self) -> dict[str, Any]:
        """All that a run which goes on from here has to know."""
        return {
            "points": [asdict(point) for point in self.points],
            "episodes": self.episodes,
            "seconds": self.seconds,
            "gains": list(self._gains),
            "lengths": list(self._lengths),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `to_json` gave."""
        self.points = [Point(**point) for point in state["points"]]
        self.episodes, self.seconds = int(state["episodes"]), float(state["seconds"])
        self._gains.extend(state["gains"])
        self._lengths.extend(state["lengths"])

    def _on_training_start(self) -> None:
        self._taken = self._illegal = 0
        self._begun = time.monotonic() - self.seconds
        self._next = self.num_timesteps + self.every
        self._long = [0] * self.training_env.num_envs

    def _on_step(self) -> bool:
        infos: list[dict[str, Any]] = self.locals["infos"]
        for number, info in enumerate(infos):
            self._taken += 1
            self._illegal += not info["legal"]
            self._long[number] += 1
            if "log_speedup" in info:
                self.episodes += 1
                self._gains.append(info["log_speedup"])
                self._lengths.append(self._long[number])
                self._long[number] = 0
        if self.num_timesteps >= self._next and self._gains:
            self._note()
        return True

    def _on_training_end(self) -> None:
        self.seconds = time.monotonic() - self._begun

    def _note(self) -> None:
        self._next = self.num_timesteps + self.every
        self.seconds = time.monotonic() - self._begun
        point = Point(
            self.num_timesteps,
            self.episodes,
            float(np.mean(self._gains)),
            float(np.mean(self._lengths)),
            self._illegal / self._taken,
            self.seconds,
            self.stage,
        )
        self._taken = self._illegal = 0
        self.points.append(point)
        self.logger.record("episode/log_speedup", point.log_speedup)
        self.logger.record("episode/length", point.length)
        self.logger.record("episode/illegal", point.illegal)
        if self.on_point is not None:
            self.on_point(point)
