from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortune.data.candidate import Candidate
from tensortune.data.record import FAILURES, SCHEMA_VERSION, Record

_TIMES = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
_POINTS = st.recursive(
    st.integers() | st.text(), lambda parts: st.lists(parts, max_size=4).map(tuple), max_leaves=12
)
_CANDIDATES = st.builds(Candidate, st.text(), st.lists(_POINTS, max_size=4).map(tuple))
_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
_RECORDS = st.builds(
    Record,
    workload=st.text(),
    identity=st.text(),
    target=st.text(),
    candidate=_CANDIDATES,
    repeats=st.lists(_TIMES, min_size=1).map(tuple),
    failure=st.sampled_from((None, *FAILURES)),
    detail=_ANY_TEXT,
    cut=st.booleans(),
    compile_s=_FINITE,
    host=st.text(),
    versions=st.dictionaries(st.text(), st.text(), max_size=3),
    seed=st.integers(),
    batch=st.integers(),
    time=_FINITE,
    strategy=st.text(),
)

RECORD = Record(
    workload="matmul m=4 n=4 k=4 float32",
    identity="c0ffee",
    target="llvm",
    candidate=Candidate("sketch", (0, (1, 2))),
    repeats=(1e-3, 3e-3, 2e-3),
    versions={"tvm": "0.27"},
)


def _json(**changed: Any) -> dict[str, Any]:
    return json.loads(json.dumps(RECORD.to_json())) | changed


@given(_RECORDS)
def test_json_round_trip(record: Record) -> None:
    read = Record.from_json(json.loads(json.dumps(record.to_json(), allow_nan=False)))
    assert read == record
    assert hash(read) == hash(record)
    assert read.to_json() == record.to_json()


def test_every_field_is_written() -> None:
    assert set(_json()) == {"schema", *(field.name for field in fields(Record))}


def test_latency_is_the_median() -> None:
    assert RECORD.valid
    assert RECORD.latency_s == 2e-3


@pytest.mark.parametrize("repeats", [(), (1e-3,)])
def test_a_failure_has_no_latency(repeats: tuple[float, ...]) -> None:
    record = Record("w", "i", "t", RECORD.candidate, repeats=repeats, failure="wrong")
    assert not record.valid
    assert record.latency_s == math.inf


@pytest.mark.parametrize("seconds", [0.0, -1e-3, math.nan, math.inf])
def test_a_repeat_is_a_finite_time_above_zero(seconds: float) -> None:
    with pytest.raises(ValueError, match="repeats"):
        Record("w", "i", "t", RECORD.candidate, repeats=(1e-3, seconds))
    with pytest.raises(ValueError, match="repeats"):
        Record.from_json(_json(repeats=[1e-3, seconds]))


def test_a_record_says_something() -> None:
    with pytest.raises(ValueError, match="neither"):
        Record("w", "i", "t", RECORD.candidate)


@pytest.mark.parametrize("schema", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1, "one", True, None])
def test_another_schema_is_refused_with_both_versions(schema: Any) -> None:
    with pytest.raises(ValueError, match=f"schema {schema!r}.*schema {SCHEMA_VERSION}"):
        Record.from_json(_json(schema=schema))


@pytest.mark.parametrize("name", sorted(_json()))
def test_a_missing_field_is_named(name: str) -> None:
    value = _json()
    del value[name]
    with pytest.raises(ValueError, match=f"`{name}` is missing"):
        Record.from_json(value)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("workload", 1),
        ("identity", None),
        ("target", {"kind": "llvm"}),
        ("repeats", 1e-3),
        ("repeats", ["1e-3"]),
        ("repeats", [True]),
        ("repeats", [10**400]),
        ("failure", 3),
        ("failure", "exploded"),
        ("detail", []),
        ("cut", 1),
        ("compile_s", "2"),
        ("compile_s", math.nan),
        ("host", 0),
        ("versions", []),
        ("versions", {"tvm": 27}),
        ("seed", 1.0),
        ("seed", True),
        ("batch", "1"),
        ("time", math.inf),
        ("strategy", None),
        ("candidate", None),
        ("candidate", ["sketch"]),
        ("candidate", ["sketch", [1.5]]),
    ],
)
def test_a_wrong_field_is_named(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=name):
        Record.from_json(_json(**{name: wrong}))


@pytest.mark.parametrize("value", [None, [], "record", 1])
def test_what_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON object"):
        Record.from_json(value)


def test_a_whole_number_of_seconds_is_a_time() -> None:
    assert Record.from_json(_json(repeats=[1])).repeats == (1.0,)


def test_an_unknown_field_of_the_same_schema_is_ignored() -> None:
    assert Record.from_json(_json(energy_j=3.5)) == RECORD


def test_a_long_wrong_value_does_not_flood_the_message() -> None:
    with pytest.raises(ValueError, match="seed") as error:
        Record.from_json(_json(seed="x" * 10_000))
    assert len(str(error.value)) < 200
