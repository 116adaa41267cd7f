"""Index expressions as linear forms of loop variables, and what they range over.

A form is a constant and coefficients by number: loops have the numbers from 0 up, and terms that
are not linear in the loops (quotients, remainders, values that were loaded) those from -1 down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...data.tir.graph import ANYTHING, Interval, combine

Array = npt.NDArray[np.float64]
Form = tuple[int, dict[int, int]]

_FLOORS = {"prim.Div": "prim.FloorDiv", "prim.Mod": "prim.FloorMod"}
_BOUNDED = frozenset({"prim.Min", "prim.Max"})
# What an unbounded value is taken for: above any extent, and exact in a float64.
_FAR = 2.0**31


class Term(NamedTuple):
    """What is not linear in the loops.

    Attributes:
        kind: `prim.FloorDiv` or `prim.FloorMod` by a constant, `prim.Min`, `prim.Max`, or anything
            else, of which only the interval is known.
        parts: The operands.
        interval: What it lies in.
        loops: The loops that it varies with.
        lanes: Values that it takes at once, in a vector.
    """

    kind: object
    parts: tuple[Form, ...]
    interval: Interval
    loops: frozenset[int]
    lanes: int = 1


def key(form: Form) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Something to compare and hash a form by."""
    return form[0], tuple(sorted(form[1].items()))


class Forms:
    """The linear forms of one program.

    Attributes:
        terms: The terms that are not linear; number -1 is the first one.
        ranges: The interval of each loop's variable.
    """

    def __init__(self) -> None:
        self.terms: list[Term] = []
        self.ranges: dict[int, Interval] = {}
        self._known: dict[object, int] = {}

    def loop(self, number: int, low: int, length: int) -> Form:
        """The variable of a loop."""
        self.ranges[number] = (low, low + length - 1)
        return 0, {number: 1}

    def loops(self, form: Form) -> set[int]:
        """The loops that a form varies with."""
        found: set[int] = set()
        for number in form[1]:
            if number >= 0:
                found.add(number)
            else:
                found |= self.terms[-1 - number].loops
        return found

    def interval(self, form: Form) -> Interval:
        """What a form lies in."""
        low = high = float(form[0])
        for number, factor in form[1].items():
            a, b = self.ranges[number] if number >= 0 else self.terms[-1 - number].interval
            low += factor * (a if factor > 0 else b)
            high += factor * (b if factor > 0 else a)
        return low, high

    def binary(self, kind: str, a: Form, b: Form) -> Form:
        """The form of a binary operation."""
        if kind == "prim.Add":
            return _sum(a, b, 1)
        if kind == "prim.Sub":
            return _sum(a, b, -1)
        if kind == "prim.Mul" and not (a[1] and b[1]):
            return _scaled(a, b[0]) if not b[1] else _scaled(b, a[0])
        if kind in _FLOORS and self.interval(a)[0] >= 0:
            kind = _FLOORS[kind]
        if kind == "prim.FloorDiv" and not b[1] and b[0] > 0:
            return self._quotient(a, b[0])
        if kind == "prim.FloorMod" and not b[1] and b[0] > 0:
            return self._remainder(a, b[0])
        within = combine(kind, self.interval(a), self.interval(b))
        if within[0] == within[1]:
            return int(within[0]), {}
        return self.term(kind if kind in _BOUNDED else f"any {kind}", (a, b), within)

    def term(
        self,
        kind: object,
        parts: tuple[Form, ...],
        interval: Interval = ANYTHING,
        lanes: int = 1,
    ) -> Form:
        """A term that is not linear; `kind` and the operands together say which one it is."""
        known = kind, tuple(key(part) for part in parts)
        if known not in self._known:
            low, high = max(interval[0], -_FAR), min(interval[1], _FAR)
            loops = frozenset(loop for part in parts for loop in self.loops(part))
            self.terms.append(Term(kind, parts, (low, high), loops, lanes))
            self._known[known] = -len(self.terms)
        return 0, {self._known[known]: 1}

    def _quotient(self, a: Form, divisor: int) -> Form:
        whole, rest = _divided(a, divisor)
        low, high = self.interval(rest)
        if low // divisor == high // divisor:
            return whole[0] + int(low // divisor), whole[1]
        within = low // divisor, high // divisor
        return _sum(whole, self.term("prim.FloorDiv", (rest, (divisor, {})), within), 1)

    def _remainder(self, a: Form, divisor: int) -> Form:
        _, rest = _divided(a, divisor)
        low, high = self.interval(rest)
        if low // divisor == high // divisor:
            return rest[0] - int(low // divisor) * divisor, rest[1]
        return self.term("prim.FloorMod", (rest, (divisor, {})), (0.0, divisor - 1.0))


def _sum(a: Form, b: Form, sign: int) -> Form:
    if not b[1]:
        return a[0] + sign * b[0], a[1]
    factors = dict(a[1])
    for number, factor in b[1].items():
        factors[number] = factors.get(number, 0) + sign * factor
        if not factors[number]:
            del factors[number]
    return a[0] + sign * b[0], factors


def _scaled(form: Form, by: int) -> Form:
    if by == 1:
        return form
    if by == 0:
        return 0, {}
    return form[0] * by, {number: factor * by for number, factor in form[1].items()}


def _divided(form: Form, by: int) -> tuple[Form, Form]:
    """A form as a multiple and a rest, whose sum it is; the multiple comes divided."""
    whole = {n: factor // by for n, factor in form[1].items() if factor % by == 0}
    rest = {n: factor for n, factor in form[1].items() if factor % by}
    return (form[0] // by, whole), (form[0] % by, rest)


class Table:
    """What forms come to at every node of a tree, and at single points.

    At a node the loops in its subtree run, and all others stand at their least value. The points
    are the origin, where every loop stands so, and for every loop its second and its last value,
    with the others at the origin.

    Args:
        forms: The forms' terms.
        lows: The least value of each of the n nodes' variables, of shape (n,).
        lengths: How many values it has; 1 for a statement.
        inside: Whether a node (row) is in the subtree of another one (column), of shape (n, n).
    """

    def __init__(self, forms: Forms, lows: Array, lengths: Array, inside: Array) -> None:
        n = self.n = len(lows)
        count = n + len(forms.terms)
        base = np.repeat(lows[:, None], 3 * n + 1, axis=1)
        last = lengths - 1
        diagonal = np.arange(n)
        base[diagonal, n + 1 + diagonal] += np.minimum(last, 1)
        base[diagonal, 2 * n + 1 + diagonal] += last
        # Columns: n nodes, the origin, n second values, n last values.
        self.low = np.empty((count, 3 * n + 1))
        self.high = np.empty((count, 3 * n + 1))
        self.low[:n] = self.high[:n] = base
        self.high[:n, :n] += last[:, None] * inside
        self.varies = np.zeros((count, n))
        self.varies[diagonal, diagonal] = lengths > 1
        self.lanes = np.zeros(count)
        for number, term in enumerate(forms.terms, n):
            self.varies[number, list(term.loops)] = 1
            self.lanes[number] = np.log2(term.lanes)
            self.low[number], self.high[number] = self._term(term)

    def row(self, number: int) -> int:
        """The row of a loop or a term."""
        return number if number >= 0 else self.n - 1 - number

    def _form(self, form: Form) -> tuple[Array, Array]:
        rows = [self.row(number) for number in form[1]]
        factors = np.array(list(form[1].values()), dtype=np.float64)
        up, down = np.maximum(factors, 0), np.minimum(factors, 0)
        low, high = self.low[rows], self.high[rows]
        return form[0] + up @ low + down @ high, form[0] + up @ high + down @ low

    def _term(self, term: Term) -> tuple[Array, Array]:
        if term.kind == "prim.FloorDiv":
            low, high = self._form(term.parts[0])
            divisor = term.parts[1][0]
            return np.floor(low / divisor), np.floor(high / divisor)
        if term.kind == "prim.FloorMod":
            low, high = self._form(term.parts[0])
            divisor = term.parts[1][0]
            below = np.floor(low / divisor)
            whole = below == np.floor(high / divisor)
            below *= divisor
            return np.where(whole, low - below, 0), np.where(whole, high - below, divisor - 1.0)
        if term.kind in _BOUNDED:
            (a, b), (c, d) = self._form(term.parts[0]), self._form(term.parts[1])
            choose = np.minimum if term.kind == "prim.Min" else np.maximum
            return choose(a, c), choose(b, d)
        low = np.full(3 * self.n + 1, term.interval[0])
        high = low.copy()
        high[: self.n] = term.interval[1]
        return low, high

    def evaluate(self, forms: list[Form]) -> tuple[Array, Array, Array, Array]:
        """Forms at the nodes and points.

        Returns:
            The least and the greatest value of each form, of shape (forms, 3 * n + 1); whether it
            varies with a loop, of shape (forms, n); and log2 of its values in a vector.
        """
        factors = np.zeros((len(forms), len(self.low)))
        for i, form in enumerate(forms):
            for number, factor in form[1].items():
                factors[i, self.row(number)] = factor
        constants = np.array([form[0] for form in forms], dtype=np.float64)[:, None]
        up, down = np.maximum(factors, 0), np.minimum(factors, 0)
        low = constants + up @ self.low + down @ self.high
        high = constants + up @ self.high + down @ self.low
        used = (factors != 0).astype(np.float64)
        return low, high, (used @ self.varies > 0).astype(np.float64), used @ self.lanes
