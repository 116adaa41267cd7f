import json
import subprocess
import sys
from typing import Any

import pytest
from tvm.target import Target

from tensortune.data import target as module
from tensortune.data.host import cpu_flags, usable_cores, usable_cpus
from tensortune.data.target import TargetError, cpu_target, num_cores, target_string

X86 = cpu_target().attrs["mtriple"].startswith("x86_64")
only_x86 = pytest.mark.skipif(not X86, reason="names x86 CPUs")


def test_by_default_it_is_this_machine_with_its_cores() -> None:
    target = cpu_target()
    assert num_cores(target) == usable_cores()
    assert target.attrs["mcpu"] == Target.from_device("cpu").attrs["mcpu"]


@pytest.mark.parametrize("text", ["llvm", "  llvm -mcpu=native", '{"kind": "llvm"}'])
def test_what_is_not_said_is_this_machines(text: str) -> None:
    assert target_string(cpu_target(text)) == target_string(cpu_target())


@only_x86
@pytest.mark.parametrize(
    "text",
    [
        "llvm -mcpu=x86-64-v2 -num-cores=1 -mattr=+sse3,-sse4.2 -fast-math",
        "llvm --mcpu=x86-64-v2 --num-cores 1 --mattr=+sse3,-sse4.2 --fast-math=true",
        '{"kind":"llvm","mcpu":"x86-64-v2","num-cores":1,"mattr":["+sse3","-sse4.2"],'
        '"fast-math":true}',
    ],
)
def test_the_forms_of_one_target_are_one_target(text: str) -> None:
    config = json.loads(target_string(cpu_target(text)))
    assert config["mcpu"] == "x86-64-v2"
    assert config["num-cores"] == 1
    assert config["mattr"] == ["+sse3", "-sse4.2"]
    assert config["fast-math"] is True


def test_the_text_is_read_back_and_is_the_same_in_another_process() -> None:
    text = target_string(cpu_target())
    assert target_string(cpu_target(text)) == text
    assert target_string(cpu_target(json.loads(text))) == text
    code = "from tensortune.data.target import *; print(target_string(cpu_target()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == text


def test_a_target_of_tvms_is_kept_and_gets_its_cores() -> None:
    plain = cpu_target(Target("llvm"))
    assert plain.attrs["mcpu"] == "generic"
    assert num_cores(plain) == usable_cores()
    assert target_string(cpu_target(target_string(plain))) == target_string(plain)
    assert num_cores(cpu_target(Target({"kind": "llvm", "num-cores": 1}))) == 1


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", "does not parse"),
        ("llvm 'x", "does not parse"),
        ('{"kind"', "is not JSON"),
        ("lvm", "no target kind or tag 'lvm'"),
        ("lvm -mcpu=x", "no target kind 'lvm'"),
        ("cuda", "'cuda' is not a CPU's"),
        ("c", "'c' is not a CPU's"),
        ({"mcpu": "generic"}, "None is not a CPU's"),
        ("llvm -mcpux=generic", "'-mcpux=generic' is unknown; did you mean mcpu"),
        ("llvm generic", "'generic' is unknown"),
        ("llvm -mcpu", "wants a value of type str"),
        ("llvm -num-cores=two", "wants a value of type int, not 'two'"),
        ("llvm -fast-math=maybe", "wants a value of type bool"),
        ({"kind": "llvm", "num-cores": "2"}, "not a TVM target: Option 'num-cores'"),
        ({"kind": "llvm", "speed": 1}, "not a TVM target: Unknown config option 'speed'$"),
        ("llvm -num-cores=0", "num-cores 0; this process may use 1 to"),
        ("llvm -num-cores=4096", "num-cores 4096; this process may use 1 to"),
        ("llvm -mcpu=no-such-cpu", "no mcpu 'no-such-cpu'"),
        ("llvm -mattr=+no-such-thing", r"no mattr '\+no-such-thing'"),
        ("llvm -mattr=avx2", "write it like"),
        ("llvm -mtriple=riscv64-linux-gnu", "is for riscv64-linux-gnu; this machine is"),
        ("llvm -mtriple=x86_64-pc-windows-msvc", "is for x86_64-pc-windows"),
        ("nvidia/nvidia-a100", "is not a CPU's"),
    ],
)
def test_a_bad_target_is_one_clear_line(target: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        cpu_target(target)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 250


@only_x86
@pytest.mark.skipif("amx_tile" in cpu_flags(), reason="this CPU has AMX")
@pytest.mark.parametrize("text", ["llvm -mcpu=sapphirerapids", "llvm -mattr=+amx-tile"])
def test_a_cpu_with_extensions_that_this_one_lacks(text: str) -> None:
    with pytest.raises(TargetError, match=r"uses .*amx-tile.*which this CPU .* does not have"):
        cpu_target(text)


@only_x86
@pytest.mark.parametrize("mcpu", ["x86-64", "nehalem"])
def test_an_older_cpus_code_runs_here(mcpu: str) -> None:
    # LLVM names hints for tuning among a CPU's features; that this CPU lacks those is no matter.
    assert cpu_target(f"llvm -mcpu={mcpu}").attrs["mcpu"] == mcpu


@only_x86
@pytest.mark.skipif("avx" not in cpu_flags(), reason="this CPU has no AVX to hide")
def test_an_extension_that_a_virtual_machine_hides_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = frozenset(flag for flag in cpu_flags() if not flag.startswith(("avx", "fma", "f16c")))
    monkeypatch.setattr(module, "cpu_flags", lambda: shown)
    target = cpu_target()
    assert "-avx" in target.attrs["mattr"]
    with pytest.raises(TargetError, match="avx"):
        cpu_target("llvm -mattr=+avx")


def test_more_threads_than_cores_are_allowed_up_to_the_cpus() -> None:
    assert num_cores(cpu_target(f"llvm -num-cores={len(usable_cpus())}")) == len(usable_cpus())
