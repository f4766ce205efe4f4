"""Which headers a request takes along to an upstream: the caller's trace and request id, the caller's headers
that the configuration lists, and headers of the configuration's own.

Contract: a header goes on only where the caller sent it; nothing is made up. What the program asks on its own
account, such as probes and discovery, carries the configuration's own headers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interlingua.protocols.wire import REQUEST_ID, BrpcRequest, GrpcRequest, HttpRequest
from interlingua.runtime.upstream.header_file import HeaderFile
from interlingua.schemas import Context, ErrorCode, InferenceError

TRACE = ("traceparent", "tracestate")
"""The headers of W3C Trace Context, which every request carries on."""


class Forwarding:
    """The headers of one upstream. ``names``, in lower case, are the caller's headers that it gets, with the
    trace and the request id; ``own`` are added to every call and probe."""

    def __init__(self, names: Sequence[str] = (), own: Mapping[str, HeaderFile] | None = None) -> None:
        self._names = tuple(name for name in names if name not in (*TRACE, REQUEST_ID))
        self._own = own or {}

    def of_the_caller(self, message: Any, context: Context) -> None:
        """Add to ``message`` what its caller, who asks with ``context``, has sent. Raises MALFORMED for a
        listed header that cannot be sent on; a trace or request id that cannot be is left out."""
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
            for name in self._names:
                header = headers.get(name)
                if header is not None:
                    found[name] = header
        if found:
            _add(message, {name: value for name, value in found.items() if self._fits(message, name, value)})

    def of_our_own(self, message: Any) -> None:
        """Add the configuration's own headers to ``message``."""
        if self._own:
            _add(message, {name: file.value() for name, file in self._own.items()})

    def _fits(self, message: Any, name: str, value: str) -> bool:
        """Whether ``value`` can be written there: gRPC takes ASCII alone."""
        if value.isprintable() and (value.isascii() or not isinstance(message, GrpcRequest)):
            return True
        if name in self._names:
            raise InferenceError(
                ErrorCode.MALFORMED,
                f"the header '{name}' has a character that cannot be sent to the upstream",
            )
        return False


def _add(message: Any, headers: Mapping[str, str]) -> None:
    """Add ``headers`` to a message; one that is but a frame has no place for any."""
    if isinstance(message, GrpcRequest):
        message.metadata = {**message.metadata, **headers}
    elif isinstance(message, HttpRequest | BrpcRequest):
        message.headers = {**message.headers, **headers}
