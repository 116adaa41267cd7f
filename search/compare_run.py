"""One run of a comparison: in a process of its own, and never again once it is finished."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..data.pool_start import worker_environment
from .run_folder import write_json

Say = Callable[[str], object]

# A run that takes longer is given up. MetaSchedule takes up to 4 s a trial.
_RUN_LIMIT_S = 1800.0
_TRIAL_LIMIT_S = 30.0


def finished(folder: Path, job: Mapping[str, Any]) -> bool:
    """Whether a run's folder holds it, finished.

    Raises:
        ValueError: it holds a run with other settings.
    """
    if not (folder / "done.json").exists():
        return False
    if json.loads((folder / "job.json").read_text()) != job:
        raise ValueError(f"{folder} holds a run with other settings; choose another --out")
    return True


def carry_out(
    folder: Path,
    job: Mapping[str, Any],
    threads: int,
    environment: Mapping[str, str],
    title: str,
    say: Say,
) -> None:
    """Carry a run out, unless it is finished; one that fails leaves `error.json`.

    Args:
        folder: Where its files are. What an interrupted run left there goes.
        job: What `peers.run` is told.
        threads: Threads of the target.
        environment: What its process has in its environment besides ours.
        title: What it is called in what is said.
        say: Called with a line when it is over.
    """
    if finished(folder, job):
        say(f"{title}: done before")
        return
    shutil.rmtree(folder, ignore_errors=True)
    write_json(folder / "job.json", job)
    start = time.monotonic()
    limit_s = _RUN_LIMIT_S + _TRIAL_LIMIT_S * job["trials"]
    error = run_process(folder, {**worker_environment(threads), **environment}, limit_s)
    wall_s = time.monotonic() - start
    if error is not None:
        write_json(folder / "error.json", {"error": error, "wall_s": wall_s})
        say(f"{title}: failed after {wall_s:.1f} s: {error} (see {folder / 'log.txt'})")
        return
    write_json(folder / "done.json", {"wall_s": wall_s, "ended": time.time()})
    say(f"{title}: {wall_s:.1f} s")


def run_process(folder: Path, environment: Mapping[str, str], limit_s: float) -> str | None:
    """Run the job of a folder; why it failed, or None."""
    command = (
        "import sys; sys.path[:] = sys.argv[2:]; "
        "from tensortune.search.peers.process import main; main()"
    )
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", command, str(folder), *sys.path],
            env=environment,
            stdin=subprocess.PIPE,  # that it ends tells the process of our end
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"it took longer than {limit_s:.0f} s"
        finally:
            # With all that it started: a peer has processes of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
    if code == 0:
        return None
    how = f"exit code {code}" if code > 0 else f"it died of {signal.Signals(-code).name}"
    lines = (folder / "log.txt").read_text(errors="replace").strip().splitlines()
    return f"{how}: {lines[-1][:200] if lines else 'no output'}"
