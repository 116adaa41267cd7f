"""The TVM target of this machine, and checks of one that a user asks for."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import tvm
from tvm.target import Target, codegen

from .host import cpu_flags, this_host, usable_cores, usable_cpus

_EXAMPLE = "a CPU target looks like 'llvm -mcpu=znver4 -num-cores=4'"

# LLVM's features mix extensions, without which code stops with an illegal instruction, and hints
# for tuning (`fast-gather`), which harm nowhere. These are the extensions that kernels use.
_X86_EXTENSION = re.compile(
    r"(ss?se[0-9][0-9.a]*|avx\w*[0-9.\-]*|amx-\w+|fma4?|f16c|bmi2?|lzcnt|popcnt|movbe|gfni|aes|vaes"
    r"|pclmul|vpclmulqdq|xop|tbm|adx|sha|sha512|egpr)$"
)
# Where LLVM's name and the Linux kernel's differ by more than dots, dashes and underscores.
_KERNEL_NAME = {
    "sse3": "pni",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "sha": "shani",
    "egpr": "apx",
    "neon": "asimd",
    "fullfp16": "asimdhp",
    "dotprod": "asimddp",
    "rdm": "asimdrdm",
    "fp16fml": "asimdfhm",
}
_ARM_EXTENSIONS = {
    *("neon", "fullfp16", "dotprod", "rdm", "fp16fml", "i8mm", "bf16", "sve", "sve2", "sme")
}


class TargetError(ValueError):
    """A target that does not parse, or that this machine cannot run."""


def cpu_target(target: str | Mapping[str, Any] | Target | None = None) -> Target:
    """The TVM target to compile for.

    What a string or a mapping does not say is this machine's: its `mcpu`, its triple, and as
    `num-cores` the cores this process may use (`host.usable_cores`; TVM itself names none, and
    MetaSchedule refuses such a target). Extensions that the CPU's model has and this CPU hides, as
    in some virtual machines, are switched off. A `Target` means what it means to TVM (without an
    `mcpu`: any CPU of its architecture); only `num-cores` is added where it has none.

    Args:
        target: JSON, the short form `llvm -mcpu=znver4 -num-cores=4` (which TVM 0.27 refuses; an
            `mcpu` of `native` is this machine's), a tag that TVM knows, a mapping, a `Target`, or
            None for this machine.

    Raises:
        TargetError: it does not parse, or this machine cannot run it.
    """
    made = isinstance(target, Target)
    config = dict(target.export()) if isinstance(target, Target) else _parse(target)
    if config.get("kind") != "llvm":
        raise TargetError(f"target kind {config.get('kind')!r} is not a CPU's; {_EXAMPLE}")
    if not made:
        config = _with_defaults(config)
    config.setdefault("num-cores", usable_cores())
    # What TVM takes where none is named; in the target so that it is in the record too.
    config.setdefault("mcpu", "generic")
    config.setdefault("mtriple", codegen.llvm_get_system_triple())
    try:
        result = Target(config)
    except (ValueError, TypeError, RuntimeError) as error:
        raise TargetError(f"not a TVM target: {_reason(error)}") from None
    _check_runs_here(result)
    return result


def target_string(target: Target) -> str:
    """The same text for the same target, in every process: JSON with sorted keys.

    What TVM derives from the rest (`feature.*`) and an empty tag are left out; `cpu_target` reads
    the text again.
    """
    config = json.loads(str(target))
    kept = {
        name: value
        for name, value in config.items()
        if not name.startswith("feature.") and not (name == "tag" and not value)
    }
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def num_cores(target: Target) -> int:
    """How many threads kernels for the target are tuned for."""
    return int(target.attrs["num-cores"])


def _parse(target: str | Mapping[str, Any] | None) -> dict[str, Any]:
    if target is None:
        return {"kind": "llvm"}
    if isinstance(target, Mapping):
        return {str(name): value for name, value in target.items()}
    text = target.strip()
    if text.startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise TargetError(f"target {text!r} is not JSON: {error}") from None
    try:
        kind, *options = shlex.split(text)
    except ValueError as error:  # nothing in it, or a quotation mark too many
        raise TargetError(f"target {text!r} does not parse; {_EXAMPLE}") from error
    if not options and kind not in Target.list_kinds():
        return _tagged(kind)
    return {"kind": kind, **_options(kind, options)}


def _tagged(tag: str) -> dict[str, Any]:
    try:
        return dict(Target(tag).export())
    except (ValueError, TypeError, RuntimeError):
        raise TargetError(f"TVM knows no target kind or tag {tag!r}; {_EXAMPLE}") from None


def _options(kind: str, words: Iterable[str]) -> dict[str, Any]:
    """`-mcpu=x -num-cores 4 ...` as a mapping, each value of the type that TVM wants."""
    if kind not in Target.list_kinds():
        raise TargetError(f"TVM knows no target kind {kind!r}; {_EXAMPLE}")
    list_options = tvm.get_global_func("target.ListTargetKindOptionsFromName")
    types = {str(name): str(type_) for name, type_ in list_options(kind).items()}
    result: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in types:
            raise TargetError(f"target option {word!r} is unknown{_nearest(name, types)}")
        if not equals and waiting and not waiting[0].startswith("-"):
            value = waiting.pop(0)
        result[name] = _typed(name, value, types[name])
    return result


def _typed(name: str, value: str, type_: str) -> Any:
    if type_.startswith("Array"):
        return [item for item in value.split(",") if item]
    if type_ == "bool" and value.lower() in ("", "1", "true", "0", "false"):
        return value.lower() in ("", "1", "true")
    if type_ == "int" and re.fullmatch(r"-?[0-9]+", value):
        return int(value)
    if type_ in ("bool", "int") or not value:
        raise TargetError(f"target option -{name} wants a value of type {type_}, not {value!r}")
    return value


def _with_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """What is not said, or said to be `native`, is this machine's."""
    here = Target.from_device("cpu")
    result = {"mtriple": str(here.attrs["mtriple"])} | config
    if result.get("mcpu", "native") == "native" and _same_machine(str(result["mtriple"])):
        hidden = sorted(_missing(here))
        result["mcpu"] = str(here.attrs["mcpu"])
        if hidden:
            result["mattr"] = [*(f"-{name}" for name in hidden), *result.get("mattr", ())]
    return result


def _check_runs_here(target: Target) -> None:
    triple = str(target.attrs.get("mtriple") or codegen.llvm_get_system_triple())
    if not _same_machine(triple):
        raise TargetError(f"target is for {triple}; this machine is {_system()[0]}-{_system()[1]}")
    cores, usable = int(target.attrs["num-cores"]), len(usable_cpus())
    if not 1 <= cores <= usable:
        raise TargetError(f"target has num-cores {cores}; this process may use 1 to {usable} CPUs")
    mcpu = str(target.attrs.get("mcpu") or "generic")
    if not tvm.get_global_func("target.llvm_is_valid_cpu")(mcpu, triple):
        known = map(str, codegen.llvm_get_cpu_archlist(Target({"kind": "llvm", "mtriple": triple})))
        raise TargetError(f"LLVM knows no mcpu {mcpu!r}{_nearest(mcpu, known)}")
    for wanted in map(str, target.attrs.get("mattr") or ()):
        if not _known_feature(wanted, triple):
            raise TargetError(f"LLVM knows no mattr {wanted!r}; write it like +avx2 or -avx2")
    missing = sorted(_missing(target))
    if missing:
        here = Target.from_device("cpu").attrs.get("mcpu")
        raise TargetError(
            f"target mcpu {mcpu!r} uses {', '.join(missing)}, which this CPU ({this_host().cpu}, "
            f"mcpu {here}) does not have"
        )


def _known_feature(wanted: str, triple: str) -> bool:
    """Whether LLVM knows `+name` or `-name`; it only warns of one it does not know."""
    if not re.fullmatch(r"[+-].+", wanted):
        return False
    # Asked for alone: another one may imply it, or take it away again.
    alone = Target({"kind": "llvm", "mtriple": triple, "mattr": [f"+{wanted[1:]}"]})
    return wanted[1:] in codegen.llvm_get_cpu_features(alone)


def _missing(target: Target) -> set[str]:
    """Extensions that code for the target may use and this CPU does not have."""
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    if _system()[0] == "x86_64":
        needed = {name for name in features if _X86_EXTENSION.match(name)}
    else:
        needed = features & _ARM_EXTENSIONS
    flags = {re.sub(r"[._-]", "", flag) for flag in cpu_flags()}
    if not flags:  # not Linux: the best that is known is what LLVM finds
        return needed - {str(f) for f in codegen.llvm_get_cpu_features(Target.from_device("cpu"))}
    return {
        name for name in needed if _KERNEL_NAME.get(name, re.sub(r"[._-]", "", name)) not in flags
    }


def _system() -> tuple[str, str]:
    """Architecture and operating system as a triple names them."""
    return _machine(codegen.llvm_get_system_triple())


def _machine(triple: str) -> tuple[str, str]:
    arch, _, rest = triple.lower().replace("macos", "darwin").partition("-")
    systems = [name for name in ("linux", "darwin", "windows") if name in rest]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch), "".join(systems[:1])


def _same_machine(triple: str) -> bool:
    (arch, system), (our_arch, our_system) = _machine(triple), _system()
    return arch == our_arch and system in ("", our_system)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _reason(error: Exception) -> str:
    """The telling line of a TVM error, without its traceback and its echo of the input."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return re.sub(r"\.? (Target creation from|Known options:) .*", "", lines[-1])
