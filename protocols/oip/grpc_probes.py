"""Health and metadata over gRPC, as a server and as a client, and gRPC's own health check.

One table says what each method asks and how its answer looks in both directions. These messages are
too small for any cunning: protobuf reads and writes them whole.
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
    unwritable,
)
from interlingua.protocols.oip.metadata_parameters import read_model_parameters
from interlingua.protocols.oip.platforms import listed_platform
from interlingua.protocols.protobuf_message import parse
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
    """A method of the service: the operation's result out of its answer; and, for a server, the
    ``fields`` of the answer out of the result."""

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


def _ready(told: Any) -> Readiness:
    return Readiness(told.ready)


def _server_metadata_fields(metadata: ServerMetadata) -> Mapping[str, Any]:
    return {"name": metadata.name, "version": metadata.version, "extensions": metadata.extensions}


def _server_metadata(told: Any) -> ServerMetadata:
    return ServerMetadata(told.name, told.version, tuple(told.extensions))


def _model_metadata_fields(metadata: ModelMetadata) -> Mapping[str, Any]:
    return {
        "name": metadata.name,
        "versions": metadata.versions,
        "platform": listed_platform(metadata.platform),
        "inputs": [_spec_fields(spec) for spec in metadata.signature.inputs],
        "outputs": [_spec_fields(spec) for spec in metadata.signature.outputs],
    }


def _model_metadata(told: Any) -> ModelMetadata:
    signature = Signature(_specs(told.inputs), _specs(told.outputs))
    return ModelMetadata(told.name, signature, tuple(told.versions), told.platform)


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
        lambda told: Readiness(told.live),
        lambda state: {"live": state.ready},
    ),
    _Probe("ServerReady", Operation.READY, _ready, _ready_fields),
    # a model that is not known is not ready, and no error: tritonclient would raise one
    _Probe("ModelReady", Operation.MODEL_READY, _ready, _ready_fields),
    _Probe("ServerMetadata", Operation.SERVER_METADATA, _server_metadata, _server_metadata_fields),
    _Probe("ModelMetadata", Operation.MODEL_METADATA, _model_metadata, _model_metadata_fields),
    _Probe("ModelConfig", Operation.MODEL_CONFIG, lambda told: told.config.SerializeToString()),
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
        try:
            return GrpcAnswer(response(**fields(result)).SerializeToString())
        except ValueError as error:
            raise unwritable(error) from error

    action: Action[GrpcAnswer] = Action(operation, encode, watched=watched)
    of_a_model = "version" in request.DESCRIPTOR.fields_by_name

    def open_message(asked: GrpcRequest) -> Opened[GrpcAnswer]:
        message = parse(request, asked.message)
        return Opened(action, message.name, message.version) if of_a_model else Opened(action)

    return open_message


_HEALTH_REQUEST = HEALTH_MESSAGES["grpc.health.v1.HealthCheckRequest"]
_HEALTH_RESPONSE = HEALTH_MESSAGES["grpc.health.v1.HealthCheckResponse"]


def _health_fields(state: Readiness) -> Mapping[str, Any]:
    return {"status": "SERVING" if state.ready else "NOT_SERVING"}


OPENERS: Mapping[str, Open] = {
    **{
        probe.method: _opener(probe.operation, probe.request, probe.response, probe.fields)
        for probe in _PROBES
        if probe.fields is not None
    },
    # like Triton: the server's readiness, whatever service is named
    HEALTH_CHECK: _opener(Operation.READY, _HEALTH_REQUEST, _HEALTH_RESPONSE, _health_fields),
}
"""What opens a request, by method."""

HEALTH_WATCH_ENDPOINT = GrpcEndpoint(
    HEALTH_WATCH,
    _opener(Operation.READY, _HEALTH_REQUEST, _HEALTH_RESPONSE, _health_fields, watched=True),
    fail,
    streaming=True,
)


def _call(probe: _Probe) -> Call:
    def encode(argument: ModelRef | None, signature: Signature | None) -> tuple[GrpcRequest, None]:
        named = {} if argument is None else {"name": argument.name, "version": argument.version}
        try:
            return GrpcRequest(probe.method, probe.request(**named).SerializeToString()), None
        except ValueError as error:
            raise unwritable(error) from error

    @reader
    def decode(form: None, message: Buffer) -> Any:
        result = probe.result(parse(probe.response, message))
        if isinstance(result, ModelMetadata):
            return replace(result, parameters=read_model_parameters(message))
        return result

    return UpstreamCall(encode, decode)


def _tolerant(call: Call) -> Call:
    """``call``, where a model that the upstream does not know is one that is not ready: KServe and
    OpenVINO Model Server answer NOT_FOUND."""

    def decode(form: None, answer: GrpcAnswer) -> Any:
        if answer.code == _NOT_FOUND:
            return Readiness(False, answer.details)
        return call.decode(form, answer)

    return UpstreamCall(call.encode, decode)


CALLS: dict[Operation, Call] = {probe.operation: _call(probe) for probe in _PROBES}
"""What is asked of an upstream, by operation."""
CALLS[Operation.MODEL_READY] = _tolerant(CALLS[Operation.MODEL_READY])
