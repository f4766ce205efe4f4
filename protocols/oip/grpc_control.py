"""Configuration, statistics and control over gRPC: what opens a request, by method; loads as a client.

One row for each method: what its request asks, and the fields of the answer out of the result. Health
and metadata belong to ``grpc_probes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from interlingua.protocols.dialect import Action, Opened, UpstreamCall
from interlingua.protocols.oip.grpc_messages import SERVICE, reader, unwritable
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
from interlingua.protocols.protobuf_message import parse
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import IndexQuery, ModelControl, ModelRef, Operation, SharedMemoryRegion, Signature
from interlingua.schemas.oip import MESSAGES

Open = Callable[[GrpcRequest], Opened[GrpcAnswer]]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request names and asks; ``done`` is the answer where only whether there is one is open."""

    model: str = ""
    version: str = ""
    argument: Any = None
    done: Message | None = None


_Ask = Callable[[Any], _Asked]


def _empty(rpc: str) -> Callable[[Any], Any]:
    return lambda result: MESSAGES[f"inference.{rpc}Response"]()


def _filled(rpc: str, fields: Callable[[Any], Mapping[str, Any]]) -> Callable[[Any], Any]:
    return lambda result: MESSAGES[f"inference.{rpc}Response"](**fields(result))


def _model(asked: Any) -> _Asked:
    return _Asked(asked.name, asked.version)


def _index(asked: Any) -> _Asked:
    return _Asked(argument=IndexQuery(asked.repository_name, asked.ready))


def _control(
    read: Callable[[str, str, Mapping[str, Any]], ModelControl], done: Callable[[str], Message]
) -> _Ask:
    """What a load or an unload asks; ``done`` is what KServe's clients are told of a model."""

    def ask(asked: Any) -> _Asked:
        if asked.model_name:
            model = asked.model_name
            return _Asked(model, argument=read(model, asked.repository_name, asked.parameters))
        # KServe has the model's name in field 1, and no repositories
        model = asked.repository_name
        return _Asked(model, argument=read(model, "", asked.parameters), done=done(model))

    return ask


def _region(asked: Any) -> _Asked:
    """A region by name; no name means all of them."""
    return _Asked(argument=asked.name or None)


def _registered(asked: Any) -> _Asked:
    return _Asked(argument=SharedMemoryRegion(asked.name, asked.key, asked.offset, asked.byte_size))


def _cuda_registered(asked: Any) -> _Asked:
    return _Asked(argument=asked.name)


def _traces(asked: Any) -> _Asked:
    return _Asked(asked.model_name, argument=read_trace_message(asked.settings))


def _log(asked: Any) -> _Asked:
    return _Asked(argument=read_log_message(asked.settings))


def _config_fields(config: bytes) -> Mapping[str, Any]:
    return {"config": config_message(config)}


def _cuda_regions(regions: Iterable[SharedMemoryRegion]) -> Mapping[str, Any]:
    return {"regions": {region.name: {"name": region.name} for region in regions}}


_LOADED: Any = MESSAGES["inference.RepositoryModelLoadResponse"]
_UNLOADED: Any = MESSAGES["inference.RepositoryModelUnloadResponse"]

_ROWS: tuple[tuple[str, Operation, _Ask, Callable[[Any], Any]], ...] = (
    ("ModelConfig", Operation.MODEL_CONFIG, _model, _filled("ModelConfig", _config_fields)),
    ("ModelStatistics", Operation.STATISTICS, _model, statistics_message),
    ("RepositoryIndex", Operation.REPOSITORY_INDEX, _index, index_message),
    (
        "RepositoryModelLoad",
        Operation.MODEL_LOAD,
        _control(read_load_message, lambda model: _LOADED(model_name=model, isLoaded=True)),
        _empty("RepositoryModelLoad"),
    ),
    (
        "RepositoryModelUnload",
        Operation.MODEL_UNLOAD,
        _control(read_unload_message, lambda model: _UNLOADED(model_name=model, isUnloaded=True)),
        _empty("RepositoryModelUnload"),
    ),
    ("SystemSharedMemoryStatus", Operation.SHARED_MEMORY_STATUS, _region, regions_message),
    (
        "SystemSharedMemoryRegister",
        Operation.SHARED_MEMORY_REGISTER,
        _registered,
        _empty("SystemSharedMemoryRegister"),
    ),
    (
        "SystemSharedMemoryUnregister",
        Operation.SHARED_MEMORY_UNREGISTER,
        _region,
        _empty("SystemSharedMemoryUnregister"),
    ),
    (
        "CudaSharedMemoryStatus",
        Operation.CUDA_SHARED_MEMORY_STATUS,
        _region,
        _filled("CudaSharedMemoryStatus", _cuda_regions),
    ),
    (
        "CudaSharedMemoryRegister",
        Operation.CUDA_SHARED_MEMORY_REGISTER,
        _cuda_registered,
        _empty("CudaSharedMemoryRegister"),
    ),
    (
        "CudaSharedMemoryUnregister",
        Operation.CUDA_SHARED_MEMORY_UNREGISTER,
        _region,
        _empty("CudaSharedMemoryUnregister"),
    ),
    ("TraceSetting", Operation.TRACE_SETTINGS, _traces, _filled("TraceSetting", trace_fields)),
    ("LogSettings", Operation.LOG_SETTINGS, _log, _filled("LogSettings", log_fields)),
)


def _opener(request: type[Message], operation: Operation, ask: _Ask, answer: Callable[[Any], Any]) -> Open:
    def encode(opened: Opened[GrpcAnswer], result: Any) -> GrpcAnswer:
        try:
            told = answer(result) if opened.message is None else opened.message
            return GrpcAnswer(told.SerializeToString())
        except ValueError as error:
            raise unwritable(error) from error

    action: Action[GrpcAnswer] = Action(operation, encode)

    def open_message(given: GrpcRequest) -> Opened[GrpcAnswer]:
        asked = ask(parse(request, given.message))
        return Opened(action, asked.model, asked.version, asked.done, asked.argument)

    return open_message


CONTROL_OPENERS: Mapping[str, Open] = {
    SERVICE + rpc: _opener(MESSAGES[f"inference.{rpc}Request"], operation, ask, answer)
    for rpc, operation, ask, answer in _ROWS
}
"""What opens a request, by method."""


# --- as a client


def _control_call(rpc: str, field: str) -> UpstreamCall[GrpcRequest, GrpcAnswer]:
    """A load or an unload that names the model in ``field``."""
    request, response = MESSAGES[f"inference.{rpc}Request"], MESSAGES[f"inference.{rpc}Response"]

    def encode(model: ModelRef, signature: Signature | None) -> tuple[GrpcRequest, None]:
        try:
            return GrpcRequest(SERVICE + rpc, request(**{field: model.name}).SerializeToString()), None
        except ValueError as error:
            raise unwritable(error) from error

    @reader
    def decode(form: None, message: Buffer) -> None:
        # Triton's answer is empty, KServe's says what an answer says anyway
        parse(response, message)

    return UpstreamCall(encode, decode)


CONTROL_CALLS: Mapping[Operation, UpstreamCall[GrpcRequest, GrpcAnswer]] = {
    Operation.MODEL_LOAD: _control_call("RepositoryModelLoad", "model_name"),
    Operation.MODEL_UNLOAD: _control_call("RepositoryModelUnload", "model_name"),
}
"""What is asked of an upstream, by operation."""

KSERVE_CALLS: Mapping[Operation, UpstreamCall[GrpcRequest, GrpcAnswer]] = {
    # its name is in field 1
    Operation.MODEL_LOAD: _control_call("RepositoryModelLoad", "repository_name"),
    Operation.MODEL_UNLOAD: _control_call("RepositoryModelUnload", "repository_name"),
}
"""The same as KServe has it."""
