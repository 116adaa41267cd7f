"""The loop tree of a scheduled TensorIR program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...data.tir.graph import deep_recursion
from .loops_nodes import KINDS, children, function, integer, mapping, text
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
        block: The block around it, or None.
    """

    parent: int = -1
    limit: int = 0
    explicit: bool = False
    guards: int = 0
    block: Any = None


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
        found = function(mod)
        self.expressions = Expressions(found)
        with deep_recursion():
            self._run(found.body, Scope())

    def _run(self, node: Any, scope: Scope) -> Steps:
        kind = KINDS[type(node)]
        if kind == "tirx.For":
            return self._loop(node, scope)
        if kind == "s_tir.SBlockRealize":
            if integer(node.predicate) != 1:
                scope = scope._replace(guards=scope.guards + 1)
            return self._block(node.block, node.iter_values, scope)
        if kind == "s_tir.SBlock":
            return self._block(node, (), scope)
        if kind == "tirx.BufferStore":
            return self._leaf(self.expressions.store(node, scope.guards), scope)
        if kind == "tirx.Evaluate":
            return self._evaluate(node.value, scope)
        if kind == "tirx.Bind":
            self.expressions.bind(node.var, self.expressions.form(node.value))
            return Steps()
        if kind == "tirx.IfThenElse":
            scope = scope._replace(guards=scope.guards + 1)
        elif kind == "tirx.AttrStmt":
            scope = self._noted(scope, {text(node.attr_key): node.value})
        return self._sequence(node, scope)

    def _sequence(self, node: Any, scope: Scope) -> Steps:
        """What runs in a node of any other kind, one after the other."""
        steps = Steps()
        for child in children(node):
            kind = KINDS[type(child)]
            if kind == "ffi.Array":
                steps = _beside(steps, self._sequence(child, scope))
            elif kind.startswith(("tirx.", "s_tir.")):
                steps = _beside(steps, self._run(child, scope))
        return steps

    def _noted(self, scope: Scope, notes: dict[str, Any]) -> Scope:
        """The scope under the pragmas among some annotations."""
        if _LIMIT in notes:
            scope = scope._replace(limit=integer(notes[_LIMIT]) or 0)
        if _EXPLICIT in notes:
            scope = scope._replace(explicit=bool(integer(notes[_EXPLICIT])))
        return scope

    def _loop(self, loop: Any, scope: Scope) -> Steps:
        notes = mapping(loop.annotations)
        scope = self._noted(scope, notes)
        low = self.expressions.form(loop.min)
        length = self.expressions.extent(loop.extent)
        if length == 1:
            self.expressions.bind(loop.loop_var, low)
            return self._run(loop.body, scope)
        number = len(self.nodes)
        start = self.expressions.forms.interval(low)[0]
        node = TreeNode(
            scope.parent,
            scope.limit,
            scope.explicit,
            kind=loop.kind,
            length=length,
            low=int(start) if abs(start) < 2**31 else 0,
            partitioned=_PARTITION in notes,
        )
        self.nodes.append(node)
        form = self.expressions.forms.loop(number, node.low, length)
        self.expressions.bind(loop.loop_var, form)
        return _around(node, self._run(loop.body, scope._replace(parent=number)))

    def _block(self, block: Any, values: Iterable[Any], scope: Scope) -> Steps:
        scope = self._noted(scope, mapping(block.annotations))
        forms = [self.expressions.form(value) for value in values]
        for axis, form in zip(block.iter_vars, forms, strict=False):
            self.expressions.bind(axis.var, form)
            reduction = axis.iter_type == _REDUCTION
            for loop in self.expressions.forms.loops(form):
                self.nodes[loop].reduction |= reduction
                self.nodes[loop].spatial |= not reduction
        for match in block.match_buffers:
            self.expressions.view(match)
        scope = scope._replace(block=block)
        steps = Steps()
        if block.init is not None:
            steps = self._run(block.init, scope._replace(guards=scope.guards + 1))
        return _beside(steps, self._run(block.body, scope))

    def _leaf(self, statement: Statement, scope: Scope) -> Steps:
        self.nodes.append(TreeNode(scope.parent, scope.limit, scope.explicit, statement))
        return Steps(1)

    def _evaluate(self, value: Any, scope: Scope) -> Steps:
        if KINDS[type(value)] != "ir.Call":
            return Steps()
        return self._leaf(self.expressions.call(value, scope.guards, scope.block), scope)


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
