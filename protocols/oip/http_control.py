"""Configuration, statistics and control over HTTP: a table of endpoints.

What is told is told in JSON; what was done is answered with an empty body. A body that says nothing may
be left out. Inference, health and metadata belong to ``server``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.oip.codec_http import JSON_HEADERS
from interlingua.protocols.oip.http_endpoint import Open, json_answer, model_of, of_model
from interlingua.protocols.oip.json_members import mapping, text
from interlingua.protocols.oip.metadata_json import parse_object
from interlingua.protocols.oip.model_control import read_load_body, read_unload_body
from interlingua.protocols.oip.reports import (
    config_message,
    index_message,
    regions_message,
    statistics_message,
)
from interlingua.protocols.oip.settings_forms import (
    read_log_document,
    read_trace_document,
    write_trace_document,
)
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import (
    IndexQuery,
    LogSettings,
    ModelStatus,
    Operation,
    SharedMemoryRegion,
    TraceSettings,
    invalid_tensor,
    malformed,
)
from interlingua.schemas.message_json import message_json

_CUDA_HANDLE_BYTES = 64
"""The size of a ``cudaIpcMemHandle_t``."""

_MAX_UINT64 = 2**64 - 1

Opening = Opened[HttpAnswer]


# --- answers


def _done(opened: Opening, result: None) -> HttpAnswer:
    return HttpAnswer(200, JSON_HEADERS)


def _encode_config(opened: Opening, config: bytes) -> HttpAnswer:
    return json_answer(200, message_json(config_message(config)))


def _encode_statistics(opened: Opening, models: Iterable[ModelStatus]) -> HttpAnswer:
    return json_answer(200, message_json(statistics_message(models)))


def _encode_index(opened: Opening, models: Iterable[ModelStatus]) -> HttpAnswer:
    entries = (message_json(entry) for entry in index_message(models).models)
    # of a model that never was loaded there is nothing but the name
    return json_answer(200, [{key: value for key, value in entry.items() if value} for entry in entries])


def _encode_regions(opened: Opening, regions: Iterable[SharedMemoryRegion]) -> HttpAnswer:
    by_name = regions_message(regions).regions
    return json_answer(200, [message_json(by_name[name]) for name in sorted(by_name)])


def _encode_traces(opened: Opening, settings: TraceSettings) -> HttpAnswer:
    return json_answer(200, write_trace_document(settings))


def _encode_log(opened: Opening, settings: LogSettings) -> HttpAnswer:
    return json_answer(200, settings)


def _action(operation: Operation, encode: Any = _done) -> Action[HttpAnswer]:
    return Action(operation, encode)


_STATISTICS = _action(Operation.STATISTICS, _encode_statistics)
_INDEX = _action(Operation.REPOSITORY_INDEX, _encode_index)
_LOAD = _action(Operation.MODEL_LOAD)
_UNLOAD = _action(Operation.MODEL_UNLOAD)
_TRACES = _action(Operation.TRACE_SETTINGS, _encode_traces)
_LOG = _action(Operation.LOG_SETTINGS, _encode_log)
_REGISTER = _action(Operation.SHARED_MEMORY_REGISTER)
_CUDA_REGISTER = _action(Operation.CUDA_SHARED_MEMORY_REGISTER)


# --- requests


def _document(request: HttpRequest) -> Mapping[str, Any]:
    return parse_object(request.body) if request.body else {}


def _param(request: HttpRequest, key: str) -> str | None:
    """A named segment of the path, percent-decoded; None where the path has none."""
    value = request.params.get(key)
    if value is None:
        return None
    try:
        decoded = unquote(value, errors="strict")
        decoded.encode()
    except UnicodeError:
        raise malformed(f"the {key} {value!a} in the path is not UTF-8") from None
    return decoded


def _open_all_statistics(request: HttpRequest) -> Opening:
    return Opened(_STATISTICS)


def _open_index(request: HttpRequest) -> Opening:
    ready = _document(request).get("ready")
    if ready is not None and type(ready) is not bool:
        raise malformed("'ready' must be a boolean")
    return Opened(_INDEX, argument=IndexQuery(_param(request, "repository") or "", bool(ready)))


def _open_load(request: HttpRequest) -> Opening:
    model = model_of(request)
    control = read_load_body(model, _param(request, "repository") or "", request.body)
    return Opened(_LOAD, model, argument=control)


def _open_unload(request: HttpRequest) -> Opening:
    model = model_of(request)
    control = read_unload_body(model, _param(request, "repository") or "", request.body)
    return Opened(_UNLOAD, model, argument=control)


def _open_traces(request: HttpRequest) -> Opening:
    model = model_of(request) if "model" in request.params else ""
    return Opened(_TRACES, model, argument=read_trace_document(_document(request)))


def _open_log(request: HttpRequest) -> Opening:
    return Opened(_LOG, argument=read_log_document(_document(request)))


def _open_register(request: HttpRequest) -> Opening:
    name = _param(request, "region") or ""
    document = _document(request)
    for key in ("key", "byte_size"):
        if document.get(key) is None:
            raise invalid_tensor(f"Shared memory register request has no '{key}' field")
    region = SharedMemoryRegion(
        name, text(document, "key"), _unsigned(document, "offset"), _unsigned(document, "byte_size")
    )
    return Opened(_REGISTER, argument=region)


def _open_cuda_register(request: HttpRequest) -> Opening:
    document = _document(request)
    for key in ("raw_handle", "device_id", "byte_size"):
        if document.get(key) is None:
            raise invalid_tensor(f"Shared memory register request has no '{key}' field")
    try:
        handle = base64.b64decode(text(mapping(document, "raw_handle"), "b64"), validate=True)
    except (binascii.Error, ValueError):
        handle = b""
    if len(handle) != _CUDA_HANDLE_BYTES:
        raise invalid_tensor("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return Opened(_CUDA_REGISTER, argument=_param(request, "region"))


def _open_region(action: Action[HttpAnswer], request: HttpRequest) -> Opening:
    return Opened(action, argument=_param(request, "region"))


def _unsigned(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= _MAX_UINT64:
        raise malformed(f"'{key}' must be an unsigned integer")
    return value


# --- the table

_OF_MODELS: dict[str, Open] = {
    "config": of_model(_action(Operation.MODEL_CONFIG, _encode_config)),
    "stats": of_model(_STATISTICS),
}

_REGIONS: dict[str, tuple[Open, Open, Open]] = {
    "system": (
        _open_register,
        partial(_open_region, _action(Operation.SHARED_MEMORY_UNREGISTER)),
        partial(_open_region, _action(Operation.SHARED_MEMORY_STATUS, _encode_regions)),
    ),
    "cuda": (
        _open_cuda_register,
        partial(_open_region, _action(Operation.CUDA_SHARED_MEMORY_UNREGISTER)),
        partial(_open_region, _action(Operation.CUDA_SHARED_MEMORY_STATUS, _encode_regions)),
    ),
}
"""What opens a request to register, to unregister, and for the status of each kind of shared memory."""

CONTROL_ENDPOINTS: tuple[tuple[str, str, Open], ...] = (
    *(
        ("GET", f"/v2/models/{{model}}{version}/{name}", open_request)
        for name, open_request in _OF_MODELS.items()
        for version in ("", "/versions/{version}")
    ),
    ("GET", "/v2/models/stats", _open_all_statistics),
    *(
        ("POST", f"/v2/repository{repository}/{path}", open_request)
        for repository in ("", "/{repository}")
        for path, open_request in (
            ("index", _open_index),
            ("models/{model}/load", _open_load),
            ("models/{model}/unload", _open_unload),
        )
    ),
    *(
        (method, f"/v2/{kind}sharedmemory{region}/{verb}", open_request)
        for kind, (register, unregister, status) in _REGIONS.items()
        for region, method, verb, open_request in (
            ("/region/{region}", "POST", "register", register),
            ("/region/{region}", "POST", "unregister", unregister),
            ("", "POST", "unregister", unregister),
            ("/region/{region}", "GET", "status", status),
            ("", "GET", "status", status),
        )
    ),
    *(
        (method, path, open_request)
        for method in ("GET", "POST")
        for path, open_request in (
            ("/v2/trace/setting", _open_traces),
            ("/v2/models/{model}/trace/setting", _open_traces),
            ("/v2/logging", _open_log),
        )
    ),
)
"""Method, path, and what opens the request."""
