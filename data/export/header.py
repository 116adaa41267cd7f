"""The C text around a kernel: the header for its callers, and the wrapper it is linked with."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import tvm

from ..target import num_cores, target_string
from ..tir.analysis import Argument
from ..workload import Workload

# What TVM's code for a CPU aligns its arrays to; a function may ask for more.
_ALIGNMENT = 64

C_TYPES = {
    "bool": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
# Where the C type does not say what the bits mean.
_C_NOTES = {
    "bool": "0 or 1",
    "float16": "the bits of IEEE half-precision floats",
    "bfloat16": "the bits of bfloat16, the upper half of a float",
}
_C_KEYWORDS = frozenset(
    "auto bool break case catch char class const constexpr continue default delete do double else "
    "enum explicit export extern false float for friend goto if inline int long mutable namespace "
    "new nullptr operator private protected public register restrict return short signed sizeof "
    "static static_assert struct switch template this thread_local throw true try typedef typeid "
    "typename typeof union unsigned using virtual void volatile while int8_t int16_t int32_t "
    "int64_t uint8_t uint16_t uint32_t uint64_t arguments data".split()
)


def c_identifier(name: str) -> str:
    """The nearest name that C and C++ allow."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not plain or plain[0].isdigit():
        plain = f"_{plain}"
    return f"{plain}_" if plain in _C_KEYWORDS else plain


def _parameters(arguments: Sequence[Argument]) -> list[str]:
    """A C name for each argument, no two the same."""
    names: list[str] = []
    for argument in arguments:
        plain = name = c_identifier(argument.name)
        number = 1
        while name in names:
            number += 1
            name = f"{plain}_{number}"
        names.append(name)
    return names


def _alignment(mod: Any) -> int:
    return max([_ALIGNMENT, *(int(param.data_alignment) for param in mod["main"].params)])


def _prototype(name: str, arguments: Sequence[Argument]) -> str:
    parameters = [
        f"{'const ' if argument.role == 'input' else ''}{C_TYPES[argument.dtype]} *{parameter}"
        for argument, parameter in zip(arguments, _parameters(arguments), strict=True)
    ]
    return f"int {name}({', '.join(parameters)})"


_HEADER = """\
/* {key}
 * A kernel that tensortune scheduled and TVM compiled.
 *
 * target:  {target}
 *          It stops with an illegal instruction on a CPU that lacks this one's extensions.
 * threads: {threads}{pool}
 * link:    cc program.c -L. -l{name} -Wl,-rpath,'$ORIGIN'; libc and libm are all that it needs.
 *
 * Arrays are dense, in row-major order; one that is written must not overlap another. Arrays
 * aligned to {alignment} bytes (aligned_alloc) are used in place; others are copied each time.
 * Any number of threads may call at once; {turns}.
 */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Returns 0, or -1 after an error.
 *
{rows}
 */
{prototype};

/* What went wrong in the calling thread's last call; "" if nothing did. */
const char *{name}_error(void);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _comment(text: str) -> str:
    """Text that cannot end the C comment it stands in."""
    return text.replace("*/", "* /").replace("/*", "/ *")


def header_text(name: str, workload: Workload, mod: Any, target: Any) -> str:
    """The header of a library: prototypes, and what a caller has to know."""
    rows = []
    for argument, parameter in zip(
        workload.arguments, _parameters(workload.arguments), strict=True
    ):
        extents = "".join(f"[{extent}]" for extent in argument.shape)
        access = {"input": "read", "output": "written", "inout": "read and written"}[argument.role]
        notes = [argument.dtype + extents, access]
        if argument.dtype in _C_NOTES:
            notes.append(_C_NOTES[argument.dtype])
        if argument.role != "output" and "int" in argument.dtype and argument.low is not None:
            notes.append(f"tuned with values from {argument.low} to below {argument.high}")
        rows.append(f" * {parameter}: {', '.join(notes)}")
    threads = num_cores(target)
    return _HEADER.format(
        key=_comment(workload.key),
        target=_comment(target_string(target)),
        threads=threads,
        pool=", started by the first call and kept" if threads > 1 else "",
        turns="their parallel loops take turns" if threads > 1 else "they share nothing",
        name=name,
        alignment=_alignment(mod),
        guard=f"TENSORTUNE_{name.upper()}_H",
        rows="\n".join(rows),
        prototype=_prototype(name, workload.arguments),
    )


def wrapper_text(name: str, workload: Workload, mod: Any, target: Any) -> str:
    """The C file that gives the kernel its plain signature."""
    arguments = workload.arguments
    names = _parameters(arguments)
    shapes, rows = [], []
    for i, argument in enumerate(arguments):
        shape = argument.shape
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        # C has no empty arrays; one of no dimensions is never read.
        shapes.append(f"static const int64_t shape_{i}[] = {{{', '.join(map(str, shape)) or 0}}};")
        shapes.append(
            f"static const int64_t strides_{i}[] = {{{', '.join(map(str, strides)) or 0}}};"
        )
        kind = tvm.DataType(argument.dtype)
        access = {"input": "TT_READ", "output": "TT_WRITTEN", "inout": "TT_READ | TT_WRITTEN"}
        size = math.prod(shape) * ((kind.bits + 7) // 8)
        rows.append(
            f'    {{"{names[i]}", {size}u, {access[argument.role]}, {int(kind.type_code)}, '
            f"{kind.bits}, {len(shape)}, shape_{i}, strides_{i}}},"
        )
    return "\n".join(
        [
            f"#define TT_THREADS {num_cores(target)}",
            f"#define TT_ALIGNMENT {_alignment(mod)}",
            '#include "runtime.c"',
            "#pragma GCC visibility push(default)",
            f'#include "{name}.h"',
            "#pragma GCC visibility pop",
            *shapes,
            "static const tt_argument tt_arguments[] = {",
            *rows,
            "};",
            f"{_prototype(name, arguments)} {{",
            f"  void *const data[] = {{{', '.join(f'(void *){each}' for each in names)}}};",
            f"  return tt_call(tt_arguments, data, {len(arguments)});",
            "}",
            f"const char *{name}_error(void) {{ return tt_message; }}",
            "",
        ]
    )
