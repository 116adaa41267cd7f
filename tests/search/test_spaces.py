"""Every space is tuned, explained and applied by the same commands."""

from pathlib import Path

import pytest

from tensortune.data.candidate import Candidate
from tensortune.data.spaces import SPACES, make_space
from tensortune.data.target import cpu_target
from tensortune.data.workload import workload
from tensortune.search.apply import apply
from tensortune.search.explain import explain
from tensortune.search.tune import tune

TASK = workload("matmul", 48, 64, 32)


@pytest.mark.parametrize("name", SPACES)
def test_a_run_in_any_space_ends_with_a_checked_kernel(name: str, tmp_path: Path) -> None:
    result = tune(TASK, trials=20, batch=8, space=name, out=tmp_path / "run", quiet=True)
    assert result.best.checked
    assert 0 not in result.failures.values(), "no mention of what did not happen"
    assert {record.candidate.space for record in result.records} == {name}
    result.save(tmp_path / "run")
    assert explain(tmp_path / "run").importance
    scheduled = apply(TASK.mod, tmp_path / "run")
    assert not scheduled["main"].same_as(TASK.mod["main"])
    again = tune(
        TASK, trials=24, batch=8, space=name, out=tmp_path / "run", resume=True, quiet=True
    )
    assert again.trials == 24
    (other,) = set(SPACES) - {name}
    with pytest.raises(ValueError, match=f"a run of space {name}, not {other}"):
        tune(TASK, trials=24, space=other, out=tmp_path / "run", resume=True, quiet=True)


def test_an_unknown_space_is_named() -> None:
    with pytest.raises(ValueError, match="no space `grid`; the spaces are sketch, loop"):
        tune(TASK, space="grid", quiet=True)


def test_a_space_takes_no_candidate_of_another() -> None:
    target = cpu_target()
    for name in SPACES:
        with pytest.raises(ValueError, match="not a candidate"):
            make_space(name, TASK, target).schedule(Candidate("unheard-of", (0, ())))
