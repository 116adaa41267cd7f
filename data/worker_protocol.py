"""What a worker is asked to do, and what it answers; imports no TVM."""

from __future__ import annotations

from dataclasses import dataclass

# Input sets kept for the workers to inherit: a run's own, its reference's, and one to spare.
KEPT_INPUT_SETS = 3


@dataclass(frozen=True, slots=True)
class Program:
    """What a worker is to compile.

    Attributes:
        mod: A scheduled module as `tvm.ir.save_json` gives it, with one function `main`.
        target: The target as JSON.
        inputs: Name of the input set that was sent to the server.
        memory_bytes: How much memory compiling and running may take.
        artifact: Where the compiled program is written to, for others to load; nowhere if empty.
            The worker ends when the file's folder is gone.
    """

    mod: str
    target: str
    inputs: str
    memory_bytes: int
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A program that was compiled before, by us or by others, into a file that TVM loads.

    Attributes:
        path: The file, with one function `main` in it.
        inputs: Name of the input set that was sent to the server.
        memory_bytes: How much memory loading and running may take.
    """

    path: str
    inputs: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class NumpyProgram:
    """A workload's NumPy equivalent, to be timed as if it were a compiled program.

    Attributes:
        workload: Key of a named workload.
        inputs: Name of the input set that was sent to the server.
        memory_bytes: How much memory running may take.
        maker: Another library's equivalent: `package.module:function`, which makes what
            `Workload.numpy_call` does of the workload. The worker alone loads it.
    """

    workload: str
    inputs: str
    memory_bytes: int
    maker: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """How to time a program.

    Attributes:
        repeats: How many times to measure.
        repeat_s: The least that one measurement lasts; it runs the kernel as often as that takes.
        cut_s: A kernel slower than this when it is warm is not measured any further.
        brief_s: A kernel slower than this on its first two repeats is spared the others.
        budget_s: No further repeat is begun once timing has lasted this long.
    """

    repeats: int
    repeat_s: float
    cut_s: float = float("inf")
    brief_s: float = float("inf")
    budget_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds per run, a mean for each repeat; whether the timing was cut short."""

    repeats: tuple[float, ...]
    cut: bool
