"""What the statements of a program compute, and which elements of which buffers they touch."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...data.tir.graph import ANYTHING, COMPARISONS
from .loops_forms import Form, Forms, key
from .loops_json import Nodes
from .schemas import LOOP_WORK

_AT = {name: i for i, name in enumerate(LOOP_WORK)}
_DIVISIONS = frozenset({"prim.Div", "prim.Mod", "prim.FloorDiv", "prim.FloorMod"})
_COMPARED = COMPARISONS | {"prim.Min", "prim.Max", "prim.And", "prim.Or", "prim.Not"}
_SUMS = frozenset({"prim.Add", "prim.Sub"})
_BITS = frozenset({f"prim.Bitwise{name}" for name in ("And", "Or", "Xor", "Not")})
_INTEGER = _BITS | {"prim.LShift", "prim.RShift"}
# Calls that reinterpret or address but do no arithmetic.
_FREE = frozenset({"likely", "reinterpret", "address_of", "buffer_data"})
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
    """Reads the expressions of a program, statement by statement.

    Attributes:
        nodes: The program's nodes.
        forms: The linear forms of its indices.
        buffers: Its buffers by number.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.forms = Forms()
        self.buffers: list[Buffer] = []
        self._kinds = nodes.kinds
        self._data = nodes.data
        self._params = frozenset(nodes.items(nodes.function()["params"]))
        self._numbers: dict[int, int] = {}
        self._views: dict[int, tuple[int, list[Form]]] = {}
        self._bound: dict[int, Form] = {}
        self._memo: dict[int, Form] = {}
        self._seen: set[int] = set()
        self._here: Statement | None = None

    def bind(self, variable: int, form: Form) -> None:
        """Say what a variable stands for from here on."""
        self._bound[variable] = form
        self._memo.clear()

    def view(self, match: int) -> None:
        """Let a buffer stand for a region of another one."""
        fields = self._data[match]
        region = self._data[fields["source"]]
        parts = self.nodes.items(region["region"])
        lows = [self.form(self._data[part]["min"]) for part in parts]
        self._views[fields["buffer"]] = region["source"], lows

    def extent(self, i: int) -> int:
        """The value of an integer expression, or the most that it can be; 1 if nothing is known."""
        value = self.nodes.integer(i)
        if value is None:
            high = self.forms.interval(self.form(i))[1]
            value = int(high) if high < 2**31 else 1
        return max(value, 1)

    # Statements

    def store(self, i: int, guards: int) -> Statement:
        """Read a `BufferStore` under so many conditions."""
        fields = self._data[i]
        statement = self._begin(guards)
        self._value(fields["value"])
        indices = tuple(self.form(index) for index in self.nodes.items(fields["indices"]))
        self._touch(fields["buffer"], indices, write=True)
        statement.item = self.nodes.item(fields["buffer"])
        self._here = None
        return statement

    def call(self, i: int, guards: int, regions: list[tuple[int, bool]]) -> Statement:
        """Read a call for its effect.

        Args:
            i: The call.
            guards: Conditions that it is under.
            regions: What its block declares to read and (True) to write, which stands for its
                accesses where none is seen.
        """
        statement = self._begin(guards)
        self._value(i)
        if not statement.accesses:
            for region, write in regions:
                self._region(region, write)
                if write:
                    item = self.nodes.item(self._data[region]["source"])
                    statement.item = max(statement.item, item)
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

    def _value(self, i: int) -> None:
        """Count the work of an expression; what a statement uses several times is done once."""
        kind = self._kinds[i]
        if i in self._seen or kind in ("ir.IntImm", "ir.FloatImm", "ir.Var"):
            return
        self._seen.add(i)
        if kind == "ir.TensorLoad":
            self._load(i)
            return
        if kind.startswith("prim.") or kind == "ir.Call":
            self._operation(i, kind)
        for child in self.nodes.children(i):
            self._value(child)

    def _operation(self, i: int, kind: str) -> None:
        element, lanes = self.nodes.dtype(i)
        number = "float" if "float" in element else "int"
        if kind in _SUMS:
            if number == "float" and self._takes_product(i):
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
            self._called(self.nodes.callee(i), number, lanes)

    def _takes_product(self, i: int) -> bool:
        """Whether an operand is a product that nothing else of the statement has used."""
        for name in ("b", "a"):
            part = self._data[i][name]
            if self._kinds[part] == "prim.Mul" and part not in self._seen:
                self._seen.add(part)
                for child in self.nodes.children(part):
                    self._value(child)
                return True
        return False

    def _called(self, name: str, number: str, lanes: int) -> None:
        if name == "if_then_else":
            self._count("select", lanes)
        elif name not in _FREE:
            self._count("float math" if number == "float" else "int add", lanes)

    # Accesses

    def _load(self, i: int) -> tuple[Form, ...]:
        fields = self._data[i]
        indices = tuple(self.form(index) for index in self.nodes.items(fields["indices"]))
        self._touch(fields["source"], indices, write=False)
        return indices

    def _region(self, i: int, write: bool) -> None:
        fields = self._data[i]
        indices = []
        for part in self.nodes.items(fields["region"]):
            low = self.form(self._data[part]["min"])
            lanes = self._lanes(self.extent(self._data[part]["extent"]))
            indices.append(self.forms.binary("prim.Add", low, lanes))
        self._touch(fields["source"], tuple(indices), write)

    def _lanes(self, count: int) -> Form:
        """The values 0 to `count` - 1 at once."""
        if count < 2:
            return _NOTHING
        return self.forms.term(f"lanes {count}", (), (0, count - 1), count)

    def _touch(self, buffer: int, indices: tuple[Form, ...], write: bool) -> None:
        if self._here is None:
            return
        while buffer in self._views:
            buffer, lows = self._views[buffer]
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

    def _number(self, buffer: int) -> int:
        if buffer not in self._numbers:
            self._numbers[buffer] = len(self.buffers)
            shape = self._data[self._data[buffer]["ty"]]["shape"]
            extents = tuple(self.extent(i) for i in self.nodes.items(shape))
            local = buffer not in self._params
            self.buffers.append(Buffer(extents, self.nodes.item(buffer), local))
        return self._numbers[buffer]

    # Indices

    def form(self, i: int) -> Form:
        """The linear form of an integer expression; loads in it count for the statement."""
        found = self._memo.get(i)
        if found is None:
            found = self._memo[i] = self._form(i, self._kinds[i])
        return found

    def _form(self, i: int, kind: str) -> Form:
        if kind == "ir.IntImm":
            return self.nodes.integer(i) or 0, {}
        if kind == "ir.Var":
            bound = self._bound.get(i)
            return bound if bound is not None else self.forms.term(f"variable {i}", ())
        fields = self._data[i]
        if kind in ("prim.Cast", "prim.Broadcast"):
            return self.form(fields["value"])
        if kind == "ir.TensorLoad":
            return self.forms.term(f"element of {fields['source']}", self._load(i))
        if kind == "prim.Ramp":
            lanes = self._lanes(self.extent(fields["lanes"]))
            steps = self.forms.binary("prim.Mul", lanes, self.form(fields["stride"]))
            return self.forms.binary("prim.Add", self.form(fields["base"]), steps)
        if isinstance(fields, dict) and "a" in fields and "b" in fields:
            return self.forms.binary(kind, self.form(fields["a"]), self.form(fields["b"]))
        if kind == "ir.Call":
            args = self.nodes.items(fields["args"])
            if self.nodes.callee(i) == "likely":
                return self.form(args[0])
            return self.forms.term(f"call {fields['op']}", tuple(self.form(a) for a in args))
        parts = tuple(self.form(child) for child in self.nodes.children(i))
        return self.forms.term(kind, parts, ANYTHING)
