from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.script import ir as I
from tvm.script import tirx as T

from tensortune.data.export import ExportError, write_library
from tensortune.data.export.header import c_identifier
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.space import Scheduled
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, workload

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="needs a C compiler called cc"
)
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def target() -> Any:
    # Two threads, however many there are: what is tested is not how fast they are.
    return tvm.target.Target({**dict(cpu_target().export()), "num-cores": 2})


def _schedules(subject: Workload, target: Any, n: int) -> list[Scheduled]:
    space = SketchSpace(subject, target)
    return [space.schedule(c) for c in space.sample(np.random.default_rng(0), n)]


@pytest.fixture(scope="module")
def matmul(target: Any) -> tuple[Workload, list[Scheduled]]:
    subject = workload("matmul", 48, 64, 32)
    return subject, _schedules(subject, target, 12)


@pytest.fixture(scope="module")
def parallel(matmul: tuple[Workload, list[Scheduled]]) -> Any:
    """A schedule with a parallel loop."""
    return next(s.mod for s in matmul[1] if "T.parallel" in s.mod.script())


def _of(*tensors: Any) -> Workload:
    return Workload.from_module(te.create_prim_func(list(tensors)))


def _placeholder(dtype: str = "float32") -> Any:
    return te.placeholder((8, 16), name="X", dtype=dtype)


@T.prim_func(s_tir=True)
def accumulate(
    a: T.Buffer((32,), "float32"), total: T.Buffer((32,), "float32"), one: T.Buffer((), "float32")
):
    for i in range(32):
        with T.sblock("accumulate"):
            at = T.axis.spatial(32, i)
            total[at] = total[at] + a[at] * one[()]


_PROGRAM = """
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *load(int i, size_t bytes, size_t offset) {{
  char file[16];
  char *data = (char *)aligned_alloc(64, (bytes + offset + 63) / 64 * 64) + offset;
  sprintf(file, "%d.in", i);
  FILE *in = fopen(file, "rb");
  if (fread(data, 1, bytes, in) != bytes) abort();
  fclose(in);
  return data;
}}

static void save(int i, const void *data, size_t bytes) {{
  char file[16];
  sprintf(file, "%d.out", i);
  FILE *out = fopen(file, "wb");
  fwrite(data, 1, bytes, out);
  fclose(out);
}}

int main(int count, char **options) {{
  size_t offset = count > 1 ? (size_t)atoi(options[1]) : 0;
  {loads}
  if ({name}({arguments}) != 0) {{
    puts({name}_error());
    return 1;
  }}
  {saves}
  return 0;
}}
"""


def _build_program(folder: Path, name: str, arrays: Sequence[Array]) -> Path:
    """Compile a C program that reads the arguments from files and writes them to others."""
    header = (folder / f"{name}.h").read_text()
    found = re.search(rf"int {name}\((.*)\);", header)
    assert found is not None
    types = [parameter.removeprefix("const ").split()[0] for parameter in found[1].split(", ")]
    source = _PROGRAM.format(
        name=name,
        loads="\n  ".join(
            f"{kind} *a{i} = load({i}, {array.nbytes}, offset);"
            for i, (kind, array) in enumerate(zip(types, arrays, strict=True))
        ),
        arguments=", ".join(f"a{i}" for i in range(len(types))),
        saves="\n  ".join(f"save({i}, a{i}, {array.nbytes});" for i, array in enumerate(arrays)),
    )
    (folder / "program.c").write_text(source)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(
        ["cc", *strict, "-o", "program", "program.c", "-L.", f"-l{name}", "-Wl,-rpath,$ORIGIN"],
        cwd=folder,
        check=True,
    )
    return folder / "program"


def _run_program(program: Path, arrays: Sequence[Array], *options: str) -> list[Array]:
    for i, array in enumerate(arrays):
        (program.parent / f"{i}.in").write_bytes(array.tobytes())
    subprocess.run([program, *options], cwd=program.parent, check=True, timeout=60)
    return [
        np.frombuffer((program.parent / f"{i}.out").read_bytes(), array.dtype).reshape(array.shape)
        for i, array in enumerate(arrays)
    ]


def _run_tvm(mod: Any, target: Any, arrays: Sequence[Array]) -> list[Array]:
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(mod, target=target).jit()["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


@needs_compiler
def test_library_runs_a_parallel_kernel_without_tvm(
    matmul: tuple[Workload, list[Scheduled]], parallel: Any, target: Any, tmp_path: Path
) -> None:
    subject = matmul[0]
    library, header = write_library(tmp_path, "matmul-48", subject, parallel, target)
    assert library == tmp_path / "libmatmul_48.so"
    assert header == tmp_path / "matmul_48.h"
    text = header.read_text()
    assert "int matmul_48(const float *A, const float *B, float *C);" in text
    assert subject.key in text
    assert "threads: 2" in text
    assert "A: float32[48][32], read" in text
    arrays = subject.make_inputs(0)
    program = _build_program(tmp_path, "matmul_48", arrays)
    for offset in ("0", "4"):  # aligned as the kernel wants it, and as badly as a float can be
        a, b, c = _run_program(program, arrays, offset)
        np.testing.assert_array_equal(a, arrays[0])
        np.testing.assert_array_equal(b, arrays[1])
        np.testing.assert_allclose(c, arrays[0] @ arrays[1], rtol=1e-4, atol=1e-4)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set()


@needs_compiler
@pytest.mark.parametrize(
    ("subject", "parameters"),
    [
        (workload("softmax", 48, 96), "const float *A, float *softmax"),
        (workload("add", 16, 24, dtype="float16"), "const uint16_t *A, const uint16_t *B"),
        (workload("add", 16, 24, dtype="bfloat16"), "const uint16_t *A, const uint16_t *B"),
        (workload("matmul", 16, 16, 16, dtype="int8"), "const int8_t *A, const int8_t *B"),
        (workload("take", 100, 16, 20), "int"),
        (Workload.from_module(accumulate), "const float *a, float *total, const float *one"),
        (_of(_x := _placeholder("bool"), topi.logical_not(_x)), "const uint8_t *X, uint8_t *"),
        (_of(_x := _placeholder("float64"), topi.exp(_x)), "const double *X, double *"),
    ],
    ids=str,
)
def test_library_gives_what_tvm_gives(
    subject: Workload, parameters: str, target: Any, tmp_path: Path
) -> None:
    mod = next((s.mod for s in _schedules(subject, target, 1)), subject.mod)
    _, header = write_library(tmp_path, "kernel", subject, mod, target)
    assert parameters in header.read_text()
    arrays = subject.make_inputs(0)
    program = _build_program(tmp_path, "kernel", arrays)
    expected = _run_tvm(mod, target, arrays)
    for offset in ("0", "8"):
        for ours, theirs in zip(_run_program(program, arrays, offset), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


_IN_PYTHON = """
import ctypes, os, sys, threading
sys.modules["tvm"] = None
import _ctypes
import numpy as np

def call(library, a, b):
    c = np.empty((a.shape[0], b.shape[1]), "float32")
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]
    assert getattr(library, library.name)(*pointers) == 0
    return c

def load(name):
    library = ctypes.CDLL(os.path.abspath(f"lib{name}.so"))
    library.name = name
    getattr(library, f"{name}_error").restype = ctypes.c_char_p
    return library

first, second = load("first"), load("second")
rng = np.random.default_rng(0)
a, b = rng.random((48, 32), "float32"), rng.random((32, 64), "float32")
c, d = rng.random((16, 16), "float32"), rng.random((16, 16), "float32")

def check(_=None):
    for _ in range(200):
        assert np.allclose(call(first, a, b), a @ b, atol=1e-4)
        assert np.allclose(call(second, c, d), c @ d, atol=1e-4)

check()
failed = []
threading.excepthook = failed.append
threads = [threading.Thread(target=check) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failed

child = os.fork()
if child == 0:
    check()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

none = ctypes.c_void_p(None)
assert first.first(none, none, none) == -1
assert first.first_error() == b"A is NULL"
check()
assert first.first_error() == b""

# Unloading ends the library's threads, whose code goes away with it.
handle = first._handle
before = len(os.listdir("/proc/self/task"))
_ctypes.dlclose(handle)
assert len(os.listdir("/proc/self/task")) == before - 1
first = load("first")
check()
print("fine")
"""


@needs_compiler
def test_libraries_live_together(
    matmul: tuple[Workload, list[Scheduled]], parallel: Any, target: Any, tmp_path: Path
) -> None:
    write_library(tmp_path, "first", matmul[0], parallel, target)
    other = workload("matmul", 16, 16, 16)
    mod = next(
        s.mod for s in _schedules(other, target, 12) if s.mod.script().count("T.parallel") == 1
    )
    write_library(tmp_path, "second", other, mod, target)
    done = subprocess.run(
        [sys.executable, "-c", _IN_PYTHON],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr


@needs_compiler
@pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")
def test_library_shows_only_its_own_functions(
    matmul: tuple[Workload, list[Scheduled]], parallel: Any, target: Any, tmp_path: Path
) -> None:
    library, _ = write_library(tmp_path, "matmul", matmul[0], parallel, target)
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    assert {line.split()[-1] for line in listed.stdout.splitlines()} == {"matmul", "matmul_error"}


@needs_compiler
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_header_is_cpp_too(
    matmul: tuple[Workload, list[Scheduled]], parallel: Any, target: Any, tmp_path: Path
) -> None:
    write_library(tmp_path, "matmul", matmul[0], parallel, target)
    (tmp_path / "program.cpp").write_text(
        '#include "matmul.h"\nint main() { return matmul_error()[0]; }\n'
    )
    subprocess.run(
        ["c++", "-o", "program", "program.cpp", "-L.", "-lmatmul", "-Wl,-rpath,$ORIGIN"],
        cwd=tmp_path,
        check=True,
    )
    subprocess.run([tmp_path / "program"], check=True)


def _sort() -> Workload:
    return _of(x := _placeholder(), topi.sort(x))


@needs_compiler
def test_kernel_that_calls_tvm_is_refused(target: Any, tmp_path: Path) -> None:
    subject = _sort()
    with pytest.raises(ExportError, match=r"only TVM has: tvm\.contrib\.sort\.sort"):
        write_library(tmp_path, "sort", subject, subject.mod, target)
    assert list(tmp_path.iterdir()) == []


@needs_compiler
def test_kernel_that_calls_a_stranger_is_refused(target: Any, tmp_path: Path) -> None:
    x = _placeholder()
    y = te.compute(x.shape, lambda i, j: tvm.tirx.call_pure_extern("float32", "nowhere", x[i, j]))
    subject = _of(x, y)
    with pytest.raises(ExportError, match="what no C library has: nowhere"):
        write_library(tmp_path, "kernel", subject, subject.mod, target)


@needs_compiler
def test_dtype_that_c_lacks_is_refused(target: Any, tmp_path: Path) -> None:
    x = _placeholder("float8_e4m3fn")
    subject = _of(x, te.compute(x.shape, lambda i, j: x[i, j], name="Y"))
    with pytest.raises(ExportError, match="X is float8_e4m3fn, which C has no type for"):
        write_library(tmp_path, "kernel", subject, subject.mod, target)


@needs_compiler
def test_other_arguments_are_refused(
    matmul: tuple[Workload, list[Scheduled]], target: Any, tmp_path: Path
) -> None:
    other = workload("matmul", 16, 16, 16)
    with pytest.raises(ExportError, match="does not take the arguments of matmul"):
        write_library(tmp_path, "kernel", matmul[0], other.mod, target)


@I.ir_module
class WithScalar:
    @T.prim_func(s_tir=True)
    def main(n: T.float32, a: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("fill"):
                at = T.axis.spatial(8, i)
                a[at] = n


@needs_compiler
def test_scalar_argument_is_refused(target: Any, tmp_path: Path) -> None:
    subject = workload("matmul", 16, 16, 16)
    with pytest.raises(ExportError, match="only arrays can be passed to the kernel, not n"):
        write_library(tmp_path, "kernel", subject, WithScalar, target)


def test_missing_compiler_says_what_to_install(
    matmul: tuple[Workload, list[Scheduled]],
    parallel: Any,
    target: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write() -> None:
        write_library(tmp_path, "kernel", matmul[0], parallel, target)

    monkeypatch.setenv("CC", "no-such-compiler -O1")
    with pytest.raises(ExportError, match="no C compiler `no-such-compiler`"):
        write()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExportError, match="install gcc or clang"):
        write()


@needs_compiler
def test_name_of_a_c_function_is_refused(target: Any, tmp_path: Path) -> None:
    subject = workload("exp", 8, 8)
    with pytest.raises(ExportError, match="cannot link the kernel"):
        write_library(tmp_path, "exp", subject, subject.mod, target)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("matmul(m=5,n=5)", "matmul_m_5_n_5_"),
        ("2d", "_2d"),
        ("", "_"),
        ("double", "double_"),
        ("größe", "gr__e"),
    ],
)
def test_c_identifier(name: str, expected: str) -> None:
    assert c_identifier(name) == expected
