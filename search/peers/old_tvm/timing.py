"""Times one kernel, in a process that does nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

from .library import die_with_parent

_REPEATS = 3
_REPEAT_MS = 20
# `config_threadpool`'s mode for one thread on each CPU of a list.
_ONE_CPU_PER_THREAD = -2


def time_kernel(
    library: str, arguments: Sequence[tuple[Sequence[int], str]], cpus: Sequence[int], sender: Any
) -> None:
    """Send seconds a run, a mean for each repeat; or two strings, of which the second is the error.

    Args:
        library: The kernel's shared library.
        arguments: Shape and element type of each argument.
        cpus: The CPUs that it runs on, a thread on each.
        sender: The end of a pipe.
    """
    die_with_parent()
    try:
        configure = tvm.get_global_func("runtime.config_threadpool")
        configure(_ONE_CPU_PER_THREAD, len(cpus), [str(cpu) for cpu in cpus])
        module = tvm.runtime.load_module(library)
        rng = np.random.default_rng(0)
        arrays = [
            tvm.nd.array(rng.uniform(0.1, 1.0, shape).astype(dtype)) for shape, dtype in arguments
        ]
        timer = module.time_evaluator(
            module.entry_name, tvm.cpu(0), number=1, repeat=_REPEATS, min_repeat_ms=_REPEAT_MS
        )
        sender.send(tuple(timer(*arrays).results))
    except Exception as error:  # whatever the kernel did
        sender.send(("", str(error)))
