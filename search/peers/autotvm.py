"""The real AutoTVM and Ansor, which are gone from TVM, run in an interpreter of their own.

`docs/autotvm.md` says how to make the interpreter. There AutoTVM tunes the x86 template that TOPI
has for the operator (`old_tvm/templates.py`), and Ansor the operator as its own suite defines it.

**What is timed.** The winner's machine code is the old compiler's. It comes as a shared library
that our workers load (`old_tvm/library.py`), so it runs on the same threads and is timed by the
same timer, in turn with everybody else's. It takes the operator's own arguments: where the template
wants another layout, the library converts the arguments there and the result back, the weights too,
in every call. That is what ratios are taken of, for nobody else is given another layout for free.
The library `kernel.so` leaves the conversions out, and its time stands beside the other: what a
network would see that keeps its data in that layout from one operator to the next.

The output is judged as everybody's is, against the float64 program (`data/verify.py`). AutoTVM does
not look at outputs; a configuration that is wrong counts as a failure, and the next one takes its
place.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...data.finals import judge, make_reference, time_interleaved
from ...data.host import usable_cpus
from ...data.logs.entry import LogEntry
from ...data.logs.reader import read_log
from ...data.measure import LocalMeasurer
from ...data.pool import worker_environment
from ...data.target import num_cores
from ...data.worker import Artifact
from ...data.workload import CUSTOM, Workload
from ..outcome import Outcome

OLD_TVM = ("autotvm", "autotvm-ga", "autotvm-random", "ansor")
"""AutoTVM with XGBoost and rank loss, its genetic algorithm, its random search; Ansor."""

PYTHON_VARIABLE = "TENSORTUNE_AUTOTVM_PYTHON"
_MAKE_ONE = (
    "docs/autotvm.md says how to make an interpreter with AutoTVM; name it with --autotvm-python "
    f"or in {PYTHON_VARIABLE}"
)
_PROBE = (
    "import json, sys, tvm, tvm.topi, xgboost; from tvm import auto_scheduler, autotvm; "
    "print(json.dumps({'python': sys.version.split()[0], 'tvm': tvm.__version__, "
    "'xgboost': xgboost.__version__}))"
)
_PROBE_LIMIT_S = 120.0
# So many of the fastest are tried until one is right.
_MOST_WRONG = 5


class AutoTVMError(RuntimeError):
    """The interpreter with AutoTVM is missing or does not do its work; the message says which."""


def find_python(given: str | os.PathLike[str] | None = None) -> Path:
    """The interpreter that has AutoTVM.

    Args:
        given: Where it is; by default what the environment names.

    Raises:
        AutoTVMError: none is named, or there is none of that name.
    """
    named = os.fspath(given) if given else os.environ.get(PYTHON_VARIABLE, "")
    if not named:
        raise AutoTVMError(f"no interpreter with AutoTVM is named: {_MAKE_ONE}")
    found = shutil.which(os.path.expanduser(named))
    if found is None:
        raise AutoTVMError(f"{named} is no program that can be run: {_MAKE_ONE}")
    # Not resolved: the link in a virtual environment is what makes Python look for packages there.
    return Path(found).absolute()


def probe(python: Path) -> dict[str, str]:
    """Versions of Python, TVM and XGBoost in an interpreter.

    Raises:
        AutoTVMError: AutoTVM can't be imported there.
    """
    try:
        done = subprocess.run(
            [str(python), "-c", _PROBE],
            env=_environment(1, None),
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AutoTVMError(f"{python} does not run: {error}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise AutoTVMError(f"{python} has no AutoTVM that works: {last}; {_MAKE_ONE}")
    versions: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return versions


def run_old_tvm(
    tuner: str,
    workload: Workload,
    target: Any,
    trials: int,
    seed: int,
    folder: Path,
    python: Path | None = None,
) -> Outcome:
    """Tune with AutoTVM or Ansor.

    Args:
        tuner: One of `OLD_TVM`.
        workload: What is tuned.
        target: The target; its `mcpu` and number of threads are AutoTVM's too.
        trials: Budget.
        seed: Seeds its generators.
        folder: Where its log and its winner are written to, in a folder `peer`.
        python: The interpreter; by default what the environment names.

    Returns:
        The outcome, whose winner is a library; or the reason why there is none.

    Raises:
        AutoTVMError: the interpreter is missing, or its process failed.
    """
    if workload.operator == CUSTOM or workload.source is not None:
        return _without_winner(
            [], f"{tuner} is given named operators only, not {workload.operator}"
        )
    worker = _Peer(tuner, workload, target, trials, seed, folder / "peer", python or find_python())
    result = worker.build(0)
    entries = read_log(worker.log).entries if worker.log.exists() else []
    if "reason" in result:
        return _without_winner(entries, result["reason"], worker.began)
    with LocalMeasurer(workload, target) as measurer:
        reference = make_reference(measurer)
        for rank in range(_MOST_WRONG):
            if rank:
                result = worker.build(rank)
                if "reason" in result:
                    break
            library = worker.folder / result["library"]
            artifact = Artifact(str(library), measurer.inputs, measurer.memory_bytes)
            (contestant,) = time_interleaved(measurer, [artifact], rounds=0, run=1)
            verdict = judge(reference, contestant)
            if verdict.right:
                packed = worker.folder / result["packed"] if "packed" in result else None
                return _outcome(
                    entries, worker.began, library, packed, about=result["about"], wrong=rank
                )
            detail = verdict.detail
    return _without_winner(entries, f"its fastest are not right: {detail}", worker.began)


def _outcome(
    entries: Sequence[LogEntry],
    began: float,
    library: Path | None,
    packed: Path | None,
    *,
    about: dict[str, str] | None = None,
    reason: str = "",
    wrong: int = 0,
) -> Outcome:
    failures = Counter(entry.outcome.failure for entry in entries if entry.outcome.failure)
    if wrong:
        failures["wrong"] += wrong
    return Outcome(
        mod=None,
        latencies_s=[entry.latency_s for entry in entries],
        elapsed_s=[entry.outcome.time - began for entry in entries],
        failures={str(kind): count for kind, count in failures.items()},
        seconds={"trials": sum(entry.outcome.seconds for entry in entries)} if entries else {},
        library=library,
        packed=packed,
        about=about or {},
        reason=reason,
    )


def _without_winner(entries: Sequence[LogEntry], reason: str, began: float = 0.0) -> Outcome:
    return _outcome(entries, began, None, None, reason=reason)


class _Peer:
    """The process in the other interpreter."""

    def __init__(
        self,
        tuner: str,
        workload: Workload,
        target: Any,
        trials: int,
        seed: int,
        folder: Path,
        python: Path,
    ) -> None:
        self.folder = folder
        self.log = folder / "log.jsonl"
        self.began = time.time()
        self._python = python
        self._threads = num_cores(target)
        self._module = "ansor_worker" if tuner == "ansor" else "autotvm_worker"
        self._job = {
            "tuner": tuner,
            "operator": workload.operator,
            "params": dict(workload.params),
            "dtype": workload.dtype,
            "trials": trials,
            "seed": seed,
            "mcpu": str(target.attrs.get("mcpu") or "generic"),
            "mattr": [str(one) for one in target.attrs.get("mattr") or ()],
            "cpus": list(usable_cpus()),
            "threads": self._threads,
        }
        folder.mkdir(parents=True, exist_ok=True)
        # A copy, away from our other modules, whose names its interpreter would find first.
        shutil.copytree(
            Path(__file__).with_name("old_tvm"),
            folder / "old_tvm",
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )

    def build(self, rank: int) -> dict[str, Any]:
        """Tune, unless that is done, and build the winner, or the one of another rank.

        Raises:
            AutoTVMError: the process failed.
        """
        (self.folder / "job.json").write_text(json.dumps({**self._job, "rank": rank}))
        (self.folder / "result.json").unlink(missing_ok=True)
        said, scratch = self.folder / "log.txt", self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        with said.open("a") as output:
            code = subprocess.run(
                [str(self._python), "-m", f"old_tvm.{self._module}", "job.json"],
                cwd=self.folder,
                # AutoTVM leaves its temporary folders behind.
                env={**_environment(self._threads, self.folder), "TMPDIR": str(scratch)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        shutil.rmtree(scratch, ignore_errors=True)
        if code or not (self.folder / "result.json").exists():
            lines = said.read_text(errors="replace").strip().splitlines()
            last = lines[-1][:300] if lines else f"exit code {code}"
            raise AutoTVMError(f"{self._job['tuner']} failed: {last} (all of it is in {said})")
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return result


def _environment(threads: int, folder: Path | None) -> dict[str, str]:
    """That of our workers, without what leads one Python to another's packages."""
    ours = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
    environment = {
        name: value for name, value in worker_environment(threads).items() if name not in ours
    }
    if folder is not None:
        environment["PYTHONPATH"] = str(folder)
    return environment
