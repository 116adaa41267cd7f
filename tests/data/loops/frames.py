"""Frames to test loop nests with, without TVM."""

from __future__ import annotations

import math

import numpy as np

from tensortune.data.loops.nest import Access, Axis, Frame, Nest, Producer, initial
from tensortune.data.loops.steps import Step, apply_step, legal_steps


def matmul(m: int, n: int, k: int) -> Frame:
    """The frame of a product of matrices; axes of one iteration are left out, as they are there."""
    rows = {"i": (m, False, False), "j": (n, False, True), "k": (k, True, False)}
    names = [name for name, row in rows.items() if row[0] > 1]
    strides = {"A": {"i": k, "k": 1}, "B": {"k": n, "j": 1}, "C": {"i": n, "j": 1}}
    return Frame(
        "C",
        tuple(Axis(name, *rows[name]) for name in names),
        (),
        tuple(
            Access(tensor, 4, tuple(own.get(name, 0) for name in names), tensor == "C")
            for tensor, own in strides.items()
        ),
        native=16,
        reduces=True,
        factors=k > 1,
        consumed=False,
    )


def padded(h: int, w: int, c: int, kernel: int) -> Frame:
    """A depthwise convolution with a padding that can be computed anywhere."""
    sizes = {"h": h, "w": w, "c": c, "rh": kernel, "rw": kernel}
    axes = tuple(Axis(name, size, name[0] == "r", name == "c") for name, size in sizes.items())
    side = w + kernel - 1
    accesses = (
        Access("pad", 4, (side * c, c, 1, side * c, c), False),
        Access("weight", 4, (0, 0, 1, kernel * c, c), False),
        Access("out", 4, (w * c, c, 1, 0, 0), True),
    )
    producer = Producer("pad", True, tuple(axis.name == "c" for axis in axes))
    return Frame("out", axes, (producer,), accesses, 16, True, True, False)


FRAMES = {
    "matmul": matmul(48, 64, 32),
    "primes": matmul(127, 131, 67),
    "ones": matmul(1, 64, 1),
    "vector": matmul(1, 97, 64),
    "padded": padded(13, 13, 24, 4),
}


def random_walk(frame: Frame, rng: np.random.Generator, steps: int) -> tuple[Nest, list[Step]]:
    """A nest that legal random steps lead to, and the steps."""
    nest, taken = initial(frame), []
    for _ in range(steps):
        legal = legal_steps(nest)
        if not legal:
            break
        kinds = sorted({str(step[0]) for step in legal})
        kind = kinds[int(rng.integers(len(kinds)))]
        options = [step for step in legal if step[0] == kind]
        taken.append(options[int(rng.integers(len(options)))])
        nest = apply_step(nest, taken[-1])
    return nest, taken


def iterations(nest: Nest) -> int:
    """How often the block runs, guards aside."""
    return math.prod(loop.extent for loop in nest.loops)
