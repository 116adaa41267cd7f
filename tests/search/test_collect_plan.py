"""The plan: balanced at every moment, exact in the end, and the same after a kill."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.record import Record
from tensortune.data.suites import suite
from tensortune.search.collect_plan import (
    AGAIN,
    LEAST,
    LEAST_AGAIN,
    TURN,
    CollectSettings,
    Plan,
    Stream,
    second_sample,
    session_seed,
)

SETTINGS = CollectSettings("looptune-test")
WORKLOADS = suite("looptune-test")[:12]


class Dead(Exception):
    """Stands for a kill."""


def a_record(stream: Stream, number: int, strategy: str) -> Record:
    return Record(
        workload=stream.workload.key,
        identity="",
        target="",
        candidate=Candidate(stream.space, (number,)),
        repeats=(1e-3,),
        strategy=strategy,
    )


def fill(
    plan: Plan,
    stored: list[Record],
    life: float = math.inf,
    sizes: Mapping[tuple[str, str], int] | None = None,
) -> list[tuple[int, str]]:
    """Do what a collector does, up to its death; whose turns there were."""
    turns = []
    for number, level, workload in plan.turns():
        turns.append((number, workload.key))
        for stream in plan.of_workload(workload):
            size = (sizes or {}).get((workload.key, stream.space), 10**9)
            wanted = stream.wanted(level, plan.guided_share, plan.samples - plan.held)
            for strategy, count in zip(("random", "annealing"), wanted, strict=True):
                found = min(count, size - stream.held)
                for _ in range(found):
                    if len(stored) >= life:
                        raise Dead
                    stored.append(a_record(stream, len(stored), strategy))
                if strategy == "random":
                    stream.random += found
                else:
                    stream.guided += found
                if found < count:
                    stream.cap = stream.held
    return turns


@pytest.mark.parametrize("samples", [1, 11, 12, 100, 480, 1111])
def test_a_collection_is_exact_and_balanced(samples: int) -> None:
    stored: list[Record] = []
    fill(Plan.of(WORKLOADS, SETTINGS, samples), stored)
    assert len(stored) == samples
    each = Counter(record.workload for record in stored)
    if samples >= len(WORKLOADS):
        # All are filled to the level that is enough, the last few to what is left.
        assert max(each.values()) <= math.ceil(samples / len(WORKLOADS)) + 2
    if samples >= 480:
        loops = sum(record.candidate.space == "loop" for record in stored)
        guided = sum(record.strategy != "random" for record in stored)
        assert 0.15 < loops / samples < 0.25
        assert 0.4 < guided / samples < 0.6


def test_every_workload_has_a_turn_before_any_has_another() -> None:
    turns = fill(Plan.of(WORKLOADS, SETTINGS, 12 * 3 * TURN), [])
    rounds = [[key for number, key in turns if number == each] for each in (1, 2, 3)]
    assert sum(map(len, rounds)) == len(turns)
    for keys in rounds:
        assert sorted(keys) == sorted(workload.key for workload in WORKLOADS)


def test_random_candidates_come_before_guided_ones() -> None:
    stream = Stream(WORKLOADS[0], "sketch", 0.8)
    assert stream.wanted(50, 0.5, 1000) == (20, 20)
    assert stream.wanted(50, 0.5, 15) == (15, 0)
    stream.random = 20
    assert stream.wanted(50, 0.5, 1000) == (0, 20)
    stream.random = 30  # there are more already than there should be
    assert stream.wanted(50, 0.5, 1000) == (0, 10)
    stream.cap = 35
    assert stream.wanted(50, 0.5, 1000) == (0, 5)


@pytest.mark.parametrize("life", [0, 1, 17, 100, 299, 479])
def test_a_killed_collection_goes_on_and_counts_once(life: int) -> None:
    stored: list[Record] = []
    with pytest.raises(Dead):
        fill(Plan.of(WORKLOADS, SETTINGS, 480), stored, life)
    assert len(stored) == life
    plan = Plan.of(WORKLOADS, SETTINGS, 480)
    # A doubled line, a second measurement and a stranger's record count for nothing.
    extra = [stored[0], replace(stored[0], strategy=AGAIN)] if stored else []
    plan.count([*stored, *extra, replace(a_record(plan_stream(plan), 1, "random"), workload="x")])
    assert plan.held == life
    fill(plan, stored)
    assert len(stored) == 480
    whole: list[Record] = []
    fill(Plan.of(WORKLOADS, SETTINGS, 480), whole)

    def shape(records: list[Record]) -> Counter[tuple[str, str]]:
        return Counter((record.workload, record.candidate.space) for record in records)

    assert shape(stored) == shape(whole)


def plan_stream(plan: Plan) -> Stream:
    return next(iter(plan.streams.values()))


def test_more_samples_go_on() -> None:
    stored: list[Record] = []
    fill(Plan.of(WORKLOADS, SETTINGS, 200), stored)
    plan = Plan.of(WORKLOADS, SETTINGS, 480)
    plan.count(stored)
    fill(plan, stored)
    assert len(stored) == 480
    plan = Plan.of(WORKLOADS, SETTINGS, 300)
    plan.count(stored)
    assert fill(plan, stored) == []


def test_the_others_get_what_tiny_spaces_leave() -> None:
    sizes = {(workload.key, "sketch"): 3 for workload in WORKLOADS[:4]}
    stored: list[Record] = []
    turns = fill(Plan.of(WORKLOADS, SETTINGS, 960), stored, sizes=sizes)
    assert len(stored) == 960
    each = Counter(record.workload for record in stored)
    tiny = {workload.key for workload in WORKLOADS[:4]}
    large = [count for key, count in each.items() if key not in tiny]
    assert max(large) - min(large) <= LEAST
    assert all(each[key] < min(large) for key in tiny)
    assert len(turns) <= 4 * len(WORKLOADS), "no workload has a turn for one or two records"


def test_it_ends_when_there_is_no_more() -> None:
    sizes = {
        (workload.key, space): 5 + 2 * i
        for i, workload in enumerate(WORKLOADS)
        for space in ("sketch", "loop")
    }
    stored: list[Record] = []
    fill(Plan.of(WORKLOADS, SETTINGS, 10_000), stored, sizes=sizes)
    assert len(stored) == sum(sizes.values())


def test_a_workload_that_is_given_up_is_left_alone() -> None:
    plan = Plan.of(WORKLOADS, SETTINGS, 480)
    first = plan.of_workload(WORKLOADS[0])[0]
    stored = [a_record(first, number, "random") for number in range(3)]
    plan.give_up(WORKLOADS[0], stored)  # it failed after the third
    assert plan.held == first.held == 3
    turns = fill(plan, stored)
    assert len(stored) == 480
    assert WORKLOADS[0].key not in {key for _, key in turns}


def test_one_space_alone_gets_everything() -> None:
    settings = CollectSettings("looptune-test", spaces=("loop",))
    stored: list[Record] = []
    fill(Plan.of(WORKLOADS, settings, 120), stored)
    assert Counter(record.candidate.space for record in stored) == {"loop": 120}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spaces": ("sketch", "lop")}, "the spaces are sketch and loop"),
        ({"spaces": ()}, "the spaces are"),
        ({"spaces": ("loop", "loop")}, "each at most once"),
        ({"loop_share": 1.5}, "loop_share is a share from 0 to 1, not 1.5"),
        ({"guided_share": -0.1}, "guided_share is a share"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **changes)  # type: ignore[arg-type]


def test_seeds_differ_from_turn_to_turn_and_from_run_to_run() -> None:
    stream = Stream(WORKLOADS[0], "sketch", 0.8)
    streams = [
        stream,
        replace(stream, random=5),
        replace(stream, space="loop"),
        replace(stream, workload=WORKLOADS[1]),
    ]
    settings = [SETTINGS, replace(SETTINGS, seed=1)]
    seeds = [session_seed(each, stream) for each in settings for stream in streams]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert session_seed(SETTINGS, replace(stream)) == seeds[0]


def test_the_second_sample_is_of_timed_candidates_once_and_grows_with_the_share() -> None:
    stream = Stream(WORKLOADS[0], "sketch", 1.0)
    timed = [a_record(stream, number, "random") for number in range(1000)]
    failed = [
        replace(timed[0], candidate=Candidate("sketch", (-n,)), repeats=(), failure="timeout")
        for n in range(1, 500)
    ]
    few = second_sample([*timed, *failed], 0.05, seed=0)
    more = second_sample([*timed, *failed], 0.2, seed=0)
    assert (len(few), len(more)) == (50, 200)
    assert set(few) <= set(more) <= {record.candidate for record in timed}
    assert len(second_sample(timed[:130], 0.05, seed=0)) == 7, "never less than the share"
    assert len(second_sample(timed[:9], 0.05, seed=0)) == LEAST_AGAIN, "enough to make pairs of"
    assert len(second_sample(timed[:3], 0.05, seed=0)) == 3
    done = [replace(timed[0], candidate=candidate, strategy=AGAIN) for candidate in few]
    assert second_sample([*timed, *done], 0.05, seed=0) == []
    assert set(second_sample([*timed, *done], 0.2, seed=0)) == set(more) - set(few)
    assert set(second_sample(timed, 1.0, seed=0)) == {record.candidate for record in timed}
    assert set(second_sample(timed, 0.2, seed=1)) != set(more)
