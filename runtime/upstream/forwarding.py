"""The headers that a request takes along to an upstream: the caller's trace, baggage and request id, the
caller's headers that the configuration lists, and headers of the configuration's own.

Contract: only headers that the caller sent are forwarded. Probes and discovery carry the configuration's own
headers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from interlingua.protocols.wire import REQUEST_ID
from interlingua.schemas import Context, malformed

BAGGAGE = "baggage"

TRACE = ("traceparent", "tracestate", BAGGAGE)
"""The headers of W3C Trace Context and W3C Baggage, which every request forwards."""

TRAVELS = frozenset({*TRACE, REQUEST_ID})
"""The headers that travel to every upstream."""


class Forwarding:
    """The headers of one upstream. ``names``, in lower case, are the caller's headers to forward besides the
    trace, its baggage and the request id; ``own`` are added to every call and probe, as they are then."""

    def __init__(self, names: Sequence[str] = (), own: Mapping[str, Callable[[], str]] | None = None) -> None:
        self.names = tuple(name for name in names if name not in TRAVELS)
        self.own = own or {}

    def of_the_caller(self, message: Any, context: Context) -> None:
        """Add the caller's headers to ``message``. Raises MALFORMED for a listed header that the transport
        cannot carry; drops such a trace or request id."""
        found = self._of_the_caller(message, context)
        if found:
            message.add_headers(found)

    def of_our_own(self, message: Any) -> None:
        if self.own:
            message.add_headers({name: value() for name, value in self.own.items()})

    def headers_for(self, message: Any, context: Context) -> dict[str, str]:
        """What the two add to ``message``. Raises MALFORMED."""
        found = self._of_the_caller(message, context)
        for name, value in self.own.items():
            found[name] = value()
        return found

    def _of_the_caller(self, message: Any, context: Context) -> dict[str, str]:
        found: dict[str, str] = {}
        if context.traceparent:
            found["traceparent"] = context.traceparent
            if context.tracestate:
                found["tracestate"] = context.tracestate
        headers = context.headers
        if headers:
            identity = headers.get(REQUEST_ID)
            if identity:
                found[REQUEST_ID] = identity
            baggage = headers.get(BAGGAGE)
            if baggage:
                found[BAGGAGE] = baggage
            for name in self.names:
                header = headers.get(name)
                if header is not None:
                    found[name] = header
        for name in list(found):
            if not self._fits(message, name, found[name]):
                del found[name]
        return found

    def _fits(self, message: Any, name: str, value: str) -> bool:
        if value.isprintable() and (value.isascii() or not message.ascii_headers):
            return True
        if name in self.names:
            raise malformed(f"the header '{name}' has a character that cannot be sent to the upstream")
        return False
