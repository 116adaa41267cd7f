"""Showing how far a run is: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .tuner import Status

# Plain lines come this often, in seconds, so that a log stays readable.
_LINE_EVERY_S = 2.0


def format_seconds(seconds: float) -> str:
    """A latency with three significant digits and a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def describe(status: Status, flops: float) -> str:
    """Best so far and failures by kind."""
    parts = []
    if status.best is not None:
        latency = status.best.latency_s
        speed = f" ({flops / latency / 1e9:.4g} GFLOP/s)" if flops else ""
        parts.append(f"best {format_seconds(latency)}{speed}")
    parts += [f"{count} {kind}" for kind, count in sorted(status.failures.items())]
    return ", ".join(parts)


class TuneProgress:
    """Shows a tuning run; use as a context manager and pass `update` as `on_status`.

    Args:
        title: What is tuned.
        flops: Operations of one run, for the throughput; 0 leaves it out.
        console: Where to write.
    """

    def __init__(self, title: str, flops: float, console: Console) -> None:
        self.title = title
        self.flops = flops
        self.console = console
        self._said_s = float("-inf")
        self._bar: Progress | None = None

    def __enter__(self) -> TuneProgress:
        # A notebook is no terminal: its live display would be a new line for every change.
        if self.console.is_terminal and not self.console.is_jupyter:
            self._bar = Progress(
                TextColumn("{task.completed}/{task.total} trials"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}"),
                console=self.console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("tune", total=None, text="preparing")
        else:
            self.console.print(f"tuning {self.title}", highlight=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, status: Status) -> None:
        """Show the status of a run."""
        total, text = status.budget.trials, describe(status, self.flops)
        if self._bar is not None:
            self._bar.update(self._task, total=total, completed=status.trials, text=text)
            return
        last = status.trials >= total
        if last or status.elapsed_s - self._said_s >= _LINE_EVERY_S:
            self._said_s = status.elapsed_s
            left = ""
            if status.trials and not last:
                rest_s = status.elapsed_s / status.trials * (total - status.trials)
                if status.budget.seconds is not None:
                    rest_s = min(rest_s, max(0.0, status.budget.seconds - status.elapsed_s))
                left = f", about {rest_s:.0f} s left"
            self.console.print(
                f"{status.trials}/{total} trials, {status.elapsed_s:.1f} s: {text}{left}",
                highlight=False,
            )
