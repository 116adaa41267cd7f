"""The loop tree of a scheduled TensorIR program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ...data.tir.graph import deep_recursion
from .loops_json import Nodes
from .loops_statement import Expressions, Statement

SERIAL, PARALLEL, VECTORISED, UNROLLED = range(4)  # TVM's numbers of the kinds of loop
_REDUCTION = 2  # TVM's number of the kind of axis
# TVM unrolls at most so many nested loops because of a limit (its `UnrollLoop` pass).
_UNROLL_DEPTH = 8

_LIMIT = "pragma_auto_unroll_max_step"
_EXPLICIT = "pragma_unroll_explicit"
_PARTITION = "pragma_loop_partition_hint"


class Scope(NamedTuple):
    """What holds at a place in the program.

    Attributes:
        parent: The node around it; -1 at the root.
        limit: Steps up to which loops are unrolled.
        explicit: Whether TVM unrolls them itself, and does not leave it to LLVM.
        guards: Conditions that it is under.
        regions: What the block around it declares to read and (True) to write.
    """

    parent: int = -1
    limit: int = 0
    explicit: bool = False
    guards: int = 0
    regions: tuple[tuple[int, bool], ...] = ()


@dataclass
class TreeNode:
    """A loop, or a statement.

    Attributes:
        parent: The node around it; -1 at the root.
        limit: Steps up to which loops are unrolled here.
        explicit: Whether TVM unrolls them itself, and does not leave it to LLVM.
        statement: What a statement does; None for a loop.
        kind: TVM's number of the kind of loop; -1 for a statement.
        length: Iterations; 1 for a statement.
        low: The variable's least value.
        partitioned: Whether the loop is split where its guards begin to hold.
        by_limit: Whether the limit gets the loop unrolled.
        spatial: Whether a spatial axis varies with it.
        reduction: Whether an axis that is reduced does.
    """

    parent: int
    limit: int
    explicit: bool
    statement: Statement | None = None
    kind: int = -1
    length: int = 1
    low: int = 0
    partitioned: bool = False
    by_limit: bool = False
    spatial: bool = False
    reduction: bool = False


class Steps(NamedTuple):
    """What TVM's `UnrollLoop` counts below a loop.

    Attributes:
        statements: Statements, those of unrolled loops for every iteration.
        unrolled: Unrolled loops, nested.
        kept: Other loops, nested.
    """

    statements: int = 0
    unrolled: int = 0
    kept: int = 0


class Tree:
    """The loop tree of a module's only function.

    Loops of one iteration are left out: the compiled program has none.

    Attributes:
        nodes: The loops and statements in pre-order.
        expressions: The reader of the statements, with the buffers and the forms of the indices.
    """

    def __init__(self, mod: Any) -> None:
        self.nodes: list[TreeNode] = []
        self._json = Nodes(mod)
        self._kinds = self._json.kinds
        self._data = self._json.data
        self.expressions = Expressions(self._json)
        with deep_recursion():
            self._run(self._json.function()["body"], Scope())

    def _run(self, i: int, scope: Scope) -> Steps:
        kind, data = self._kinds[i], self._data[i]
        if kind == "tirx.For":
            return self._loop(data, scope)
        if kind == "s_tir.SBlockRealize":
            if self._json.integer(data["predicate"]) != 1:
                scope = scope._replace(guards=scope.guards + 1)
            return self._block(data["block"], self._json.items(data["iter_values"]), scope)
        if kind == "s_tir.SBlock":
            return self._block(i, [], scope)
        if kind == "tirx.BufferStore":
            return self._leaf(self.expressions.store(i, scope.guards), scope)
        if kind == "tirx.Evaluate":
            return self._evaluate(data["value"], scope)
        if kind == "tirx.Bind":
            self.expressions.bind(data["var"], self.expressions.form(data["value"]))
            return Steps()
        if kind == "tirx.IfThenElse":
            scope = scope._replace(guards=scope.guards + 1)
        elif kind == "tirx.AttrStmt":
            name = self._json.text(data["attr_key"])
            scope = self._noted(scope, {name: data["value"]})
        return self._sequence(i, scope)

    def _sequence(self, i: int, scope: Scope) -> Steps:
        """What runs in a node of any other kind, one after the other."""
        steps = Steps()
        for child in self._json.children(i):
            if self._kinds[child] == "ffi.Array":
                steps = _beside(steps, self._sequence(child, scope))
            elif self._kinds[child].startswith(("tirx.", "s_tir.")):
                steps = _beside(steps, self._run(child, scope))
        return steps

    def _noted(self, scope: Scope, notes: dict[str, int]) -> Scope:
        """The scope under the pragmas among some annotations."""
        if _LIMIT in notes:
            scope = scope._replace(limit=self._json.integer(notes[_LIMIT]) or 0)
        if _EXPLICIT in notes:
            scope = scope._replace(explicit=bool(self._json.integer(notes[_EXPLICIT])))
        return scope

    def _loop(self, data: dict[str, Any], scope: Scope) -> Steps:
        notes = self._json.mapping(data["annotations"])
        scope = self._noted(scope, notes)
        low = self.expressions.form(data["min"])
        length = self.expressions.extent(data["extent"])
        if length == 1:
            self.expressions.bind(data["loop_var"], low)
            return self._run(data["body"], scope)
        number = len(self.nodes)
        start = self.expressions.forms.interval(low)[0]
        node = TreeNode(
            scope.parent,
            scope.limit,
            scope.explicit,
            kind=data["kind"],
            length=length,
            low=int(start) if abs(start) < 2**31 else 0,
            partitioned=_PARTITION in notes,
        )
        self.nodes.append(node)
        form = self.expressions.forms.loop(number, node.low, length)
        self.expressions.bind(data["loop_var"], form)
        return _around(node, self._run(data["body"], scope._replace(parent=number)))

    def _block(self, i: int, values: list[int], scope: Scope) -> Steps:
        data = self._data[i]
        scope = self._noted(scope, self._json.mapping(data["annotations"]))
        axes = [self._data[axis] for axis in self._json.items(data["iter_vars"])]
        forms = [self.expressions.form(value) for value in values]
        for axis, form in zip(axes, forms, strict=False):
            self.expressions.bind(axis["var"], form)
            for loop in self.expressions.forms.loops(form):
                self.nodes[loop].reduction |= axis["iter_type"] == _REDUCTION
                self.nodes[loop].spatial |= axis["iter_type"] != _REDUCTION
        for match in self._json.items(data["match_buffers"]):
            self.expressions.view(match)
        reads, writes = self._json.items(data["reads"]), self._json.items(data["writes"])
        regions = [(region, False) for region in reads] + [(region, True) for region in writes]
        scope = scope._replace(regions=tuple(regions))
        steps = Steps()
        if self._kinds[data["init"]] != "None":
            steps = self._run(data["init"], scope._replace(guards=scope.guards + 1))
        return _beside(steps, self._run(data["body"], scope))

    def _leaf(self, statement: Statement, scope: Scope) -> Steps:
        self.nodes.append(TreeNode(scope.parent, scope.limit, scope.explicit, statement))
        return Steps(1)

    def _evaluate(self, value: int, scope: Scope) -> Steps:
        if self._kinds[value] != "ir.Call":
            return Steps()
        statement = self.expressions.call(value, scope.guards, list(scope.regions))
        return self._leaf(statement, scope)


def _beside(a: Steps, b: Steps) -> Steps:
    return Steps(a.statements + b.statements, max(a.unrolled, b.unrolled), max(a.kept, b.kept))


def _around(node: TreeNode, inner: Steps) -> Steps:
    """The steps of a loop; notes whether the limit gets it unrolled, as `UnrollLoop` decides it."""
    if node.kind == VECTORISED:
        return inner  # vector instructions by then
    node.by_limit = (
        node.kind == SERIAL
        and inner.kept == 0
        and inner.unrolled <= _UNROLL_DEPTH
        and node.length * inner.statements <= node.limit
    )
    if node.by_limit or node.kind == UNROLLED:
        return Steps(node.length * inner.statements, inner.unrolled + 1, inner.kept)
    return inner._replace(kept=inner.kept + 1)


__all__ = ["PARALLEL", "SERIAL", "UNROLLED", "VECTORISED", "Tree", "TreeNode"]
