"""A space whose every candidate is a program planted on purpose: right, wrong or harmful."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import Schedule
from tvm.script import ir as I
from tvm.script import tirx as T

from tensortune.data.candidate import Candidate, InvalidCandidate
from tensortune.data.space import Scheduled

N = 4096


@I.ir_module
class Doubling:
    """B = 2 A: the workload that all the programs below claim to compute."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(4096):
            with T.sblock("B"):
                vi = T.axis.spatial(4096, i)
                B[vi] = A[vi] * T.float32(2)


@I.ir_module
class Tripling:
    """Wrong by a constant, and as fast as can be."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in T.vectorized(4096):
            with T.sblock("B"):
                vi = T.axis.spatial(4096, i)
                B[vi] = A[vi] * T.float32(3)


@I.ir_module
class Half:
    """Writes only half of its output."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in T.vectorized(2048):
            with T.sblock("B"):
                vi = T.axis.spatial(2048, i)
                B[vi] = A[vi] * T.float32(2)


@I.ir_module
class Crash:
    """Writes far outside its buffer."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(4096):
            with T.sblock("B"):
                vi = T.axis.spatial(4096, i)
                B[vi * 100000] = A[vi]


@I.ir_module
class Hang:
    """Never returns."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
        T.func_attr({"tirx.noalias": True})
        B[0] = A[0]
        while B[0] > T.float32(-1e30):
            B[0] = A[0]


@I.ir_module
class Hog:
    """Asks for more memory than any candidate may have."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
        T.func_attr({"tirx.noalias": True})
        C = T.alloc_buffer((268435456,), "float32")  # 1 GiB
        for i in range(4096):
            C[i * 65536] = A[i]
        for i in range(4096):
            B[i] = C[i * 65536]


def endless_compile() -> tvm.IRModule:
    """A module that LLVM will not finish: an unrolled nest of a few hundred thousand statements."""
    schedule = Schedule(Doubling)
    loops = schedule.split(schedule.get_loops(schedule.get_sblock("B"))[0], [64, 64])
    for loop in loops:
        schedule.unroll(loop)
    # Repeat the function's body until LLVM needs minutes for it.
    body = schedule.mod["main"].body
    for _ in range(8):
        body = tvm.tirx.SeqStmt([body, body])
    function = schedule.mod["main"]
    return tvm.IRModule({"main": function.with_body(body)})


class PlantedSpace:
    """Candidates are names; each is scheduled to the module given for it.

    Args:
        modules: The modules by name; None is an illegal candidate.
    """

    name = "planted"

    def __init__(self, modules: Mapping[str, Any]) -> None:
        self.modules = dict(modules)

    @property
    def size(self) -> float:
        return len(self.modules)

    def candidate(self, name: str) -> Candidate:
        return Candidate(self.name, (name,))

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        names = list(self.modules)
        return [self.candidate(names[i]) for i in rng.integers(len(names), size=n)]

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        return self.sample(rng, n)

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        return self.sample(rng, len(candidates))

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        return a

    def encode(self, candidates: Sequence[Candidate]) -> np.ndarray:
        names = list(self.modules)
        return np.array([[names.index(c.point[0])] for c in candidates], dtype=np.float32)

    def schedule(self, candidate: Candidate) -> Scheduled:
        mod = self.modules.get(candidate.point[0])
        if mod is None:
            raise InvalidCandidate(f"{candidate.point[0]} is illegal")
        return Scheduled(candidate, mod, None)
