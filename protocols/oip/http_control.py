"""Configuration, statistics and control over HTTP: a table of endpoints.

Reports are JSON; the answer to a command has an empty body. Empty request bodies may be omitted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.oip.codec_http import JSON_HEADERS
from interlingua.protocols.oip.http_endpoint import Opener, json_answer, json_encoder, model_of, of_model
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
from interlingua.protocols.wire import Buffer, HttpAnswer, HttpRequest
from interlingua.schemas import (
    IndexQuery,
    ModelControl,
    ModelStatus,
    Operation,
    SharedMemoryRegion,
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


def _encode_index(opened: Opening, models: Iterable[ModelStatus]) -> HttpAnswer:
    entries = (message_json(entry) for entry in index_message(models).models)
    # a model that was never loaded has only a name
    return json_answer(200, [{key: value for key, value in entry.items() if value} for entry in entries])


def _encode_regions(opened: Opening, regions: Iterable[SharedMemoryRegion]) -> HttpAnswer:
    by_name = regions_message(regions).regions
    return json_answer(200, [message_json(by_name[name]) for name in sorted(by_name)])


_encode_config = json_encoder(lambda config: message_json(config_message(config)))
_encode_statistics = json_encoder(lambda models: message_json(statistics_message(models)))
_encode_traces = json_encoder(write_trace_document)
_encode_log = json_encoder(lambda settings: settings)


# --- requests


def _opener(operation: Operation, argument: Callable[[HttpRequest], Any], encode: Any = _done) -> Opener:
    """The opener of requests for ``operation``, about the model of its path if there is one."""
    action: Action[HttpAnswer] = Action(operation, encode)

    def open_request(request: HttpRequest) -> Opening:
        model = model_of(request) if "model" in request.params else ""
        return Opened(action, model, argument=argument(request))

    return operation, open_request


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


def _repository(request: HttpRequest) -> str:
    return _param(request, "repository") or ""


def _region(request: HttpRequest) -> str | None:
    return _param(request, "region")


def _index_query(request: HttpRequest) -> IndexQuery:
    ready = _document(request).get("ready")
    if ready is not None and type(ready) is not bool:
        raise malformed("'ready' must be a boolean")
    return IndexQuery(_repository(request), bool(ready))


def _control(
    read: Callable[[str, str, Buffer], ModelControl],
) -> Callable[[HttpRequest], ModelControl]:
    return lambda request: read(model_of(request), _repository(request), request.body)


def _registered(request: HttpRequest) -> SharedMemoryRegion:
    name = _region(request) or ""
    document = _register_document(request, "key", "byte_size")
    return SharedMemoryRegion(
        name, text(document, "key"), _unsigned(document, "offset"), _unsigned(document, "byte_size")
    )


def _cuda_registered(request: HttpRequest) -> str | None:
    document = _register_document(request, "raw_handle", "device_id", "byte_size")
    encoded = text(mapping(document, "raw_handle"), "b64")
    try:
        # a longer text is none, and would take long
        handle = base64.b64decode(encoded[: 2 * _CUDA_HANDLE_BYTES], validate=True)
    except (binascii.Error, ValueError):
        handle = b""
    if len(handle) != _CUDA_HANDLE_BYTES:
        raise invalid_tensor("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return _region(request)


def _register_document(request: HttpRequest, *keys: str) -> Mapping[str, Any]:
    """The body, which must have ``keys``."""
    document = _document(request)
    for key in keys:
        if document.get(key) is None:
            raise invalid_tensor(f"Shared memory register request has no '{key}' field")
    return document


def _unsigned(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= _MAX_UINT64:
        raise malformed(f"'{key}' must be an unsigned integer")
    return value


# --- the table

_OF_MODELS: dict[str, Opener] = {
    "config": of_model(Action(Operation.MODEL_CONFIG, _encode_config)),
    "stats": of_model(Action(Operation.STATISTICS, _encode_statistics)),
}

_REGIONS: dict[str, tuple[Opener, Opener, Opener]] = {
    "system": (
        _opener(Operation.SHARED_MEMORY_REGISTER, _registered),
        _opener(Operation.SHARED_MEMORY_UNREGISTER, _region),
        _opener(Operation.SHARED_MEMORY_STATUS, _region, _encode_regions),
    ),
    "cuda": (
        _opener(Operation.CUDA_SHARED_MEMORY_REGISTER, _cuda_registered),
        _opener(Operation.CUDA_SHARED_MEMORY_UNREGISTER, _region),
        _opener(Operation.CUDA_SHARED_MEMORY_STATUS, _region, _encode_regions),
    ),
}
"""For each kind of shared memory, the opener of requests to register, to unregister, and for the status."""

_TRACES = _opener(
    Operation.TRACE_SETTINGS, lambda request: read_trace_document(_document(request)), _encode_traces
)
_LOG = _opener(Operation.LOG_SETTINGS, lambda request: read_log_document(_document(request)), _encode_log)

CONTROL_ENDPOINTS: tuple[tuple[str, str, Opener], ...] = (
    *(
        ("GET", f"/v2/models/{{model}}{version}/{name}", open_request)
        for name, open_request in _OF_MODELS.items()
        for version in ("", "/versions/{version}")
    ),
    ("GET", "/v2/models/stats", _opener(Operation.STATISTICS, lambda request: None, _encode_statistics)),
    *(
        ("POST", f"/v2/repository{repository}/{path}", open_request)
        for repository in ("", "/{repository}")
        for path, open_request in (
            ("index", _opener(Operation.REPOSITORY_INDEX, _index_query, _encode_index)),
            ("models/{model}/load", _opener(Operation.MODEL_LOAD, _control(read_load_body))),
            ("models/{model}/unload", _opener(Operation.MODEL_UNLOAD, _control(read_unload_body))),
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
            ("/v2/trace/setting", _TRACES),
            ("/v2/models/{model}/trace/setting", _TRACES),
            ("/v2/logging", _LOG),
        )
    ),
)
"""Method, path, and opener."""
