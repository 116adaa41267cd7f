"""Splits: nothing on both sides, whatever the workloads are called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.dataset import Dataset
from tensortune.data.families import family_of
from tensortune.data.record import Record
from tensortune.data.splits import (
    SEEDS,
    SPLITS,
    LeakError,
    Split,
    check_disjoint,
    identity_families,
    shared_identities,
    split,
    splits,
)
from tensortune.data.workload import workload

ITEMS = [
    *(workload("matmul", side, side, 32) for side in (16, 32, 48, 64, 80)),
    *(workload("batch_matmul", 1, side, side, 32) for side in (16, 32)),  # the same, other keys
    *(workload("dense", side, 16, 16) for side in (16, 32, 48)),
    *(workload("softmax", side, 64) for side in (16, 32, 48)),
    *(workload("conv2d", 1, side, side, 8, 8, 3) for side in (8, 12)),
    *(workload("dilated_conv2d", 1, side, side, 8, 8, 3, dilation=1) for side in (8, 16)),
    *(workload(name, 64, 64) for name in ("add", "relu", "sum", "max")),
]


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Ten programs of each workload, one of them measured twice, on two hosts."""
    return Dataset(
        [
            Record(
                item.key,
                item.identity,
                "llvm",
                Candidate("sketch", (number % 9,)),
                repeats=(1.0,),
                host=host,
                time=float(number),
            )
            for item in ITEMS
            for host in ("a", "b")
            for number in range(10)
        ]
    )


def values(data: Dataset, positions: Any, name: str) -> set[str]:
    return {getattr(data.records[i], name) for i in positions}


@pytest.mark.parametrize("kind", SPLITS)
def test_no_computation_is_on_both_sides(data: Dataset, kind: Any) -> None:
    made = splits(data, kind)
    assert [each.seed for each in made] == list(SEEDS)
    for each in made:
        assert len(each.train) and len(each.test)
        assert not set(each.train) & set(each.test)
        check_disjoint(data, each)
        assert bool(shared_identities(data, each)) == (kind == "record")
    assert len({each.test.tobytes() for each in made}) > 1


def test_by_record_a_program_that_was_measured_twice_is_on_one_side(data: Dataset) -> None:
    made = split(data, "record", seed=1)
    assert len(made.train) + len(made.test) == len(data)
    assert len(made.test) / len(data) == pytest.approx(0.2, abs=0.03)

    def programs(side: Any) -> set[Any]:
        return {(data.records[i].identity, data.records[i].candidate) for i in side}

    assert not programs(made.train) & programs(made.test)


def test_by_shape_the_share_is_of_the_identities(data: Dataset) -> None:
    made = split(data, "shape", test_share=0.25)
    count = len({record.identity for record in data.records})
    assert len(values(data, made.test, "identity")) == round(0.25 * count)
    assert len(made.train) + len(made.test) == len(data)


def test_by_operator_whole_families_are_unseen(data: Dataset) -> None:
    for made in splits(data, "operator"):
        sides = [
            {family_of(k) for k in values(data, s, "workload")} for s in (made.train, made.test)
        ]
        assert not sides[0] & sides[1]
    # A batch of one is the product that it is, and an undilated convolution a convolution.
    families = identity_families(data)
    assert {families[item.identity] for item in ITEMS[:7]} == {"GMM"}
    assert families[ITEMS[-5].identity] == "C2D"


def test_an_identity_of_two_families_is_on_one_side(data: Dataset) -> None:
    other = [replace(r, workload="dense(m=1,n=2,k=3)") for r in data.records[:5]]
    mixed = Dataset([*data.records, *other])
    assert identity_families(mixed)[other[0].identity] == "GMM"
    for made in splits(mixed, "operator", seeds=range(10)):
        check_disjoint(mixed, made)


def test_by_host_the_test_has_other_machines_and_other_workloads(data: Dataset) -> None:
    for made in splits(data, "host"):
        assert not values(data, made.train, "host") & values(data, made.test, "host")
        assert not shared_identities(data, made)


def test_the_order_of_the_records_does_not_matter(data: Dataset) -> None:
    order = np.random.default_rng(0).permutation(len(data))
    shuffled = data.take(order)
    for kind in SPLITS:
        there = split(data, kind, seed=3).test
        here = order[split(shuffled, kind, seed=3).test]
        assert sorted(here) == sorted(there)


def test_a_leak_is_named(data: Dataset) -> None:
    every = np.arange(len(data))
    for kind in SPLITS:
        with pytest.raises(LeakError, match="both sides"):
            check_disjoint(data, Split(kind, 0, every[:-1], every[-1:]))
    first = data.records[0].identity
    leak = split(data, "shape")
    moved = np.append(leak.test, leak.train[data.table["identity"].to_numpy()[leak.train] == first])
    shared = shared_identities(data, replace(leak, test=moved))
    assert shared == {first} or first in values(data, leak.test, "identity")


def test_what_cannot_be_split_says_why(data: Dataset) -> None:
    one = data.take(data.table["host"] == "a")
    with pytest.raises(ValueError, match="two hosts at least, and there is 1"):
        split(one, "host")
    same = data.take(data.table["workload"] == ITEMS[0].key)
    with pytest.raises(ValueError, match="two workloads"):
        split(same, "shape")
    with pytest.raises(ValueError, match="one workload only"):
        split(same, "host")
    with pytest.raises(ValueError, match="families at least"):
        split(same, "operator")
    with pytest.raises(ValueError, match="are none"):
        split(Dataset([]), "record")
    with pytest.raises(ValueError, match="no split by `machine`"):
        split(data, "machine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="between 0 and 1"):
        split(data, "shape", test_share=1.0)
    two = data.take([0, 20 * 7])
    assert len(split(two, "shape", test_share=0.99).train) == 1
