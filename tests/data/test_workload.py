"""Workloads are values: keys, identities, arguments, inputs and references."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import te, tirx, topi
from tvm.script import ir as I
from tvm.script import tirx as T

from tensortune.data.tir.canonical import canonical_text
from tensortune.data.workload import Workload, WorkloadError, workload


def of(*tensors: Any) -> Workload:
    return Workload.from_module(te.create_prim_func(list(tensors)))


@T.prim_func(s_tir=True)
def hand_written(
    left: T.Buffer((32, 16), "float32"),
    right: T.Buffer((16, 48), "float32"),
    result: T.Buffer((32, 48), "float32"),
) -> None:
    for x, y, z in T.grid(32, 48, 16):
        with T.sblock("product"):
            vx, vy, vz = T.axis.remap("SSR", [x, y, z])
            with T.init():
                result[vx, vy] = T.float32(0)
            result[vx, vy] = result[vx, vy] + left[vx, vz] * right[vz, vy]


@T.prim_func(s_tir=True)
def wide_indices(
    left: T.Buffer((T.int64(1), T.int64(32), T.int64(16)), "float32"),
    right: T.Buffer((T.int64(1), T.int64(16), T.int64(48)), "float32"),
    result: T.Buffer((T.int64(1), T.int64(32), T.int64(48)), "float32"),
) -> None:
    T.func_attr({"op_pattern": 4})
    for b, x, y, z in T.grid(T.int64(1), T.int64(32), T.int64(48), T.int64(16)):
        with T.sblock("product"):
            vb, vx, vy, vz = T.axis.remap("SSSR", [b, x, y, z])
            T.sblock_attr({"layout_free_placeholders": [right]})
            with T.init():
                result[vb, vx, vy] = T.float32(0)
            result[vb, vx, vy] = result[vb, vx, vy] + left[vb, vx, vz] * right[vb, vz, vy]


@T.prim_func(s_tir=True)
def in_place(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")) -> None:
    for i in range(16):
        with T.sblock("update"):
            vi = T.axis.spatial(16, i)
            a[vi] = a[vi] + b[vi]


@I.ir_module
class Two:
    @T.prim_func(s_tir=True)
    def first(a: T.Buffer((4,), "float32")) -> None:
        for i in range(4):
            a[i] = a[i] * T.float32(2)

    @T.prim_func(s_tir=True)
    def second(a: T.Buffer((4,), "float32")) -> None:
        for i in range(4):
            a[i] = a[i] * T.float32(3)


class TestKey:
    def test_is_readable_and_parses(self) -> None:
        item = workload("matmul", 512, 256, k=128)
        assert item.key == str(item) == "matmul(m=512,n=256,k=128)"
        assert Workload.from_key(" matmul( 512, 256 , k = 128) ") == item
        half = workload("matmul", 1, 2, 3, dtype="float16")
        assert half.key == "matmul(m=1,n=2,k=3,dtype=float16)"
        assert Workload.from_key(half.key) == half
        assert half != workload("matmul", 1, 2, 3)

    @pytest.mark.parametrize(
        ("key", "message"),
        [
            ("matmul", "write e.g. matmul(m=512"),
            ("matmul(m=1,n=2)", "needs `k`"),
            ("matmul(m=1,m=2)", "gives `m` twice"),
            ("matmul(m=1,n=2,k=z)", "`k` has to be an integer"),
            ("custom:x@012345678901", "`from_json` can"),
        ],
    )
    def test_bad_keys(self, key: str, message: str) -> None:
        with pytest.raises(WorkloadError) as caught:
            Workload.from_key(key)
        assert message in str(caught.value)

    def test_is_the_value(self) -> None:
        a, b = workload("softmax", 8, 8), workload("softmax", m=8, n=8)
        assert a == b
        assert len({a, b}) == 1
        assert a != "softmax(m=8,n=8)"

    def test_of_custom_workloads_tells_everything_apart(self) -> None:
        a, b = (
            Workload.from_module(hand_written),
            Workload.from_module(wide_indices, "hand_written"),
        )
        assert a.key.startswith("custom:hand_written@")
        assert a.identity == b.identity
        assert a != b

    @pytest.mark.parametrize("item", [workload("softmax", 8, 8), Workload.from_module(in_place)])
    def test_survives_json_and_pickle(self, item: Workload) -> None:
        for copy in (Workload.from_json(item.to_json()), pickle.loads(pickle.dumps(item))):
            assert copy == item
            assert copy.identity == item.identity
            assert copy.arguments == item.arguments
            assert copy.params == item.params

    @pytest.mark.parametrize("value", [None, {}, [], {"key": 3}])
    def test_bad_json(self, value: Any) -> None:
        with pytest.raises(WorkloadError, match="a workload is"):
            Workload.from_json(value)


class TestModule:
    def test_is_what_metaschedule_makes_of_it(self) -> None:
        for item in (workload("matmul", 4, 4, 4), Workload.from_module(in_place)):
            (variable,) = item.mod.get_global_vars()
            assert variable.name_hint == "main"
            attrs = item.mod["main"].attrs
            assert attrs["global_symbol"] == "main"
            assert attrs["tirx.noalias"]

    def test_two_functions_are_named(self) -> None:
        with pytest.raises(WorkloadError, match=r'first, second.*mod\["first"\]'):
            Workload.from_module(Two)
        assert Workload.from_module(Two["first"]).key.startswith("custom:first@")

    def test_no_function(self) -> None:
        with pytest.raises(WorkloadError, match="holds no PrimFunc"):
            Workload.from_module(tvm.IRModule({}))
        with pytest.raises(WorkloadError, match="not list"):
            Workload.from_module([])

    def test_dynamic_shapes_and_scalars_are_refused(self) -> None:
        n = te.var("n", dtype="int32")
        a = te.placeholder((n,), name="a")
        with pytest.raises(WorkloadError, match="`a` has a dynamic shape"):
            of(a, te.compute((n,), lambda i: a[i] + 1))
        b = te.placeholder((4,), name="b")
        with pytest.raises(WorkloadError, match="`n` is a scalar"):
            of(n, b, te.compute((4,), lambda i: b[i] + n.astype("float32")))


class TestImportPath:
    def test_names_a_function_of_the_users_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "my_operators.py").write_text(
            "from tvm import te\n"
            "def double(m, n=4, dtype='float32'):\n"
            "    a = te.placeholder((m, n), dtype, 'a')\n"
            "    return a, te.compute((m, n), lambda i, j: a[i, j] + a[i, j])\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        item = workload("my_operators:double", 3)
        assert item.key == "my_operators:double(m=3,n=4)"
        assert Workload.from_key(item.key).identity == item.identity
        assert Workload.from_json(item.to_json()) == item
        assert workload("my_operators:double", 3, dtype="float16").dtype == "float16"
        with pytest.raises(WorkloadError, match="missing a required argument: 'm'"):
            workload("my_operators:double")
        with pytest.raises(WorkloadError, match="has no function `triple`"):
            workload("my_operators:triple", 3)
        with pytest.raises(WorkloadError, match="does not import"):
            workload("no_such_module:double", 3)


class TestFile:
    def write(self, folder: Path, text: str) -> Path:
        path = folder / "kernel.py"
        path.write_text(text)
        return path

    def test_reads_what_tvm_prints(self, tmp_path: Path) -> None:
        for mod in (hand_written, tvm.IRModule({"main": hand_written})):
            item = Workload.from_file(self.write(tmp_path, mod.script()))
            assert item.identity == Workload.from_module(hand_written).identity
            assert item.key.startswith(("custom:hand_written@", "custom:kernel@"))

    FUNCTION = (
        '@T.prim_func(s_tir=True)\ndef {name}(a: T.Buffer((4,), "float32")):\n'
        "    for i in range(4):\n        a[i] = a[i] * {factor}\n"
    )

    def test_says_what_is_wrong_and_where(self, tmp_path: Path) -> None:
        good = self.FUNCTION.format(name="f", factor="T.float32(2)")
        bad = self.FUNCTION.format(name="f", factor="nothing")
        both = good + self.FUNCTION.format(name="g", factor="T.float32(3)")
        for text, message in (
            ("def f(:\n", "kernel.py, line 1: invalid syntax"),
            ("\nimport no_such_module\n", "kernel.py, line 2: ModuleNotFoundError"),
            (bad, "kernel.py, line 4: DiagnosticError: Undefined variable: nothing"),
            ("x = 1\n", "kernel.py holds no function"),
            (both, "kernel.py holds 2 functions, f, g"),
        ):
            with pytest.raises(WorkloadError) as caught:
                Workload.from_file(self.write(tmp_path, text))
            assert message in str(caught.value)
        with pytest.raises(WorkloadError, match="there is no file"):
            Workload.from_file(tmp_path / "absent.py")
        assert Workload.from_file(self.write(tmp_path, good)).key.startswith("custom:f@")


class TestIdentity:
    def test_ignores_names_units_attributes_and_index_width(self) -> None:
        named = workload("matmul", 32, 48, 16)
        others = [
            workload("batch_matmul", 1, 32, 48, 16),
            Workload.from_module(hand_written),
            Workload.from_module(wide_indices),
        ]
        assert {item.identity for item in others} == {named.identity}
        assert len(named.identity) == 16

    def test_ignores_the_packing_attribute_of_topi(self) -> None:
        a, b = te.placeholder((32, 16), name="a"), te.placeholder((16, 48), name="b")
        theirs = of(a, b, topi.nn.matmul(a, b))
        assert "layout_free" in theirs.mod.script()
        assert theirs.identity == workload("matmul", 32, 48, 16).identity

    def test_tells_computations_apart(self) -> None:
        items = [
            workload("matmul", 32, 48, 16),
            workload("matmul", 48, 32, 16),
            workload("matmul", 32, 48, 16, dtype="float64"),
            workload("matmul_relu", 32, 48, 16),
            workload("dense", 32, 48, 16),
            workload("batch_matmul", 2, 32, 48, 16),
            workload("conv2d", 1, 8, 8, 4, 4, 3),
            workload("conv2d", 1, 8, 8, 4, 4, 3, padding=1),
            workload("conv2d", 1, 8, 8, 4, 4, 3, groups=2),
            workload("conv2d", 1, 8, 8, 4, 4, 3, dilation=2),
            workload("sum", 8, 8),
            workload("max", 8, 8),
            workload("add", 8, 8),
            workload("subtract", 8, 8),
            workload("exp", 8, 8),
            workload("tanh", 8, 8),
        ]
        assert len({item.identity for item in items}) == len(items)

    def test_order_of_arguments_counts(self) -> None:
        a, b = te.placeholder((8,), name="a"), te.placeholder((8,), name="b")
        out = te.compute((8,), lambda i: a[i] - b[i])
        assert of(a, b, out).identity != of(b, a, out).identity

    def test_is_the_same_in_every_process(self) -> None:
        code = (
            "from tensortune.data.workload import workload;"
            "print(workload('conv2d_bn_relu', 1, 8, 8, 4, 4, 3).identity)"
        )
        other = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        here = workload("conv2d_bn_relu", 1, 8, 8, 4, 4, 3).identity
        assert other.stdout.strip() == here
        # A changed identity orphans stored records: give the change a line in the changelog.
        assert here == "ab17a0cf3a9441ec"

    def test_expressions_that_share_parts_stay_short(self) -> None:
        a = te.placeholder((8,), name="a")

        def doubled(i: Any) -> Any:
            value = a[i]
            for _ in range(12):
                value = value + value
            return value

        item = of(a, te.compute((8,), doubled))
        # Written out in full there would be 2**12 loads of six characters and more.
        assert len(canonical_text(item.mod)) < 20_000

    def test_deep_expressions(self) -> None:
        a = te.placeholder((8,), name="a")

        def deep(i: Any) -> Any:
            value = a[i]
            for _ in range(1000):
                value = value * a[i] + tirx.const(1, "float32")
            return value

        item = of(a, te.compute((8,), deep))
        assert item.flops == 2000 * 8
        assert item.identity == of(a, te.compute((8,), deep)).identity
