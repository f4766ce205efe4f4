"""The dialect and transport of a server of which only the address is known."""

from __future__ import annotations

from interlingua.protocols.dialect import Binding
from interlingua.protocols.transport.address import parse_url
from interlingua.schemas import Operation
from interlingua.translator.probe.conversation import detect, known


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
    # over HTTP a server logs the path that shows whether it answers everything
    for over_http in (False, True):
        candidates = [each for each in possible if (each.transport == "http") == over_http]
        if candidates and (found := await detect(place, timeout_secs, model, candidates)):
            return found[0]
    return None


def _fits(url: str, binding: Binding) -> bool:
    """Whether ``url`` is one of the transport."""
    try:
        parse_url(url, binding.transport)
    except ValueError:
        return False
    return True
