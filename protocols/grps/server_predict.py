"""Predict over HTTP: the payload and model of a request, and the form of its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.grps import outcome, whole_request
from interlingua.protocols.grps.codec import GrpsReplyForm, decode_request, encode_response
from interlingua.protocols.grps.codec_json import read_body
from interlingua.protocols.grps.flavors import Flavor
from interlingua.protocols.grps.json_quirks import QUIRKS
from interlingua.protocols.grps.json_writer import write_message
from interlingua.protocols.grps.message import GrpsMessage, Kind
from interlingua.protocols.grps.options import PredictOptions, is_true, query_of
from interlingua.protocols.grps.passthrough import PASSTHROUGH, Call
from interlingua.protocols.wire import CHALLENGE, Buffer, Headers, HttpAnswer, HttpRequest
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Signature,
    malformed,
)
from interlingua.schemas.bounded_text import shortened

_JSON = "application/json"
_OCTETS = "application/octet-stream"


def json_answer(flavor: Flavor, message: GrpsMessage) -> HttpAnswer:
    """``message`` as the whole answer, in JSON."""
    status = message.status.code if flavor.mirrors and message.status else 200
    headers: Headers = (("Content-Type", flavor.json_type),)
    if status == 401:
        headers = (*headers, *CHALLENGE)
    return HttpAnswer(status, headers, [write_message(message, QUIRKS[flavor.name])])


def uncoded_json(request: HttpRequest) -> Buffer:
    """The body of a request in JSON. Raises MALFORMED for one that has a content coding, which it names."""
    coding = request.headers.get("content-encoding")
    if coding and coding != "identity":
        raise malformed(f"the body is not JSON: this path takes no Content-Encoding, not {shortened(coding)}")
    return request.body


class Predict:
    """The endpoint of predict in one flavor, on any path. ``json_of`` returns a body in JSON, as it is
    decoded."""

    def __init__(
        self,
        flavor: Flavor,
        options: PredictOptions,
        json_of: Callable[[HttpRequest], Buffer] = uncoded_json,
    ) -> None:
        self._flavor = flavor
        self._quirks = QUIRKS[flavor.name]
        self._options = options
        self._json_of = json_of
        stream_type = options.streaming.content_type
        if flavor.names_charset and stream_type.startswith("text/") and "charset" not in stream_type:
            stream_type += "; charset=utf-8"
        self._stream_headers: Headers = (("Content-Type", stream_type),)
        self._infer: Action[HttpAnswer] = Action(
            Operation.INFER, self._encode, self._decode, passthrough=PASSTHROUGH
        )
        self._stream: Action[HttpAnswer] = Action(Operation.INFER_STREAM, self._encode_piece, self._decode)
        self._whole = whole_request.whole_request_action()
        self._whole_stream = whole_request.whole_request_action(stream_type)

    def open(self, request: HttpRequest) -> Opened[HttpAnswer]:
        """Read the payload and choose the form of the answer. Raises ``InferenceError``."""
        query = query_of(request)
        if self._options.whole_request:
            streams = self._asks_for_stream(request, query, self._json_or_none(request))
            action = self._whole_stream if streams else self._whole
            return Opened(action, query.get("model", ""), message=request)
        kind = self._content_type(request)
        document, read = None, None
        if kind == _JSON and request.body:
            document, read = read_body(self._json_of(request), self._quirks)
        streams = self._asks_for_stream(request, query, document)
        ndarray = is_true(query.get("return-ndarray", ""))
        if streams and ndarray:
            raise outcome.bad_request(
                "Bad Request, err: Streaming and ret ndarray are not supported at the same time.",
                in_stream=False,
            )
        if kind == _OCTETS:
            message = GrpsMessage(Kind.BIN_DATA, bin_data=request.body)
        elif read is None:
            raise outcome.bad_request(self._flavor.empty_body)
        elif isinstance(read, InferenceError):
            try:
                raise read
            finally:
                del read  # its traceback refers to this frame
        else:
            message = read
        model = message.model or query.get("model", "")
        action = self._stream if streams else self._infer
        return Opened(action, model, message=Call(message, self._written, ndarray))

    def fail(
        self, request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError
    ) -> HttpAnswer:
        """``error`` in the form of the answer."""
        if self._options.whole_request:
            if opened is not None and opened.model and error.code is ErrorCode.NOT_FOUND:
                error = InferenceError(error.code, self._flavor.unknown_model.format(shortened(opened.model)))
            return whole_request.fail(request, opened, error)
        operation, model = (opened.action.operation, opened.model) if opened else (None, "")
        message = outcome.failed(self._flavor, error, operation, model)
        if operation is Operation.INFER_STREAM or (
            opened is None and self._refused_in_stream(request, error)
        ):
            return HttpAnswer(200, self._stream_headers, _one(self._piece(message)))
        return json_answer(self._flavor, message)

    # --- the request

    def _content_type(self, request: HttpRequest) -> str:
        """The media type without its parameters, which the original servers refuse."""
        given = request.headers.get("content-type", "")
        kind = given.partition(";")[0].strip().lower()
        if kind in (_JSON, _OCTETS):
            return kind
        text = self._flavor.wrong_content_type if given else self._flavor.no_content_type
        raise outcome.bad_request(text, in_stream=False)

    def _asks_for_stream(self, request: HttpRequest, query: Mapping[str, str], document: Any) -> bool:
        return self._options.streaming.requested(request, query, document)

    def _json_or_none(self, request: HttpRequest) -> Any:
        """The body if it may have the flag of a stream; None if it is not JSON."""
        if self._options.streaming.place != "body_param":
            return None
        try:
            return read_body(request.body, self._quirks)[0]
        except InferenceError:
            return None

    def _refused_in_stream(self, request: HttpRequest, error: InferenceError) -> bool:
        """Whether the error of a request that was not understood goes to the requested stream."""
        if not self._flavor.streams_refusals or not outcome.in_stream(error):
            return False
        return self._asks_for_stream(request, query_of(request), None)

    def _decode(self, opened: Opened[HttpAnswer], signature: Signature) -> tuple[InferRequest, GrpsReplyForm]:
        call: Call = opened.message
        return decode_request(
            call.message,
            signature,
            model=opened.model,
            return_ndarray=call.ndarray,
            first_tensor_only=self._flavor.first_tensor_only,
        )

    # --- the answer

    def _encode(self, form: GrpsReplyForm, response: InferResponse) -> HttpAnswer:
        return self._written(encode_response(form, response))

    def _written(self, message: GrpsMessage) -> HttpAnswer:
        # one server writes an empty one in JSON
        if message.kind is Kind.BIN_DATA and (len(message.bin_data) or not self._flavor.mirrors):
            return HttpAnswer(200, (("Content-Type", _OCTETS),), [message.bin_data])
        return json_answer(self._flavor, message)

    def _encode_piece(self, form: GrpsReplyForm, response: InferResponse) -> HttpAnswer:
        """One chunk; none for the bare final flag."""
        if response.error is not None:
            message = outcome.failed(self._flavor, response.error)
        elif response.outputs or not response.final:
            message = encode_response(form, response)
        else:
            return HttpAnswer(200, self._stream_headers)
        return HttpAnswer(200, self._stream_headers, [self._piece(message)])

    def _piece(self, message: GrpsMessage) -> Buffer:
        """A message of a stream; only its chunk delimits it."""
        if message.kind is Kind.BIN_DATA:
            return message.bin_data
        return write_message(message, self._quirks, self._flavor.piece_indent)


async def _one(piece: Buffer) -> AsyncIterator[Buffer]:
    yield piece
