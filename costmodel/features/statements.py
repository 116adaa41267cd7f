"""Statement features: what TVM's analysis says of each store of a scheduled program.

A program has one row of 164 columns for every statement that writes a buffer. The columns are
those of Ansor (Zheng et al., OSDI 2020, appendix B) as MetaSchedule computes them: 57 of
arithmetic, annotations and loops, 18 for each of up to 5 buffers, 10 of the arithmetic intensity's
curve, 4 of the allocation and 3 of the outer scope. Counts come as log2(1 + count) already, so
trees and neural networks both take them as they are. All programs share the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import _ffi_api as ms_ffi
from tvm.s_tir.meta_schedule.logging import get_logger, get_logging_func

from ...data.host import usable_cpus
from ...data.space import Scheduled
from ..base import Floats, Samples
from .schemas import STATEMENTS


@cache
def _extractor() -> Any:
    return ms.feature_extractor.PerStoreFeature()


def _context(target: tvm.target.Target, threads: int) -> Any:
    """The least context that the extractor takes: the target and a number of threads.

    `ms.TuneContext(...)` would import the intrinsics of every GPU first (15 s).
    """
    context = ms.TuneContext.__new__(ms.TuneContext)
    log = get_logging_func(get_logger(__name__))
    context.__init_handle_by_constructor__(
        ms_ffi.TuneContext, None, target, None, None, None, threads, 1, log
    )
    return context


def extract(
    scheduled: Sequence[Scheduled], target: tvm.target.Target, threads: int | None = None
) -> list[Floats]:
    """Statement features of scheduled programs.

    Args:
        scheduled: The programs.
        target: The target they are for.
        threads: Programs analysed at once; by default one a usable CPU.

    Returns:
        One matrix a program, of shape (statements, 164). A program that TVM can't analyse has a
        single row of NaN: it costs its own features, not the batch's.
    """
    if not scheduled:
        return []
    context = _context(target, threads or len(usable_cpus()))
    try:
        # The extractor looks at a schedule's module only; one made around it has equal features.
        candidates = [
            ms.MeasureCandidate(Schedule(one.mod, enable_check=False), []) for one in scheduled
        ]
        tensors = _extractor().extract_from(context, candidates)
    except Exception:  # TVM raises whatever its C++ side threw, and doesn't say for which program
        if len(scheduled) == 1:
            return [np.full((1, STATEMENTS.width), np.nan, dtype=np.float32)]
        return [extract([one], target, 1)[0] for one in scheduled]
    return [tensor.numpy().astype(np.float32) for tensor in tensors]


def samples(
    scheduled: Sequence[Scheduled],
    target: tvm.target.Target,
    latency_s: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
) -> Samples:
    """Samples with statement features; arguments as those of `extract` and `Samples.of`."""
    return Samples.of(STATEMENTS, extract(scheduled, target), latency_s, groups)
