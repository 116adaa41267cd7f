"""From schedules of the old TVM to a shared library that the new TVM loads.

The object file holds functions of the old calling convention. They reach their runtime for threads
and scratch memory through pointers whose names and types have not changed since, and which whatever
runtime loads the library fills in. So all that is missing is a function of the new convention that
calls them one after the other, and it is a page of C. The kernel then runs on the threads, in the
process and under the timer of everybody else's; the machine code is the old compiler's.
"""

from __future__ import annotations

import ctypes
import math
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.contrib import cc
from tvm.target import codegen

from .plan import Step

_TRIPLE = "x86_64-linux-gnu"
_PR_SET_PDEATHSIG = 1
_LINK_TIMEOUT_S = 120
_LAUNCHER = "parallel.o"

_SOURCE = """\
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* DLPack's DLTensor. */
typedef struct {{
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
}} tensor;

/* An argument of the new convention, and what of an object comes before its tensor. */
typedef struct {{
  int32_t type_index;
  uint32_t padding;
  void *pointer;
}} any;
enum {{ new_tensor_pointer = 7, new_object = 64, object_header = 24, old_tensor = 7 }};
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);

typedef int32_t (*old_function)(void **, int32_t *, int32_t, void *, int32_t *, void *);
typedef struct {{
  old_function function;
  int converts, count;
  const int *buffers;
  tensor *tensors;
}} step;

{declarations}

/* The arguments' data, then the results between the steps. */
static void *data[{buffers}];
static const size_t sizes[] = {{{sizes}}};
static const step steps[] = {{
{steps}
}};

static int run(const step *s) {{
  void *values[{most}], *result = NULL;
  int32_t codes[{most}], code = 0;
  for (int i = 0; i < s->count; ++i) {{
    s->tensors[i].data = data[s->buffers[i]];
    values[i] = &s->tensors[i];
    codes[i] = old_tensor;
  }}
  return s->function(values, codes, s->count, &result, &code, NULL);
}}

int __tvm_ffi_main(void *self, const any *given, int32_t count, any *result) {{
  (void)self;
  if (count != {arguments}) {{
    TVMFFIErrorSetRaisedFromCStr("TypeError", "the kernel takes {arguments} arguments");
    return -1;
  }}
  void *before = data[0];
  for (int i = 0; i < count; ++i) {{
    char *at = given[i].pointer;
    if (given[i].type_index != new_tensor_pointer) at += object_header;
    if (given[i].type_index != new_tensor_pointer && given[i].type_index < new_object) {{
      TVMFFIErrorSetRaisedFromCStr("TypeError", "the kernel takes tensors");
      return -1;
    }}
    data[i] = (char *)((tensor *)at)->data + ((tensor *)at)->byte_offset;
  }}
  for (int i = {arguments}; i < {buffers}; ++i) {{
    if (data[i] == NULL && (data[i] = aligned_alloc(64, sizes[i])) == NULL) {{
      TVMFFIErrorSetRaisedFromCStr("MemoryError", "no memory for a converted layout");
      return -1;
    }}
  }}
  /* Timed without conversions: what the last call converted is still there. */
  int again = KERNEL_ONLY && before == data[0];
  for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) {{
    if (!(again && steps[i].converts) && run(&steps[i]) != 0) {{
      TVMFFIErrorSetRaisedFromCStr("RuntimeError", "the kernel failed");
      return -1;
    }}
  }}
  result->type_index = 0;
  result->padding = 0;
  result->pointer = NULL;
  return 0;
}}
"""


def write_libraries(folder: Path, steps: Sequence[Step], target: Any) -> dict[str, str]:
    """Compile, and link `winner.so`; `kernel.so` too if there are conversions to leave out.

    Both take the operator's arguments. The second converts them when it is called with another
    first argument than the time before, and otherwise runs the kernel alone, on what it had
    converted then; its output stays in the kernel's own layout.

    Args:
        folder: Where to.
        steps: What to compute.
        target: What to compile for.

    Returns:
        The names of the files, as `library` and, where there is one, `packed`.
    """
    with target, tvm.transform.PassContext(opt_level=3, config={"tir.disable_assert": True}):
        lowered = [tvm.lower(s.schedule, s.tensors, name=f"old_{s.name}") for s in steps]
        built = tvm.build(lowered, target=target)
    built.save(str(folder / "kernel.o"))
    (folder / "call.c").write_text(_source(steps))
    _link(folder, "winner.so", kernel_only=False)
    if not any(step.converts for step in steps):
        return {"library": "winner.so"}
    _link(folder, "kernel.so", kernel_only=True)
    return {"library": "winner.so", "packed": "kernel.so"}


def _source(steps: Sequence[Step]) -> str:
    kernel = next(step for step in steps if not step.converts)
    arguments = len(kernel.tensors)
    sizes: dict[int, int] = {}
    declarations: list[str] = []
    rows: list[str] = []
    for step in steps:
        tensors = []
        for position, (tensor, buffer) in enumerate(zip(step.tensors, step.buffers)):  # noqa: B905
            shape = [int(size) for size in tensor.shape]
            kind = tvm.DataType(tensor.dtype)
            name = f"shape_{step.name}_{position}"
            declarations.append(f"static int64_t {name}[] = {{{', '.join(map(str, shape))}}};")
            # The device is the CPU (1); no strides means a dense array.
            tensors.append(
                f"  {{NULL, 1, 0, {len(shape)}, {int(kind.type_code)}, {kind.bits}, 1, {name}, "
                "NULL, 0},"
            )
            size = math.prod(shape) * ((int(kind.bits) + 7) // 8)
            sizes[buffer] = max(sizes.get(buffer, 0), (size + 63) // 64 * 64)
        numbers = ", ".join(map(str, step.buffers))
        declarations += [
            "extern int32_t "
            f"old_{step.name}(void **, int32_t *, int32_t, void *, int32_t *, void *);",
            f"static const int buffers_{step.name}[] = {{{numbers}}};",
            f"static tensor tensors_{step.name}[] = {{",
            *tensors,
            "};",
        ]
        rows.append(
            f"  {{old_{step.name}, {int(step.converts)}, {len(step.tensors)}, "
            f"buffers_{step.name}, tensors_{step.name}}},"
        )
    return _SOURCE.format(
        declarations="\n".join(declarations),
        buffers=max(sizes) + 1,
        sizes=", ".join(str(sizes[number]) for number in range(max(sizes) + 1)),
        steps="\n".join(rows),
        most=max(len(step.tensors) for step in steps),
        arguments=arguments,
    )


def _link(folder: Path, name: str, kernel_only: bool) -> None:
    command = [cc.get_cc(), "-O2", "-fPIC", "-shared", "-o", name]
    command += [f"-DKERNEL_ONLY={int(kernel_only)}", "-x", "c", "call.c", "-x", "none", "kernel.o"]
    subprocess.run([*command, "-lm"], cwd=str(folder), check=True, timeout=_LINK_TIMEOUT_S)


def make_launcher() -> None:
    """Compile what runs candidates' parallel loops; once, before the first one is built.

    It is left in the folder that the process runs in, where those that build candidates find it.
    """
    source = Path(__file__).with_name("parallel.c")
    command = [cc.get_cc(), "-O2", "-fPIC", "-fopenmp", "-x", "c", "-c", str(source)]
    subprocess.run([*command, "-o", _LAUNCHER], check=True, timeout=_LINK_TIMEOUT_S)


def shared_library(output: str, objects: Any, options: Any = None, **_: Any) -> None:
    """Links a candidate, for AutoTVM and Ansor; what they do by default is for another machine."""
    objects = [objects] if isinstance(objects, str) else list(objects)
    options = list(options or ["-shared", "-fPIC"])
    cc.create_shared(output, [*objects, _LAUNCHER], [*options, "-fopenmp"])


shared_library.output_format = "so"  # type: ignore[attr-defined]


def target_of(mcpu: str, mattr: Sequence[str]) -> Any:
    """The target of a CPU; of this machine's as this LLVM sees it where it does not know the name.

    The triple has to be named, for the package takes another architecture's for the machine's.
    """
    known = codegen.llvm_get_cpu_archlist(tvm.target.Target(f"llvm -mtriple={_TRIPLE}"))
    if mcpu not in {str(name) for name in known}:
        mcpu = codegen.llvm_get_system_cpu()
    text = f"llvm -mtriple={_TRIPLE} -mcpu={mcpu}"
    return tvm.target.Target(f"{text} -mattr={','.join(mattr)}" if mattr else text)


def die_with_parent() -> None:
    """End this process when the one that started it ends, whatever it is doing then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
