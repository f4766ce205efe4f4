"""The recorded exchanges of ``tests/golden`` as requests and replies of each binding: seeds for the fuzzer."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from interlingua.protocols.transport.brpc.compression import decompress
from interlingua.protocols.transport.brpc.frame import BrpcFrameReader, Frame
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    FramedReply,
    FramedRequest,
    GrpcRequest,
    HttpReply,
    HttpRequest,
)
from tests.conformance import grps_replay
from tests.conformance.oip_recordings import grpc_recordings, http_recordings
from tests.fuzz.golden import GOLDEN, entries, messages, trtis_messages

Exchange = tuple[Any, Any]
"""A request and its reply, which is None if none was recorded."""

_OIP_SERVERS = ("triton", "mlserver", "kserve")
_MEBIBYTE = 1 << 20


def exchanges(binding: str) -> Iterator[Exchange]:
    """The recorded exchanges of ``binding``, such as ``oip/http``; none of a binding without recordings."""
    yield from _RECORDED.get(binding, lambda: ())()


def _oip_http() -> Iterator[Exchange]:
    for server in _OIP_SERVERS:
        for each in http_recordings(server):
            reply = each.reply and HttpReply(each.reply.status, each.reply.headers, each.reply.body)
            yield each.request(), reply


def _oip_grpc() -> Iterator[Exchange]:
    for server in _OIP_SERVERS:
        for each in grpc_recordings(server):
            if each.request is not None:
                yield GrpcRequest(each.method, each.request), each.reply


def _grps_http() -> Iterator[Exchange]:
    for each in grps_replay.recordings():
        kept = each.reply if each.reply is not None and each.reply.body is not None else None
        reply = kept and HttpReply(kept.status, {"content-type": kept.content_type}, kept.body or b"")
        yield each.request(), reply


def _grps_brpc() -> Iterator[Exchange]:
    for path in sorted((GOLDEN / "grps" / "brpc").glob("*.c2s")):
        request, reply = _frame(path), _frame(path.with_suffix(".s2c"))
        if request is not None and request.meta.service is not None:
            answer = BrpcAnswer(_message(reply)) if reply and not reply.meta.error_code else None
            yield BrpcRequest(request.meta.service, request.meta.method, _message(request)), answer


def _frame(path: Path) -> Frame | None:
    data = path.read_bytes()
    if not data.startswith(b"PRPC"):  # another protocol of the same port
        return None
    reader = BrpcFrameReader()
    reader.feed(data)
    return reader.next()


def _message(frame: Frame) -> bytes:
    payload = frame.payload or memoryview(b"")
    end = len(payload) - frame.meta.attachment_size
    return bytes(decompress(frame.meta.compress_type, payload[:end], _MEBIBYTE))


def _graphpipe(request: Callable[[bytes], Any], reply: Callable[[bytes], Any]) -> Iterator[Exchange]:
    asked, answered = messages("graphpipe", "*.req.bin"), messages("graphpipe", "*.resp.bin")
    return ((request(one), reply(other)) for one, other in zip(asked, answered, strict=True))


def _trtis_http() -> Iterator[Exchange]:
    for asked, answered in trtis_messages():
        (line, headers, body), (status, fields, content) = _split(asked), _split(answered)
        method, target, _ = line.split(" ")
        path, _, query = target.partition("?")
        yield (
            HttpRequest(method, path, query, headers, body),
            HttpReply(int(status.split(" ")[1]), fields, content),
        )


def _tfserving_http() -> Iterator[Exchange]:
    for each in entries("tfserving/kserve_http.json") + entries("tfserving/ovmsclient_http.json"):
        line, headers, body = _split(each["request"]["text"].encode())
        method, path, _ = line.split(" ")
        reply = None
        if "body" in each:
            status, content = int(each["status"].split(" ")[1]), each["body"]["text"].encode()
            reply = HttpReply(status, dict(each["headers"]), content)
        yield HttpRequest(method, path, "", headers, body), reply


def _tfserving_grpc() -> Iterator[Exchange]:
    for each in entries("tfserving/ovmsclient_grpc.json"):
        yield GrpcRequest(each["method"], b64decode(each["request_bytes"])), None


def _split(message: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = message.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    pairs = (field.partition(":")[::2] for field in fields)
    return line, {name.lower(): value.strip() for name, value in pairs}, body


_RECORDED: Mapping[str, Callable[[], Iterable[Exchange]]] = {
    "oip/http": _oip_http,
    "oip/grpc": _oip_grpc,
    "grps/http": _grps_http,
    "grps/brpc": _grps_brpc,
    "trtis/http": _trtis_http,
    "tfserving/http": _tfserving_http,
    "tfserving/grpc": _tfserving_grpc,
    "graphpipe/http": lambda: _graphpipe(
        lambda body: HttpRequest("POST", "/", "", {}, body), lambda body: HttpReply(200, {}, body)
    ),
    "graphpipe/tcp": lambda: _graphpipe(FramedRequest, FramedReply),
}
