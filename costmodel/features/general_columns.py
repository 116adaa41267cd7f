"""The columns of general decision features that tell of a nest, whichever space it is of.

Sizes and counts are log2. A *boundary* is a place between loops, numbered from the outermost: what
is inside of boundary 0 is the whole nest, what is inside of the last one is a single iteration. The
numbers are those of a rough model of a machine: a cache keeps what the largest part of the nest
that fits into it touches, and what none of the loops around that part moves stays there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tvm
from tvm.target.codegen import llvm_get_vector_width

from ...data.target import num_cores
from ..base import Floats
from .general_shapes import Shape
from .schemas import GENERAL_CACHES, GENERAL_COLUMNS

Ints = npt.NDArray[np.int64]

AT = {name: i for i, name in enumerate(GENERAL_COLUMNS)}
"""The number of each column."""

# MetaSchedule makes at most so many tasks for each thread.
_JOBS_A_THREAD = 16


@dataclass(frozen=True)
class Machine:
    """What a program is scheduled for.

    Attributes:
        threads: Threads that kernels run with.
        vector_bytes: Bytes of a vector register.
    """

    threads: int
    vector_bytes: int

    @classmethod
    def of(cls, target: tvm.target.Target) -> Machine:
        """The machine that a target names."""
        return cls(num_cores(target), max(128, int(llvm_get_vector_width(target))) // 8)

    @property
    def jobs(self) -> int:
        """Tasks that MetaSchedule stops fusing loops at."""
        return _JOBS_A_THREAD * self.threads


@dataclass(frozen=True)
class Nests:
    """The nests of one block of some candidates.

    Attributes:
        tiles: Iterations of each axis inside of each boundary, of shape (boundaries, axes,
            candidates); the whole extents first and ones last.
        spatial: The product of the spatial ones and of partial results, of shape (boundaries,
            candidates).
        reduction: The product of the others.
        task: The boundary inside of the parallel loops, of shape (candidates,) as all that follow.
        first: The boundary at which the first reduction begins.
        inner: The boundary inside of all reductions but the last.
        register: The boundary inside of the last reduction.
        parallel: Tasks that run in parallel.
        lanes: Iterations of the vectorised loop.
        lanes_axis: Its axis; -1 for none.
        write_cache: The boundary within which results gather in a tile of their own; -1 for none.
        unroll_limit: Iterations up to which loops are to be unrolled; NaN where loops are marked.
        unrolled: Iterations that are unrolled.
        largest: The largest and the second largest factor inside of `register`.
    """

    tiles: Floats
    spatial: Floats
    reduction: Floats
    task: Ints
    first: Ints
    inner: Ints
    register: Ints
    parallel: Floats
    lanes: Floats
    lanes_axis: Ints
    write_cache: Ints
    unroll_limit: Floats
    unrolled: Floats
    largest: tuple[Floats, Floats]

    def pick(self, values: Floats, at: Ints) -> Floats:
        """Values of shape (boundaries, candidates) at one boundary for each candidate."""
        found: Floats = values[at, np.arange(len(at))]
        return found


def constants(
    shapes: tuple[Shape, ...], main: Shape | None, flops: float, size: int, machine: Machine
) -> Floats:
    """A row of what does not depend on the candidate; NaN elsewhere."""
    row = np.full(len(AT), np.nan, np.float32)
    known = {
        "flops": np.log2(1 + flops),
        "bytes": np.log2(1 + size),
        "flops / byte": np.log2((1 + flops) / (1 + size)),
        "blocks": len(shapes),
        "threads": machine.threads,
    }
    if main is not None:
        item = main.written.item_bytes
        known |= {
            "spatial extent": np.log2(main.total(False)),
            "reduction extent": np.log2(main.total(True)),
            "spatial axes": _count(main, False),
            "reduction axes": _count(main, True),
            "reads": len(main.reads),
            "item bytes": item,
            "native lanes": np.log2(machine.vector_bytes / item),
            "written bytes": np.log2(main.written.bytes),
        }
    for name, value in known.items():
        row[AT[name]] = value
    return row


def _count(shape: Shape, reduction: bool) -> int:
    kinds = zip(shape.extents, shape.reduction, strict=True)
    return sum(extent > 1 and summed == reduction for extent, summed in kinds)


def fill(out: Floats, nests: Nests, shape: Shape, machine: Machine) -> None:
    """Fill in the columns of nests.

    Args:
        out: Of shape (columns, candidates).
        nests: The nests.
        shape: The block that they are of.
        machine: What they are scheduled for.
    """
    out[AT["tiled"]] = 1
    _fill_levels(out, nests, machine)
    _fill_registers(out, nests, shape, machine)
    _fill_memory(out, nests, shape)


def _fill_levels(out: Floats, nests: Nests, machine: Machine) -> None:
    """What is iterated at each level, and in parallel."""
    spatial, reduction = np.log2(nests.spatial), np.log2(nests.reduction)
    first, register = nests.pick(spatial, nests.first), nests.pick(spatial, nests.register)
    inner = nests.pick(reduction, nests.inner)
    tasks = np.maximum(nests.parallel, 1)
    out[AT["parallel"]] = np.log2(tasks)
    out[AT["balance"]] = tasks / (np.ceil(tasks / machine.threads) * machine.threads)
    out[AT["work a task"]] = out[AT["flops"]] - out[AT["parallel"]]
    out[AT["outer spatial"]] = spatial[0] - first
    out[AT["outer reduction"]] = reduction[0] - inner
    out[AT["middle spatial"]] = first - register
    out[AT["inner reduction"]] = inner - nests.pick(reduction, nests.register)
    out[AT["register tile"]] = register
    kept = nests.write_cache >= 0
    elements = nests.pick(spatial, np.maximum(nests.write_cache, 0))
    out[AT["write cache"]] = kept
    out[AT["write cache elements"]] = np.where(kept, elements, np.nan)
    out[AT["write cache over output"]] = np.where(kept, elements - spatial[0], np.nan)


def _fill_registers(out: Floats, nests: Nests, shape: Shape, machine: Machine) -> None:
    """The innermost tile: vectors, accumulators, what is unrolled."""
    native = np.float32(machine.vector_bytes / shape.written.item_bytes)
    lanes = nests.lanes
    vectors = np.ceil(lanes / native)
    register = nests.pick(nests.spatial, nests.register)
    rows = np.maximum(register / lanes, 1)
    inner = nests.pick(nests.reduction, nests.inner)
    body = np.log2(rows * vectors * inner)
    out[AT["largest factor"]] = np.log2(nests.largest[0])
    out[AT["second factor"]] = np.log2(nests.largest[1])
    out[AT["lanes"]] = np.log2(lanes)
    out[AT["lanes filled"]] = lanes / (vectors * native)
    out[AT["vectors"]] = np.log2(vectors)
    out[AT["rows"]] = np.log2(rows)
    out[AT["accumulators"]] = np.log2(rows * vectors)
    strides = shape.strides[:, nests.lanes_axis]
    for name, kind in (("0", 0), ("1", 1)):
        out[AT[f"vector stride {name}"]] = strides[kind]
    out[AT["vector other stride"]] = strides[2]
    contiguous = shape.contiguous()
    if contiguous is not None:
        tile = nests.pick(nests.tiles[:, contiguous], nests.register)
        out[AT["lanes of the contiguous axis"]] = np.log2(tile)
    limit = np.log2(1 + nests.unroll_limit)
    out[AT["unroll limit"]] = limit
    out[AT["unrolled"]] = np.log2(nests.unrolled)
    out[AT["body"]] = body
    out[AT["body over limit"]] = body - limit


def _fill_memory(out: Floats, nests: Nests, shape: Shape) -> None:
    """What is touched inside of the boundaries, and moved into caches of several sizes."""
    inside = nests.spatial * nests.reduction
    outside = inside[0] / inside
    total = np.zeros_like(inside)
    moved = np.zeros_like(inside)
    runs = np.full_like(inside, np.inf)
    loads, vector_loads = np.zeros_like(nests.lanes), np.zeros_like(nests.lanes)
    for tensor in shape.tensors:
        elements, size, run = tensor.touched(nests.tiles)
        trips = outside.copy()
        for at in range(1, len(trips)):
            stays = elements[at] == elements[at - 1]
            trips[at] = np.where(stays, trips[at - 1], trips[at])
        total += size
        moved += size * trips
        runs = np.minimum(runs, run)
        if not tensor.write:
            loaded = nests.pick(elements, nests.register)
            loads += loaded
            unit = np.array([tensor.stride(a) == 1 for a in range(len(shape.extents))] + [False])
            vector_loads += loaded / np.where(unit[nests.lanes_axis], nests.lanes, 1)
    results = nests.pick(nests.spatial, nests.register)
    out[AT["loads a result"]] = np.log2((loads + 1e-3) / results)
    out[AT["loads a vector"]] = np.log2((vector_loads + 1e-3) / results * nests.lanes)
    sizes = np.log2(total)
    for name, place in (
        ("task bytes", nests.task),
        ("first reduction bytes", nests.first),
        ("inner bytes", nests.inner),
        ("register bytes", nests.register),
    ):
        out[AT[name]] = nests.pick(sizes, place)
    out[AT["run at the first reduction"]] = np.log2(nests.pick(runs, nests.first))
    out[AT["run in the registers"]] = np.log2(nests.pick(runs, nests.register))
    for cache in GENERAL_CACHES:
        fits = sizes <= cache
        fits[-1] = True
        largest = fits.argmax(axis=0)
        out[AT[f"cache 2^{cache}: moved"]] = np.log2(nests.pick(moved, largest) / inside[0])
        out[AT[f"cache 2^{cache}: inside"]] = np.log2(nests.pick(inside, largest))
