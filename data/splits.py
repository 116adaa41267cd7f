"""Splits of a dataset into training and test records that share no computation. Loads no TVM.

Groups are drawn by scikit-learn's group splitters over sorted names, so a split depends on which
groups there are and not on the order in which records were stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import GroupShuffleSplit

from .dataset import Dataset
from .families import family_of

SplitKind = Literal["record", "shape", "operator", "host"]
SPLITS: tuple[SplitKind, ...] = get_args(SplitKind)
SEEDS = (0, 1, 2, 3, 4)
"""The seeds that figures are averaged over."""

Positions = npt.NDArray[np.int64]


class LeakError(ValueError):
    """A computation is on both sides of a split."""


@dataclass(frozen=True)
class Split:
    """Positions of the records on either side; a record may be on neither.

    Attributes:
        kind: What the test side has that training has not seen.
        seed: The seed that drew it.
        train: Positions of the training records.
        test: Positions of the test records.
    """

    kind: SplitKind
    seed: int
    train: Positions
    test: Positions


def split(dataset: Dataset, kind: SplitKind, seed: int = 0, test_share: float = 0.2) -> Split:
    """Split a dataset in one of the four ways.

    - `record`: programs at random. The same program measured twice is on one side, but its workload
      is on both: this is what a model can do for a workload that it has records of.
    - `shape`: canonical identities at random; test shapes are unseen, whatever they are called.
    - `operator`: families (see `families`) at random; whole operators are unseen. An identity that
      goes by keys of two families counts as of the one that comes first by name.
    - `host`: machines at random, and of what was measured on the test machines a share of the
      identities; training has neither those machines nor those identities.

    Args:
        dataset: The records.
        kind: Which way.
        seed: Another seed draws other groups.
        test_share: Share of the groups (of `host`: of machines and of identities) to test on; at
            least one, and at least one is left to train on.

    Raises:
        ValueError: there is no such kind, the share is not between 0 and 1, or there are fewer than
            two groups to choose from.
    """
    if kind not in SPLITS:
        raise ValueError(f"there is no split by `{kind}`: choose from {', '.join(SPLITS)}")
    if not 0 < test_share < 1:
        raise ValueError(f"the share to test on has to be between 0 and 1, not {test_share:g}")
    if kind == "host":
        return _by_host(dataset, seed, test_share)
    train, test = _shuffle(_group_names(dataset, kind), _WHAT[kind], seed, test_share)
    return Split(kind, seed, train, test)


def splits(dataset: Dataset, kind: SplitKind, seeds: Sequence[int] = SEEDS) -> list[Split]:
    """One split for each seed; arguments and errors as those of `split`."""
    return [split(dataset, kind, seed) for seed in seeds]


_WHAT: dict[SplitKind, str] = {
    "record": "programs",
    "shape": "workloads (canonical identities)",
    "operator": "operator families",
    "host": "hosts",
}


def identity_families(dataset: Dataset) -> dict[str, str]:
    """The family of each canonical identity."""
    found: dict[str, set[str]] = {}
    for identity, key in {(r.identity, r.workload) for r in dataset.records}:
        found.setdefault(identity, set()).add(family_of(key))
    return {identity: min(families) for identity, families in found.items()}


def _group_names(dataset: Dataset, kind: SplitKind) -> list[str]:
    if kind == "record":
        return [f"{r.identity} {r.target} {r.candidate.to_json()}" for r in dataset.records]
    identities = [record.identity for record in dataset.records]
    if kind == "shape":
        return identities
    families = identity_families(dataset)
    return [families[identity] for identity in identities]


def _by_host(dataset: Dataset, seed: int, test_share: float) -> Split:
    hosts = [record.host for record in dataset.records]
    identities = np.array([record.identity for record in dataset.records])
    train, test = _shuffle(hosts, _WHAT["host"], seed, test_share)
    if len(set(identities[test])) < 2:
        raise ValueError(
            "the test host has records of one workload only, which leaves none to train on: "
            "measure at least two workloads on each host"
        )
    _, asked = _shuffle(list(identities[test]), _WHAT["shape"], seed, test_share)
    test = test[asked]
    train = train[~np.isin(identities[train], identities[test])]
    if not len(train):
        raise ValueError(
            "the other hosts have no records of further workloads to train on: measure the same "
            "workloads on all hosts"
        )
    return Split("host", seed, train, test)


def _shuffle(
    names: Sequence[str], what: str, seed: int, test_share: float
) -> tuple[Positions, Positions]:
    count = len(set(names))
    if count < 2:
        raise ValueError(
            f"a split needs records of two {what} at least, and there {'is' if count else 'are'} "
            f"{count or 'none'}: collect more, or split another way"
        )
    number = min(max(1, round(test_share * count)), count - 1)
    splitter: Any = GroupShuffleSplit(n_splits=1, test_size=number, random_state=seed)
    train, test = next(splitter.split(np.zeros((len(names), 1)), groups=np.array(names)))
    return np.asarray(train, dtype=np.int64), np.asarray(test, dtype=np.int64)


def shared_identities(dataset: Dataset, made: Split) -> frozenset[str]:
    """Canonical identities that have records on both sides."""
    sides = ({dataset.records[i].identity for i in side} for side in (made.train, made.test))
    return frozenset.intersection(*map(frozenset, sides))


def check_disjoint(dataset: Dataset, made: Split) -> None:
    """Prove that a split leaks nothing.

    Raises:
        LeakError: a computation is on both sides, or with a split by record, which shares
            computations, a record or another one of the same program.
    """
    if made.kind != "record":
        shared = shared_identities(dataset, made)
    else:
        names = _group_names(dataset, "record")
        sides = ({names[i] for i in side} for side in (made.train, made.test))
        shared = frozenset.intersection(*map(frozenset, sides))
    if shared:
        first = ", ".join(sorted(shared)[:3])
        raise LeakError(
            f"{len(shared)} {_WHAT['record' if made.kind == 'record' else 'shape']} are on both "
            f"sides of the split by {made.kind}: {first}"
        )
