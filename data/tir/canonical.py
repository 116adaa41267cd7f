"""The canonical identity of a computation.

Two modules share an identity when they compute the same thing in the same way: names, attributes,
annotations, the width of index arithmetic, and loops and dimensions of extent one do not count;
the order of arguments, the shapes, the dtypes and the stages do. `matmul` 512 and a batch of one
512 x 512 product are the same, a product with transposed weights is another.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from .graph import (
    ANYTHING,
    Interval,
    Node,
    callee,
    combine,
    deep_recursion,
    integer,
    read_graph,
)

_INDEX_TYPES = frozenset({"int32", "int64", "uint32", "bool", "uint1"})
_ITER_KINDS = {0: "S", 2: "R"}
_LONG = 4096
_COMMUTES = frozenset({"prim.Add", "prim.Mul"})


class Term(NamedTuple):
    """An expression: its text, its interval if it is an integer, and whether it reads no buffer."""

    text: str
    interval: Interval = ANYTHING
    pure: bool = False


def canonical_text(mod: Any) -> str:
    """The text that the identity is a hash of."""
    with deep_recursion():
        return _Writer().function(read_graph(mod))


def canonical_identity(mod: Any) -> str:
    """16 hexadecimal digits, equal across processes and machines."""
    return hashlib.sha256(canonical_text(mod).encode()).hexdigest()[:16]


def _constant(value: float) -> Term:
    return Term(str(int(value)), (value, value), True)


def _kept(shape: list[Node]) -> list[int]:
    """Positions of the dimensions that are not of extent one."""
    return [i for i, extent in enumerate(shape) if integer(extent) != 1]


class _Writer:
    """Writes a function down, numbering buffers and variables in order of appearance."""

    def __init__(self) -> None:
        self.bound: dict[int, Term] = {}
        self.buffers: dict[int, str] = {}
        self.declared: list[str] = []
        self.written: dict[int, Term] = {}
        self.variables = 0

    def function(self, func: Node) -> str:
        signature = ",".join(self.variable(param).text for param in func["params"])
        body = self.statement(func["body"])
        return f"({signature})" + "{" + body + "}" + ";".join(self.declared)

    # Variables and buffers

    def new_variable(self, node: Node, interval: Interval) -> str:
        name = f"v{self.variables}"
        self.variables += 1
        self.bind(node, Term(name, interval, True))
        return name

    def bind(self, node: Node, term: Term) -> None:
        self.bound[id(node)] = term
        self.written.clear()

    def variable(self, node: Node) -> Term:
        if node.is_buffer:
            return Term(self.buffer(node))
        if id(node) not in self.bound:
            name = self.new_variable(node, ANYTHING)
            if node.dtype not in _INDEX_TYPES:
                self.declared.append(f"{name}:{node.dtype or self.anything(node.fields.get('ty'))}")
        return self.bound[id(node)]

    def buffer(self, node: Node) -> str:
        if id(node) in self.buffers:
            return self.buffers[id(node)]
        name = self.buffers[id(node)] = f"b{len(self.buffers)}"
        ty = node.fields["ty"]
        shape = ty["shape"]
        text = ",".join(self.expression(shape[i]).text for i in _kept(shape))
        text = f"{name}:{node.dtype}[{text}]"
        if ty["storage_scope"] not in ("global", ""):
            text += f"@{ty['storage_scope']}"
        if ty["strides"]:
            text += f"/{','.join(self.expression(stride).text for stride in ty['strides'])}"
        self.declared.append(text)
        return name

    def element(self, buffer: Node, indices: list[Node]) -> str:
        shape = buffer.shape
        positions = _kept(shape) if len(shape) == len(indices) else range(len(indices))
        text = ",".join(self.expression(indices[i]).text for i in positions)
        return f"{self.buffer(buffer)}[{text}]"

    # Statements

    def statement(self, node: Node) -> str:
        kind = node.kind
        if kind == "tirx.SeqStmt":
            return ";".join(self.statement(child) for child in node["seq"])
        if kind == "tirx.For":
            return self.loop(node)
        if kind == "s_tir.SBlockRealize":
            return self.block(node["block"], node["iter_values"], node["predicate"])
        if kind == "s_tir.SBlock":
            return self.block(node, [], None)
        if kind == "tirx.BufferStore":
            value = self.expression(node["value"]).text
            return f"{self.element(node['buffer'], node['indices'])}={value}"
        if kind == "tirx.IfThenElse":
            return self.branch(node)
        return self.anything(node)

    def loop(self, node: Node) -> str:
        low, extent = self.expression(node["min"]), self.expression(node["extent"])
        if extent.interval == (1.0, 1.0) and node["thread_binding"] is None:
            self.bind(node["loop_var"], low)
            return self.statement(node["body"])
        last = (low.interval[0], low.interval[1] + extent.interval[1] - 1)
        name = self.new_variable(node["loop_var"], last)
        step = self.expression(node["step"]).text if node["step"] is not None else "1"
        by = "" if step == "1" else f"/{step}"
        return (
            f"for {name}[{low.text},{extent.text}){by}" + "{" + self.statement(node["body"]) + "}"
        )

    def block(self, node: Node, values: list[Node], predicate: Node | None) -> str:
        parts = []
        for position, iteration in enumerate(node["iter_vars"]):
            low = self.expression(iteration["dom"]["min"])
            extent = self.expression(iteration["dom"]["extent"])
            if extent.interval == (1.0, 1.0):
                self.bind(iteration["var"], low)
                continue
            value = self.expression(values[position]).text if values else ""
            last = (low.interval[0], low.interval[1] + extent.interval[1] - 1)
            name = self.new_variable(iteration["var"], last)
            kind = _ITER_KINDS.get(iteration["iter_type"], str(iteration["iter_type"]))
            parts.append(f"{name}:{kind}[{low.text},{extent.text})={value}")
        if predicate is not None and (where := self.expression(predicate)).interval != (1.0, 1.0):
            parts.append(f"where {where.text}")
        parts += [f"match {self.anything(match)}" for match in node["match_buffers"]]
        if node["init"] is not None:
            parts.append(f"init {self.statement(node['init'])}")
        body = self.statement(node["body"])
        return f"block{{{';'.join([*parts, body])}}}" if parts else body

    def branch(self, node: Node) -> str:
        condition = self.expression(node["condition"])
        other = node["else_case"]
        if condition.interval == (1.0, 1.0):
            return self.statement(node["then_case"])
        text = f"if {condition.text}{{{self.statement(node['then_case'])}}}"
        return text if other is None else f"{text}else{{{self.statement(other)}}}"

    # Expressions

    def expression(self, node: Node) -> Term:
        term = self.written.get(id(node))
        if term is None:
            term = self.write(node)
            if len(term.text) > _LONG:
                # Expressions share their parts, and written out they can grow without bound.
                digest = hashlib.sha256(term.text.encode()).hexdigest()
                term = term._replace(text=f"#{digest}")
            self.written[id(node)] = term
        return term

    def write(self, node: Node) -> Term:
        kind = node.kind
        if kind == "ir.IntImm":
            return _constant(node["value"])
        if kind == "ir.FloatImm":
            return Term(f"{node['value']!r}{node.dtype}", pure=True)
        if kind == "ir.Var":
            return self.variable(node)
        if kind == "ir.TensorLoad":
            return Term(self.element(node["source"], node["indices"]))
        if kind == "prim.Cast":
            return self.cast(node)
        if kind in ("prim.Select", "ir.Call"):
            return self.call(node)
        if "a" in node.fields and "b" in node.fields:
            return self.binary(node)
        return Term(self.anything(node))

    def cast(self, node: Node) -> Term:
        value = self.expression(node["value"])
        source = node["value"].dtype
        # Index arithmetic is the same computation in 32 and in 64 bits.
        if value.pure and source in _INDEX_TYPES and node.dtype in _INDEX_TYPES:
            return value
        return Term(f"{node.dtype}({value.text})", pure=value.pure)

    def binary(self, node: Node) -> Term:
        kind = node.kind
        a, b = self.expression(node["a"]), self.expression(node["b"])
        pure = a.pure and b.pure
        if not node["a"].dtype.startswith(("int", "uint", "bool")):
            return Term(f"({a.text} {kind[5:]} {b.text})", pure=pure)
        interval = combine(kind, a.interval, b.interval)
        if interval[0] == interval[1]:
            return _constant(interval[0])
        if kind in _COMMUTES and a.interval[0] == a.interval[1]:
            a, b = b, a
        zero, one = b.interval == (0.0, 0.0), b.interval == (1.0, 1.0)
        if (
            (zero and kind in ("prim.Add", "prim.Sub"))
            or (one and kind in ("prim.Mul", "prim.FloorDiv", "prim.Div", "prim.And"))
            or (kind in ("prim.FloorMod", "prim.Mod") and interval == a.interval)
        ):
            return a
        if kind == "prim.And" and a.interval == (1.0, 1.0):
            return b
        return Term(f"({a.text} {kind[5:]} {b.text})", interval, pure)

    def call(self, node: Node) -> Term:
        if node.kind == "prim.Select":
            name, args = "select", [node["condition"], node["true_value"], node["false_value"]]
        else:
            name, args = callee(node), list(node["args"])
        if name in ("select", "prim.if_then_else", "tirx.if_then_else"):
            condition = self.expression(args[0])
            if condition.interval[0] == condition.interval[1]:
                return self.expression(args[1] if condition.interval[0] else args[2])
        terms = [self.expression(arg) for arg in args]
        dtype = "" if node.dtype in _INDEX_TYPES else node.dtype
        pure = bool(terms) and all(term.pure for term in terms)
        return Term(f"{name}:{dtype}({','.join(term.text for term in terms)})", pure=pure)

    def anything(self, value: Any) -> str:
        """Any node at all, by its kind and fields, so that nothing is beyond being named."""
        if not isinstance(value, Node):
            return repr(value)
        if value.kind == "ir.Var":
            return self.variable(value).text
        if value.kind in _STATEMENTS:
            return self.statement(value)
        if value.kind in _EXPRESSIONS or value.kind.startswith("prim."):
            return self.expression(value).text
        if value.kind in ("ffi.Array", "ffi.Map", "ffi.List", "ffi.Dict"):
            return f"[{','.join(self.anything(item) for item in value.items)}]"
        if not value.fields:
            return f"{value.kind}:{value.value!r}"
        fields = (
            f"{name}={self.anything(field)}"
            for name, field in sorted(value.fields.items())
            if name not in _IGNORED
        )
        return f"{value.kind}({','.join(fields)})"


_STATEMENTS = frozenset(
    {
        "tirx.SeqStmt",
        "tirx.For",
        "tirx.BufferStore",
        "tirx.IfThenElse",
        "s_tir.SBlock",
        "s_tir.SBlockRealize",
    }
)
_EXPRESSIONS = frozenset({"ir.IntImm", "ir.FloatImm", "ir.TensorLoad", "ir.Call"})
_IGNORED = frozenset(
    {"span", "ty", "name", "name_hint", "annotations", "reads", "writes", "layout"}
)
