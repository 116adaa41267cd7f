"""What the commands share: consoles, errors as one clear line, modules loaded on use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from ..data.install import InstallError, check_install, without

errors = Console(stderr=True)
console = Console()


def load(module: str) -> Any:
    """A module of ours that needs TVM, which is loaded before it, after a check that it can run.

    Loaded on use, so that commands that need none answer at once.
    """
    check_install()
    with without("torch"):
        import_module("tvm")
    return import_module(module, __package__.rpartition(".")[0])


def fail(message: str, code: int = 2) -> typer.Exit:
    """Print an error; what is returned is to be raised."""
    errors.print(f"[bold red]error:[/] {message}", highlight=False, markup=True, soft_wrap=True)
    return typer.Exit(code)


def guard(command: Callable[[], None]) -> None:
    """Run a command's body; what the user can mend becomes one line and exit code 2.

    An interrupt becomes exit code 130, and a failure of a program that is tuned, exit code 1.
    """
    try:
        command()
    except KeyboardInterrupt:
        errors.print("interrupted", highlight=False)
        raise typer.Exit(130) from None
    except (ValueError, OSError, InstallError) as error:
        raise fail(escape(str(error))) from None
    except MemoryError as error:
        raise fail(f"this machine has too little memory for it: {escape(str(error))}") from None
    except ImportError as error:  # an extra's package: the message says which
        raise fail(escape(str(error))) from None
    except RuntimeError as error:
        raise fail(escape(str(error)), 1) from None
