"""Imports run one way, without cycles, and at the top of a module."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

# Whom each layer may import from, besides itself. A module of the root is a layer of its own.
ALLOWED = {
    "data": set(),
    "costmodel": {"data"},
    "search": {"data", "costmodel"},
    "metaschedule": {"data", "costmodel", "search"},
    "cli": {"data", "costmodel", "search", "metaschedule"},
}
# The face loads lazily; it may name anything for a type checker, and nothing otherwise.
FACE = "__init__"

# Optional packages, and the modules (as prefixes) that may import them.
OPTIONAL = {
    "torch": ("costmodel.treegru", "costmodel.neural", "search.rl", "search.peers.torch_calls"),
    "safetensors": ("costmodel.treegru", "costmodel.neural", "search.rl"),
    "gymnasium": ("search.rl",),
    "stable_baselines3": ("search.rl",),
    "sb3_contrib": ("search.rl",),
    "dask": ("data.cluster",),
    "distributed": ("data.cluster",),
    "matplotlib": ("search.report", "search.plot"),
    "jinja2": ("search.report",),
    "onnx": ("data.onnx",),
}
# Not optional, but out of place elsewhere: `data` knows nothing of models.
ONLY_IN = OPTIONAL | {
    "xgboost": ("costmodel", "search.peers.old_tvm"),
    "sklearn": ("costmodel", "search", "data.splits"),
}


@dataclass(frozen=True)
class Import:
    line: int
    target: str  # dotted, relative to the package's root; or the name of another package
    ours: bool
    in_function: bool
    for_types: bool


def sources(root: Path) -> dict[str, Path]:
    """Our modules by dotted name; a package is named by its folder, the root by `__init__`."""
    found = {path.stem: path for path in root.glob("*.py")}
    for layer in ("data", "costmodel", "search", "cli"):
        for path in (root / layer).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: set[str]) -> Iterator[Import]:
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    base = [] if name == FACE else [part for part in package.split(".") if part]

    def visit(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                ours = alias.name.split(".")[0] == "tensortune"
                yield Import(node.lineno, alias.name, ours, in_function, for_types)
        elif isinstance(node, ast.ImportFrom):
            if not node.level:
                module = node.module or ""
                ours = module.split(".")[0] == "tensortune"
                yield Import(node.lineno, module, ours, in_function, for_types)
                return
            start = base[: len(base) - node.level + 1]
            module = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{module}.{alias.name}".strip(".")
                target = inner if inner in known else module
                yield Import(node.lineno, target, True, in_function, for_types)
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, in_function or function, for_types or types)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False, False)


def layer_of(name: str) -> str:
    """The layer of a module, by its dotted name."""
    return name.split(".")[0]


def faults(root: Path) -> list[str]:
    """What breaks the rules, one line each, with the file and the line."""
    modules = sources(root)
    graph: dict[str, set[str]] = {name: set() for name in modules}
    result: list[str] = []
    for name, path in modules.items():
        layer = layer_of(name)
        for found in imports(name, path, set(modules)):
            where = f"{path.relative_to(root)}:{found.line}"
            target = found.target.split(".")[0] if not found.ours else layer_of(found.target)
            if not found.ours:
                homes = ONLY_IN.get(target)
                if homes and not name.startswith(homes) and not found.for_types:
                    result.append(f"{where}: {target} belongs in {', '.join(homes)}")
                continue
            if target == "tensortune":
                result.append(f"{where}: inside the library imports are relative")
                continue
            if found.in_function:
                result.append(f"{where}: {found.target} is imported inside a function")
            if name == FACE:
                if not found.for_types:
                    result.append(f"{where}: the face imports {found.target} when loaded")
                continue
            if target != layer and target not in ALLOWED.get(layer, set()):
                result.append(f"{where}: {layer} must not import {found.target or 'the face'}")
            if found.target in graph and not found.for_types:
                graph[name].add(found.target)
    return result + [f"cycle: {' -> '.join(cycle)}" for cycle in cycles(graph)]


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One cycle for each import that closes one."""
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, trail: list[str]) -> None:
        if name in trail:
            found.append([*trail[trail.index(name) :], name])
        elif name not in done:
            for target in sorted(graph[name]):
                walk(target, [*trail, name])
            done.add(name)

    for name in sorted(graph):
        walk(name, [])
    return found


def test_imports_run_one_way(clone: Path) -> None:
    assert faults(clone) == []


def test_the_clone_is_really_looked_at(clone: Path) -> None:
    modules = sources(clone)
    assert {FACE, "data", "data.host", "costmodel", "search"} <= set(modules)
    found = {found.target for found in imports("data.doctor", modules["data.doctor"], set(modules))}
    assert {"data.host", "data.noise", "json"} <= found


@pytest.mark.parametrize(
    ("module", "text", "fault"),
    [
        ("data/a.py", "from ..costmodel.base import X", "data must not import costmodel.base"),
        ("costmodel/a.py", "from ..search import base", "costmodel must not import search"),
        ("search/a.py", "from ..cli.app import main", "search must not import cli.app"),
        ("search/a.py", "from .. import tune", "search must not import the face"),
        ("metaschedule.py", "from . import cli", "metaschedule must not import cli"),
        ("data/a.py", "import tensortune.data.b", "imports are relative"),
        ("data/a.py", "def f():\n    from .b import X", "data.b is imported inside a function"),
        ("data/a.py", "import torch", "torch belongs in"),
        ("search/a.py", "try:\n    import gymnasium\nexcept ImportError: ...", "gymnasium belongs"),
        ("data/a.py", "from xgboost import Booster", "xgboost belongs in costmodel"),
        ("__init__.py", "from .data import a", "the face imports data"),
        ("data/a.py", "from .b import X\n# b imports a", "cycle: data.a -> data.b -> data.a"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, module: str, text: str, fault: str) -> None:
    for layer in ("data", "costmodel", "search", "cli"):
        (tmp_path / layer).mkdir()
        (tmp_path / layer / "__init__.py").touch()
    (tmp_path / "__init__.py").touch()
    (tmp_path / "cli/app.py").touch()
    (tmp_path / "costmodel/base.py").touch()
    (tmp_path / "data/b.py").write_text("from .a import Y" if "# b imports a" in text else "")
    (tmp_path / module).write_text(text)
    (found,) = faults(tmp_path)
    assert fault in found


def test_what_is_allowed_is_no_fault(tmp_path: Path) -> None:
    for layer in ("data", "costmodel", "search", "search/rl", "cli"):
        (tmp_path / layer).mkdir()
        (tmp_path / layer / "__init__.py").touch()
    (tmp_path / "data/a.py").write_text("import tvm\nfrom . import b\n")
    (tmp_path / "data/b.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import X\n"
    )
    (tmp_path / "search/rl/env.py").write_text("import gymnasium\nfrom ...data.a import X\n")
    (tmp_path / "cli/app.py").write_text("from ..search.rl import env\n")
    (tmp_path / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .cli.app import main\n"
    )
    assert faults(tmp_path) == []
