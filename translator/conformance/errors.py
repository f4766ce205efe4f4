"""The errors of a check, and functions that raise them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlingua.translator.conformance.exchange import WireExchange


class ViolationError(AssertionError):
    """The server broke the rule. ``exchange`` has the request that shows it, if there is one."""

    def __init__(self, message: str, exchange: WireExchange | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.exchange = exchange


class InapplicableError(Exception):
    """The rule does not apply to this server or model; the message says why."""


def expect(holds: object, message: str, exchange: WireExchange | None = None) -> None:
    if not holds:
        raise ViolationError(message, exchange)


def expect_names(side: str, names: Sequence[Any], exchange: WireExchange | None) -> None:
    """Raise ``ViolationError`` unless every ``side`` (input or output) has a name of its own."""
    expect(all(names), f"an {side} has no name", exchange)
    expect(len(set(map(str, names))) == len(names), f"two of the {side}s {names} have one name", exchange)


def skip_if(holds: object, reason: str) -> None:
    if holds:
        raise InapplicableError(reason)
