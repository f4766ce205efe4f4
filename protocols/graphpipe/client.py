"""GraphPipe as a client: the calls to an upstream server over HTTP and over tcp, and what its answers mean.

The original servers know one model, whatever the path: an upstream model without a name is asked at
``/``, one with a name at ``/graphpipe/{model}[/{version}]``. Over tcp there is no place for a name. Probes
ask for the metadata, since the dialect has nothing else to ask; some servers know inference alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.graphpipe import codec, metadata, writer
from interlingua.protocols.upstream_reply import CODE_OF_HTTP_STATUS
from interlingua.protocols.wire import Buffer, FramedReply, FramedRequest, HttpCall, HttpReply
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Readiness,
    Signature,
    bad_upstream,
    unrepresentable,
)

CODES = {**CODE_OF_HTTP_STATUS, 422: ErrorCode.UNREPRESENTABLE}
"""What an upstream's HTTP status means; any other is BAD_UPSTREAM."""

_HEADERS: Mapping[str, str] = {"content-type": "application/octet-stream"}
_LONGEST_MESSAGE = 2000
_METADATA_REQUEST = writer.metadata_request()
_METADATA_FRAME = writer.metadata_request(prefixed=True)

_WITHOUT_METADATA = frozenset({400, 405, 500, 501})
"""How servers over HTTP answer a ``MetadataRequest`` that know inference alone. (Those of graphpipe-py's
examples close the connection.)"""

# faults of an answer that would be the caller's in a request
_FAULTS = frozenset({ErrorCode.MALFORMED, ErrorCode.INVALID_TENSOR})

_NO_QUESTION = _FAULTS | {ErrorCode.UNSUPPORTED, ErrorCode.MODEL_FAILED}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the answer to an inference must be read with."""

    model: str
    version: str
    outputs: codec.OutputNames
    signature: Signature | None


def _asked(request: InferRequest, signature: Signature | None) -> _Asked:
    outputs = None if request.outputs is None else tuple([output.name for output in request.outputs])
    return _Asked(request.model, request.version, outputs, signature)


def _answered(asked: _Asked, body: Buffer) -> InferResponse:
    with _reading():
        outputs = codec.decode_response(body, asked.outputs, asked.signature)
    return InferResponse(asked.model, outputs, version=asked.version)


def _described(body: Buffer) -> metadata.Description:
    """The metadata in ``body``. Raises the error that stands in their place."""
    failure = codec.error_of_metadata(body)
    if failure is not None:
        raise failure
    with _reading():
        return metadata.decode_metadata(body)


def _probed(tell: Callable[[], object]) -> Readiness:
    """A server is as ready as it can ``tell`` of its model."""
    try:
        tell()
    except InferenceError as error:
        return Readiness(False, error.message)
    return Readiness(True)


def _is_no_metadata(body: Buffer) -> bool:
    """Whether ``body`` is what a server of inference alone answers: nothing, or an error of any request."""
    failure = codec.error_of_metadata(body) if len(body) else None
    return not len(body) or (failure is not None and failure.code in _NO_QUESTION)


# --- over HTTP


def _tells_nothing(reply: HttpReply) -> bool:
    return reply.status in _WITHOUT_METADATA or (reply.status == 200 and _is_no_metadata(reply.body))


def _encode_infer(request: InferRequest, signature: Signature | None) -> tuple[HttpCall, _Asked]:
    message = _post(request.model, request.version, codec.encode_request(request))
    return message, _asked(request, signature)


def _decode_infer(asked: _Asked, reply: HttpReply) -> InferResponse:
    return _answered(asked, _body(reply))


def _encode_metadata(model: ModelRef, signature: Signature | None) -> tuple[HttpCall, ModelRef]:
    return _post(model.name, model.version, [_METADATA_REQUEST]), model


def _decode_metadata(model: ModelRef, reply: HttpReply) -> ModelMetadata:
    return metadata.model_metadata(_described(_body(reply)), model.name)


def _encode_probe(model: ModelRef | None, signature: Signature | None) -> tuple[HttpCall, None]:
    name, version = (model.name, model.version) if model is not None else ("", "")
    return _post(name, version, [_METADATA_REQUEST]), None


def _decode_probe(form: None, reply: HttpReply) -> Readiness:
    return _probed(lambda: _described(_body(reply)))


def _post(model: str, version: str, parts: Sequence[Buffer]) -> HttpCall:
    if not model and version:
        raise unrepresentable(
            f"version '{version}' was asked of a GraphPipe server whose model has no name, nor versions"
        )
    segments = ["graphpipe", model, version] if model else []
    path = "/" + "/".join(quote(segment, safe="") for segment in segments if segment)
    return HttpCall("POST", path, headers=_HEADERS, parts=parts)


def _body(reply: HttpReply) -> Buffer:
    """The body of a success; raises what any other reply says, in the upstream's words."""
    if reply.status == 200:
        return reply.body
    text = bytes(reply.body[:_LONGEST_MESSAGE]).decode(errors="backslashreplace").strip()
    raise InferenceError(
        CODES.get(reply.status, ErrorCode.BAD_UPSTREAM),
        text or f"the upstream answered HTTP status {reply.status} without a message",
    )


# --- over tcp


def _tells_nothing_in_band(reply: FramedReply) -> bool:
    return _is_no_metadata(reply.message)


def _frame_infer(request: InferRequest, signature: Signature | None) -> tuple[FramedRequest, _Asked]:
    _refuse_name(request.model, request.version)
    return FramedRequest(parts=codec.encode_request(request, prefixed=True)), _asked(request, signature)


def _unframe_infer(asked: _Asked, reply: FramedReply) -> InferResponse:
    return _answered(asked, reply.message)


def _frame_metadata(model: ModelRef, signature: Signature | None) -> tuple[FramedRequest, ModelRef]:
    return _frame_probe(model, signature)[0], model


def _unframe_metadata(model: ModelRef, reply: FramedReply) -> ModelMetadata:
    return metadata.model_metadata(_described(reply.message), model.name)


def _frame_probe(model: ModelRef | None, signature: Signature | None) -> tuple[FramedRequest, None]:
    if model is not None:
        _refuse_name(model.name, model.version)
    return FramedRequest(parts=[_METADATA_FRAME], repeatable=True), None


def _unframe_probe(form: None, reply: FramedReply) -> Readiness:
    return _probed(lambda: _described(reply.message))


def _refuse_name(model: str, version: str) -> None:
    if model or version:
        what = f"model '{model}'" if model else f"version '{version}'"
        raise unrepresentable(
            f"{what} was asked of a GraphPipe server over tcp, which has one model and no place for a name"
        )


@contextmanager
def _reading() -> Iterator[None]:
    """Whatever is wrong with an answer is the upstream's fault, not the caller's."""
    try:
        yield
    except InferenceError as error:
        if error.code not in _FAULTS or isinstance(error, codec.CarriedError):
            raise
        raise bad_upstream(f"the upstream's answer: {error.message}") from error


_PROBE = UpstreamCall(_encode_probe, _decode_probe, optional=_tells_nothing)
_TCP_PROBE = UpstreamCall(_frame_probe, _unframe_probe, optional=_tells_nothing_in_band)

HTTP_CALLS: Mapping[Operation, UpstreamCall[HttpCall, HttpReply]] = {
    Operation.INFER: UpstreamCall(_encode_infer, _decode_infer, unnamed=True),
    Operation.MODEL_METADATA: UpstreamCall(_encode_metadata, _decode_metadata, optional=_tells_nothing),
    Operation.MODEL_READY: _PROBE,
    Operation.READY: _PROBE,
    Operation.LIVE: _PROBE,
}
"""The calls over HTTP."""

TCP_CALLS: Mapping[Operation, UpstreamCall[FramedRequest, FramedReply]] = {
    Operation.INFER: UpstreamCall(_frame_infer, _unframe_infer, unnamed=True),
    Operation.MODEL_METADATA: UpstreamCall(
        _frame_metadata, _unframe_metadata, optional=_tells_nothing_in_band
    ),
    Operation.MODEL_READY: _TCP_PROBE,
    Operation.READY: _TCP_PROBE,
    Operation.LIVE: _TCP_PROBE,
}
"""The calls over tcp."""
