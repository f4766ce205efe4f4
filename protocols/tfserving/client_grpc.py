"""gRPC calls to an upstream, and its answers."""

from __future__ import annotations

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.protobuf_message import parse_bounded
from interlingua.protocols.tfserving.codec import CODE_OF_GRPC_STATUS
from interlingua.protocols.tfserving.grpc_messages import (
    MODEL_SERVICE,
    PREDICTION_SERVICE,
    message_of,
    reader,
    serialize,
    spec_of,
)
from interlingua.protocols.tfserving.metadata import SIGNATURE_DEF, read_metadata
from interlingua.protocols.tfserving.status import read_message, readiness, status_of
from interlingua.protocols.upstream_reply import grpc_error
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import ModelMetadata, ModelRef, Readiness, ServerMetadata, ServerStatus, Signature

Call = UpstreamCall[GrpcRequest, GrpcAnswer]

_STATUS = f"{MODEL_SERVICE}GetModelStatus"
_INVALID_ARGUMENT, _NOT_FOUND = 3, 5
_REFUSED = frozenset({0, _INVALID_ARGUMENT, _NOT_FOUND})


def _encode_alive(argument: None, signature: Signature | None) -> tuple[GrpcRequest, None]:
    return GrpcRequest(_STATUS, b""), None


def _decode_alive(form: None, answer: GrpcAnswer) -> Readiness:
    """A server refuses a request that names no model, which shows that it answers."""
    if answer.code in _REFUSED:
        return Readiness(True)
    return Readiness(False, answer.details)


def _decode_server(form: None, answer: GrpcAnswer) -> ServerMetadata:
    """Any server of the dialect. Raises its error, UNSUPPORTED for a server of another dialect."""
    if answer.code in _REFUSED:
        return ServerMetadata("tensorflow", "")
    raise grpc_error(answer, CODE_OF_GRPC_STATUS)


def _encode_status(model: ModelRef, signature: Signature | None) -> tuple[GrpcRequest, ModelRef]:
    message = serialize(message_of("GetModelStatusRequest"), model_spec=spec_of(model.name, model.version))
    return GrpcRequest(_STATUS, message), model


def _decode_status(model: ModelRef, answer: GrpcAnswer) -> Readiness:
    if answer.code == _NOT_FOUND:
        return Readiness(False, answer.details)
    return _read_status(model, answer)


@reader
def _read_status(model: ModelRef, message: Buffer) -> Readiness:
    return readiness(model, read_message(parse_bounded(message_of("GetModelStatusResponse"), message)))


@reader
def _decode_versions(model: ModelRef, message: Buffer) -> ServerStatus:
    return status_of(model.name, read_message(parse_bounded(message_of("GetModelStatusResponse"), message)))


def _encode_metadata(model: ModelRef, signature: Signature | None) -> tuple[GrpcRequest, ModelRef]:
    spec = spec_of(model.name, model.version)
    message = serialize(
        message_of("GetModelMetadataRequest"), model_spec=spec, metadata_field=[SIGNATURE_DEF]
    )
    return GrpcRequest(f"{PREDICTION_SERVICE}GetModelMetadata", message), model


@reader
def _decode_metadata(model: ModelRef, message: Buffer) -> ModelMetadata:
    return read_metadata(model.name, message)


SERVER_CALL: Call = UpstreamCall(_encode_alive, _decode_server)
ALIVE_CALL: Call = UpstreamCall(_encode_alive, _decode_alive)
READY_CALL: Call = UpstreamCall(_encode_status, _decode_status)
STATUS_CALL: Call = UpstreamCall(_encode_status, _decode_versions)
METADATA_CALL: Call = UpstreamCall(_encode_metadata, _decode_metadata)
