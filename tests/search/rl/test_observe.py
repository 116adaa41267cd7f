"""Observations: fixed shapes, in range, and what they say of a nest."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from tensortune.data.loops.nest import Access, Axis, Frame, Nest, initial
from tensortune.data.loops.steps import apply_step, apply_steps, legal_steps
from tensortune.search.rl.observe import (
    ACCESS_COLUMNS,
    EDGE_COLUMNS,
    FLAT_COLUMNS,
    LOOP_COLUMNS,
    FlatObserver,
    GraphObserver,
    GraphShape,
    View,
    make_observer,
)


def matmul(m: int, n: int, k: int) -> Frame:
    axes = (Axis("i", m, False, False), Axis("j", n, False, True), Axis("k", k, True, False))
    accesses = (
        Access("A", 4, (k, 0, 1), False),
        Access("B", 4, (0, 1, n), False),
        Access("C", 4, (n, 1, 0), True),
    )
    return Frame("C", axes, (), accesses, 16, True, True, False)


def walked(rng: np.random.Generator, shape: tuple[int, int, int]) -> Nest:
    nest = initial(matmul(*shape))
    for _ in range(int(rng.integers(20))):
        steps = legal_steps(nest)
        nest = apply_step(nest, steps[int(rng.integers(len(steps)))])
    return nest


def flat(nest: Nest, **view: object) -> np.ndarray:
    observer = FlatObserver(16, 0)
    seen = observer(View(nest, **view))  # type: ignore[arg-type]
    return seen[: 16 * len(FLAT_COLUMNS)].reshape(16, len(FLAT_COLUMNS))


def column(rows: np.ndarray, name: str) -> list[float]:
    return [float(x) for x in rows[:, FLAT_COLUMNS.index(name)]]


@pytest.mark.parametrize("kind", ["flat", "graph"])
def test_every_nest_is_in_the_space(kind: str) -> None:
    rng = np.random.default_rng(0)
    observer = make_observer(kind, 16, 2)  # type: ignore[arg-type]
    for number in range(90):
        nest = walked(rng, ((48, 64, 40), (127, 131, 67), (5000, 3, 2))[number % 3])
        cursor = int(rng.integers(len(nest.loops)))
        assert observer.space.contains(observer(View(nest, cursor, extras=(0.5, 1.0))))


def test_loops_are_described() -> None:
    nest = apply_steps(
        initial(matmul(50, 64, 40)),
        [("split", 0, 8), ("split", 2, 32), ("move", 2, 1), ("move", 4, 2), ("parallel", 0)],
    )
    nest = apply_steps(nest, [("accumulate", 2), ("vectorize",), ("unroll", 3)])
    rows = flat(nest, cursor=1)  # parallel i7, j2, tile, k40, unroll i8, vectorize j32
    used = rows[:5]
    assert not rows[5:].any()
    assert column(used, "there") == [1.0] * 5
    assert column(used, "cursor") == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert column(used, "size") == pytest.approx([np.log2(n) / 12 for n in (7, 2, 40, 8, 32)])
    assert column(used, "twos") == pytest.approx([0, 1 / 6, 3 / 6, 3 / 6, 5 / 6])
    assert column(used, "tail") == pytest.approx([6 / 8, 0, 0, 0, 0])  # 50 is 6 rounds and 2
    assert column(used, "reduction") == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert column(used, "parallel") == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert column(used, "unrolled") == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert column(used, "vectorized") == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert column(used, "in the tile") == [0.0, 0.0, 1.0, 1.0, 1.0]


def test_strides_are_those_of_the_loops() -> None:
    nest = apply_step(initial(matmul(48, 64, 40)), ("split", 1, 32))  # i48 j2 j32 k40
    rows = flat(nest)
    assert column(rows[:4], "output by one") == [0.0, 0.0, 1.0, 0.0]
    third = pytest.approx(1 / 3)
    # i moves A by 40 (bin 6), B not, C by 64 (bin 7); the coarse j moves B and C by 32 (bin 6).
    assert [column(rows, f"stride bin {n}")[0] for n in (0, 6, 7)] == [third] * 3
    assert [column(rows, f"stride bin {n}")[1] for n in (0, 6)] == [third, pytest.approx(2 / 3)]
    assert [column(rows, f"stride bin {n}")[2] for n in (0, 1)] == [third, pytest.approx(2 / 3)]
    assert sum(column(rows, f"stride bin {n}")[3] for n in range(16)) == pytest.approx(1)


def test_the_graph_has_an_edge_for_every_stride() -> None:
    nest = apply_step(initial(matmul(48, 64, 40)), ("split", 1, 32))
    observer = GraphObserver(GraphShape(8, 4, 7))
    parts = observer.shape.split(observer(View(nest, 2)))
    assert parts["loops"].shape == (8, len(LOOP_COLUMNS))
    assert parts["accesses"].shape == (4, len(ACCESS_COLUMNS))
    assert parts["edges"].shape == (8, 4, len(EDGE_COLUMNS))
    moves = parts["edges"][:, :, EDGE_COLUMNS.index("moves")]
    assert moves[:4, :3].tolist() == [[1, 0, 1], [0, 1, 1], [0, 1, 1], [1, 1, 0]]
    assert not moves[4:].any()
    assert not moves[:, 3].any()
    strides = parts["edges"][:, :, EDGE_COLUMNS.index("stride")] * 24
    assert strides[0, 0] == pytest.approx(np.log2(40))
    assert strides[1, 2] == pytest.approx(5)
    assert parts["edges"][2, 2, EDGE_COLUMNS.index("by one")] == 1
    assert parts["accesses"][:, ACCESS_COLUMNS.index("written")].tolist() == [0, 0, 1, 0]


def test_the_output_is_shown_whatever_is_left_out() -> None:
    frame = matmul(48, 64, 40)
    many = Frame(
        "C", frame.axes, (), frame.accesses[:2] * 3 + frame.accesses[2:], 16, True, True, False
    )
    observer = GraphObserver(GraphShape(8, 4, 7))
    parts = observer.shape.split(observer(View(initial(many))))
    assert parts["accesses"][:, ACCESS_COLUMNS.index("written")].tolist() == [0, 0, 0, 1]


def test_partial_results_take_their_axis_strides() -> None:
    nest = apply_steps(initial(matmul(48, 64, 40)), [("split", 2, 8), ("factor", 3)])
    rows = flat(nest)  # i48 j64 k5 partial8
    assert column(rows[:4], "partial results") == [0.0, 0.0, 0.0, 1.0]
    # The part moves A by 1 and B by 64, the rest by 8 times that.
    assert [column(rows, f"stride bin {n}")[3] for n in (0, 1, 7)] == [pytest.approx(1 / 3)] * 3
    assert [column(rows, f"stride bin {n}")[2] for n in (0, 4, 10)] == [pytest.approx(1 / 3)] * 3


def test_observations_are_new_every_time() -> None:
    nest = initial(matmul(48, 64, 40))
    for kind in ("flat", "graph"):
        observer = make_observer(kind, 8, 0)  # type: ignore[arg-type]
        first, second = observer(View(nest)), observer(View(nest))
        pairs = (
            [(first[key], second[key]) for key in first]
            if isinstance(first, dict) and isinstance(second, dict)
            else [(first, second)]
        )
        assert not any(np.shares_memory(a, b) for a, b in pairs)
