"""One request to the server under test with its reply, and the shell command that sends the same."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Any

from interlingua.protocols.transport.brpc.frame import write_request
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    FramedReply,
    FramedRequest,
    GrpcAnswer,
    GrpcRequest,
    HttpCall,
    HttpReply,
)
from interlingua.schemas import InferenceError

Sent = HttpCall | GrpcRequest | BrpcRequest | FramedRequest
Reply = HttpReply | GrpcAnswer | BrpcAnswer | FramedReply

_LONGEST_SHOWN = 2048
"""Messages up to this size are shown in full."""

_SIZE = 4
"""The size prefix of a message over tcp."""

_PREFIX = 5
"""The flag and length before a gRPC message."""


@dataclass(frozen=True, slots=True)
class GrpcStream:
    """A call of a streaming gRPC ``method`` with all of its messages."""

    method: str
    messages: tuple[bytes, ...]


@dataclass(slots=True)
class WireExchange:
    """A request, or all messages of a stream, with the ``result`` or the ``error``. ``reply`` is None if the
    transport returned none (over bRPC: an error)."""

    sent: Sent | GrpcStream
    reply: Reply | None = None
    result: Any = None
    error: InferenceError | None = None


def body_of(sent: Sent) -> bytes:
    """The body or message of a request."""
    if isinstance(sent, FramedRequest):
        return frame_of(sent)[_SIZE:]
    return b"".join(map(bytes, sent.parts)) if isinstance(sent, HttpCall) else bytes(sent.message)


def frame_of(sent: Sent) -> bytes:
    """A message over tcp with its size."""
    if not isinstance(sent, FramedRequest):
        raise TypeError("not sent over tcp")
    return b"".join(map(bytes, sent.parts))


def with_body(sent: Sent, body: bytes) -> Sent:
    """The same request with another body."""
    if isinstance(sent, HttpCall):
        return replace(sent, parts=[body] if body else [])
    if isinstance(sent, FramedRequest):
        return replace(sent, parts=[len(body).to_bytes(_SIZE, "little"), body])
    return replace(sent, message=body)


def shown_request(sent: Sent | GrpcStream, url: str) -> str:
    """A shell command that sends ``sent`` to the server at ``url``."""
    place, unix = (url.removeprefix("http://").rstrip("/"), "")
    if place.startswith("unix:"):
        place, unix = "localhost", f" --unix-socket {shlex.quote(place.removeprefix('unix:'))}"
    if isinstance(sent, BrpcRequest):
        frame = b"".join(map(bytes, write_request(sent.service, sent.method, 1, sent.message)))
        return f"# {sent.service}/{sent.method}\n{_bytes_of(frame)} | nc {place.replace(':', ' ')} | xxd"
    if isinstance(sent, FramedRequest):
        place = place.removeprefix("tcp://")
        reached = f"-U {shlex.quote(unix.split()[-1])}" if unix else place.replace(":", " ")
        return f"{_bytes_of(frame_of(sent))} | nc -N {reached} | xxd"
    if isinstance(sent, GrpcRequest | GrpcStream):
        messages = sent.messages if isinstance(sent, GrpcStream) else (bytes(sent.message),)
        framed = b"".join(map(_grpc_frame, messages))
        return (
            f"{_bytes_of(framed)} | curl{unix} --http2-prior-knowledge -v -H 'te: trailers' "
            f"-H 'content-type: application/grpc' --data-binary @- http://{place}{sent.method} | xxd"
        )
    path = f"{sent.path}?{sent.query}" if sent.query else sent.path
    headers = "".join(f" -H {shlex.quote(f'{name}: {value}')}" for name, value in sent.headers.items())
    if "content-type" not in map(str.lower, sent.headers):
        # curl would add its default
        headers += " -H 'Content-Type:'"
    command = f"curl{unix} -i -X {sent.method}{headers}"
    address = shlex.quote(f"http://{place}{path}")
    body = body_of(sent)
    if not body:
        return f"{command} {address}"
    text = _plain_text(body)
    if text is not None:
        return f"{command} --data-binary {shlex.quote(text)} {address}"
    return f"{_bytes_of(body)} | {command} --data-binary @- {address}"


def shown_reply(exchange: WireExchange) -> str:
    """The reply in a few lines."""
    reply = exchange.reply
    if isinstance(reply, HttpReply):
        # the date would change every report
        shown = {name: value for name, value in reply.headers.items() if name.lower() != "date"}
        headers = "".join(f"\n{name}: {value}" for name, value in shown.items())
        return f"HTTP {reply.status}{headers}\n\n{_readable(bytes(reply.body))}"
    if isinstance(reply, GrpcAnswer) and reply.code:
        return f"gRPC status {reply.code}: {reply.details}"
    if reply is not None:
        return _readable(bytes(reply.message))
    return exchange.error.message if exchange.error is not None else "nothing"


def _grpc_frame(message: bytes) -> bytes:
    """A gRPC message with its prefix."""
    return b"\0" + len(message).to_bytes(_PREFIX - 1, "big") + message


def _plain_text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    # curl reads @name as a file
    return text if text.isprintable() and len(text) <= _LONGEST_SHOWN and text[0] != "@" else None


def _bytes_of(body: bytes) -> str:
    if len(body) <= _LONGEST_SHOWN:
        return f"echo {body.hex()} | xxd -r -p" if body else "printf ''"
    return f"(echo {body[:_LONGEST_SHOWN].hex()} | xxd -r -p; : and {len(body) - _LONGEST_SHOWN} bytes more)"


def _readable(body: bytes) -> str:
    text = _plain_text(body.strip().replace(b"\n", b" ")) if body.strip() else ""
    if text is not None:
        return text
    return f"{len(body)} bytes: {body[:256].hex()}{'...' if len(body) > 256 else ''}"
