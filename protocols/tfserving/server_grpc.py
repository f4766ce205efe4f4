"""The gRPC methods of the dialect."""

from __future__ import annotations

from functools import partial

from interlingua.protocols.dialect import Action, GrpcEndpoint, Opened
from interlingua.protocols.protobuf_message import parse_bounded
from interlingua.protocols.tfserving.classify import open_examples
from interlingua.protocols.tfserving.codec import NO_MODEL_SPEC
from interlingua.protocols.tfserving.codec_grpc import METHOD
from interlingua.protocols.tfserving.grpc_messages import (
    MODEL_SERVICE,
    PREDICTION_SERVICE,
    fail,
    message_of,
    model_of,
)
from interlingua.protocols.tfserving.metadata import SIGNATURE_DEF, version_described, write_metadata
from interlingua.protocols.tfserving.passthrough_grpc import open_predict
from interlingua.protocols.tfserving.reload import fail_reload, open_reload
from interlingua.protocols.tfserving.status import states, write_message
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import ModelMetadata, Operation, Readiness, ServerStatus, invalid_tensor

_INVALID_ARGUMENT, _UNAVAILABLE = 3, 14


def _encode_metadata(opened: Opened[GrpcAnswer], metadata: ModelMetadata) -> GrpcAnswer:
    return GrpcAnswer(write_metadata(metadata, version_described(metadata, opened.version)))


def _encode_status(opened: Opened[GrpcAnswer], status: ServerStatus) -> GrpcAnswer:
    return GrpcAnswer(write_message(states(status, opened.model, opened.version)))


def _encode_ready(opened: Opened[GrpcAnswer], state: Readiness) -> GrpcAnswer:
    """A request for the status of no model shows that the server answers: as there, it is an error."""
    if state.ready:
        return GrpcAnswer(code=_INVALID_ARGUMENT, details=NO_MODEL_SPEC)
    return GrpcAnswer(code=_UNAVAILABLE, details=state.reason)


_METADATA: Action[GrpcAnswer] = Action(Operation.MODEL_METADATA, _encode_metadata)
_STATUS: Action[GrpcAnswer] = Action(Operation.STATUS, _encode_status)
_READY: Action[GrpcAnswer] = Action(Operation.READY, _encode_ready)


def _open_metadata(request: GrpcRequest) -> Opened[GrpcAnswer]:
    message = parse_bounded(message_of("GetModelMetadataRequest"), request.message)
    model, version, _ = model_of(message)
    if not message.metadata_field:
        raise invalid_tensor("GetModelMetadataRequest must specify at least one metadata_field")
    for field in message.metadata_field:
        if field != SIGNATURE_DEF:
            raise invalid_tensor(f"Metadata field {field} is not supported")
    return Opened(_METADATA, model, version)


def _open_status(request: GrpcRequest) -> Opened[GrpcAnswer]:
    message = parse_bounded(message_of("GetModelStatusRequest"), request.message)
    if not message.HasField("model_spec"):
        return Opened(_READY)
    model, version, _ = model_of(message)
    return Opened(_STATUS, model, version)


GRPC_ENDPOINTS: tuple[GrpcEndpoint, ...] = (
    GrpcEndpoint(METHOD, open_predict, fail, operations=(Operation.INFER,)),
    *(
        GrpcEndpoint(
            f"{PREDICTION_SERVICE}{rpc}", partial(open_examples, rpc), fail, operations=(Operation.INFER,)
        )
        for rpc in ("Classify", "Regress", "MultiInference")
    ),
    GrpcEndpoint(
        f"{PREDICTION_SERVICE}GetModelMetadata", _open_metadata, fail, operations=(Operation.MODEL_METADATA,)
    ),
    GrpcEndpoint(
        f"{MODEL_SERVICE}GetModelStatus", _open_status, fail, operations=(Operation.READY, Operation.STATUS)
    ),
    GrpcEndpoint(
        f"{MODEL_SERVICE}HandleReloadConfigRequest",
        open_reload,
        fail_reload,
        operations=(Operation.MODELS_RELOAD,),
    ),
)
