"""What the statements of a program compute, and which elements of which buffers they touch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...data.tir.graph import ANYTHING, COMPARISONS
from .loops_forms import Form, Forms, key
from .loops_nodes import KINDS, address, callee, children, dtype, integer, item
from .schemas import LOOP_WORK

_AT = {name: i for i, name in enumerate(LOOP_WORK)}
_DIVISIONS = frozenset({"prim.Div", "prim.Mod", "prim.FloorDiv", "prim.FloorMod"})
_COMPARED = COMPARISONS | {"prim.Min", "prim.Max", "prim.And", "prim.Or", "prim.Not"}
_SUMS = frozenset({"prim.Add", "prim.Sub"})
_BITS = frozenset({f"prim.Bitwise{name}" for name in ("And", "Or", "Xor", "Not")})
_INTEGER = _BITS | {"prim.LShift", "prim.RShift"}
# Calls that reinterpret or address but do no arithmetic.
_FREE = frozenset({"likely", "reinterpret", "address_of", "buffer_data"})
# What there is nothing to say of.
_PLAIN = frozenset({"ir.IntImm", "ir.FloatImm", "ir.Var"})
_NOTHING: Form = (0, {})


@dataclass
class Buffer:
    """A buffer.

    Attributes:
        shape: Extents.
        item: Bytes an element.
        local: Whether the program allocates it itself.
    """

    shape: tuple[int, ...]
    item: int
    local: bool


@dataclass
class Access:
    """Elements that a statement reads or writes in one place.

    Attributes:
        buffer: The buffer's number.
        indices: One form a dimension.
        reads: How often they are loaded.
        writes: How often they are stored.
    """

    buffer: int
    indices: tuple[Form, ...]
    reads: int = 0
    writes: int = 0


@dataclass
class Statement:
    """What one run of a statement does.

    Attributes:
        work: How much of each kind of work of `schemas.LOOP_WORK`.
        accesses: What it touches, by place.
        item: Bytes of an element that it stores.
    """

    work: list[float] = field(default_factory=lambda: [0.0] * len(LOOP_WORK))
    accesses: dict[object, Access] = field(default_factory=dict)
    item: int = 1


class Expressions:
    """Reads the expressions of a function, statement by statement.

    Args:
        function: The function.

    Attributes:
        forms: The linear forms of its indices.
        buffers: Its buffers by number.
    """

    def __init__(self, function: Any) -> None:
        self.forms = Forms()
        self.buffers: list[Buffer] = []
        # All by the nodes' addresses.
        self._params = frozenset(address(param) for param in function.params)
        self._numbers: dict[int, int] = {}
        self._views: dict[int, tuple[Any, list[Form]]] = {}
        self._bound: dict[int, Form] = {}
        self._memo: dict[int, Form] = {}
        self._seen: set[int] = set()
        self._here: Statement | None = None

    def bind(self, variable: Any, form: Form) -> None:
        """Say what a variable stands for from here on."""
        self._bound[address(variable)] = form
        self._memo.clear()

    def view(self, match: Any) -> None:
        """Let a buffer stand for a region of another one."""
        region = match.source
        lows = [self.form(part.min) for part in region.region]
        self._views[address(match.buffer)] = region.source, lows

    def extent(self, node: Any) -> int:
        """The value of an integer expression, or the most that it can be; 1 if nothing is known."""
        value = integer(node)
        if value is None:
            high = self.forms.interval(self.form(node))[1]
            value = int(high) if high < 2**31 else 1
        return max(value, 1)

    # Statements

    def store(self, node: Any, guards: int) -> Statement:
        """Read a `BufferStore` under so many conditions."""
        statement = self._begin(guards)
        self._value(node.value)
        buffer = node.buffer
        self._touch(buffer, tuple(self.form(index) for index in node.indices), write=True)
        statement.item = item(buffer)
        self._here = None
        return statement

    def call(self, node: Any, guards: int, block: Any) -> Statement:
        """Read a call for its effect.

        Args:
            node: The call.
            guards: Conditions that it is under.
            block: Its block, or None; what that declares to read and to write stands for the call's
                accesses where none is seen.
        """
        statement = self._begin(guards)
        self._value(node)
        if not statement.accesses and block is not None:
            for region in block.reads:
                self._region(region, write=False)
            for region in block.writes:
                self._region(region, write=True)
                statement.item = max(statement.item, item(region.source))
        self._here = None
        return statement

    def _begin(self, guards: int) -> Statement:
        self._here = Statement()
        self._here.work[_AT["guards"]] = guards
        self._memo.clear()
        self._seen.clear()
        return self._here

    def _count(self, what: str, times: int) -> None:
        if self._here is not None:
            self._here.work[_AT[what]] += times

    # Values

    def _value(self, node: Any) -> None:
        """Count the work of an expression; what a statement uses several times is done once."""
        kind = KINDS[type(node)]
        if kind in _PLAIN:
            return
        place = address(node)
        if place in self._seen:
            return
        self._seen.add(place)
        if kind == "ir.TensorLoad":
            self._load(node)
            return
        if kind.startswith("prim.") or kind == "ir.Call":
            self._operation(node, kind)
        for child in children(node):
            self._value(child)

    def _operation(self, node: Any, kind: str) -> None:
        element, lanes = dtype(node)
        number = "float" if "float" in element else "int"
        if kind in _SUMS:
            if number == "float" and self._takes_product(node):
                # The product is a part of it, and not counted again.
                self._count("float mad", lanes)
            else:
                self._count(f"{number} add", lanes)
        elif kind == "prim.Mul":
            self._count(f"{number} mul", lanes)
        elif kind in _DIVISIONS:
            self._count(f"{number} div", lanes)
        elif kind in _COMPARED:
            self._count("compare", lanes)
        elif kind in _INTEGER:
            self._count("int add", lanes)
        elif kind == "prim.Select":
            self._count("select", lanes)
        elif kind == "prim.Cast":
            self._count("cast", lanes)
        elif kind == "ir.Call":
            self._called(callee(node), number, lanes)

    def _takes_product(self, node: Any) -> bool:
        """Whether an operand is a product that nothing else of the statement has used."""
        for part in (node.b, node.a):
            if KINDS[type(part)] == "prim.Mul" and address(part) not in self._seen:
                self._seen.add(address(part))
                for child in children(part):
                    self._value(child)
                return True
        return False

    def _called(self, name: str, number: str, lanes: int) -> None:
        if name == "if_then_else":
            self._count("select", lanes)
        elif name not in _FREE:
            self._count("float math" if number == "float" else "int add", lanes)

    # Accesses

    def _load(self, node: Any) -> tuple[Form, ...]:
        indices = tuple(self.form(index) for index in node.indices)
        self._touch(node.source, indices, write=False)
        return indices

    def _region(self, region: Any, write: bool) -> None:
        indices = []
        for part in region.region:
            lanes = self._lanes(self.extent(part.extent))
            indices.append(self.forms.binary("prim.Add", self.form(part.min), lanes))
        self._touch(region.source, tuple(indices), write)

    def _lanes(self, count: int) -> Form:
        """The values 0 to `count` - 1 at once."""
        if count < 2:
            return _NOTHING
        return self.forms.term(f"lanes {count}", (), (0, count - 1), count)

    def _touch(self, buffer: Any, indices: tuple[Form, ...], write: bool) -> None:
        if self._here is None:
            return
        while self._views and address(buffer) in self._views:
            buffer, lows = self._views[address(buffer)]
            # A view may leave out dimensions in front.
            more = len(lows) - len(indices)
            inner = [
                self.forms.binary("prim.Add", low, index)
                for low, index in zip(lows[max(more, 0) :], indices[max(-more, 0) :], strict=True)
            ]
            indices = (*lows[: max(more, 0)], *inner)
        number = self._number(buffer)
        place = number, tuple(key(index) for index in indices)
        access = self._here.accesses.get(place)
        if access is None:
            access = self._here.accesses[place] = Access(number, indices)
        access.reads += not write
        access.writes += write
        self._count("stores" if write else "loads", 1)

    def _number(self, buffer: Any) -> int:
        place = address(buffer)
        if place not in self._numbers:
            self._numbers[place] = len(self.buffers)
            extents = tuple(self.extent(extent) for extent in buffer.ty.shape)
            local = place not in self._params
            self.buffers.append(Buffer(extents, item(buffer), local))
        return self._numbers[place]

    # Indices

    def form(self, node: Any) -> Form:
        """The linear form of an integer expression; loads in it count for the statement."""
        kind = KINDS[type(node)]
        if kind == "ir.IntImm":
            return node.value, {}
        place = address(node)
        found = self._memo.get(place)
        if found is None:
            found = self._memo[place] = self._form(node, kind, place)
        return found

    def _form(self, node: Any, kind: str, place: int) -> Form:
        if kind == "ir.Var":
            bound = self._bound.get(place)
            return bound if bound is not None else self.forms.term(f"variable {place}", ())
        if kind in ("prim.Cast", "prim.Broadcast"):
            return self.form(node.value)
        if kind == "ir.TensorLoad":
            return self.forms.term(f"element of {address(node.source)}", self._load(node))
        if kind == "prim.Ramp":
            lanes = self._lanes(self.extent(node.lanes))
            steps = self.forms.binary("prim.Mul", lanes, self.form(node.stride))
            return self.forms.binary("prim.Add", self.form(node.base), steps)
        if kind == "ir.Call":
            if callee(node) == "likely":
                return self.form(node.args[0])
            parts = tuple(self.form(argument) for argument in node.args)
            return self.forms.term(f"call {address(node.op)}", parts)
        if kind.startswith("prim.") and hasattr(node, "a") and hasattr(node, "b"):
            return self.forms.binary(kind, self.form(node.a), self.form(node.b))
        return self.forms.term(kind, tuple(self.form(child) for child in children(node)), ANYTHING)
