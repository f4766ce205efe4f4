"""The dialect and transport of a server of which only the address is known."""

from __future__ import annotations

from interlingua.protocols.dialect import Binding
from interlingua.protocols.transport.address import parse_url
from interlingua.schemas import Operation
from interlingua.translator.probe.conversation import detect, known

PATIENCE_SECS = 5.0
"""The most that a call waits for a server that does not react to another dialect."""

_GROUPS = (("grpc",), ("http",), ("brpc", "tcp"))
"""Transports in the order of trial. Over HTTP a server logs the path that shows whether it answers
everything. The last ones send no line, for whose end a server of HTTP may wait."""


async def recognize(
    url: str,
    timeout_secs: float,
    *,
    dialect: str | None = None,
    transport: str | None = None,
    model: str = "",
    operation: Operation = Operation.INFER,
) -> Binding | None:
    """A binding with ``operation`` that the server at ``url`` speaks, of ``dialect`` and over ``transport``
    if they are stated; None if there is none. Raises ``ValueError`` for an invalid URL."""
    place = parse_url(url, transport or "http")
    possible = [
        each
        for each in known()
        if dialect in (None, each.dialect)
        and transport in (None, each.transport)
        and operation in each.calls
        and _fits(url, each)
    ]
    patience = min(timeout_secs, PATIENCE_SECS)
    for group in _GROUPS:
        over = [each for each in possible if each.transport in group]
        # requests of other dialects are errors in the server's log: the first dialect is the usual one
        for candidates in (over[:1], over[1:]):
            if candidates and (found := await detect(place, patience, model, candidates)):
                return found[0]
    return None


def _fits(url: str, binding: Binding) -> bool:
    """Whether ``url`` is one of the transport."""
    try:
        parse_url(url, binding.transport)
    except ValueError:
        return False
    return True
