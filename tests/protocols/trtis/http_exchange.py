"""Both ends of an exchange without a network: what a transport would do between the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import Message

from interlingua.protocols.dialect import Opened
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.trtis import DIALECT
from interlingua.protocols.trtis.codec import REQUEST_HEADER, RESPONSE_HEADER
from interlingua.protocols.trtis.status import REQUEST_STATUS
from interlingua.protocols.wire import HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import Context, InferenceError, InferResponse, Signature

PATHS = PathTable(DIALECT.bindings["http"].endpoints)
CONTEXT = Context(server_id="inference:0", request_number=7)


def text(message: Message) -> str:
    """``message`` on one line, as protobuf itself writes it."""
    return text_format.MessageToString(message, as_one_line=True, as_utf8=False).strip()


def header(**fields: Any) -> str:
    """The value of NV-InferRequest."""
    return text(REQUEST_HEADER(**fields))


def asking(
    method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> HttpRequest:
    """A request as received; ``headers`` in lower case."""
    path, _, query = path.partition("?")
    return HttpRequest(method, path, query, headers or {}, body, context=CONTEXT)


def infer(path: str = "/api/infer/m?format=binary", body: bytes = b"", **fields: Any) -> HttpRequest:
    """An inference; ``fields`` are those of its header."""
    return asking("POST", path, {"nv-inferrequest": header(**fields)}, body)


def opened(request: HttpRequest) -> Opened[HttpAnswer]:
    """``request`` opened by the endpoint that its path finds."""
    methods, request.params = PATHS.find(request.path)
    return methods[request.method].open(request)


def decoded(request: HttpRequest, signature: Signature) -> tuple[Any, Any]:
    """The IR request and the reply form of an inference."""
    message = opened(request)
    assert message.action.decode is not None
    return message.action.decode(message, signature)


def answered(request: HttpRequest, signature: Signature, response: InferResponse) -> HttpAnswer:
    """``response`` as the answer to ``request``."""
    _, form = decoded(request, signature)
    return opened(request).action.encode(form, response)


def refused(request: HttpRequest, error: InferenceError, *, opens: bool = True) -> HttpAnswer:
    """``error`` as the endpoint of ``request`` writes it."""
    methods, request.params = PATHS.find(request.path)
    endpoint = methods[request.method]
    return endpoint.fail(request, endpoint.open(request) if opens else None, error)


def body(answer: HttpAnswer) -> bytes:
    return b"".join(parts_of(answer))


def status(answer: HttpAnswer) -> Any:
    """The RequestStatus of an answer."""
    return text_format.Parse(dict(answer.headers)["NV-Status"], REQUEST_STATUS())


def response_header(answer: HttpAnswer) -> Any:
    """The InferResponseHeader in the headers of an answer."""
    return text_format.Parse(dict(answer.headers)["NV-InferResponse"], RESPONSE_HEADER())
