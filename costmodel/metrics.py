"""How well scores rank programs, in the field's own measures.

Everything is taken within a workload, over its valid programs, and then averaged over workloads,
each of which counts the same. Where scores tie, a measure is the one expected from breaking the
ties at random, so a model that knows nothing comes out as chance and not as the order of its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]

_BLOCK = 512
_RESAMPLES = 2000


@dataclass(frozen=True)
class Metrics:
    """The metrics of one workload, or averaged over several; NaN where one is not defined.

    Attributes:
        pairwise: Share of the pairs, nearer ones than the noise left out, whose faster program has
            the higher score; a tie counts half.
        kendall: Kendall's tau-b between score and throughput; 0 where all scores are equal.
        spearman: Spearman's rank correlation; 0 where all scores are equal.
        recall: Share of the true top k among the k that score highest.
        top1: Best throughput within the one that scores highest, over the best there is.
        top5: The same within the five that score highest.
        rmse: Root mean square error of the throughput over the workload's best, after the straight
            line that fits the scores to it best (a rank model's scores have no unit).
    """

    pairwise: float
    kendall: float
    spearman: float
    recall: float
    top1: float
    top5: float
    rmse: float


NAMES = tuple(field.name for field in fields(Metrics))


@dataclass(frozen=True)
class Evaluation:
    """Metrics over several workloads, with 95% bootstrap intervals over the workloads.

    Attributes:
        mean: The metrics, averaged over the workloads.
        low: The intervals' lower ends.
        high: The intervals' upper ends.
        workloads: Each workload's metrics, by its group's number.
        k: The k of `recall`.
    """

    mean: Metrics
    low: Metrics
    high: Metrics
    workloads: dict[int, Metrics]
    k: int

    def to_json(self) -> dict[str, float | list[float]]:
        """Each metric, its interval beside it as `<metric>_ci95`; recall is named `recall10`."""
        out: dict[str, float | list[float]] = {}
        for name in NAMES:
            key = f"recall{self.k}" if name == "recall" else name
            out[key] = getattr(self.mean, name)
            out[f"{key}_ci95"] = [getattr(self.low, name), getattr(self.high, name)]
        return out


def evaluate(
    scores: npt.ArrayLike,
    latency_s: npt.ArrayLike,
    groups: npt.ArrayLike | None = None,
    *,
    weights: dict[int, float] | None = None,
    noise: npt.ArrayLike = 0.0,
    k: int = 10,
    seed: int = 0,
) -> Evaluation:
    """Judge scores by the latencies that were measured.

    Args:
        scores: Higher is faster, of shape (programs,).
        latency_s: Seconds per run; programs that failed (infinity) or were not measured (NaN) are
            left out.
        groups: Which workload each program is of; by default all are of one.
        weights: For `top1` and `top5`, the weight of each group's latency: how often its operator
            runs in a network, say. By default 1 / best latency: every workload counts the same.
        noise: The relative difference below which two latencies are no different; one number, or
            one for each program (a pair's is then the larger).
        k: The k of `recall`.
        seed: Seed of the bootstrap.

    Raises:
        ValueError: the lengths differ, or no workload has a valid program.
    """
    score, latency, group, near = _valid(scores, latency_s, groups, noise)
    found: dict[int, Metrics] = {}
    for number in np.unique(group):
        member = group == number
        found[int(number)] = workload_metrics(score[member], latency[member], near[member], k)
    best = {n: float(latency[group == n].min()) for n in found}
    cost = np.array([1.0 if weights is None else weights[n] * best[n] for n in found])
    table = np.array([[getattr(metrics, name) for name in NAMES] for metrics in found.values()])
    draws = np.random.default_rng(seed).integers(len(found), size=(_RESAMPLES, len(found)))
    resampled = np.array([_average(table[draw], cost[draw]) for draw in draws])
    low, high = _quantiles(resampled)
    return Evaluation(Metrics(*_average(table, cost)), Metrics(*low), Metrics(*high), found, k)


def workload_metrics(
    scores: Array, latency_s: Array, noise: npt.ArrayLike = 0.0, k: int = 10
) -> Metrics:
    """The metrics of one workload; arguments as those of `evaluate`, all programs valid."""
    speed = latency_s.min() / latency_s
    tied = bool((scores == scores[0]).all() or (speed == speed[0]).all())
    return Metrics(
        pairwise=pairwise_accuracy(scores, latency_s, noise),
        kendall=0.0 if tied else float(stats.kendalltau(scores, speed).statistic),
        spearman=0.0 if tied else float(stats.spearmanr(scores, speed).statistic),
        recall=recall_at(scores, latency_s, k),
        top1=top_score(scores, latency_s, 1),
        top5=top_score(scores, latency_s, 5),
        rmse=line_rmse(scores, speed),
    )


def pairwise_accuracy(scores: Array, latency_s: Array, noise: npt.ArrayLike = 0.0) -> float:
    """Share of the pairs of one workload that the scores order as the latencies do.

    Pairs whose latencies differ by no more than the noise are skipped, ties of scores count half.
    NaN where no pair is left.
    """
    near = np.log1p(np.broadcast_to(np.asarray(noise, dtype=np.float64), latency_s.shape))
    order = np.argsort(latency_s, kind="stable")
    score, log, near = scores[order], np.log(latency_s[order]), near[order]
    right, pairs = 0.0, 0
    for start in range(0, len(score), _BLOCK):  # in blocks: all pairs at once take gigabytes
        block = slice(start, start + _BLOCK)
        gap = log[None, start:] - log[block, None]
        apart = gap > np.maximum(near[block, None], near[None, start:])
        ahead = score[block, None] - score[None, start:]
        right += float(((ahead > 0) & apart).sum() + 0.5 * ((ahead == 0) & apart).sum())
        pairs += int(apart.sum())
    return right / pairs if pairs else float("nan")


def recall_at(scores: Array, latency_s: Array, k: int) -> float:
    """Share of the k fastest programs that are among the k with the highest scores.

    Where there are no more than k programs it is 1, whatever the scores.
    """
    k = min(k, len(scores))
    top = np.argsort(latency_s, kind="stable")[:k]
    cut = np.sort(scores)[-k]
    above, level = int((scores > cut).sum()), int((scores == cut).sum())
    chance = np.where(scores > cut, 1.0, np.where(scores == cut, (k - above) / level, 0.0))
    return float(chance[top].sum() / k)


def top_score(scores: Array, latency_s: Array, k: int) -> float:
    """The best latency over the best among the k programs that score highest, at most 1.

    From TenSet (Zheng et al., NeurIPS 2021) and TLP (Zhai et al., ASPLOS 2023).
    """
    k = min(k, len(scores))
    cut = np.sort(scores)[-k]
    surest = float(latency_s[scores > cut].min(initial=np.inf))
    tied = np.minimum(np.sort(latency_s[scores == cut]), surest)
    drawn = k - int((scores > cut).sum())
    # Chance that the fastest of `drawn` out of the tied ones is the i-th of them.
    expected, left = 0.0, 1.0
    for i in range(len(tied)):
        chance = left * min(1.0, drawn / (len(tied) - i))
        expected += chance * float(tied[i])
        left -= chance
    return float(latency_s.min() / expected)


def line_rmse(scores: Array, speed: Array) -> float:
    """Root mean square of what the straight line from scores to speed leaves over."""
    centred = scores - scores.mean()
    spread = float(centred @ centred)
    slope = float(centred @ speed) / spread if spread > 0 else 0.0
    return float(np.sqrt(np.mean((speed - speed.mean() - slope * centred) ** 2)))


def measured_noise(repeats: Sequence[Sequence[float]]) -> Array:
    """How far a program's latency is uncertain, of shape (programs,).

    Relative standard deviation of the median of its repeats, under normal noise; where there are
    fewer than two repeats, the median over the others (0 where there are none).

    Args:
        repeats: Seconds of each measurement of each program.
    """
    noise = np.full(len(repeats), np.nan)
    for i, times in enumerate(repeats):
        if len(times) > 1:
            # A median's deviation is 1.25 times that of a mean.
            noise[i] = 1.2533 * float(np.std(np.log(times), ddof=1)) / np.sqrt(len(times))
    known = noise[~np.isnan(noise)]
    return np.where(np.isnan(noise), np.median(known) if len(known) else 0.0, noise)


def noise_ceiling(
    repeats: Sequence[Sequence[float]], groups: npt.ArrayLike, noise: npt.ArrayLike = 0.0
) -> float:
    """The pairwise accuracy that measurements reach against measurements of the same programs.

    Each measurement in turn ranks the programs against the median of the others. No model can be
    expected to do better than that by much.

    Args:
        repeats: Seconds of each measurement of each program, at least two; those with fewer are
            left out. Measurements made at different times show more of the noise than the repeats
            of one record do.
        groups: Which workload each program is of.
        noise: See `evaluate`.

    Returns:
        The average over workloads; NaN where nothing was measured twice.
    """
    group = np.asarray(groups)
    near = np.broadcast_to(np.asarray(noise, dtype=np.float64), group.shape)
    ceilings = []
    for number in np.unique(group):
        members = [int(i) for i in np.flatnonzero(group == number) if len(repeats[int(i)]) > 1]
        turns = []
        for turn in range(min((len(repeats[i]) for i in members), default=0)):
            one = np.array([repeats[i][turn] for i in members])
            rest = [np.median([*repeats[i][:turn], *repeats[i][turn + 1 :]]) for i in members]
            turns.append(pairwise_accuracy(-one, np.array(rest), near[members]))
        ceilings.append(_mean(np.array(turns)))
    return _mean(np.array(ceilings))


def _valid(
    scores: npt.ArrayLike,
    latency_s: npt.ArrayLike,
    groups: npt.ArrayLike | None,
    noise: npt.ArrayLike,
) -> tuple[Array, Array, npt.NDArray[np.int64], Array]:
    score = np.asarray(scores, dtype=np.float64)
    latency = np.asarray(latency_s, dtype=np.float64)
    group = np.zeros(len(score), np.int64) if groups is None else np.asarray(groups, np.int64)
    if not len(score) == len(latency) == len(group):
        raise ValueError(f"{len(score)} scores, {len(latency)} latencies, {len(group)} groups")
    near = np.broadcast_to(np.asarray(noise, dtype=np.float64), score.shape)
    valid = np.isfinite(latency)
    if not valid.any():
        raise ValueError("no program has a latency to judge by")
    return score[valid], latency[valid], group[valid], near[valid]


def _average(table: Array, cost: Array) -> list[float]:
    """The mean of each column; a top score is that of the workloads' summed latencies."""
    row = [_mean(table[:, column]) for column in range(table.shape[1])]
    for name in ("top1", "top5"):
        column = NAMES.index(name)
        row[column] = float(cost.sum() / (cost / table[:, column]).sum())
    return row


def _mean(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _quantiles(resampled: Array) -> tuple[list[float], list[float]]:
    """Both ends of the 95% interval of each column, of the draws where it is defined."""
    ends = np.full((2, resampled.shape[1]), np.nan)
    for column in range(resampled.shape[1]):
        known = resampled[~np.isnan(resampled[:, column]), column]
        if len(known):
            ends[:, column] = np.quantile(known, (0.025, 0.975))
    return list(map(float, ends[0])), list(map(float, ends[1]))
