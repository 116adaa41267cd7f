"""What a check of the machine or of the installation came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: What was looked at.
        status: `fail`: tuning does not work; `warn`: it works, with a loss; `ok`.
        found: What was found.
        advice: What to do about it; empty where there is nothing to do.
    """

    name: str
    status: Status
    found: str
    advice: str = ""
