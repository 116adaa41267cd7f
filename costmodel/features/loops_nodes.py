"""The nodes of a TensorIR function, read from TVM's own objects.

Reading a field of a node takes a fifth of a microsecond. `tvm.ir.save_json`, which `data.tir.graph`
reads and which knows every kind of node, takes a millisecond or two a program: as long as all else
that loop features need. Here too a node of a kind that is not known is a name with fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from tvm_ffi import Object

from ...data.tir.analysis import item_bytes

# Fields of an expression or a statement that lead to nothing that runs.
_ASIDE = frozenset(
    {"span", "ty", "op", "attrs", "ty_args", "annotations", "thread_binding", "kind"}
)


class _Kinds(dict[type, str]):
    """TVM's names of the kinds of nodes, such as `tirx.For`, by their class in Python."""

    def __missing__(self, node: type) -> str:
        info = getattr(node, "__tvm_ffi_type_info__", None)
        found = self[node] = "" if info is None else str(info.type_key)
        return found


KINDS = _Kinds()


def address(node: Any) -> int:
    """What tells nodes apart; two references to one node have the same."""
    # Each read of a field makes a new Python object.
    found: int = node.__chandle__()
    return found


def function(mod: Any) -> Any:
    """The only function of a module; a function by itself is that.

    Raises:
        ValueError: the module has none.
    """
    if KINDS[type(mod)] == "tirx.PrimFunc":
        return mod
    for _, found in mod.functions.items():
        if KINDS[type(found)] == "tirx.PrimFunc":
            return found
    raise ValueError("a module without a function has no loops")


def integer(value: Any) -> int | None:
    """The value of an integer literal, or None."""
    if KINDS[type(value)] == "ir.IntImm":
        value = value.value
    return value if isinstance(value, int) else None


def text(value: Any) -> str:
    """The value of a string literal, or an empty string."""
    if KINDS[type(value)] == "ir.StringImm":
        value = value.value
    return value if isinstance(value, str) else ""


def mapping(notes: Any) -> dict[str, Any]:
    """A map's values by their names."""
    return {text(name): value for name, value in notes.items()} if len(notes) else {}


def dtype(node: Any) -> tuple[str, int]:
    """The element type's name of an expression or a buffer, and its lanes."""
    name = node.ty
    while name is not None and not isinstance(name, str):
        name = getattr(name, "dtype", "")
    return _parsed(str(name or ""))


@cache
def _parsed(name: str) -> tuple[str, int]:
    element, _, lanes = name.partition("x")
    return element, int(lanes) if lanes.isdigit() else 1


@cache
def _item(element: str) -> int:
    return item_bytes(element)


def item(buffer: Any) -> int:
    """Bytes of an element of a buffer."""
    return _item(dtype(buffer)[0])


def callee(call: Any) -> str:
    """The operator that a call calls, such as `exp`, without its dialect."""
    operator = call.op
    kind = KINDS[type(operator)]
    return str(operator.name).rpartition(".")[2] if kind == "ir.Op" else kind


def children(node: Any) -> Iterator[Any]:
    """The nodes that one refers to and that may run: operands, statements, their arrays."""
    kind = type(node)
    if KINDS[kind] == "ffi.Array":
        found = iter(node)
    else:
        found = (getattr(node, name) for name in _FIELDS[kind])
    return (child for child in found if isinstance(child, Object))


class _Fields(dict[type, tuple[str, ...]]):
    """The names of a kind's fields, inherited ones first, but for those that are aside."""

    def __missing__(self, node: type) -> tuple[str, ...]:
        names: list[str] = []
        info = getattr(node, "__tvm_ffi_type_info__", None)
        while info is not None:
            names = [field.name for field in info.fields if field.name not in _ASIDE] + names
            info = info.parent_type_info
        found = self[node] = tuple(names)
        return found


_FIELDS = _Fields()
