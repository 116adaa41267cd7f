"""Showing how far a training is: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .callbacks import Point

# Plain lines come this often, in seconds, so that a log stays readable.
_LINE_EVERY_S = 5.0


class TrainProgress:
    """Shows a training; use as a context manager and pass `point` and `measured` to `train`.

    Args:
        steps: Steps there will be.
        console: Where to write.
    """

    def __init__(self, steps: int, console: Console) -> None:
        self.steps = steps
        self.console = console
        self._said_s = float("-inf")
        self._first: Point | None = None
        self._bar: Progress | None = None

    def __enter__(self) -> TrainProgress:
        # A notebook is no terminal: its live display would be a new line for every change.
        if self.console.is_terminal and not self.console.is_jupyter:
            self._bar = Progress(
                TextColumn("{task.completed}/{task.total} steps"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("{task.fields[text]}"),
                console=self.console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("train", total=self.steps, text="preparing")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def point(self, point: Point) -> None:
        """Show a point of the learning curve."""
        first = self._first or point
        self._first = first
        text = f"{point.episodes} episodes, log speed-up {point.log_speedup:.2f}"
        if point.steps > first.steps:
            rate = (point.seconds - first.seconds) / (point.steps - first.steps)
            text += f", {max(0.0, rate * (self.steps - point.steps)):.0f} s of training left"
        self._say(point.steps, text, last=point.steps >= self.steps)

    def measured(self, number: int, done: int, total: int) -> None:
        """Show how far the measuring of a round is."""
        self._say(None, f"round {number + 1}: {done}/{total} programs measured", last=done == total)

    def _say(self, steps: int | None, text: str, last: bool) -> None:
        if self._bar is not None:
            completed = None if steps is None else min(steps, self.steps)
            self._bar.update(self._task, completed=completed, text=text)
            return
        now = time.monotonic()
        if last or now - self._said_s >= _LINE_EVERY_S:
            self._said_s = now
            start = "" if steps is None else f"{steps}/{self.steps} steps: "
            self.console.print(start + text, highlight=False)
