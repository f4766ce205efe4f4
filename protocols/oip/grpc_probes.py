"""Health and metadata over gRPC, as a server and as a client, and gRPC's own health check.

One table has each method and its answer in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import Message

from interlingua.protocols.dialect import Action, GrpcEndpoint, Opened, UpstreamCall
from interlingua.protocols.oip.grpc_messages import (
    SERVICE,
    fail,
    parameter_messages,
    read_parameters,
    reader,
    serialize,
)
from interlingua.protocols.oip.metadata_parameters import read_model_parameters
from interlingua.protocols.oip.platforms import listed_platform
from interlingua.protocols.protobuf_message import parse_bounded
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    ModelMetadata,
    ModelRef,
    Operation,
    Readiness,
    ServerMetadata,
    Signature,
    TensorSpec,
    bad_upstream,
)
from interlingua.schemas.datatypes import DATATYPES
from interlingua.schemas.oip import HEALTH_MESSAGES, MESSAGES

HEALTH_CHECK = "/grpc.health.v1.Health/Check"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"

_NOT_FOUND = 5

Open = Callable[[GrpcRequest], Opened[GrpcAnswer]]
Call = UpstreamCall[GrpcRequest, GrpcAnswer]


@dataclass(frozen=True, slots=True)
class _Probe:
    """A method of the service: the result out of its answer; for a server also the ``fields`` of the answer
    out of the result."""

    rpc: str
    operation: Operation
    result: Callable[[Any], Any]
    fields: Callable[[Any], Mapping[str, Any]] | None = None

    @property
    def method(self) -> str:
        return SERVICE + self.rpc

    @property
    def request(self) -> type[Message]:
        return MESSAGES[f"inference.{self.rpc}Request"]

    @property
    def response(self) -> type[Message]:
        return MESSAGES[f"inference.{self.rpc}Response"]


def _ready_fields(state: Readiness) -> Mapping[str, Any]:
    return {"ready": state.ready}


def _ready(answer: Any) -> Readiness:
    return Readiness(answer.ready)


def _server_metadata_fields(metadata: ServerMetadata) -> Mapping[str, Any]:
    return {"name": metadata.name, "version": metadata.version, "extensions": metadata.extensions}


def _server_metadata(answer: Any) -> ServerMetadata:
    return ServerMetadata(answer.name, answer.version, tuple(answer.extensions))


def _model_metadata_fields(metadata: ModelMetadata) -> Mapping[str, Any]:
    return {
        "name": metadata.name,
        "versions": metadata.versions,
        "platform": listed_platform(metadata.platform),
        "inputs": [_spec_fields(spec) for spec in metadata.signature.inputs],
        "outputs": [_spec_fields(spec) for spec in metadata.signature.outputs],
    }


def _model_metadata(answer: Any) -> ModelMetadata:
    signature = Signature(_specs(answer.inputs), _specs(answer.outputs))
    return ModelMetadata(answer.name, signature, tuple(answer.versions), answer.platform)


def _spec_fields(spec: TensorSpec) -> Mapping[str, Any]:
    return {
        "name": spec.name,
        "datatype": spec.datatype.value,
        "shape": spec.shape,
        "parameters": parameter_messages(spec.parameters),
    }


def _specs(given: Iterable[Any]) -> tuple[TensorSpec, ...]:
    specs: list[TensorSpec] = []
    for tensor in given:
        datatype = DATATYPES.get(tensor.datatype)
        if datatype is None:
            raise bad_upstream(f"tensor '{tensor.name}' has the unknown datatype '{tensor.datatype}'")
        parameters = read_parameters(tensor.parameters)
        specs.append(TensorSpec(tensor.name, datatype, tuple(tensor.shape), parameters=parameters))
    return tuple(specs)


_PROBES = (
    _Probe(
        "ServerLive",
        Operation.LIVE,
        lambda answer: Readiness(answer.live),
        lambda state: {"live": state.ready},
    ),
    _Probe("ServerReady", Operation.READY, _ready, _ready_fields),
    # an unknown model is not ready, not an error: tritonclient would raise one
    _Probe("ModelReady", Operation.MODEL_READY, _ready, _ready_fields),
    _Probe("ServerMetadata", Operation.SERVER_METADATA, _server_metadata, _server_metadata_fields),
    _Probe("ModelMetadata", Operation.MODEL_METADATA, _model_metadata, _model_metadata_fields),
    _Probe("ModelConfig", Operation.MODEL_CONFIG, lambda answer: answer.config.SerializeToString()),
)


def _opener(
    operation: Operation,
    request: type[Message],
    response: type[Message],
    fields: Callable[[Any], Mapping[str, Any]],
    *,
    watched: bool = False,
) -> Open:
    def encode(opened: Opened[GrpcAnswer], result: Any) -> GrpcAnswer:
        return GrpcAnswer(serialize(response, **fields(result)))

    action: Action[GrpcAnswer] = Action(operation, encode, watched=watched)
    of_a_model = "version" in request.DESCRIPTOR.fields_by_name

    def open_message(given: GrpcRequest) -> Opened[GrpcAnswer]:
        message = parse_bounded(request, given.message)
        return Opened(action, message.name, message.version) if of_a_model else Opened(action)

    return open_message


_HEALTH_REQUEST = HEALTH_MESSAGES["grpc.health.v1.HealthCheckRequest"]
_HEALTH_RESPONSE = HEALTH_MESSAGES["grpc.health.v1.HealthCheckResponse"]


def _health_fields(state: Readiness) -> Mapping[str, Any]:
    return {"status": "SERVING" if state.ready else "NOT_SERVING"}


OPENERS: tuple[tuple[str, Operation, Open], ...] = (
    *(
        (
            probe.method,
            probe.operation,
            _opener(probe.operation, probe.request, probe.response, probe.fields),
        )
        for probe in _PROBES
        if probe.fields is not None
    ),
    # like Triton: the server's readiness, whatever service is named
    (
        HEALTH_CHECK,
        Operation.READY,
        _opener(Operation.READY, _HEALTH_REQUEST, _HEALTH_RESPONSE, _health_fields),
    ),
)
"""Methods, with their operation and what opens a request."""

HEALTH_WATCH_ENDPOINT = GrpcEndpoint(
    HEALTH_WATCH,
    _opener(Operation.READY, _HEALTH_REQUEST, _HEALTH_RESPONSE, _health_fields, watched=True),
    fail,
    streaming=True,
    operations=(Operation.READY,),
)


def _call(probe: _Probe) -> Call:
    def encode(argument: ModelRef | None, signature: Signature | None) -> tuple[GrpcRequest, None]:
        named = {} if argument is None else {"name": argument.name, "version": argument.version}
        return GrpcRequest(probe.method, serialize(probe.request, **named)), None

    @reader
    def decode(form: None, message: Buffer) -> Any:
        result = probe.result(parse_bounded(probe.response, message))
        if isinstance(result, ModelMetadata):
            return replace(result, parameters=read_model_parameters(message))
        return result

    return UpstreamCall(encode, decode)


def _tolerant(call: Call) -> Call:
    """``call``, where an unknown model is not ready: KServe and OpenVINO Model Server answer NOT_FOUND."""

    def decode(form: None, answer: GrpcAnswer) -> Any:
        if answer.code == _NOT_FOUND:
            return Readiness(False, answer.details)
        return call.decode(form, answer)

    return UpstreamCall(call.encode, decode)


CALLS: dict[Operation, Call] = {probe.operation: _call(probe) for probe in _PROBES}
CALLS[Operation.MODEL_READY] = _tolerant(CALLS[Operation.MODEL_READY])
