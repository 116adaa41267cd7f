"""A wrong kernel never wins, however fast it is."""

from tensortune.data.finals import make_reference
from tensortune.data.measure import UNTUNED, LocalMeasurer
from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload
from tensortune.search.winner import choose_winner

from ..planted import Crash, Doubling, Half, PlantedSpace, Tripling


def test_wrong_kernels_planted_as_the_fastest_do_not_win() -> None:
    wrong = {f"wrong{i}": Tripling for i in range(5)} | {"half": Half}
    space = PlantedSpace({**wrong, "right": Doubling, "crash": Crash})
    with LocalMeasurer(Workload.from_module(Doubling), cpu_target()) as measurer:
        reference = make_reference(measurer)
        records = measurer.measure(space, [space.candidate(name) for name in space.modules])
        # Told that the wrong ones are by far the fastest: more of them than the last round takes.
        records = [
            record
            if record.candidate.point[0] in ("right", "crash")
            else type(record)(**_fields(record) | {"repeats": (1e-9,)})
            for record in records
        ]
        winner = choose_winner(measurer, space, reference, records)
    assert winner.candidate in (space.candidate("right"), UNTUNED)
    assert winner.checked
    assert winner.checked_against == "float64"
    assert {record.candidate.point[0] for record in winner.wrong} >= set(wrong) - {"right"}
    assert all(record.failure == "wrong" and record.detail for record in winner.wrong)


def test_a_run_of_wrong_kernels_ends_with_the_untuned_program() -> None:
    space = PlantedSpace({"wrong": Tripling})
    with LocalMeasurer(Workload.from_module(Doubling), cpu_target()) as measurer:
        reference = make_reference(measurer)
        records = measurer.measure(space, [space.candidate("wrong")])
        winner = choose_winner(measurer, space, reference, records)
    assert winner.candidate == UNTUNED
    assert winner.checked


def _fields(record: object) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
