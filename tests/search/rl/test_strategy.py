"""The strategies that follow a policy: what they propose, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

from tensortune.data.candidate import Candidate
from tensortune.data.loop_space import LoopSpace
from tensortune.data.record import Record
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.workload import workload
from tensortune.search.base import Strategy, Trial
from tensortune.search.compare import Entrant
from tensortune.search.rl.policy import PolicyFileError
from tensortune.search.rl.strategy import FineTunedSearch, PolicyAnnealing, PolicySearch
from tensortune.search.strategies import default_space, find_strategy
from tensortune.search.tune import tune

from .policies import TARGET, tiny_policy

Scores = npt.NDArray[np.float64]

OPERATORS = {
    "matmul": (48, 64, 40),
    "conv2d": (1, 7, 9, 6, 17, 3, 1, 1),
    "depthwise_conv2d": (1, 13, 13, 24, 3, 2, 1),
    "softmax": (37, 64),
    "norm": (1, 32, 48),
    "add": (37, 64),
}


@cache
def space_of(operator: str = "matmul") -> LoopSpace:
    return LoopSpace(workload(operator, *OPERATORS[operator]), TARGET)


def flat(candidates: Sequence[Candidate]) -> Scores:
    return np.zeros(len(candidates))


def short(candidates: Sequence[Candidate]) -> Scores:
    """Likes nests of few loops."""
    return np.array([-float(len(space_of().nest(c).loops)) for c in candidates])


def trials_of(candidates: Sequence[Candidate], latency_s: float = 1e-3) -> list[Trial]:
    found = []
    for number, candidate in enumerate(candidates):
        repeats = (latency_s * (1 + number),)
        record = Record("matmul", "matmul", "target", candidate, repeats, host="host")
        found.append(Trial(candidate, record))
    return found


def test_what_the_policy_prefers_comes_first() -> None:
    policy = tiny_policy()
    (preferred,) = policy.rollouts(space_of(), 1, np.random.default_rng(0), greedy=True)
    asked = PolicySearch(space_of(), 0, policy=policy, rollouts=8).ask(8, flat)
    assert asked[0] == preferred
    assert len(set(asked)) == 8


def test_scores_rank_what_the_policy_makes() -> None:
    strategy = PolicySearch(space_of(), 0, policy=tiny_policy(), rollouts=32)
    asked = strategy.ask(8, short)
    scores = short(asked)
    assert np.all(np.diff(scores) <= 0)
    assert scores[0] == short(list(strategy._pool)).max()


@pytest.mark.parametrize("score", [flat, short])
@pytest.mark.parametrize("make", [PolicySearch, FineTunedSearch, PolicyAnnealing])
def test_nothing_is_proposed_twice_and_nothing_is_missing(
    make: type[PolicySearch | PolicyAnnealing], score: object
) -> None:
    strategy: Strategy = make(space_of(), 0, policy=tiny_policy(), rollouts=8)
    told: set[Candidate] = set()
    for n in (8, 40, 40):
        asked = strategy.ask(n, score)  # type: ignore[arg-type]
        assert len(set(asked)) == n
        assert told.isdisjoint(asked)
        strategy.tell(trials_of(asked))
        told.update(asked)


def test_a_policy_that_always_does_the_same_is_searched_on_from() -> None:
    """With steps to stop only there is one candidate, and after it its neighbours."""
    strategy = PolicySearch(space_of(), 0, policy=tiny_policy(horizon=1), rollouts=16)
    asked = strategy.ask(64, flat)
    assert strategy._dry
    assert len(set(asked)) == 64


def test_the_share_of_neighbours_grows_with_what_was_measured() -> None:
    def share(near: float) -> float:
        strategy = PolicySearch(space_of(), 0, policy=tiny_policy(), rollouts=32, near=near)
        strategy.tell(trials_of(strategy.ask(8, flat)))
        asked = strategy.ask(8, flat)
        return sum(c not in strategy._pool for c in asked) / len(asked)

    assert share(0.0) == 0
    # A neighbour may be what the policy made as well.
    assert 0.3 < share(0.5) <= 0.5
    assert share(1.0) > 0.7


@pytest.mark.parametrize("make", [PolicySearch, FineTunedSearch, PolicyAnnealing])
def test_a_seed_makes_the_proposals(make: type[PolicySearch | PolicyAnnealing]) -> None:
    def proposals(seed: int) -> list[Candidate]:
        strategy: Strategy = make(space_of(), seed, policy=tiny_policy(), rollouts=8)
        first = strategy.ask(8, flat)
        strategy.tell(trials_of(first))
        return first + strategy.ask(8, short)

    assert proposals(3) == proposals(3) != proposals(4)


def test_annealing_begins_with_what_the_policy_makes() -> None:
    strategy = PolicyAnnealing(space_of(), 0, policy=tiny_policy(), rollouts=6)
    assert 1 < len(strategy.start) <= 6
    assert strategy.ask(10, flat)[: len(strategy.start)] == list(strategy.start)


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_operator_is_searched(operator: str) -> None:
    space = space_of(operator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make in (PolicySearch, FineTunedSearch, PolicyAnnealing):
            strategy: Strategy = make(space, 0, policy=tiny_policy(), rollouts=4)
            for candidate in strategy.ask(4, flat):
                assert space.schedule(candidate).candidate == candidate


@pytest.mark.parametrize("make", [PolicySearch, FineTunedSearch, PolicyAnnealing])
def test_what_the_policy_cannot_take_is_sampled(
    make: type[PolicySearch | PolicyAnnealing],
) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        strategy: Strategy = make(space_of(), 0, policy=tiny_policy(max_loops=2), rollouts=4)
        asked = strategy.ask(12, flat)
        strategy.tell(trials_of(asked))
        asked += strategy.ask(12, short)
    assert len(set(asked)) == 24
    (once,) = told
    assert "without the policy" in str(once.message)
    assert "3 loops" in str(once.message)


def test_a_policy_of_another_space_is_refused() -> None:
    sketches = SketchSpace(workload("matmul", *OPERATORS["matmul"]), TARGET)
    with pytest.raises(PolicyFileError, match=r"over the loop space.*given the sketch space"):
        PolicySearch(sketches, 0, policy=tiny_policy())
    with pytest.raises(PolicyFileError, match=r"over the sketch space.*given the loop space"):
        PolicyAnnealing(space_of(), 0, policy=tiny_policy("knob"))


@pytest.mark.parametrize("options", [{"rollouts": 0}, {"near": 1.5}])
def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least|from 0 to 1"):
        PolicySearch(space_of(), 0, policy=tiny_policy(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("strategy", "operator", "model"),
    [
        ("rl", "matmul", "pretrained"),
        ("rl+learning", "matmul", "none"),
        ("rl+annealing", "softmax", "none"),
    ],
)
def test_tuning_chooses_the_space_and_finds_a_right_kernel(
    tmp_path: Path, strategy: str, operator: str, model: str
) -> None:
    policy = tmp_path / "mine.ttp"
    tiny_policy().save(policy)
    result = tune(
        workload(operator, *OPERATORS[operator]),
        strategy=strategy,
        policy=policy,
        model=model,
        trials=6,
        batch=3,
        quiet=True,
    )
    assert result.space.name == default_space(strategy) == "loop"
    assert result.best.checked
    assert result.trials == 6
    assert {record.strategy for record in result.records} == {strategy}


def test_a_strategy_is_found_with_its_policy(tmp_path: Path) -> None:
    policy = tmp_path / "mine.ttp"
    tiny_policy().save(policy)
    assert find_strategy("rl", policy)(space_of(), 0).name == "rl"
    entrant = Entrant.parse(f"mine=rl+annealing:policy={policy}:trials=8")
    assert (entrant.space, entrant.policy, entrant.trials) == ("loop", str(policy), 8)
    assert Entrant.parse("annealing").space == default_space("annealing") == "sketch"


def test_policies_that_are_of_no_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"annealing.*follows no policy; rl, .*rl\+annealing do"):
        find_strategy("annealing", tmp_path / "mine.ttp")
    with pytest.raises(FileNotFoundError):
        find_strategy("rl", tmp_path / "none.ttp")
    damaged = tmp_path / "damaged.ttp"
    damaged.write_bytes(b"no policy")
    with pytest.raises(PolicyFileError, match=r"damaged\.ttp"):
        find_strategy("rl+annealing", damaged)


_WITHOUT = """
import sys
sys.modules["{package}"] = None
from tensortune.search.strategies import find_strategy
from tensortune.search import tune
assert not any(name.startswith("tensortune.search.rl") for name in sys.modules)
try:
    find_strategy("rl")
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("package", ["gymnasium", "torch"])
def test_without_the_packages_the_others_work(package: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(package=package)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "tensortune[rl]" in run.stdout
