from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.record import Record
from tensortune.data.record_set import RecordSet
from tensortune.data.store_ops import matching, merge, prune, rank


def record(number: int = 0, latency_s: float = 1.0, **fields: Any) -> Record:
    made = Record(
        "matmul(m=8,n=8,k=8)",
        "0123456789abcdef",
        '{"kind":"llvm","mcpu":"znver4"}',
        Candidate("sketch", (0, (number,))),
        repeats=(latency_s,),
        host="amd-epyc",
        strategy="annealing",
    )
    return replace(made, **fields)


def failed(number: int = 0, failure: str = "timeout", **fields: Any) -> Record:
    return record(number, repeats=(), failure=failure, **fields)


def test_merging_keeps_order_and_drops_what_is_the_same() -> None:
    a, b, c = record(0), record(1), record(2)
    later = replace(a, time=2.0)
    module = {"key": "x", "module": "m"}
    merged = merge(
        [
            RecordSet([a, b], {"x": {"key": "x"}}, ["p"]),
            RecordSet([b, c, later], {"x": module}, ["q"]),
            RecordSet([a], {"x": {"key": "x"}}),
        ]
    )
    assert merged.records == [a, b, c, later]
    assert merged.definitions == {"x": module}
    assert merged.problems == ["p", "q"]
    # Versions are not part of a record's hash, and yet make another record of it.
    other = replace(a, versions={"tvm": "1"})
    assert merge([RecordSet([a, other])]).records == [a, other]
    assert merge([]).records == []


def test_matching() -> None:
    a = record(0)
    b = record(1, workload="conv2d(n=1)", identity="f" * 16, target="t*", host="intel")
    c = failed(2, strategy="random")
    records = [a, b, c]
    cases: list[tuple[dict[str, Any], list[Record]]] = [
        ({}, records),
        ({"workload": "matmul"}, [a, c]),
        ({"workload": "conv2d(*)"}, [b]),
        ({"workload": "conv2d*x"}, []),
        ({"workload": "f" * 16}, [b]),
        ({"workload": "f" * 15}, []),
        ({"target": "znver4"}, [a, c]),
        ({"target": "*znver?*"}, [a, c]),
        ({"host": "intel"}, [b]),
        ({"strategy": "random"}, [c]),
        ({"strategy": "ann", "valid": True, "host": "amd"}, [a]),
        ({"valid": True}, [a, b]),
    ]
    for given, expected in cases:
        assert matching(records, **given) == expected, given


def test_what_was_found_wrong_is_not_valid_before_either() -> None:
    sound, early, verdict = record(0, 2.0), record(1, 1.0), record(1, 1.0, failure="wrong")
    elsewhere = replace(early, target="another")
    records = [sound, early, verdict, elsewhere]
    assert matching(records, valid=True) == [sound, elsewhere]
    assert [each.record for each in rank(records, 5)] == [sound, elsewhere]
    assert prune(records, failures=True) == [0, 3]
    assert prune(records, best=5) == [0, 3]
    # The verdict must outlive the timing.
    assert prune(records, duplicates=True) == [0, 2, 3]


def test_the_fastest_of_each_workload_and_target() -> None:
    records = [
        record(0, 3.0),
        record(1, 1.0),
        record(2, 2.0),
        record(0, 5.0, identity="other"),
        record(0, 4.0, target="other"),
        failed(3),
        # The same computation by another name is the same workload.
        record(4, 0.5, workload="GMM"),
    ]
    found = rank(records, 2)
    assert [(each.rank, each.latency_s) for each in found] == [
        (1, 0.5),
        (2, 1.0),
        (1, 5.0),
        (1, 4.0),
    ]
    assert rank([failed()], 3) == []
    with pytest.raises(ValueError, match="at least 1"):
        rank(records, 0)


def test_measured_again_it_counts_once_with_all_its_repeats() -> None:
    records = [
        record(0, repeats=(1.0, 9.0)),
        record(0, repeats=(2.0, 3.0, 4.0)),
        record(0, 50.0, cut=True),
        record(0, 0.1, host="faster"),
        record(1, 7.0, cut=True),
    ]
    found = rank(records, 5)
    assert [(each.latency_s, each.repeats) for each in found] == [(0.1, 1), (3.0, 5), (7.0, 1)]
    assert found[1].record == records[1]


def test_pruning_keeps_the_best() -> None:
    records = [record(n, latency) for n, latency in enumerate((3.0, 1.0, 2.0, 4.0))]
    records += [failed(5), record(1, 1.5)]
    assert prune(records, best=2) == [1, 2, 5]
    assert prune(records, best=2, duplicates=True) == [2, 5]
    assert prune(records, best=100, failures=True) == [0, 1, 2, 3, 5]
    assert prune(records, failures=True) == [0, 1, 2, 3, 5]
    assert prune([], best=1) == []


def test_of_duplicates_the_one_that_says_most_is_kept() -> None:
    timed, cut, fails = record(0), record(0, 9.0, cut=True), failed(0)
    assert prune([timed, cut, fails], duplicates=True) == [0]
    assert prune([cut, fails], duplicates=True) == [0]
    assert prune([fails, cut, timed, timed], duplicates=True) == [3]
    assert prune([fails, failed(0, "runtime")], duplicates=True) == [1]
    assert prune([timed, replace(timed, host="other")], duplicates=True) == [0, 1]


def test_pruning_has_to_be_told_what() -> None:
    with pytest.raises(ValueError, match="--failures, --duplicates or --best"):
        prune([record()])
    with pytest.raises(ValueError, match="at least 1"):
        prune([record()], best=0)
