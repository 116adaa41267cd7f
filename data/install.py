"""Which packages are installed, whether they work together, and how TVM is loaded fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any

# The release of apache-tvm-ffi to install beside TVM, and the one that TVM crashes with.
FFI_GOOD = "0.1.14.post1"
FFI_CRASHES = "0.1.15"

# What the figures and the tests were made with; `constraints.txt` pins the same.
KNOWN_GOOD: Mapping[str, str] = {
    "apache-tvm": "0.27.0.post1",
    "apache-tvm-ffi": FFI_GOOD,
    "numpy": "2.4.6",
    "pandas": "3.1.1",
    "pyarrow": "26.0.1",
    "scikit-learn": "1.9.1",
    "xgboost": "3.2.0",
}

# What a record names, because it can change a kernel's time or a model's prediction.
RECORDED = ("tensortune", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost")

# The packages of each extra, by the name pip knows them under.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "neural": ("torch", "safetensors"),
    "rl": ("gymnasium", "stable-baselines3", "sb3-contrib"),
    "onnx": ("onnx",),
    "report": ("matplotlib", "jinja2"),
    "cluster": ("dask", "distributed"),
}

VersionOf = Callable[[str], str | None]


class InstallError(RuntimeError):
    """The installed packages cannot work; the message says what to install."""


def version_of(package: str) -> str | None:
    """The installed version of a package, or None; the package is not imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions(version_of: VersionOf = version_of) -> dict[str, str]:
    """The versions a record names; a package that is missing is left out."""
    found = ((package, version_of(package)) for package in RECORDED)
    return {package: version for package, version in found if version is not None}


def check_install(version_of: VersionOf = version_of) -> None:
    """Refuse an installation that TVM cannot run in, before TVM is imported.

    Args:
        version_of: Gives a package's installed version, or None.

    Raises:
        InstallError: TVM or its FFI is missing, or the FFI is the release that crashes it.
    """
    for package in ("apache-tvm", "apache-tvm-ffi"):
        if version_of(package) is None:
            raise InstallError(
                f"{package} is not installed: pip install '{package}=={KNOWN_GOOD[package]}'"
            )
    ffi = version_of("apache-tvm-ffi") or ""
    # Post-releases and local builds of the bad one (`0.1.15.post1`, `0.1.15+x`) are as bad.
    if (ffi + ".").replace("+", ".").startswith(FFI_CRASHES + "."):
        raise InstallError(
            f"apache-tvm-ffi {ffi} crashes TVM 0.27 when it saves a record: "
            f"pip install 'apache-tvm-ffi=={FFI_GOOD}'"
        )


@contextmanager
def without(name: str) -> Iterator[None]:
    """Within this an installed package is not there, unless it is loaded already.

    TVM loads torch where it can, which takes 2 s, for an exchange of arrays that we have no use
    for; XGBoost loads scikit-learn (0.3 s) for an interface that we have no use for. torch can be
    imported afterwards.

    Args:
        name: The package.
    """
    modules: dict[str, Any] = sys.modules
    if name in modules:
        yield
        return
    modules[name] = None  # to Python a module that isn't there
    try:
        yield
    finally:
        del modules[name]


def load_bare() -> None:
    """Load TVM and XGBoost without what a search has no use for; see `without`.

    For processes of our own: XGBoost's estimators for scikit-learn do not work there.
    """
    with without("torch"):
        import_module("tvm")
    with without("sklearn"):
        import_module("xgboost")
