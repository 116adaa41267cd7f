"""What every environment keeps to: both checkers, the masks, the seeds, the sums of rewards."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("stable_baselines3")

from gymnasium.utils.env_checker import check_env as gymnasium_check
from stable_baselines3.common.env_checker import check_env as stable_baselines3_check
from stable_baselines3.common.vec_env import DummyVecEnv

from tensortune.data.target import cpu_target
from tensortune.data.workload import Workload, WorkloadError
from tensortune.search.rl.cursor_env import CursorEnv, loop_spaces
from tensortune.search.rl.knob_env import KnobEnv, sketch_spaces
from tensortune.search.rl.speed import Query, ToySpeed
from tensortune.search.rl.transform_env import TransformEnv
from tensortune.search.rl.tuning_env import Spaces, TuningEnv, prefetch

TARGET = cpu_target("llvm -num-cores=1")

KEYS = (
    "matmul(m=48,n=64,k=40)",
    "matmul(m=37,n=53,k=29)",
    "matmul(m=1,n=97,k=64)",
    "matmul(m=64,n=1,k=1)",
    "batch_matmul(b=3,m=17,n=24,k=16)",
    "conv2d(n=1,h=7,w=9,ci=6,co=17,kernel=3,stride=1,padding=1)",
    "conv2d_bn_relu(n=1,h=7,w=7,ci=8,co=16,kernel=3,stride=1,padding=1)",
    "softmax(m=37,n=64)",
    "mean(m=7,n=101)",
    "add(m=37,n=64)",
)
SKETCHED = ("matmul(m=48,n=64,k=40)", "matmul(m=37,n=53,k=29)", "softmax(m=37,n=64)")

NAMES = (
    "cursor",
    "cursor, graph",
    "cursor, unfinished",
    "transform",
    "transform, graph",
    "transform, permutations",
    "transform, swaps",
    "knob",
)


@cache
def loops() -> Spaces[Any]:
    return loop_spaces([Workload.from_key(key) for key in KEYS], TARGET)


@cache
def sketches() -> Spaces[Any]:
    return sketch_spaces([Workload.from_key(key) for key in SKETCHED], TARGET)


def even_tiles(queries: list[Query]) -> np.ndarray:
    """A speed of sketches: the more even the sizes of the tiles, the faster."""
    points = [query[1].point[1] for query in queries]
    tiles = [[value for value in point if isinstance(value, tuple)] for point in points]
    return np.array([-sum(float(np.ptp(np.log2(tile))) for tile in every) for every in tiles])


def make(name: str, **options: Any) -> TuningEnv[Any]:
    kind, _, variant = name.partition(", ")
    if kind == "knob":
        return KnobEnv(sketches(), even_tiles, **options)
    if variant == "graph":
        options["observation"] = "graph"
    if kind == "cursor":
        return CursorEnv(loops(), ToySpeed(), finished=variant != "unfinished", **options)
    if variant in ("permutations", "swaps"):
        options["interchange"] = variant
    return TransformEnv(loops(), ToySpeed(), **options)


def legal_action(env: TuningEnv[Any], rng: np.random.Generator) -> Any:
    mask = env.action_masks()
    if isinstance(env, KnobEnv):
        return np.array([rng.choice(np.flatnonzero(row)) for row in mask.reshape(-1, 3)])
    return int(rng.choice(np.flatnonzero(mask)))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("reward", ["step", "end"])
def test_both_checkers_pass_without_a_warning(name: str, reward: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium_check(make(name, reward=reward), skip_render_check=True)
        stable_baselines3_check(make(name, reward=reward))


def test_thousands_of_masked_steps_are_legal_and_replay(name: str) -> None:
    """`docs/scripts/check_rl_envs.py` does more of them, and runs the programs."""
    env, rng = make(name), np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    episodes = 0
    for _ in range(2000):
        observation, _, terminated, truncated, info = env.step(legal_action(env, rng))
        assert info["legal"]
        assert not truncated
        if terminated:
            assert env.observation_space.contains(observation)
            assert info["candidate"] == env.candidate
            if episodes % 10 == 0:
                assert env.space.schedule(env.candidate).mod is not None
            episodes += 1
            env.reset()
    assert episodes > 50


def test_what_the_mask_leaves_out_is_not_legal(name: str) -> None:
    env, rng = make(name), np.random.default_rng(1)
    env.reset(seed=1)
    for _ in range(150):
        mask = env.action_masks()
        action = env.action_space.sample()
        if isinstance(env, KnobEnv):
            picked = mask.reshape(-1, 3)[np.arange(len(action)), action]
            expected, before = bool(picked.all()), None
        else:
            expected, before = bool(mask[action]), env.candidate
        _, reward, terminated, truncated, info = env.step(action)
        assert info["legal"] == expected
        if not expected and before is not None:
            assert env.candidate == before
            assert reward == 0.0 or terminated or truncated
        if terminated or truncated:
            env.reset()
            continue
        _, _, terminated, truncated, _ = env.step(legal_action(env, rng))
        if terminated or truncated:
            env.reset()


def test_one_seed_is_one_episode(name: str) -> None:
    def run() -> list[Any]:
        env, rng = make(name), np.random.default_rng(2)
        seen: list[Any] = [env.reset(seed=3)]
        for _ in range(40):
            seen.append(env.step(legal_action(env, rng)))
            if seen[-1][2]:
                seen.append(env.reset())
        return seen

    assert repr(run()) == repr(run())


def test_the_rewards_of_an_episode_sum_up_to_its_gain(name: str) -> None:
    """Whenever they are paid: one walk earns the same by steps and at the end."""
    walked, rng = make(name), np.random.default_rng(4)
    paid_late = make(name, reward="end")
    for seed in range(5):
        walked.reset(seed=seed)
        paid_late.reset(seed=seed)
        began = walked.speed([(walked.space, walked.candidate)])[0]
        gains, late = [], []
        while True:
            action = legal_action(walked, rng)
            _, gain, over, _, info = walked.step(action)
            gains.append(gain)
            late.append(paid_late.step(action)[1])
            if over:
                break
        ended = walked.speed([(walked.space, info["candidate"])])[0]
        assert sum(gains) == pytest.approx(ended - began)
        assert info["log_speedup"] == pytest.approx(ended - began)
        assert not any(late[:-1])
        assert late[-1] == pytest.approx(ended - began)


def test_what_comes_up_is_asked_for_at_once(name: str) -> None:
    asked: list[int] = []

    def counting(queries: list[Query]) -> np.ndarray:
        asked.append(len(queries))
        return even_tiles(queries) if name == "knob" else ToySpeed()(queries)

    first = make(name)
    envs: list[TuningEnv[Any]] = [first, make(name), make(name)]
    first.speed.speed = counting
    for number, env in enumerate(envs):
        env.speed = first.speed
        env.reset(seed=number)
    rng = np.random.default_rng(5)
    for _ in range(12):
        actions = [legal_action(env, rng) for env in envs]
        prefetch(envs, actions)
        before = len(asked)
        over = [env.step(action)[2] for env, action in zip(envs, actions, strict=True)]
        assert len(asked) == before
        for env, done in zip(envs, over, strict=True):
            if done:
                env.reset()


def test_a_workload_can_be_chosen(name: str) -> None:
    env = make(name)
    inside = SKETCHED[1]
    outside = Workload.from_key("matmul(m=24,n=40,k=72)")
    for _ in range(3):
        assert env.reset(options={"workload": inside})[1] == {"workload": inside}
    assert env.reset(options={"workload": outside})[1] == {"workload": outside.key}
    drawn = {env.reset(seed=seed)[1]["workload"] for seed in range(20)}
    assert len(drawn) > 2
    assert outside.key not in drawn


def test_environments_stack() -> None:
    for name in ("cursor, graph", "transform", "knob"):
        stacked = DummyVecEnv([lambda name=name: make(name) for _ in range(2)])
        stacked.seed(0)
        stacked.reset()
        masks = np.stack(stacked.env_method("action_masks"))
        actions = [legal_action(stacked.envs[i], np.random.default_rng(0)) for i in range(2)]
        assert masks.shape[0] == 2
        assert stacked.step(np.array(actions))[1].shape == (2,)


@pytest.mark.parametrize("name", ["cursor", "transform", "knob"])
def test_a_workload_without_anything_to_tune_is_refused(name: str) -> None:
    nothing = "relu(m=32,n=32)" if name == "knob" else "matmul(m=1,n=1,k=1)"
    with pytest.raises(WorkloadError, match=r"leave it out"):
        make(name).reset(options={"workload": nothing})


@pytest.mark.parametrize("name", ["cursor", "transform"])
def test_a_nest_of_too_many_loops_is_refused(name: str) -> None:
    env = make(name, max_loops=3)
    with pytest.raises(WorkloadError, match=r"max_loops"):
        env.reset(options={"workload": KEYS[5]})
    env.reset(options={"workload": KEYS[0]})
    rng = np.random.default_rng(0)
    for _ in range(100):
        if env.step(legal_action(env, rng))[2]:
            env.reset(options={"workload": KEYS[0]})
        assert len(env.nest.loops) <= 3


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="'step' or 'end'"):
        CursorEnv(loops(), ToySpeed(), reward="never")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one of flat, graph"):
        CursorEnv(loops(), ToySpeed(), observation="image")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pointers, permutations, swaps"):
        TransformEnv(loops(), ToySpeed(), interchange="magic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least"):
        CursorEnv(loops(), ToySpeed(), horizon=0)
    with pytest.raises(ValueError, match="a workload at least"):
        loop_spaces([], TARGET)
