"""What is known about one trial."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from .candidate import Candidate

SCHEMA_VERSION = 1

Failure = Literal["invalid", "compile", "runtime", "timeout", "wrong"]
FAILURES: tuple[str, ...] = get_args(Failure)


@dataclass(frozen=True, slots=True)
class Record:
    """One measured candidate with its provenance.

    Attributes:
        workload: The workload's readable key.
        identity: The workload's canonical identity (a hash of its computation).
        target: The TVM target it was compiled for, as a string.
        candidate: The canonical candidate.
        repeats: Seconds per run, one mean per repeat; empty when it was never timed.
        failure: What went wrong, or None.
        detail: The failure's message.
        cut: True when the candidate was so slow that its timing was cut short.
        compile_s: Seconds that compiling took.
        host: Key of the machine (see `host.Host`).
        versions: Package versions that produced it.
        seed: Seed of the run.
        batch: Number of the batch within the run.
        time: When it was stored, in seconds since the epoch.
        strategy: Name of the strategy that proposed it.

    Raises:
        ValueError: a repeat is not a finite time above zero, the failure is of no known kind,
            or there is neither a repeat nor a failure. Refused here rather than on reading, so
            that no measurement is stored that cannot be read back.
    """

    workload: str
    identity: str
    target: str
    candidate: Candidate
    repeats: tuple[float, ...] = ()
    failure: Failure | None = None
    detail: str = ""
    cut: bool = False
    compile_s: float = 0.0
    host: str = ""
    versions: dict[str, str] = field(default_factory=dict, hash=False)
    seed: int = 0
    batch: int = 0
    time: float = 0.0
    strategy: str = ""

    def __post_init__(self) -> None:
        for seconds in self.repeats:
            if not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"`repeats` holds finite times above zero, not {seconds!r}")
        if self.failure is not None and self.failure not in FAILURES:
            raise ValueError(f"`failure` is one of {', '.join(FAILURES)}, not {self.failure!r}")
        if self.failure is None and not self.repeats:
            raise ValueError("a record has `repeats` or a `failure`, and this one has neither")

    @property
    def valid(self) -> bool:
        """Whether the candidate was compiled, run and timed."""
        return self.failure is None and bool(self.repeats)

    @property
    def latency_s(self) -> float:
        """Median of the repeats in seconds; infinity for a failure."""
        return statistics.median(self.repeats) if self.valid else float("inf")

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary with the schema's version in it."""
        fields = {"schema": SCHEMA_VERSION} | {
            name: getattr(self, name) for name in self.__dataclass_fields__
        }
        fields["candidate"] = self.candidate.to_json()
        return fields

    @classmethod
    def from_json(cls, value: Any) -> Record:
        """Read what `to_json` gave, from this schema's version.

        Every field has to be there: a default in place of a lost field would pass for a fact.
        Fields that this version does not know are ignored, so that a later version may add one
        without a new schema; what changes a field's meaning takes a new schema, which is refused.

        Raises:
            ValueError: it is of another schema, or a field is missing or of the wrong kind.
        """
        _check_schema(value)
        failure = _get(value, "failure")
        if failure is not None and not isinstance(failure, str):
            raise _wrong("failure", "a string or null", failure)
        return cls(
            workload=_text(value, "workload"),
            identity=_text(value, "identity"),
            target=_text(value, "target"),
            candidate=Candidate.from_json(_get(value, "candidate")),
            repeats=_numbers(value, "repeats"),
            failure=cast("Failure | None", failure),  # the constructor checks which
            detail=_text(value, "detail"),
            cut=_flag(value, "cut"),
            compile_s=_number(value, "compile_s"),
            host=_text(value, "host"),
            versions=_texts(value, "versions"),
            seed=_integer(value, "seed"),
            batch=_integer(value, "batch"),
            time=_number(value, "time"),
            strategy=_text(value, "strategy"),
        )


def _wrong(name: str, expected: str, value: Any) -> ValueError:
    return ValueError(f"`{name}` is {expected}, not {repr(value)[:80]}")


def _check_schema(value: Any) -> None:
    if not isinstance(value, dict):
        raise _wrong("record", "a JSON object", value)
    schema = _get(value, "schema")
    if type(schema) is not int or schema != SCHEMA_VERSION:  # `True == 1` is no version
        raise ValueError(
            f"the record is of schema {schema!r}, this tensortune reads schema {SCHEMA_VERSION}"
        )


def _get(fields: dict[str, Any], name: str) -> Any:
    if name not in fields:
        raise ValueError(f"`{name}` is missing")
    return fields[name]


def _text(fields: dict[str, Any], name: str) -> str:
    value = _get(fields, name)
    if not isinstance(value, str):
        raise _wrong(name, "a string", value)
    return value


def _texts(fields: dict[str, Any], name: str) -> dict[str, str]:
    value = _get(fields, name)
    if not (isinstance(value, dict) and all(isinstance(text, str) for text in value.values())):
        raise _wrong(name, "an object of strings", value)
    return value


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = _get(fields, name)
    if not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return value


def _integer(fields: dict[str, Any], name: str) -> int:
    value = _get(fields, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, "an integer", value)
    return value


def _float(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(name, "a number", value)
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        number = math.inf
    if not math.isfinite(number):
        raise _wrong(name, "a finite number", number)
    return number


def _number(fields: dict[str, Any], name: str) -> float:
    return _float(_get(fields, name), name)


def _numbers(fields: dict[str, Any], name: str) -> tuple[float, ...]:
    value = _get(fields, name)
    if not isinstance(value, list):
        raise _wrong(name, "a list of numbers", value)
    return tuple(_float(item, name) for item in value)


OnRecord = Callable[[Record], None]
"""Called with a record as soon as it is there."""
