"""Prediction with custom bodies: a model gets an HTTP request and writes the answer.

The inputs of such a model are any of :data:`INPUTS`, one BYTES element each. Its output ``http_body`` is the
body, or one chunk of a stream; ``http_status``, ``http_content_type`` and ``http_headers`` (a JSON object)
count in the first response.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NoReturn

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.grps.status import words
from interlingua.protocols.json_document import parse_json
from interlingua.protocols.wire import Buffer, HttpAnswer, HttpRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
    invalid_tensor,
    pack_bytes,
)


def _headers_of(request: HttpRequest) -> bytes:
    joined: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return json.dumps(joined).encode()


HEADERS = "http_headers"

INPUTS: Mapping[str, Callable[[HttpRequest], bytes]] = {
    "http_method": lambda request: request.method.encode(),
    "http_path": lambda request: request.path.encode(errors="surrogateescape"),
    "http_query": lambda request: request.query.encode(errors="surrogateescape"),
    HEADERS: _headers_of,
    "http_body": lambda request: bytes(request.body),
}
"""Parts of a request by the name of the input: percent-escapes stay, headers are a JSON object of lower-case
names, with values of the same name joined by commas."""

_STATUS: Mapping[ErrorCode, int] = {
    ErrorCode.MALFORMED: 400,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.DEADLINE_EXCEEDED: 504,
}
"""The HTTP status of an error, 500 for any other, the only one of the original servers."""

_TEXT = "text/plain"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OF_THE_TRANSPORT = frozenset({"connection", "content-length", "content-type", "transfer-encoding"})


@dataclass(slots=True)
class _Answering:
    """The answer so far. ``stream_type`` is the content type of a stream, empty for a whole answer."""

    stream_type: str
    status: int = 200
    content_type: str = _TEXT
    headers: tuple[tuple[str, str], ...] = ()
    begun: bool = False
    body: list[Buffer] = field(default_factory=list)

    def begin(self, outputs: Mapping[str, Tensor]) -> None:
        """Take status and headers from the first response."""
        if self.begun:
            return
        self.begun = True
        if "http_status" in outputs:
            self.status = _status(outputs["http_status"])
        if "http_content_type" in outputs:
            self.content_type = _value("Content-Type", _text(outputs["http_content_type"]))
        if "http_headers" in outputs:
            self.headers = _headers(outputs["http_headers"])


def whole_request_action(stream_type: str = "") -> Action[HttpAnswer]:
    """Prediction with an answer in chunks of the content type ``stream_type``, or a whole answer if it is
    empty."""

    def decode(opened: Opened[HttpAnswer], signature: Signature) -> tuple[InferRequest, _Answering]:
        request: HttpRequest = opened.message
        inputs = tuple(
            _input(spec, request, opened.model)
            for spec in signature.inputs
            if spec.name in INPUTS or not spec.optional
        )
        return InferRequest(opened.model, inputs), _Answering(stream_type)

    encode = _encode_chunk if stream_type else _encode_whole
    return Action(Operation.INFER_STREAM, encode, decode, collects=not stream_type)


def fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    """``error`` as a line of text."""
    headers = (("Content-Type", _TEXT),)
    return HttpAnswer(_STATUS.get(error.code, 500), headers, [_error_text(error)])


def _input(spec: TensorSpec, request: HttpRequest, model: str) -> Tensor:
    if spec.name not in INPUTS:
        _refuse(model, f"its input '{spec.name}' is none of {', '.join(INPUTS)}")
    shape = tuple(1 if side == -1 else side for side in spec.shape)
    if spec.datatype is not Datatype.BYTES or prod(shape) != 1:
        _refuse(model, f"its input '{spec.name}' is not one BYTES element")
    return Tensor(spec.name, Datatype.BYTES, shape, memoryview(pack_bytes([INPUTS[spec.name](request)])))


def _refuse(model: str, why: str) -> NoReturn:
    raise invalid_tensor(f"model '{model}' cannot take an HTTP request: {why}")


def _encode_whole(form: _Answering, response: InferResponse) -> HttpAnswer | None:
    if response.error is not None:
        raise response.error
    outputs = {tensor.name: tensor for tensor in response.outputs}
    if outputs:
        form.begin(outputs)
    form.body += _body(outputs)
    if not response.final:
        return None
    return HttpAnswer(form.status, (("Content-Type", form.content_type), *form.headers), form.body)


def _encode_chunk(form: _Answering, response: InferResponse) -> HttpAnswer:
    if response.error is not None:
        # the status line is already sent
        return HttpAnswer(200, (("Content-Type", form.stream_type),), [_error_text(response.error)])
    outputs = {tensor.name: tensor for tensor in response.outputs}
    if outputs:
        form.begin(outputs)
    headers = (("Content-Type", form.stream_type), *form.headers)
    return HttpAnswer(form.status, headers, [b"".join(_body(outputs))] if "http_body" in outputs else [])


def _body(outputs: Mapping[str, Tensor]) -> list[bytes]:
    return outputs["http_body"].elements() if "http_body" in outputs else []


def _status(tensor: Tensor) -> int:
    numbers = tensor.numpy().ravel().tolist() if tensor.datatype is not Datatype.BYTES else []
    if len(numbers) != 1 or not isinstance(numbers[0], int) or not 200 <= numbers[0] <= 599:
        _badly_written(f"http_status is {numbers}, not one number from 200 to 599")
    return numbers[0]


def _headers(tensor: Tensor) -> tuple[tuple[str, str], ...]:
    try:
        document: Any = parse_json(_text(tensor).encode())
    except InferenceError as error:
        _badly_written(f"http_headers: {error.message}")
    if not isinstance(document, dict):
        _badly_written("http_headers is no JSON object")
    for name in document:
        if _NAME.fullmatch(name) is None or name.lower() in _OF_THE_TRANSPORT:
            _badly_written(f"{name!a} is no header that a model may set")
    return tuple((name, _value(name, value)) for name, value in document.items())


def _value(name: str, value: Any) -> str:
    if not isinstance(value, str) or _VALUE.fullmatch(value) is None:
        _badly_written(f"the value of header {name!a} is no text that a header may have")
    return value


def _text(tensor: Tensor) -> str:
    elements = tensor.elements() if tensor.datatype is Datatype.BYTES else []
    try:
        (element,) = elements
        return element.decode()
    except (ValueError, UnicodeDecodeError):
        _badly_written(f"output '{tensor.name}' is not one element of text")


def _badly_written(why: str) -> NoReturn:
    raise InferenceError(ErrorCode.MODEL_FAILED, f"the model wrote no HTTP answer: {why}")


def _error_text(error: InferenceError) -> bytes:
    return words(error).encode(errors="backslashreplace")
