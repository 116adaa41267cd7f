"""The nodes of a TensorIR module, read without an object for each of them.

`data.tir.graph` makes Python objects of all nodes, most of which loop features never look at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import tvm

from ...data.tir.analysis import item_bytes

# Fields of an expression or a statement that lead to nothing that runs.
_ASIDE = frozenset(
    {"span", "ty", "op", "attrs", "ty_args", "annotations", "thread_binding", "kind"}
)


class Nodes:
    """A module's nodes by number.

    Attributes:
        kinds: What each is, such as `tirx.For`.
        data: Its fields by name, most of them numbers of nodes; of an array the list of its items'
            numbers, of a literal the value.
    """

    def __init__(self, mod: Any) -> None:
        raw = json.loads(tvm.ir.save_json(mod))["nodes"]
        self.kinds: list[str] = [entry["type"] for entry in raw]
        self.data: list[Any] = [entry.get("data") for entry in raw]
        self._types: dict[int, tuple[str, int]] = {}

    def function(self) -> dict[str, Any]:
        """The fields of the module's only function."""
        fields: dict[str, Any] = self.data[self.kinds.index("tirx.PrimFunc")]
        return fields

    def items(self, array: int) -> list[int]:
        """The items of an array; of a map keys and values in turn."""
        found: list[int] | None = self.data[array]
        return found or []

    def integer(self, i: int) -> int | None:
        """The value of an integer literal, or None."""
        if self.kinds[i] == "ir.IntImm":
            i = self.data[i]["value"]
        value: int = self.data[i]
        return value if self.kinds[i] in ("int", "bool") else None

    def text(self, i: int) -> str:
        """The value of a string literal, or an empty string."""
        value = self.data[i]
        if self.kinds[i] == "ir.StringImm":
            value = self.data[value["value"]]
        return value if isinstance(value, str) else ""

    def mapping(self, i: int) -> dict[str, int]:
        """A map's values by their names."""
        items = self.items(i)
        return {self.text(k): v for k, v in zip(items[::2], items[1::2], strict=True)}

    def dtype(self, i: int) -> tuple[str, int]:
        """The element type's name of an expression or a buffer, and its lanes."""
        ty = self.data[i]["ty"]
        if ty not in self._types:
            name = ty
            while isinstance(name, int):
                fields = self.data[name]
                name = fields.get("dtype", "") if isinstance(fields, dict) else ""
            element, _, lanes = name.partition("x")
            self._types[ty] = element, int(lanes) if lanes.isdigit() else 1
        return self._types[ty]

    def item(self, buffer: int) -> int:
        """Bytes of an element of a buffer."""
        return item_bytes(self.dtype(buffer)[0])

    def callee(self, i: int) -> str:
        """The operator that a call calls, such as `exp`, without its dialect."""
        operator = self.data[i]["op"]
        name = self.data[operator]
        return name.rpartition(".")[2] if isinstance(name, str) else self.kinds[operator]

    def children(self, i: int) -> Iterator[int]:
        """The nodes that one refers to and that may run: operands, statements, their arrays."""
        data = self.data[i]
        if self.kinds[i] == "ffi.Array":
            yield from data or []
        elif isinstance(data, dict):
            for name, value in data.items():
                # A node refers to earlier ones only.
                if name not in _ASIDE and type(value) is int and value < i:
                    yield value
