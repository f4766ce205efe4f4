"""Errors of the IR as the in-band ``Status`` of grps, and back."""

from __future__ import annotations

from typing import Literal

from protocols.grps.message import GrpsMessage, Status
from schemas import InferenceError

Flavor = Literal["py", "cpp"]


def failure(error: InferenceError, flavor: Flavor) -> Status:
    """The status that tells of ``error``; over HTTP a ``py`` listener's status line has its code too."""
    raise NotImplementedError


def check(message: GrpsMessage) -> None:
    """Raise the error that an upstream's ``message`` tells of, in its words; a message without status is
    fine."""
    raise NotImplementedError
