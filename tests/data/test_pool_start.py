"""A worker server that is started before TVM is loaded."""

import subprocess
import sys

import psutil

_SCRIPT = """
import sys
from tensortune.data.pool_start import _early, start_early
start_early(1)
start_early(1)
(early,) = _early
assert "tvm" not in sys.modules
from tensortune.data.pool import WorkerServer
target = '{"kind": "llvm", "num-cores": 1}'
first, second = WorkerServer(1, target), WorkerServer(1, target)
assert first._process.pid == early.process.pid != second._process.pid
for server in (first, second):
    server.fork().kill()
    server.close()
start_early(1)
other = WorkerServer(2)
assert not _early
print(other._process.pid, flush=True)
start_early(2)
print(_early[0].process.pid, flush=True)
"""


def test_the_next_server_of_as_many_threads_takes_it_over() -> None:
    """One of other threads does not, and what nobody took ends with its process."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    alive = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, left = psutil.wait_procs(alive, 30)
    assert not left
