"""GraphPipe as a client: the calls to an upstream server over HTTP and over tcp.

The original servers have one model, whatever the path. An upstream model without a name is called at ``/``,
one with a name at ``/graphpipe/{model}[/{version}]``. A message over tcp has no name. Probes request the
metadata, because the dialect has no other requests; some servers support inference alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.graphpipe import codec, metadata, writer
from interlingua.protocols.path_table import segment_of_model, segment_of_version
from interlingua.protocols.upstream_reply import CODE_OF_HTTP_STATUS
from interlingua.protocols.wire import Buffer, FramedCall, FramedReply, HttpCall, HttpReply
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

Sent = TypeVar("Sent", HttpCall, FramedCall)
Received = TypeVar("Received", HttpReply, FramedReply)

CODES = {**CODE_OF_HTTP_STATUS, 422: ErrorCode.UNREPRESENTABLE}
"""The meaning of an upstream's HTTP status; any other is BAD_UPSTREAM."""

_HEADERS: Mapping[str, str] = {"content-type": "application/octet-stream"}
_LONGEST_MESSAGE = 2000
_METADATA = {prefixed: writer.metadata_request(prefixed=prefixed) for prefixed in (False, True)}

_WITHOUT_METADATA = frozenset({400, 405, 500, 501})
"""The statuses for a ``MetadataRequest`` of servers that support inference alone. (Those of graphpipe-py's
examples close the connection.)"""

# errors of an answer that blame the sender
_FAULTS = frozenset({ErrorCode.MALFORMED, ErrorCode.INVALID_TENSOR})

_NO_METADATA = _FAULTS | {ErrorCode.UNSUPPORTED, ErrorCode.MODEL_FAILED}


@dataclass(frozen=True, slots=True)
class Pending:
    """What the answer to an inference is read with."""

    model: str
    version: str
    outputs: codec.OutputNames
    signature: Signature | None


@dataclass(frozen=True, slots=True)
class _Over(Generic[Sent, Received]):
    """A transport: ``send(model, version, parts)`` makes a request, ``receive`` gives the message of a reply,
    ``without_metadata`` is true for the reply of a server of inference alone. ``prefixed``: messages have
    their size before them. ``repeatable``: a request for metadata may be sent twice."""

    send: Callable[[str, str, Sequence[Buffer]], Sent]
    receive: Callable[[Received], Buffer]
    without_metadata: Callable[[Received], bool]
    prefixed: bool
    repeatable: bool

    def calls(self) -> Mapping[Operation, UpstreamCall[Sent, Received]]:
        probe = UpstreamCall(self._encode_metadata, self._decode_probe, optional=self.without_metadata)
        return {
            Operation.INFER: UpstreamCall(self._encode_infer, self._decode_infer, unnamed=True),
            Operation.MODEL_METADATA: replace(probe, decode=self._decode_metadata),
            **dict.fromkeys((Operation.MODEL_READY, Operation.READY, Operation.LIVE), probe),
        }

    def _encode_infer(self, request: InferRequest, signature: Signature | None) -> tuple[Sent, Pending]:
        parts = codec.encode_request(request, prefixed=self.prefixed)
        outputs = None if request.outputs is None else tuple([output.name for output in request.outputs])
        pending = Pending(request.model, request.version, outputs, signature)
        return self.send(request.model, request.version, parts), pending

    def _decode_infer(self, pending: Pending, reply: Received) -> InferResponse:
        body = self.receive(reply)
        with _reading():
            outputs = codec.decode_response(body, pending.outputs, pending.signature)
        return InferResponse(pending.model, outputs, version=pending.version)

    def _encode_metadata(
        self, model: ModelRef | None, signature: Signature | None
    ) -> tuple[Sent, ModelRef | None]:
        name, version = (model.name, model.version) if model is not None else ("", "")
        request = self.send(name, version, [_METADATA[self.prefixed]])
        request.repeatable = self.repeatable
        return request, model

    def _decode_metadata(self, model: ModelRef, reply: Received) -> ModelMetadata:
        return metadata.model_metadata(_described(self.receive(reply)), model.name)

    def _decode_probe(self, model: ModelRef | None, reply: Received) -> Readiness:
        """A server that can describe its model is ready."""
        try:
            _described(self.receive(reply))
        except InferenceError as error:
            return Readiness(False, error.message)
        return Readiness(True)


def _described(body: Buffer) -> metadata.Description:
    """The metadata in ``body``. Raises the error that is there instead."""
    failure = codec.error_of_metadata(body)
    if failure is not None:
        raise failure
    with _reading():
        return metadata.decode_metadata(body)


@contextmanager
def _reading() -> Iterator[None]:
    """An invalid answer is the upstream's fault, not the caller's."""
    try:
        yield
    except InferenceError as error:
        if error.code not in _FAULTS or isinstance(error, codec.CarriedError):
            raise
        raise bad_upstream(f"the upstream's answer: {error.message}") from error


def _is_no_metadata(body: Buffer) -> bool:
    """Whether a server of inference alone answers with ``body``: nothing, or an error for any request."""
    failure = codec.error_of_metadata(body) if len(body) else None
    return not len(body) or (failure is not None and failure.code in _NO_METADATA)


# --- over HTTP


def _post(model: str, version: str, parts: Sequence[Buffer]) -> HttpCall:
    return HttpCall("POST", _path(model, version), headers=_HEADERS, parts=parts)


@lru_cache(256)
def _path(model: str, version: str) -> str:
    if not model and version:
        raise unrepresentable(
            f"version '{version}' was requested of a GraphPipe server whose model has no name, nor versions"
        )
    if not model:
        return "/"
    path = f"/graphpipe/{segment_of_model(model)}"
    return f"{path}/{segment_of_version(version)}" if version else path


def _body(reply: HttpReply) -> Buffer:
    """The body of a success. Raises the error of any other reply, in the upstream's words."""
    if reply.status == 200:
        return reply.body
    text = bytes(reply.body[:_LONGEST_MESSAGE]).decode(errors="backslashreplace").strip()
    raise InferenceError(
        CODES.get(reply.status, ErrorCode.BAD_UPSTREAM),
        text or f"the upstream answered HTTP status {reply.status} without a message",
    )


def _without_metadata(reply: HttpReply) -> bool:
    return reply.status in _WITHOUT_METADATA or (reply.status == 200 and _is_no_metadata(reply.body))


# --- over tcp


def _frame(model: str, version: str, parts: Sequence[Buffer]) -> FramedCall:
    if model or version:
        what = f"model '{model}'" if model else f"version '{version}'"
        raise unrepresentable(
            f"{what} was requested of a GraphPipe server over tcp, which has one model without a name"
        )
    return FramedCall(parts=parts)


# a request over HTTP is not repeated: servers of inference alone may close the connection
HTTP_CALLS = _Over(_post, _body, _without_metadata, prefixed=False, repeatable=False).calls()
_TCP: _Over[FramedCall, FramedReply] = _Over(
    _frame,
    lambda reply: reply.message,
    lambda reply: _is_no_metadata(reply.message),
    prefixed=True,
    repeatable=True,
)
TCP_CALLS = _TCP.calls()
