"""One request to the server under test with its reply, and the shell command that sends the same."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from interlingua.protocols.wire import (
    BrpcRequest,
    FramedCall,
    GrpcAnswer,
    GrpcRequest,
    HttpCall,
    HttpReply,
)
from interlingua.schemas import InferenceError
from interlingua.translator.conversion.raw import FORMS, Call, Reply

Sent = Call

_LONGEST_SHOWN = 2048
"""Messages up to this size are shown in full."""


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


def shown_request(transport: str, sent: Sent | GrpcStream, url: str) -> str:
    """A shell command that sends ``sent`` to the server at ``url`` over ``transport``."""
    place = url.removeprefix("http://").removeprefix("tcp://").rstrip("/")
    return _COMMANDS[transport](sent, place.removeprefix("unix:"), place.startswith("unix:"))


def _http_command(sent: HttpCall, place: str, unix: bool) -> str:
    headers = "".join(f" -H {shlex.quote(f'{name}: {value}')}" for name, value in sent.headers.items())
    if "content-type" not in map(str.lower, sent.headers):
        # curl would add its default
        headers += " -H 'Content-Type:'"
    command = f"{_curl(place, unix)} -i -X {sent.method}{headers}"
    path = f"{sent.path}?{sent.query}" if sent.query else sent.path
    address = shlex.quote(f"http://{'localhost' if unix else place}{path}")
    body = b"".join(map(bytes, sent.parts))
    if not body:
        return f"{command} {address}"
    text = _plain_text(body)
    if text is not None:
        return f"{command} --data-binary {shlex.quote(text)} {address}"
    return f"{_bytes_of(body)} | {command} --data-binary @- {address}"


def _grpc_command(sent: GrpcRequest | GrpcStream, place: str, unix: bool) -> str:
    messages = sent.messages if isinstance(sent, GrpcStream) else (bytes(sent.whole),)
    # each with its prefix: no compression, and the length
    framed = b"".join(b"\0" + len(message).to_bytes(4, "big") + message for message in messages)
    return (
        f"{_bytes_of(framed)} | {_curl(place, unix)} --http2-prior-knowledge -v -H 'te: trailers' "
        "-H 'content-type: application/grpc' --data-binary @- "
        f"http://{'localhost' if unix else place}{sent.method} | xxd"
    )


def _brpc_command(sent: BrpcRequest, place: str, unix: bool) -> str:
    frame = FORMS["brpc"].write(sent)
    return f"# {sent.service}/{sent.method}\n{_bytes_of(frame)} | nc {_nc(place, unix)} | xxd"


def _tcp_command(sent: FramedCall, place: str, unix: bool) -> str:
    return f"{_bytes_of(FORMS['tcp'].write(sent))} | nc -N {_nc(place, unix)} | xxd"


_COMMANDS: Mapping[str, Callable[[Any, str, bool], str]] = {
    "http": _http_command,
    "grpc": _grpc_command,
    "brpc": _brpc_command,
    "tcp": _tcp_command,
}


def _nc(place: str, unix: bool) -> str:
    return f"-U {shlex.quote(place)}" if unix else place.replace(":", " ")


def _curl(place: str, unix: bool) -> str:
    return f"curl --unix-socket {shlex.quote(place)}" if unix else "curl"


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
