"""Named sets of workloads, and the ones held out from all training."""

from __future__ import annotations

from functools import cache

import numpy as np

from .signature import WorkloadError, suggestion
from .suite_train import TRAIN, TRAIN_INT8
from .workload import Workload, workload

# The single-operator suite of Ansor (Zheng et al., OSDI 2020, section 7.1), batch 1, with the
# shapes that TVM's `te_workload` lists: family -> operator and its shapes.
_ANSOR: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "C1D": (
        "conv1d",
        (
            (1, 256, 64, 128, 3, 2, 1),
            (1, 128, 128, 256, 1, 2, 0),
            (1, 64, 256, 256, 5, 1, 2),
            (1, 32, 512, 512, 3, 1, 1),
        ),
    ),
    "C2D": (
        "conv2d",
        (
            (1, 224, 224, 3, 64, 7, 2, 3),
            (1, 56, 56, 64, 64, 1, 1, 0),
            (1, 14, 14, 256, 256, 3, 1, 1),
            (1, 7, 7, 512, 512, 3, 1, 1),
        ),
    ),
    "C3D": (
        "conv3d",
        (
            (1, 16, 224, 224, 3, 64, 7, 2, 3),
            (1, 16, 56, 56, 64, 64, 1, 1, 0),
            (1, 16, 14, 14, 256, 256, 3, 1, 1),
            (1, 16, 7, 7, 512, 512, 3, 1, 1),
        ),
    ),
    "GMM": (
        "batch_matmul",
        ((1, 128, 128, 128), (1, 512, 32, 512), (1, 512, 512, 512), (1, 1024, 1024, 1024)),
    ),
    "GRP": (
        "grouped_conv2d",
        (
            (1, 56, 56, 64, 128, 3, 2, 1, 1, 4),
            (1, 56, 56, 64, 64, 1, 1, 0, 1, 4),
            (1, 14, 14, 256, 256, 3, 1, 1, 1, 4),
            (1, 7, 7, 512, 512, 3, 1, 1, 1, 4),
        ),
    ),
    "DIL": (
        "dilated_conv2d",
        (
            (1, 224, 224, 3, 64, 7, 2, 3, 2),
            (1, 56, 56, 64, 64, 1, 1, 0, 2),
            (1, 14, 14, 256, 256, 3, 1, 1, 2),
            (1, 7, 7, 512, 512, 3, 1, 1, 2),
        ),
    ),
    "DEP": (
        "depthwise_conv2d",
        (
            (1, 112, 112, 32, 3, 1, 1),
            (1, 112, 112, 64, 3, 2, 1),
            (1, 14, 14, 512, 3, 2, 1),
            (1, 7, 7, 1024, 3, 1, 1),
        ),
    ),
    "T2D": (
        "transposed_conv2d",
        (
            (1, 4, 4, 512, 256, 4, 2, 1),
            (1, 8, 8, 256, 128, 4, 2, 1),
            (1, 16, 16, 128, 64, 4, 2, 1),
            (1, 32, 32, 64, 3, 4, 2, 1),
        ),
    ),
    "CAP": (
        "capsule_conv2d",
        (
            (1, 16, 16, 32, 32, 3, 2, 1),
            (1, 8, 8, 32, 32, 3, 1, 1),
            (1, 16, 16, 8, 16, 3, 2, 1),
            (1, 8, 8, 16, 16, 3, 1, 1),
        ),
    ),
    "NRM": ("norm", ((1, 256, 256), (1, 512, 512), (1, 1024, 1024), (1, 4096, 1024))),
    "SFM": ("softmax", ((256, 256), (512, 512), (1024, 1024), (2048, 2048))),
    "CBR": (
        "conv2d_bn_relu",
        (
            (1, 224, 224, 3, 64, 7, 2, 3),
            (1, 56, 56, 64, 128, 3, 2, 1),
            (1, 28, 28, 128, 256, 1, 2, 0),
            (1, 7, 7, 512, 512, 3, 1, 1),
        ),
    ),
    "TBG": (
        "transpose_batch_matmul",
        ((1, 128, 12, 64), (1, 128, 16, 64), (1, 64, 12, 128), (1, 128, 12, 128)),
    ),
}

# LoopTune (Grubisic et al., 2023): square-ish products with every side in 64, 80, ..., 256.
_LOOPTUNE_SIDES = range(64, 257, 16)
_LOOPTUNE_TEST = 220

# Held out besides the Ansor suite and LoopTune's test set.
HELD_OUT_EXTRA: tuple[str, ...] = (
    "matmul(m=384,n=384,k=384)",
    "matmul(m=768,n=768,k=768)",
    "matmul(m=1,n=4096,k=1024)",
    "matmul(m=128,n=3072,k=768)",
    "matmul(m=512,n=512,k=512,dtype=int8)",
    "batch_matmul(b=12,m=128,n=128,k=64)",
    "batch_matmul(b=96,m=64,n=64,k=32)",
    "dense(m=16,n=1000,k=2048)",
    "dense(m=256,n=1024,k=1024)",
    "matmul_relu(m=640,n=320,k=480)",
    "transpose_batch_matmul(batch=2,seq=96,heads=8,dim=48)",
    "conv1d(n=1,l=512,ci=80,co=256,kernel=5,stride=1,padding=2,dilation=1,groups=1)",
    "conv2d(n=1,h=28,w=28,ci=128,co=128,kernel=3,stride=1,padding=1,dilation=1,groups=1)",
    "conv2d(n=1,h=56,w=56,ci=256,co=64,kernel=1,stride=1,padding=0,dilation=1,groups=1)",
    "conv2d(n=4,h=32,w=32,ci=48,co=96,kernel=5,stride=2,padding=2,dilation=1,groups=1)",
    "conv2d(n=1,h=14,w=14,ci=96,co=96,kernel=3,stride=1,padding=2,dilation=2,groups=1)",
    "conv3d(n=1,d=8,h=28,w=28,ci=32,co=64,kernel=3,stride=1,padding=1,dilation=1,groups=1)",
    "grouped_conv2d(n=1,h=28,w=28,ci=128,co=128,kernel=3,stride=1,padding=1,dilation=1,groups=32)",
    "depthwise_conv2d(n=1,h=56,w=56,c=144,kernel=3,stride=1,padding=1,dilation=1)",
    "depthwise_conv2d(n=1,h=28,w=28,c=240,kernel=5,stride=2,padding=2,dilation=1)",
    "transposed_conv2d(n=1,h=14,w=14,ci=96,co=48,kernel=2,stride=2,padding=0)",
    "capsule_conv2d(n=1,h=12,w=12,ci=16,co=16,kernel=3,stride=1,padding=0,capsule=4)",
    "conv2d_bn_relu(n=1,h=14,w=14,ci=256,co=512,kernel=3,stride=2,padding=1,dilation=1)",
    "max_pool2d(n=1,h=112,w=112,c=64,kernel=3,stride=2,padding=1)",
    "avg_pool2d(n=1,h=56,w=56,c=96,kernel=2,stride=2,padding=0)",
    "softmax(m=768,n=128)",
    "softmax(m=16,n=32000)",
    "layer_norm(m=384,n=1024)",
    "rms_norm(m=128,n=2048)",
    "batch_norm(n=1,h=28,w=28,c=192)",
    "norm(b=8,m=96,n=160)",
    "sum(m=640,n=1280)",
    "max(m=1000,n=333)",
    "mean(m=196,n=768)",
    "add(m=1024,n=768)",
    "gelu(m=197,n=3072)",
    "tanh(m=300,n=500)",
    "transpose(m=768,n=1024)",
    "take(rows=30522,dim=768,count=128)",
)


def ansor(family: str, index: int) -> Workload:
    """One workload of the Ansor suite: `ansor("C2D", 2)`.

    Raises:
        WorkloadError: there is no such family, or no such index in it.
    """
    if family not in _ANSOR:
        hint = suggestion(family.upper(), list(_ANSOR)) or f": choose from {', '.join(_ANSOR)}"
        raise WorkloadError(f"the Ansor suite has no family `{family}`{hint}")
    operator, shapes = _ANSOR[family]
    if not 0 <= index < len(shapes):
        raise WorkloadError(f"{family} has the items 0 to {len(shapes) - 1}, not {index}")
    return workload(operator, *shapes[index])


def _ansor_suite() -> tuple[Workload, ...]:
    return tuple(
        ansor(family, index)
        for family, (_, shapes) in _ANSOR.items()
        for index in range(len(shapes))
    )


def _looptune() -> tuple[Workload, ...]:
    sides = _LOOPTUNE_SIDES
    return tuple(workload("matmul", m, n, k) for m in sides for n in sides for k in sides)


def _looptune_test_positions() -> frozenset[int]:
    # The split is part of every published number: the seed and NumPy's PCG64 stream never change.
    count = len(_LOOPTUNE_SIDES) ** 3
    order = np.random.Generator(np.random.PCG64(2023)).random(count).argsort(kind="stable")
    return frozenset(order[:_LOOPTUNE_TEST].tolist())


def _looptune_part(*, test: bool) -> tuple[Workload, ...]:
    held = _looptune_test_positions()
    return tuple(item for i, item in enumerate(suite("looptune")) if (i in held) == test)


# One in so many of LoopTune's training products is in the training suite: 30 of them.
_LOOPTUNE_STRIDE = 66

# Tiny, for trying a command out; the last one has next to nothing to tune in the sketch space.
_SMOKE: tuple[str, ...] = (
    "matmul(m=48,n=48,k=40)",
    "conv2d(n=1,h=8,w=8,ci=8,co=16,kernel=3,stride=1,padding=1,dilation=1,groups=1)",
    "softmax(m=32,n=64)",
    "relu(m=32,n=32)",
)


def _train() -> tuple[Workload, ...]:
    own = [workload(operator, *shape) for operator in TRAIN for shape in TRAIN[operator]]
    own += [
        workload(operator, *shape, dtype="int8")
        for operator in TRAIN_INT8
        for shape in TRAIN_INT8[operator]
    ]
    return (*own, *suite("looptune-train")[::_LOOPTUNE_STRIDE])


SUITES = (
    "ansor",
    "looptune",
    "looptune-train",
    "looptune-test",
    "held-out-extra",
    "train",
    "smoke",
)


@cache
def suite(name: str) -> tuple[Workload, ...]:
    """The workloads of a suite, in a fixed order.

    Args:
        name: `ansor` (13 families of 4 shapes), `looptune` (2,197 products), its fixed split
            `looptune-train` (1,977) and `looptune-test` (220), `held-out-extra`; `train`, which
            models are trained on, and `smoke`, four tiny ones; or one item of Ansor's as `C2D:2`,
            or one family as `C2D`.

    Raises:
        WorkloadError: there is no suite of that name.
    """
    if name == "ansor":
        return _ansor_suite()
    if name == "looptune":
        return _looptune()
    if name in ("looptune-train", "looptune-test"):
        return _looptune_part(test=name.endswith("test"))
    if name in ("held-out-extra", "smoke"):
        keys = _SMOKE if name == "smoke" else HELD_OUT_EXTRA
        return tuple(Workload.from_key(key) for key in keys)
    if name == "train":
        return _train()
    family, colon, index = name.partition(":")
    if family in _ANSOR and not colon:
        return tuple(ansor(family, i) for i in range(len(_ANSOR[family][1])))
    if family in _ANSOR and index.isdecimal():
        return (ansor(family, int(index)),)
    hint = suggestion(name, [*SUITES, *_ANSOR]) or f": choose from {', '.join(SUITES)}, or C2D:2"
    raise WorkloadError(f"there is no suite `{name}`{hint}")


@cache
def held_out() -> frozenset[str]:
    """Canonical identities that no model that we ship is trained on.

    All of Ansor's suite, LoopTune's test set and `HELD_OUT_EXTRA`. Takes a second or two, once.
    """
    names = ("ansor", "looptune-test", "held-out-extra")
    return frozenset(item.identity for name in names for item in suite(name))


def is_held_out(item: Workload) -> bool:
    """Whether a workload computes what one of the held-out ones does, whatever its key."""
    return item.identity in held_out()
