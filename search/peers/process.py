"""The process of one run, until TVM is loaded: what can be done before that is done here."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path

from ...data.install import load_bare, without
from ...data.pool_start import start_early

# Peers with workers of their own.
_OTHER_WORKERS = ("metaschedule", "autotvm", "autotvm-ga", "autotvm-random", "ansor")


def main() -> None:
    """Carry out the job of the folder that this process is given."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job = json.loads((Path(sys.argv[1]) / "job.json").read_text())
    if job["strategy"] not in _OTHER_WORKERS:
        start_early(int(os.environ["TVM_NUM_THREADS"]))
        load_bare()
    with without("torch"):
        import_module("tvm")
    import_module(".run", __package__).main()


def _end_with_parent() -> None:
    """Wait for the comparison's end, however that comes about, and end with all we started."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)
