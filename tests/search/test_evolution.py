"""Evolution: generations that mate, mutate and keep their best."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.record import Record
from tensortune.search.base import Trial
from tensortune.search.evolution import Evolution

GENES = 12


class Bits:
    """Twelve bits; the more of them are set, the better. Counts what it is asked for."""

    name = "bits"
    size = 2.0**GENES

    def __init__(self) -> None:
        self.mutations = 0
        self.crossovers = 0

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Few bits are set."""
        return [genome(row) for row in (rng.random((n, GENES)) < 0.2).astype(int).tolist()]

    def guess(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        return self.sample(rng, n)

    def neighbours(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Candidate]:
        self.mutations += len(candidates)
        moved = []
        for candidate, where in zip(
            candidates, rng.integers(GENES, size=len(candidates)).tolist(), strict=True
        ):
            bits = genes(candidate)
            bits[where] = 1 - bits[where]
            moved.append(genome(bits))
        return moved

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        self.crossovers += 1
        picks = rng.integers(0, 2, size=GENES)
        return genome(np.where(picks, genes(a), genes(b)).tolist())

    def encode(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
        return np.array([genes(c) for c in candidates], dtype=np.float32).reshape(-1, GENES)

    def schedule(self, candidate: Candidate) -> None:
        raise AssertionError("a strategy replays nothing")


def genome(bits: Sequence[int]) -> Candidate:
    return Candidate("bits", tuple(bits))


def genes(candidate: Candidate) -> list[int]:
    return [bit for bit in candidate.point if isinstance(bit, int)]


def ones(candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
    return np.array([sum(genes(c)) for c in candidates], dtype=np.float64)


def warm(**options: float) -> tuple[Evolution, Bits]:
    """After a batch without a model."""
    space = Bits()
    options = {"guesses": 0, "wide": 0.0, "generations": 50} | options
    strategy = Evolution(space, 0, **options)  # type: ignore[arg-type]
    tell(strategy, strategy.ask(16, lambda c: np.zeros(len(c))))
    return strategy, space


def tell(strategy: Evolution, candidates: Sequence[Candidate]) -> None:
    strategy.tell([Trial(c, record(c)) for c in candidates])


def record(candidate: Candidate) -> Record:
    return Record(
        workload="bits",
        identity="bits",
        target="bits",
        host="bits",
        candidate=candidate,
        repeats=(1.0 / (1 + sum(genes(candidate))),),
    )


@pytest.mark.parametrize("mutation", [0.0, 0.5, 1.0])
def test_mutation_is_the_share_of_children_that_mutate(mutation: float) -> None:
    strategy, space = warm(population=100, generations=20, elite=0.0, mutation=mutation)
    strategy.ask(4, ones)
    assert space.mutations + space.crossovers == 2000
    # 2000 draws: a deviation of 0.011 at a half.
    assert abs(space.mutations / 2000 - mutation) < 0.05


def test_the_best_genome_is_found() -> None:
    strategy, _ = warm()
    assert strategy.ask(4, ones)[0] == genome([1] * GENES)


def test_crossover_alone_brings_traits_together() -> None:
    strategy, _ = warm(mutation=0.0, generations=20)
    told = [sum(genes(c)) for c in strategy._memory.best(16)]
    assert ones(strategy.ask(1, ones))[0] > max(told)


def test_the_elite_survives() -> None:
    best = genome([1] * GENES)
    for elite, kept in ((0.9, True), (0.0, False)):
        strategy, _ = warm(population=10, generations=1, elite=elite)
        tell(strategy, [best])
        strategy.ask(1, ones)
        assert (best in strategy._states) is kept


def test_the_population_lives_on() -> None:
    strategy, _ = warm(generations=3, measured=0.0)
    first = np.mean(ones(strategy.ask(8, ones)))
    assert np.mean(ones(strategy.ask(8, ones))) > first


def test_a_population_of_one_is_no_trouble() -> None:
    strategy, _ = warm(population=1, generations=3)
    assert len(set(strategy.ask(4, ones))) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"population": 0},
        {"generations": 0},
        {"mutation": 1.5},
        {"elite": 1.0},
        {"measured": -0.5},
    ],
)
def test_options_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|from 0"):
        warm(**wrong)
