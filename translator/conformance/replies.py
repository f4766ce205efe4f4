"""Requests and replies as sent. A reply that cannot be read raises ``ViolationError``."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import orjson
from google.protobuf.message import DecodeError

from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpCall, HttpReply
from interlingua.translator.conformance.errors import ViolationError
from interlingua.translator.conformance.exchange import Sent, WireExchange

T = TypeVar("T")


def _reply(kind: type[T], exchange: WireExchange | None) -> T:
    """The reply. Raises ``ViolationError`` if there is none."""
    if exchange is None or not isinstance(exchange.reply, kind):
        raise ViolationError("no answer", exchange)
    return exchange.reply


def _request(kind: type[T], sent: Sent) -> T:
    if not isinstance(sent, kind):
        raise TypeError(f"not a {kind.__name__}")
    return sent


http_reply, grpc_reply = partial(_reply, HttpReply), partial(_reply, GrpcAnswer)
http_request, grpc_request = partial(_request, HttpCall), partial(_request, GrpcRequest)


def media_type(reply: HttpReply) -> str:
    """The Content-Type without parameters, in lower case."""
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def json_object(exchange: WireExchange, body: bytes, what: str = "the body") -> dict[str, Any]:
    """The JSON object in ``body``. Raises ``ViolationError`` if there is none."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ViolationError(
            f"{what} (status {http_reply(exchange).status}) is not JSON: {error}", exchange
        ) from error
    if not isinstance(document, dict):
        raise ViolationError(f"{what} is not a JSON object", exchange)
    return document


def parsed(message_type: Any, message: bytes, exchange: WireExchange, what: str = "the answer") -> Any:
    """``message`` as a protobuf message. Raises ``ViolationError`` if it is not one."""
    try:
        return message_type.FromString(message)
    except DecodeError as error:
        name = message_type.DESCRIPTOR.name
        raise ViolationError(f"{what} is not a valid {name}: {error}", exchange) from error
