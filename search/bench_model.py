"""`tensortune bench model`: how fast features are computed, and models fitted and asked."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..costmodel import pretrained
from ..costmodel.base import CostModel, ModelFileError, Samples
from ..costmodel.combined import Kinds, features_of, predict
from ..costmodel.features import general, loops, relations, statements
from ..costmodel.features.schemas import LOOPS, STATEMENTS
from ..costmodel.files import make_model
from ..costmodel.xgb import XGBModel
from ..data.candidate import InvalidCandidate
from ..data.host import this_host
from ..data.install import versions
from ..data.space import Scheduled
from ..data.spaces import NamedSpace, make_space
from ..data.suites import ansor
from ..data.target import cpu_target, target_string
from ..data.workload import Workload

# So many candidates are scored at once, about as many as a search does.
_BATCH = 2048
# Programs whose loop features are timed; they are computed one by one in Python.
_LOOP_PROGRAMS = 64
_FITS = (64, 512)
# What a draft model is like, where none is pretrained.
_DRAFT: dict[str, Any] = {"rounds": 100, "max_depth": 5}

_RATES = (
    *("draft_per_s", "draft_features_per_s", "draft_scores_per_s", "loop_draft_per_s"),
    *("xgb_per_s", "treegru_per_s"),
)
_TIMES = (
    *("statement_features_ms", "loop_features_ms", "relation_features_ms"),
    *(f"xgb_fit_s_{n}" for n in _FITS),
)


def bench_model(
    console: Console,
    *,
    workloads: Sequence[Workload] | None = None,
    programs: int = max(_FITS),
    least_s: float = 0.5,
    seed: int = 0,
) -> dict[str, Any]:
    """Time features and models on random candidates of three workloads, on one thread mostly.

    Rates are candidates or programs a second: `draft_per_s` from decisions to scores in the sketch
    space (`loop_draft_per_s` in the loop space), of which `draft_features_per_s` and
    `draft_scores_per_s` are the parts; `xgb_per_s` and `treegru_per_s` with the features ready.
    Features are timed by the program, its replay apart. Models are the pretrained ones, where there
    are some; others are fitted to made-up times, and `models` says which.

    Args:
        console: Where the table goes.
        workloads: The workloads; by default Ansor's C2D 2, GMM 2 and SFM 1.
        programs: Programs to schedule of each.
        least_s: Seconds to spend on each figure at least.
        seed: Seed of the candidates.

    Returns:
        The figures over all workloads, and the same of each as `workloads`. None for what is not
        installed.
    """
    chosen = workloads or (ansor("C2D", 2), ansor("GMM", 2), ansor("SFM", 1))
    target = cpu_target()
    models = _Models()
    rows = []
    for item in chosen:
        console.print(item.key, highlight=False)
        rng = np.random.default_rng(seed)
        rows.append(
            {"workload": item.key, **_Bench(item, target, models, least_s, rng).run(programs)}
        )
    result = {
        **_overall(rows),
        "models": models.names,
        "workloads": rows,
        "host": this_host().key,
        "target": target_string(target),
        "versions": versions(),
        "seed": seed,
    }
    console.print(_table(result))
    return result


class _Models:
    """The models to time: pretrained ones, or else fitted to the first samples they are given."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._made: dict[str, CostModel | None] = {}

    def scorer(self, name: str, samples: Kinds) -> Callable[[], object] | None:
        """What asks a model for the samples' scores; None where what it needs is not installed.

        Args:
            name: A pretrained model's name.
            samples: The same programs by the kind of their features; those to fit it on first.
        """
        if name not in self._made:
            self._made[name] = self._find(name, samples)
        model = self._made[name]
        return None if model is None else partial(predict, model, samples)

    def _find(self, name: str, samples: Kinds) -> CostModel | None:
        if name == "treegru" and find_spec("torch") is None:
            self.names[name] = "torch is not installed: pip install 'tensortune[neural]'"
            return None
        try:
            found: CostModel = pretrained.load_one(name)
            if all(kind in samples for kind in features_of(found)):
                self.names[name] = "pretrained"
                return found
        except ModelFileError:
            pass  # none, or one that can't be used here
        self.names[name] = "fitted here"
        made: CostModel
        if name == "treegru":
            fresh: Any = make_model("treegru")
            fresh.epochs = 1
            made = fresh
        else:
            made = XGBModel(**_DRAFT) if name == "draft" else XGBModel()
        made.fit(next(iter(samples.values())))
        return made


class _Bench:
    """The figures of one workload."""

    def __init__(
        self,
        workload: Workload,
        target: Any,
        models: _Models,
        least_s: float,
        rng: np.random.Generator,
    ) -> None:
        self.workload = workload
        self.target = target
        self.models = models
        self.least_s = least_s
        self.rng = rng

    def run(self, programs: int) -> dict[str, float | None]:
        """All figures, by name."""
        space = make_space("sketch", self.workload, self.target)
        return {
            **self._drafts(space),
            "loop_draft_per_s": self._drafts(make_space("loop", self.workload, self.target))[
                "draft_per_s"
            ],
            **self._programs(_scheduled(space, self.rng, programs)),
        }

    def _drafts(self, space: NamedSpace) -> dict[str, float | None]:
        """Rates of a draft model, its features included and apart."""
        candidates = space.guess(self.rng, _BATCH)
        samples = general.samples(space, candidates, self._times(_BATCH))
        ask = self.models.scorer("draft", {"general": samples})
        assert ask is not None  # it needs nothing that is optional
        features_s = self._seconds(lambda: general.samples(space, candidates))
        scores_s = self._seconds(ask)
        return {
            "draft_per_s": _BATCH / (features_s + scores_s),
            "draft_features_per_s": _BATCH / features_s,
            "draft_scores_per_s": _BATCH / scores_s,
        }

    def _programs(self, scheduled: Sequence[Scheduled]) -> dict[str, float | None]:
        """Features of scheduled programs, and models on these."""
        n = len(scheduled)
        known = Samples.of(STATEMENTS, statements.extract(scheduled, self.target), self._times(n))
        few = scheduled[:_LOOP_PROGRAMS]
        trees = Samples.of(LOOPS, loops.extract(few, self.target), self._times(len(few)))
        repeated = np.arange(n) % len(few)
        many = trees.take(repeated)
        kinds = {"statements": known.take(repeated), "relations": relations.of(many)}
        found: dict[str, float | None] = {
            "statement_features_ms": self._each_ms(
                lambda: statements.extract(few, self.target, 1), len(few)
            ),
            "loop_features_ms": self._each_ms(lambda: loops.extract(few, self.target), len(few)),
            "relation_features_ms": self._each_ms(lambda: relations.of(many), n),
            "xgb_per_s": self._rate("verify", kinds, n),
            "treegru_per_s": self._rate("treegru", {"loops": many}, n),
        }
        for size in _FITS:
            part = known.take(np.arange(min(size, n)))
            call = partial(XGBModel().fit, part)
            found[f"xgb_fit_s_{size}"] = self._seconds(call) if n >= size else None
        return found

    def _rate(self, name: str, samples: Kinds, n: int) -> float | None:
        ask = self.models.scorer(name, samples)
        return None if ask is None else n / self._seconds(ask)

    def _each_ms(self, call: Callable[[], object], n: int) -> float:
        return 1e3 * self._seconds(call) / n

    def _seconds(self, call: Callable[[], object]) -> float:
        """Median seconds of a call; the first, which may set something up, is not counted."""
        call()
        times: list[float] = []
        while len(times) < 3 or sum(times) < self.least_s:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def _times(self, n: int) -> Any:
        """Latencies that mean nothing: how long a fit takes does not depend on them."""
        return np.exp(self.rng.normal(-7.0, 1.0, size=n))


def _scheduled(space: NamedSpace, rng: np.random.Generator, n: int) -> list[Scheduled]:
    """Programs of random candidates."""
    found: list[Scheduled] = []
    while len(found) < n:
        for candidate in space.sample(rng, n - len(found)):
            try:
                found.append(space.schedule(candidate))
            except InvalidCandidate:
                continue
    return found


def _overall(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Over all workloads: rates of as many candidates of each, and mean times."""
    found: dict[str, float | None] = {}
    for name in _RATES:
        known = [row[name] for row in rows if row[name]]
        found[name] = statistics.harmonic_mean(known) if known else None
    for name in _TIMES:
        known = [row[name] for row in rows if row[name] is not None]
        found[name] = statistics.fmean(known) if known else None
    return found


def _table(result: Mapping[str, Any]) -> Table:
    rows = result["workloads"]
    table = Table("figure", "all", *(row["workload"] for row in rows), box=None, pad_edge=False)
    for name in (*_RATES, *_TIMES):
        values = [result[name], *(row[name] for row in rows)]
        table.add_row(name, *("-" if v is None else f"{v:,.4g}" for v in values))
    for name, what in result["models"].items():
        table.add_row(f"{name} model", escape(what))
    return table
