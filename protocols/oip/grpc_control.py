"""Configuration, statistics and control over gRPC: one table of methods; loads and unloads as a client.

Health and metadata belong to ``grpc_probes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf.message import Message

from interlingua.protocols.dialect import Action, Opened, UpstreamCall
from interlingua.protocols.oip.grpc_messages import SERVICE, reader, serialize, unwritable
from interlingua.protocols.oip.model_control import read_load_message, read_unload_message
from interlingua.protocols.oip.reports import (
    config_message,
    index_message,
    regions_message,
    statistics_message,
)
from interlingua.protocols.oip.settings_forms import (
    log_fields,
    read_log_message,
    read_trace_message,
    trace_fields,
)
from interlingua.protocols.protobuf_message import parse_bounded
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import IndexQuery, ModelControl, ModelRef, Operation, SharedMemoryRegion, Signature
from interlingua.schemas.oip import MESSAGES

Open = Callable[[GrpcRequest], Opened[GrpcAnswer]]
_Grpc = Action[GrpcAnswer]
_Read = Callable[[_Grpc, Any], Opened[GrpcAnswer]]


def _model(action: _Grpc, request: Any) -> Opened[GrpcAnswer]:
    return Opened(action, request.name, request.version)


def _index(action: _Grpc, request: Any) -> Opened[GrpcAnswer]:
    return Opened(action, argument=IndexQuery(request.repository_name, request.ready))


def _control(read: Callable[[str, str, Mapping[str, Any]], ModelControl], done: str) -> _Read:
    """A load or an unload. The answer to clients of KServe has the field ``done``."""

    def opened(action: _Grpc, request: Any) -> Opened[GrpcAnswer]:
        if request.model_name:
            control = read(request.model_name, request.repository_name, request.parameters)
            return Opened(action, request.model_name, argument=control)
        # KServe has the model's name in field 1, and no repositories
        model = request.repository_name
        return Opened(
            action,
            model,
            message={"model_name": model, done: True},
            argument=read(model, "", request.parameters),
        )

    return opened


def _region(action: _Grpc, request: Any) -> Opened[GrpcAnswer]:
    """A region by name, all of them without a name."""
    return Opened(action, argument=request.name or None)


def _registered(action: _Grpc, request: Any) -> Opened[GrpcAnswer]:
    region = SharedMemoryRegion(request.name, request.key, request.offset, request.byte_size)
    return Opened(action, argument=region)


def _cuda_registered(action: _Grpc, request: Any) -> Opened[GrpcAnswer]:
    return Opened(action, argument=request.name)


def _traces(action: _Grpc, request: Any) -> Opened[GrpcAnswer]:
    return Opened(action, request.model_name, argument=read_trace_message(request.settings))


def _log(action: _Grpc, request: Any) -> Opened[GrpcAnswer]:
    return Opened(action, argument=read_log_message(request.settings))


def _config(config: bytes) -> Any:
    return MESSAGES["inference.ModelConfigResponse"](config=config_message(config))


def _cuda_regions(regions: Iterable[SharedMemoryRegion]) -> Any:
    by_name = {region.name: {"name": region.name} for region in regions}
    return MESSAGES["inference.CudaSharedMemoryStatusResponse"](regions=by_name)


def _trace_settings(settings: Any) -> Any:
    return MESSAGES["inference.TraceSettingResponse"](**trace_fields(settings))


def _log_settings(settings: Any) -> Any:
    return MESSAGES["inference.LogSettingsResponse"](**log_fields(settings))


_ROWS: tuple[tuple[str, Operation, _Read, Callable[[Any], Any] | None], ...] = (
    ("ModelConfig", Operation.MODEL_CONFIG, _model, _config),
    ("ModelStatistics", Operation.STATISTICS, _model, statistics_message),
    ("RepositoryIndex", Operation.REPOSITORY_INDEX, _index, index_message),
    ("RepositoryModelLoad", Operation.MODEL_LOAD, _control(read_load_message, "isLoaded"), None),
    ("RepositoryModelUnload", Operation.MODEL_UNLOAD, _control(read_unload_message, "isUnloaded"), None),
    ("SystemSharedMemoryStatus", Operation.SHARED_MEMORY_STATUS, _region, regions_message),
    ("SystemSharedMemoryRegister", Operation.SHARED_MEMORY_REGISTER, _registered, None),
    ("SystemSharedMemoryUnregister", Operation.SHARED_MEMORY_UNREGISTER, _region, None),
    ("CudaSharedMemoryStatus", Operation.CUDA_SHARED_MEMORY_STATUS, _region, _cuda_regions),
    ("CudaSharedMemoryRegister", Operation.CUDA_SHARED_MEMORY_REGISTER, _cuda_registered, None),
    ("CudaSharedMemoryUnregister", Operation.CUDA_SHARED_MEMORY_UNREGISTER, _region, None),
    ("TraceSetting", Operation.TRACE_SETTINGS, _traces, _trace_settings),
    ("LogSettings", Operation.LOG_SETTINGS, _log, _log_settings),
)
"""For each method: what reads its request, and the message of its result. Without the latter the answer has
only the fields in ``Opened.message``, if any."""


def _opener(rpc: str, operation: Operation, read: _Read, answer: Callable[[Any], Any] | None) -> Open:
    request: type[Message] = MESSAGES[f"inference.{rpc}Request"]
    response: type[Message] = MESSAGES[f"inference.{rpc}Response"]

    def encode(opened: Opened[GrpcAnswer], result: Any) -> GrpcAnswer:
        if answer is None:
            return GrpcAnswer(serialize(response, **(opened.message or {})))
        try:
            return GrpcAnswer(answer(result).SerializeToString())
        except ValueError as error:
            raise unwritable(error) from error

    action = Action(operation, encode)
    return lambda given: read(action, parse_bounded(request, given.message))


CONTROL_OPENERS: tuple[tuple[str, Operation, Open], ...] = tuple(
    (SERVICE + row[0], row[1], _opener(*row)) for row in _ROWS
)
"""Methods, with their operation and what opens a request."""


# --- as a client


def _control_calls(field: str) -> Mapping[Operation, UpstreamCall[GrpcRequest, GrpcAnswer]]:
    """Loads and unloads that name the model in ``field``."""
    return {
        Operation.MODEL_LOAD: _control_call("RepositoryModelLoad", field),
        Operation.MODEL_UNLOAD: _control_call("RepositoryModelUnload", field),
    }


def _control_call(rpc: str, field: str) -> UpstreamCall[GrpcRequest, GrpcAnswer]:
    request, response = MESSAGES[f"inference.{rpc}Request"], MESSAGES[f"inference.{rpc}Response"]

    def encode(model: ModelRef, signature: Signature | None) -> tuple[GrpcRequest, None]:
        return GrpcRequest(SERVICE + rpc, serialize(request, **{field: model.name})), None

    @reader
    def decode(form: None, message: Buffer) -> None:
        # Triton's answer is empty, KServe's repeats what an answer implies
        parse_bounded(response, message)

    return UpstreamCall(encode, decode)


CONTROL_CALLS = _control_calls("model_name")
KSERVE_CALLS = _control_calls("repository_name")
"""KServe has the model's name in field 1."""
