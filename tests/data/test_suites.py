"""The suites are TVM's own, and what is held out stays held out."""

import hashlib

import pytest
from tvm.s_tir.meta_schedule.testing.te_workload import CONFIGS, create_te_workload

from tensortune.data.operators import OPERATORS
from tensortune.data.suites import HELD_OUT_EXTRA, SUITES, ansor, held_out, is_held_out, suite
from tensortune.data.workload import Workload, WorkloadError, workload

FAMILIES = sorted(set(CONFIGS) - {"C2D_WIN_NHWC"})


@pytest.mark.parametrize("family", FAMILIES)
def test_ansor_computes_what_te_workload_does(family: str) -> None:
    assert len(CONFIGS[family][1]) == 4
    for index in range(4):
        theirs = Workload.from_module(create_te_workload(family, index))
        ours = ansor(family, index)
        assert ours.identity == theirs.identity
        assert ours.flops == theirs.flops
        assert is_held_out(theirs)


def test_ansor_has_52_items_that_can_be_addressed() -> None:
    items = suite("ansor")
    assert len(items) == len(set(items)) == 52
    assert suite("C2D:2") == (ansor("C2D", 2),) == suite("C2D")[2:3]
    assert ansor("GMM", 2).key == "batch_matmul(b=1,m=512,n=512,k=512)"


def test_looptune_is_split_for_good() -> None:
    everything, train, test = map(suite, ("looptune", "looptune-train", "looptune-test"))
    assert (len(everything), len(train), len(test)) == (2197, 1977, 220)
    assert set(train) | set(test) == set(everything)
    assert not set(train) & set(test)
    # Published numbers rest on this split: a change here is a new suite, under a new name.
    digest = hashlib.sha256("\n".join(item.key for item in test).encode()).hexdigest()
    assert digest[:16] == "be301f84f6008474"


def test_held_out() -> None:
    assert len(HELD_OUT_EXTRA) >= 30
    assert len(set(HELD_OUT_EXTRA)) == len(HELD_OUT_EXTRA)
    # C2D 1 and DIL 1 have kernels of one element, where the dilation makes no difference.
    assert ansor("C2D", 1).identity == ansor("DIL", 1).identity
    assert len(held_out()) == 52 + 220 + len(HELD_OUT_EXTRA) - 1
    assert is_held_out(workload("matmul", 512, 512, 512))
    assert not is_held_out(workload("dense", 512, 512, 512))
    assert not is_held_out(workload("matmul", 512, 512, 512, dtype="float64"))


def test_extra_keys_are_canonical() -> None:
    assert [item.key for item in suite("held-out-extra")] == list(HELD_OUT_EXTRA)


def test_looptune_train_holds_nothing_held_out() -> None:
    assert not [item.key for item in suite("looptune-train")[::10] if is_held_out(item)]
    products = {item.params for item in suite("looptune-train")}
    assert not products & {Workload.from_key(key).params for key in HELD_OUT_EXTRA}


def test_train_has_all_that_models_need_and_nothing_held_out() -> None:
    train = suite("train")
    assert len(train) >= 150
    identities = {item.identity for item in train}
    assert len(identities) == len(train), "no two of them compute the same"
    assert [item.key for item in train if is_held_out(item)] == []
    operators = {item.operator for item in train}
    assert {item.operator for item in suite("ansor")} <= operators
    assert set(OPERATORS) == operators, "an operator that there is has shapes to learn from"
    assert len(set(train) & set(suite("looptune-train"))) == 30
    assert [item.key for item in train if item.dtype == "int8"]


def test_train_is_quick_to_run() -> None:
    # An untuned program does about 1 GFLOP a second; 0.3 s is the most that one is to take.
    assert [item.key for item in suite("train") if item.flops > 0.3e9] == []


def test_smoke_is_tiny_and_not_held_out() -> None:
    smoke = suite("smoke")
    assert len(smoke) == 4
    assert all(item.flops < 1e6 and not is_held_out(item) for item in smoke)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("anzor", "did you mean `ansor`"),
        ("C2D:4", "C2D has the items 0 to 3, not 4"),
        ("C2D:x", "no suite `C2D:x`"),
        ("qqqq", f"choose from {SUITES[0]}"),
    ],
)
def test_unknown_suite(name: str, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        suite(name)
    assert message in str(caught.value)


def test_unknown_family() -> None:
    with pytest.raises(WorkloadError, match="no family `c2d` \\(did you mean `C2D`"):
        ansor("c2d", 0)
