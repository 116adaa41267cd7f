"""What a compiler makes of a program's innermost loops, and what that costs, by a rough model.

Loop features say what a schedule asks for. How fast the program is depends on what
LLVM does with that: it unrolls short loops altogether, whatever they run over, and then turns the
innermost loop that is left, the *machine loop*, into vectors if it walks along rows. So a schedule
without a vectorised loop may be as fast as one with, and a loop over a reduction inside of a
spatial one is no obstacle if it is short. These columns follow each statement outwards through the
loops that are vectorised or unrolled, by TVM or (by a bound on the instructions) by LLVM, and
estimate from the machine loop:

- the lanes that the statement is computed in, and whether its operands have to be gathered;
- how many independent results it adds to at a time; of fewer than the units have in flight, each
  sum waits for the one before it, which is what limits a reduction in one register;
- cycles of arithmetic, of loads and of stores, iterations that are left, and cycles of moving what
  does not fit the caches: a roofline (Williams et al., CACM 2009) of one core.

Totals of a program are log2(1 + n), *over the work* they are log2 of a share of its `weight` (as in
`relations`); other columns are means over its statements, by the cycles that they are estimated to
take. The numbers are of a core with 64-byte vectors; as columns, only their order counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..rows import totals
from .loops_forest import LINE, Array, Forest
from .schemas import CODEGEN_CACHES, LOOP_WORK

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# LLVM unrolls a loop altogether if that makes no more instructions: its limit is 300 by its own
# count, which has address arithmetic and the loop's own instructions in it.
_MOST_INSTRUCTIONS = 150.0
_VECTOR = 6.0  # log2 of the bytes of a vector register
_IN_FLIGHT = 8.0  # additions that two units with a latency of four cycles work on
_INTERLEAVED = 2.0  # log2 of the vectors that LLVM takes at once of a loop that it vectorises
_FEWEST_PACKED = 2.0  # log2 of the neighbouring copies that LLVM puts into one vector
_LAUNCH = 6000.0  # cycles that it takes to hand a parallel loop to the threads

# Cycles of an operation on a vector, where it is not one.
_CYCLES = {
    "float div": 4.0,
    "float math": 10.0,
    "int add": 0.5,
    "int mul": 1.0,
    "int div": 10.0,
    "compare": 0.5,
    "select": 0.5,
    "cast": 0.5,
    "loads": 0.0,
    "stores": 0.0,
    "guards": 0.0,
}
# Not instructions of their own, mostly.
_ADDRESSES = ("int add", "int mul", "guards")

# Bytes a cycle that come into each of the caches.
_PACES = dict(zip(CODEGEN_CACHES, (32.0, 12.0, 5.0), strict=True))


def codegen(forest: Forest) -> dict[str, Array]:
    """The columns by name, each of shape (programs,); those of `schemas.CODEGEN_COLUMNS`."""
    return _columns(forest, _statements(forest))


@dataclass(frozen=True)
class _Statements:
    """What surrounds each statement up to its machine loop; all of shape (statements,).

    Attributes:
        node: The statement's node.
        lanes: log2 of the iterations of vectorised loops.
        strided_reads: Whether a vectorised loop reads elements that are apart.
        strided_writes: Whether it writes such.
        copies: log2 of the iterations of unrolled loops over results.
        summed: log2 of those of unrolled reductions.
        packed: log2 of those copies that lie side by side.
        short: log2 of those that LLVM unrolls, over results.
        short_summed: log2 of those that LLVM unrolls, of reductions.
        loop: The machine loop's node; -1 for none.
    """

    node: Ints
    lanes: Array
    strided_reads: Bools
    strided_writes: Bools
    copies: Array
    summed: Array
    packed: Array
    short: Array
    short_summed: Array
    loop: Ints


def _statements(forest: Forest) -> _Statements:
    """Follow each statement outwards, all of them a loop at a time."""
    length, vector = forest.column("length"), forest.column("vectorised") > 0
    unrolled = (forest.column("unrolled") > 0) | (forest.column("unrolled by the limit") > 0)
    reduction, parallel = forest.column("reduction") > 0, forest.column("parallel") > 0
    written, read = _most_strided(forest, "written"), _most_strided(forest, "read")
    own = [i for i, name in enumerate(LOOP_WORK) if name not in _ADDRESSES]
    instructions = forest.work[:, own].sum(axis=1)
    node = np.flatnonzero(forest.leaf)
    n = len(node)
    lanes, copies, summed, packed, short, short_summed = (np.zeros(n) for _ in range(6))
    strided_reads, strided_writes = np.zeros(n, bool), np.zeros(n, bool)
    loop = np.full(n, -1)
    at, going = forest.parent[node], ~forest.root[node]
    while going.any():
        steps = np.where(going, length[at], 0.0)
        wide = going & vector[at]
        lanes += np.where(wide, steps, 0.0)
        strided_reads |= wide & (read[at] > 1)
        strided_writes |= wide & (written[at] > 1)
        plain = going & ~vector[at]
        # A vectorised loop's iterations are one instruction as far as the registers are wide.
        of_vectors = instructions[at] / np.exp2(np.minimum(lanes, _VECTOR - 2))
        left = plain & ~unrolled[at] & ~parallel[at]
        taken = left & (of_vectors <= _MOST_INSTRUCTIONS)
        apart = plain & (unrolled[at] | taken)
        copies += np.where(apart & ~reduction[at], steps, 0.0)
        summed += np.where(apart & reduction[at], steps, 0.0)
        packed += np.where(
            apart & ~reduction[at] & (written[at] == 1) & (read[at] <= 1), steps, 0.0
        )
        short += np.where(taken & ~reduction[at], steps, 0.0)
        short_summed += np.where(taken & reduction[at], steps, 0.0)
        found = left & ~taken
        loop[found] = at[found]
        going = going & ~found & ~forest.root[at]
        at = np.where(going, forest.parent[at], at)
    return _Statements(
        node,
        lanes,
        strided_reads,
        strided_writes,
        copies,
        summed,
        packed,
        short,
        short_summed,
        loop,
    )


def _most_strided(forest: Forest, how: str) -> Array:
    """The greatest stride of the buffers that a node reads or writes; -1 where it does not."""
    strides = np.where(forest.buffers(how) > 0, forest.buffers("stride"), -1.0)
    return np.asarray(strides.max(axis=1))


def _columns(forest: Forest, found: _Statements) -> dict[str, Array]:
    """The columns, by name."""
    node, owner, n = found.node, forest.owner[found.node], len(forest.starts)
    there, loop = found.loop >= 0, np.maximum(found.loop, 0)
    length = np.where(there, forest.column("length")[loop], 0.0)
    written, read = _most_strided(forest, "written")[loop], _most_strided(forest, "read")[loop]
    summing = there & (forest.column("reduction")[loop] > 0)
    along = there & ~summing & (written >= 0) & (written <= 1)
    clean = along & (read <= 1)
    work = dict(zip(LOOP_WORK, forest.work[node].T, strict=True))
    whole_numbers = sum(work[name] for name in LOOP_WORK if name.startswith("float")) == 0
    # Sums of floats may not be reordered, those of integers may.
    vectorisable = along | (summing & whole_numbers & (read <= 1))
    native = _VECTOR - np.maximum(forest.column("item bytes")[node], 0.0)
    explicit = found.lanes > 0
    packed = np.where(found.packed >= _FEWEST_PACKED, found.packed, 0.0)
    lanes = np.where(explicit, found.lanes, np.where(vectorisable, length, packed))
    lanes = np.minimum(lanes, native)
    gathered = np.where(explicit, found.strided_reads, vectorisable & (read > 1))
    scattered = explicit & found.strided_writes
    registers = found.copies + np.maximum(found.lanes - native, 0.0)
    more = np.clip(length - native, 0.0, _INTERLEAVED)
    results = registers + np.where(clean & ~explicit, more, 0.0)
    chained = summing | (found.summed > 0)
    waiting = np.where(chained, np.maximum(0.0, np.log2(_IN_FLIGHT) - results), 0.0)
    wide = np.exp2(lanes)
    runs = forest.times[node]
    operations = sum(work[name] * _CYCLES.get(name, 1.0) for name in LOOP_WORK)
    arithmetic = runs * operations / wide / 2 * np.exp2(waiting)
    loads = runs * work["loads"] * np.where(gathered, wide, 1.0) / wide / 2
    stores = runs * work["stores"] * np.where(scattered, wide, 1.0) / wide
    iterations = runs / np.exp2(found.lanes + found.copies + found.summed)
    spent = arithmetic + loads + stores

    def total(values: Array) -> Array:
        return totals(owner, values, n)

    every = np.maximum(total(spent), 1e-9)

    def mean(values: npt.NDArray[np.generic]) -> Array:
        return np.asarray(total(spent * values) / every)

    amounts = {
        "arithmetic": total(arithmetic),
        "loads": total(loads),
        "stores": total(stores),
        "iterations": total(iterations),
        "vector operations": total(runs * operations / wide),
        "cycles": total(spent + iterations),
    }
    logs = {name: np.log2(1 + amount) for name, amount in amounts.items()}
    weight = np.log2(1 + forest.whole)
    moved = {f"moved into 2^{size}": _moved(forest, size) / pace for size, pace in _PACES.items()}
    traffic = sum(moved.values())
    launches = _launches(forest)
    longest = np.maximum(np.maximum(arithmetic, loads), stores)
    estimate = np.log2(1 + amounts["cycles"] + traffic + _LAUNCH * launches)
    columns = {
        **logs,
        **{f"{name} over the work": log - weight for name, log in logs.items()},
        "longest": np.log2(1 + total(longest)),
        "copies": np.log2(1 + total(np.exp2(np.minimum(found.copies + found.summed, 30.0)))),
        "guards": np.log2(1 + total(runs * work["guards"] / wide)),
        "lanes": mean(lanes),
        "scalar": mean(lanes < 1),
        "gathered": mean(gathered),
        "scattered": mean(scattered),
        "along rows": mean(along),
        "along rows only": mean(clean),
        "chained": mean(chained),
        "waiting": mean(waiting),
        "results": mean(results),
        "registers": mean(registers),
        "summed": mean(found.summed),
        "packed": mean(found.packed),
        "short loops": mean(found.short),
        "short reductions": mean(found.short_summed),
        "machine loop": mean(length),
        "machine loop sums": mean(summing),
        **{name: np.log2(1 + amount) for name, amount in moved.items()},
        "launches": np.log2(1 + launches),
        "roofline": np.log2(1 + np.maximum(amounts["cycles"], traffic)),
        "estimate": estimate,
        "estimate over the work": estimate - weight,
    }
    return {f"compiled: {name}": column for name, column in columns.items()}


def _moved(forest: Forest, size: int) -> Array:
    """Bytes of cache lines that come into a cache of a size, of shape (programs,)."""
    fits = (forest.column("bytes") <= size) | forest.leaf
    largest = fits & (forest.root | ~fits[forest.parent])
    return forest.total(forest.times * np.exp2(forest.column("lines") + LINE) * largest)


def _launches(forest: Forest) -> Array:
    """How often a parallel loop is handed to the threads, of shape (programs,)."""
    parallel = forest.column("parallel") > 0
    outermost = parallel & (forest.root | ~parallel[forest.parent])
    return forest.total(forest.times * outermost)
