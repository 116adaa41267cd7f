"""TreeGRU on made-up loop trees whose latency is known."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortune.costmodel.base import FeatureSchema, ModelFileError, Samples
from tensortune.costmodel.features.schemas import STATEMENTS
from tensortune.costmodel.files import load_model, make_model
from tensortune.costmodel.metrics import pairwise_accuracy
from tensortune.costmodel.model_file import ModelFile

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from tensortune.costmodel import treegru_training  # noqa: E402
from tensortune.costmodel.treegru import TreeGRU  # noqa: E402
from tensortune.costmodel.treegru_net import TreeNet, forest  # noqa: E402

WIDTH = 7
SCHEMA = FeatureSchema("made-up loops", 1, WIDTH)


def grow(rng: np.random.Generator, rows: list[list[float]], parent: int, level: int) -> float:
    """Add a node and what is below to the rows, in pre-order; its seconds.

    A loop takes its length times what its children take, a statement its cost. Columns: rows up to
    the parent, whether it is a statement, log2 of the length, log2 of the cost, and luck.
    """
    here = len(rows)
    up = 0.0 if parent < 0 else float(here - parent)
    luck = list(rng.normal(size=WIDTH - 4))
    if level > 4 or (level > 0 and rng.random() < 0.3):
        cost = rng.uniform(0.0, 6.0)
        rows.append([up, 1.0, 0.0, cost, *luck])
        return float(2.0**cost)
    length = rng.uniform(0.0, 4.0)
    rows.append([up, 0.0, length, 0.0, *luck])
    children = 1 if rng.random() < 0.7 else int(rng.integers(2, 4))
    return float(2.0**length * sum(grow(rng, rows, here, level + 1) for _ in range(children)))


def programs(n: int, groups: int, seed: int = 0) -> Samples:
    """Programs of one to three root loops; the groups' scales differ by up to 1000."""
    rng = np.random.default_rng(seed)
    scale = 1e-6 * 10.0 ** rng.uniform(0.0, 3.0, groups)
    features, latency_s, group = [], [], rng.integers(0, groups, n)
    for g in group:
        rows: list[list[float]] = []
        roots = int(rng.integers(1, 4))
        latency_s.append(scale[g] * sum(grow(rng, rows, -1, 0) for _ in range(roots)))
        features.append(np.array(rows, dtype=np.float32))
    return Samples.of(SCHEMA, features, latency_s, group)


TRAINING = programs(600, 10)
TEST = programs(240, 4, seed=1)


def made(**options: Any) -> TreeGRU:
    return TreeGRU(
        **({"embedding": 32, "hidden": 32, "epochs": 6, "learning_rate": 3e-3} | options)
    )


def fitted(**options: Any) -> TreeGRU:
    model = made(**options)
    model.fit(TRAINING)
    return model


@pytest.fixture(scope="module")
def model() -> TreeGRU:
    """A trained model; not to be changed."""
    return fitted(epochs=20)


def accuracy(model: TreeGRU, samples: Samples) -> float:
    scores = model.predict(samples)
    found = [
        pairwise_accuracy(scores[member], samples.latency_s[member])
        for member in (samples.groups == g for g in np.unique(samples.groups))
    ]
    return float(np.mean(found))


def test_it_learns_what_trees_take_in_other_groups(model: TreeGRU) -> None:
    # Chance is 0.5, with a deviation of about 0.02 over these four groups of 60.
    assert accuracy(model, TEST) > 0.85


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def score_by_recursion(net: TreeNet, rows: Any) -> float:
    """What the network makes of one program, node by node."""
    w = {name: value.numpy().astype(np.float64) for name, value in net.state_dict().items()}
    size = len(w["state_bias"])

    def state_of(i: int) -> Any:
        below = np.zeros(size)
        for j in range(i + 1, len(rows)):
            if rows[j, 0] and j - int(rows[j, 0]) == i:
                below = below + state_of(j)
        features = np.clip((rows[i, 1:] - w["mean"]) * w["scale"], -6.0, 6.0)
        node = np.maximum(w["embed"] @ features + w["embed_bias"], 0.0)
        gates = sigmoid(w["gates"] @ node + w["gates_bias"] + w["gates_below"] @ below)
        keep, reset = gates[:size], gates[size:]
        state = w["state"] @ node + w["state_bias"] + w["state_below"] @ (reset * below)
        new = np.tanh(state / 2.0)
        return keep * below + (1.0 - keep) * new

    whole = sum(state_of(i) for i in range(len(rows)) if rows[i, 0] == 0)
    return float(w["out"][0] @ np.maximum(w["dense"] @ whole + w["dense_bias"], 0.0))


def test_a_batch_comes_out_as_each_tree_does_by_recursion() -> None:
    rng = np.random.default_rng(0)
    net = TreeNet(WIDTH - 1, 16, 32, rng)
    net.standardise(TEST.rows[:, 1:])
    for name, values in net.named_parameters():
        if name.endswith("bias"):
            values.data = torch.from_numpy(rng.normal(size=values.shape).astype(np.float32))
    some = TEST.take(np.arange(60))
    with torch.no_grad():
        found = net(some.rows[:, 1:], forest(some.rows[:, 0], some.counts)).numpy()
    ends = np.cumsum(some.counts)
    for i, (end, count) in enumerate(zip(ends, some.counts, strict=True)):
        expected = score_by_recursion(net, some.rows[end - count : end].astype(np.float64))
        # Sums of a hundred float32 numbers of about 1, layer after layer.
        assert found[i] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_parent_outside_its_program_makes_a_root() -> None:
    up = np.array([0.0, 1.0, 3.0, np.nan, 1.0, -2.0], dtype=np.float32)
    trees = forest(up, np.array([2, 4]))
    # Programs of rows 0 and 1 (a loop and its statement), and of rows 2 to 5, where 3 has a child.
    assert trees.order.tolist() == [0, 3, 1, 4, 2, 5]
    assert trees.inner == 2
    assert trees.programs.tolist() == [0, 1, 1, 1]


def test_scores_do_not_depend_on_what_is_scored_together(model: TreeGRU) -> None:
    scores = model.predict(TEST)
    order = np.random.default_rng(0).permutation(len(TEST))
    assert np.array_equal(model.predict(TEST.take(order)), scores[order])
    for n in (1, 2, 7, 33):
        assert np.array_equal(model.predict(TEST.take(np.arange(n))), scores[:n])


def test_neither_threads_nor_torchs_own_state_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fitted(epochs=2)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    monkeypatch.setattr(treegru_training, "usable_cores", lambda: 1)
    second = fitted(epochs=2)
    assert np.array_equal(first.predict(TEST), second.predict(TEST))
    assert not np.array_equal(first.predict(TEST), fitted(epochs=2, seed=1).predict(TEST))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_what_was_not_measured_or_failed_is_left_out() -> None:
    more = programs(200, 10, seed=2)
    latency_s = np.where(np.arange(200) % 2 == 0, np.inf, np.nan)
    both = Samples(
        SCHEMA,
        np.concatenate([more.rows, TRAINING.rows]),
        np.concatenate([more.counts, TRAINING.counts]),
        np.concatenate([latency_s, TRAINING.latency_s]),
        np.concatenate([more.groups, TRAINING.groups]),
    )
    other = made(epochs=2)
    other.fit(both)
    assert np.array_equal(other.predict(TEST), fitted(epochs=2).predict(TEST))


def test_nothing_to_learn_from_leaves_all_equal() -> None:
    for samples in (
        TRAINING.take([]),
        TRAINING.take([0]),
        replace(TRAINING, latency_s=np.full(len(TRAINING), np.inf)),
        replace(TRAINING, latency_s=np.full(len(TRAINING), 1e-3)),
        replace(TRAINING, groups=np.arange(len(TRAINING))),
    ):
        other = made()
        other.fit(samples)
        assert np.array_equal(other.predict(TEST), np.zeros(len(TEST)))


def test_programs_without_features_are_survived() -> None:
    ends = np.cumsum(TRAINING.counts)
    rows = [TRAINING.rows[end - n : end] for end, n in zip(ends, TRAINING.counts, strict=True)]
    for i in range(0, len(rows), 10):
        rows[i] = np.full((1, WIDTH), np.nan, dtype=np.float32)
    rows[5] = np.full((2, WIDTH), np.inf, dtype=np.float32)
    rows[6] = np.empty((0, WIDTH), dtype=np.float32)
    other = made(epochs=8)
    other.fit(Samples.of(SCHEMA, rows, TRAINING.latency_s, TRAINING.groups))
    assert np.isfinite(other.predict(Samples.of(SCHEMA, rows))).all()
    assert accuracy(other, TEST) > 0.8


def test_the_best_epoch_on_other_groups_is_kept() -> None:
    told: list[tuple[int, int, float]] = []
    other = made(epochs=40, patience=2, learning_rate=2e-2)
    few = TRAINING.take(np.arange(300))
    learnt, judged = other._split(few, np.random.default_rng(other.seed))
    assert set(learnt.groups) | set(judged.groups) == set(few.groups)
    assert set(learnt.groups) & set(judged.groups) == set() != set(judged.groups)
    other.fit(few, progress=lambda *now: told.append(now))
    curve = [epoch.accuracy for epoch in other.history]
    assert told == [(i + 1, 40, value) for i, value in enumerate(curve)]
    assert len(curve) < 40
    assert int(np.argmax(curve)) == len(curve) - 3
    found = treegru_training._accuracy(other.predict(judged), judged)
    assert found == max(curve)


def test_fine_tuning_turns_a_model_to_a_task(model: TreeGRU, tmp_path: Path) -> None:
    # Where what was slow is fast: nothing that the model knows holds.
    whole = programs(128, 1, seed=3)
    task = replace(whole, latency_s=1.0 / whole.latency_s)
    own, rest = task.take(np.arange(64)), task.take(np.arange(64, 128))
    model.save(tmp_path / "model")
    tuned = TreeGRU.load(tmp_path / "model")
    before = accuracy(tuned, rest)
    tuned.fine_tune(own, epochs=20, learning_rate=3e-3)
    assert accuracy(tuned, rest) > before + 0.3
    # Little is forgotten where the task is no different.
    kept = TreeGRU.load(tmp_path / "model")
    kept.fine_tune(whole.take(np.arange(64)))
    assert accuracy(kept, TEST) > accuracy(model, TEST) - 0.03
    with pytest.raises(ValueError, match=r"version 1.*version 2"):
        kept.fine_tune(replace(own, schema=replace(SCHEMA, version=2)))


def test_fine_tuning_what_knows_nothing_is_a_fit() -> None:
    other = made(epochs=2)
    other.fine_tune(TRAINING)
    assert np.array_equal(other.predict(TEST), fitted(epochs=2).predict(TEST))


def test_another_process_loads_it_to_the_bit(model: TreeGRU, tmp_path: Path) -> None:
    model.save(tmp_path / "model", workloads=["abc"])
    code = (
        "import sys, numpy as np\n"
        "from tensortune.costmodel.base import FeatureSchema, Samples\n"
        "from tensortune.costmodel.files import load_model\n"
        "d = np.load(sys.argv[2])\n"
        f"schema = FeatureSchema('made-up loops', 1, {WIDTH})\n"
        "s = Samples(schema, d['rows'], d['counts'], d['latency_s'], d['groups'])\n"
        "np.save(sys.argv[3], load_model(sys.argv[1]).predict(s))\n"
    )
    names = ("rows", "counts", "latency_s", "groups")
    np.savez(tmp_path / "test.npz", **{name: getattr(TEST, name) for name in names})
    paths = [str(tmp_path / name) for name in ("model", "test.npz", "scores.npy")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True)
    assert np.array_equal(np.load(tmp_path / "scores.npy"), model.predict(TEST))
    loaded = load_model(tmp_path / "model")
    assert loaded.history == model.history
    loaded.save(tmp_path / "again", workloads=["abc"])
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_features_of_another_kind_are_refused(model: TreeGRU, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"version 1.*version 2"):
        load_model(tmp_path / "model", replace(SCHEMA, version=2))
    with pytest.raises(ValueError, match=r"version 1.*`other`"):
        model.predict(replace(TEST, schema=replace(SCHEMA, name="other")))
    with pytest.raises(ValueError, match=r"learns from `loops`.*`statements`"):
        made().fit(Samples.of(STATEMENTS, [np.zeros((1, 164), np.float32)], [1.0]))


def test_weights_of_another_size_are_refused(model: TreeGRU, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    file = ModelFile.read(tmp_path / "model")
    replace(file, arguments=file.arguments | {"hidden": 64}).write(tmp_path / "model")
    with pytest.raises(ModelFileError, match="weights of another model"):
        load_model(tmp_path / "model")


def test_the_usual_size_fits_into_the_package(tmp_path: Path) -> None:
    usual = make_model("treegru", 3)
    assert isinstance(usual, TreeGRU) and usual.seed == 3 and usual.features == "loops"
    # Of 150 columns, more than loop features have.
    net = TreeNet(150, usual.embedding, usual.hidden, np.random.default_rng(0))
    assert 4 * sum(values.numel() for values in net.state_dict().values()) < 1_500_000


def test_without_torch_the_extra_is_named(model: TreeGRU, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    code = (
        "import sys\n"
        "from tensortune.costmodel.files import load_model, make_model\n"
        "assert 'torch' not in sys.modules\n"
        "sys.modules['torch'] = None\n"
        "for make in (lambda: make_model('treegru'), lambda: load_model(sys.argv[1])):\n"
        "    try:\n"
        "        make()\n"
        "    except ValueError as error:\n"
        "        print(error)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("needs torch: pip install 'tensortune[neural]'" in line for line in lines)
