"""A request of a listener that others repeat, for the upstream that they go to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interlingua.protocols.dialect import Endpoint, Opened
from interlingua.protocols.wire import Buffer, HttpRequest
from interlingua.runtime.upstream.translated import ReceivedMessage
from interlingua.schemas import CancelToken, Context


def received_message(
    endpoint: Endpoint, request: Any, opened: Opened[Any], model: str, server_id: str
) -> ReceivedMessage:
    """``request``, over HTTP or gRPC, which ``endpoint`` of the server ``server_id`` has ``opened``, for
    ``model``."""
    own, http = request.context, isinstance(request, HttpRequest)
    context = Context(None, CancelToken(), own.traceparent, own.tracestate, own.peer, own.headers, server_id)
    message, field = (request.body, "body") if http else (request.message, "message")

    def open_like(data: Buffer) -> Opened[Any]:
        return endpoint.open(replace(request, context=context, **{field: data}))

    place = (request.path, request.query) if http else ()
    key = endpoint, place, tuple(own.headers.items()), model, opened.version
    return ReceivedMessage(message, open_like, key, model, opened.version, context)
