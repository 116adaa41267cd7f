"""The real workers on real kernels: what goes wrong costs one candidate and is named."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from tensortune.data.build import time_built
from tensortune.data.finals import check_outputs, judge, make_reference, time_interleaved
from tensortune.data.measure import LocalMeasurer
from tensortune.data.pool import WorkerError, WorkerServer
from tensortune.data.sketch_space import SketchSpace
from tensortune.data.target import cpu_target
from tensortune.data.worker import Timed, Timing, measure
from tensortune.data.workload import Workload, workload

from ..planted import Crash, Doubling, Half, Hang, Hog, PlantedSpace, Tripling, endless_compile

MODULES = {
    "right": Doubling,
    "crash": Crash,
    "hang": Hang,
    "endless": endless_compile(),
    "illegal": None,
    "wrong": Tripling,
}
EXPECTED = {
    "right": None,
    "crash": "runtime",
    "hang": "timeout",
    "endless": "timeout",
    "illegal": "invalid",
    "wrong": None,  # timing does not look at the output; the winner's check does
}


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(Workload.from_module(Doubling), cpu_target()) as made:
        made.run_limit_s = 0.3
        yield made


def server_of(measurer: LocalMeasurer) -> psutil.Process:
    """The process that forks its workers; other tests of this run may have left theirs."""
    process = measurer._server._process
    assert process is not None
    return psutil.Process(process.pid)


def test_a_bad_candidate_costs_itself_alone(measurer: LocalMeasurer) -> None:
    space = PlantedSpace(MODULES)
    candidates = [space.candidate(name) for name in MODULES]
    told = []
    records = measurer.measure(space, candidates, told.append)
    assert [record.candidate for record in records] == candidates
    assert {r.candidate.point[0]: r.failure for r in records} == EXPECTED
    assert all(record.detail for record in records if record.failure)
    assert sorted(map(id, told)) == sorted(map(id, records))
    detail = {r.candidate.point[0]: r.detail for r in records}
    assert "SIGSEGV" in detail["crash"]
    assert "compiling took longer" in detail["endless"]
    assert "running took longer" in detail["hang"]


def test_a_candidate_that_takes_too_much_memory_costs_itself_alone(
    measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurer, "memory_bytes", 512 << 20)
    space = PlantedSpace({"hog": Hog, "right": Doubling})
    hog, right = measurer.measure(space, [space.candidate("hog"), space.candidate("right")])
    assert hog.failure == "runtime" and "alloc" in hog.detail
    assert right.valid


def test_every_repeat_is_kept_with_its_provenance(measurer: LocalMeasurer) -> None:
    space = PlantedSpace({"right": Doubling})
    measurer.best_s = float("inf")
    (record,) = measurer.measure(space, [space.candidate("right")])
    assert len(record.repeats) == measurer.repeats
    assert all(seconds > 0 for seconds in record.repeats)
    assert record.identity == measurer.workload.identity
    assert record.host and record.versions["apache-tvm"] and record.time > 0


def test_nothing_is_left_running(measurer: LocalMeasurer) -> None:
    space = PlantedSpace(MODULES)
    measurer.measure(space, [space.candidate(name) for name in ("right", "hang", "crash")])
    server = server_of(measurer)
    assert server.is_running()
    left = [p for p in server.children(recursive=True) if p.status() != "zombie"]
    assert not left, "only the server is alive between batches"


def test_a_slow_candidate_is_cut_short() -> None:
    task = workload("matmul", 128, 128, 128)
    target = cpu_target()
    with LocalMeasurer(task, target) as local:
        local.best_s = 1e-9  # everything is slow beside this
        space = SketchSpace(task, target)
        (record,) = local.measure(space, space.sample(np.random.default_rng(0), 1))
    assert record.cut and record.valid and len(record.repeats) == 1


class Clock:
    """A kernel that takes as long as it says, without taking it."""

    def __init__(self, seconds: float) -> None:
        self.estimate_s: float | None = None
        self.seconds = seconds
        self.runs: list[int] = []

    def once(self) -> float:
        return self.many(1)

    def many(self, number: int) -> float:
        self.runs.append(number)
        return self.seconds


def test_timing_runs_a_short_kernel_often_and_a_long_one_seldom() -> None:
    short = Clock(1e-6)
    assert measure(short, Timing(3, 0.02)).repeats == (1e-6,) * 3
    assert short.runs[-3:] == [20_000] * 3
    before = len(short.runs)
    measure(short, Timing(1, 0.02))
    assert short.runs[before:] == [1, 20_000], "its size is known the second time"
    long = Clock(5.0)
    assert measure(long, Timing(3, 0.02, budget_s=1.0)).repeats == (5.0,)
    assert long.runs == [1]


def test_timing_spares_what_cannot_win() -> None:
    hopeless, slow, slowish = Clock(0.5), Clock(0.11), Clock(0.09)
    timing = Timing(3, 0.02, cut_s=0.1, brief_s=0.05)
    assert measure(hopeless, timing).cut
    assert hopeless.runs == [1]
    assert measure(slow, timing).cut
    assert slow.runs == [1, 1]
    assert measure(slowish, timing) == Timed((0.09, 0.09), cut=False)


def test_a_short_run_that_took_long_is_not_believed() -> None:
    """The first runs of a kernel can take ten times as long as the others."""

    class Waking(Clock):
        def once(self) -> float:
            return super().once() * (10.0 if len(self.runs) < 4 else 1.0)

    before = os.sched_getaffinity(0)
    waking = Waking(1e-4)
    timed = measure(waking, Timing(3, 0.01, cut_s=4e-4, brief_s=1.5e-4))
    assert timed == Timed((1e-4,) * 3, cut=False)
    assert os.sched_getaffinity(0) == before


def test_a_worker_killed_from_outside_costs_one_candidate(measurer: LocalMeasurer) -> None:
    space = PlantedSpace({"hang": Hang, "right": Doubling})

    def kill_soon() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            workers = server_of(measurer).children()
            if len(workers) == 2 and workers[0].cpu_times().user > 0.1:
                os.kill(workers[0].pid, signal.SIGKILL)
                return
            time.sleep(0.01)

    measurer.run_limit_s, before = 20.0, measurer.run_limit_s
    killer = threading.Thread(target=kill_soon)
    killer.start()
    try:
        records = measurer.measure(space, [space.candidate("hang"), space.candidate("right")])
    finally:
        measurer.run_limit_s = before
        killer.join()
    assert records[0].failure == "runtime" and "SIGKILL" in records[0].detail
    assert records[1].valid


def test_a_killed_server_is_replaced(measurer: LocalMeasurer) -> None:
    space = PlantedSpace({"right": Doubling})
    server = server_of(measurer)
    server.kill()
    server.wait(10)
    (record,) = measurer.measure(space, [space.candidate("right")])
    assert record.valid


def test_workers_die_with_their_parent() -> None:
    script = (
        "from tensortune.data.pool import WorkerServer\n"
        "server = WorkerServer(1); worker = server.fork()\n"
        "print(server._process.pid, worker.pid, flush=True); input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(psutil.pid_exists, pids))


@pytest.mark.parametrize("imported_first", [False, True])
def test_kernels_run_on_the_targets_threads(imported_first: bool) -> None:
    script = (
        ("import tvm\n" if imported_first else "") + "from tensortune.data.kernel import Kernel\n"
        "from tensortune.data.target import cpu_target\n"
        "from tensortune.data.workload import workload\n"
        "import tvm\n"
        "w = workload('matmul', 64, 64, 64)\n"
        "Kernel(w, w.mod, cpu_target('llvm -num-cores=1'))\n"
        "print(tvm.get_global_func('runtime.NumThreads')())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "1"


def test_wrong_outputs_are_found(measurer: LocalMeasurer) -> None:
    reference = make_reference(measurer)
    assert reference.kind == "float64"
    right, wrong, half, crash = check_outputs(
        measurer, reference, [Doubling, Tripling, Half, Crash]
    )
    assert right.right
    assert wrong.wrong and "off by" in wrong.detail
    assert half.wrong and "not finite" in half.detail
    assert not crash.right and not crash.wrong and "SIGSEGV" in crash.detail


def test_a_program_that_was_timed_stands_still_until_its_next_turn() -> None:
    # A parallel kernel's threads spin on after it has returned, and took a core from the next one.
    task = workload("matmul", 256, 256, 256)
    with LocalMeasurer(task, cpu_target()) as local:
        space = SketchSpace(task, local.target)
        (candidate,) = space.sample(np.random.default_rng(0), 1)
        (built,) = local.builder.build([local.program(space.schedule(candidate).mod)])
        assert built.worker is not None
        process = psutil.Process(built.worker.pid)
        for _ in range(2):
            assert time_built(built, Timing(1, 0.01), 5.0) is not None
            deadline = time.monotonic() + 5
            while process.status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
                time.sleep(0.005)  # the signal is on its way
            assert process.status() == psutil.STATUS_STOPPED
        built.close()


def test_interleaved_timing_survives_a_crash(measurer: LocalMeasurer) -> None:
    programs = [measurer.program(mod) for mod in (Doubling, Crash, Half)]
    right, crash, half = time_interleaved(measurer, programs, rounds=3)
    assert len(right.times_s) == 3 and crash.failure and half.latency_s < right.latency_s * 2
    assert crash.latency_s == float("inf")


def test_what_was_timed_is_run_for_its_outputs(measurer: LocalMeasurer) -> None:
    programs = [measurer.program(mod) for mod in (Doubling, Half, Tripling)]
    right, half, unasked = time_interleaved(measurer, programs, rounds=1, run=2)
    reference = make_reference(measurer)
    assert judge(reference, right).right
    assert judge(reference, half).wrong
    assert unasked.outputs is None and not judge(reference, unasked).right
    assert unasked.times_s


def test_a_server_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WorkerError, match="doctor"):
        WorkerServer(1).fork()
