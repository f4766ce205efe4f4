"""The HTTP endpoints of the dialect.

An answer has status 200, or 400 with the reason in the header ``NV-Status``; 405 for a wrong method. An
unknown path or an invalid request header gets an empty 400. Paths are not decoded: clients do not quote
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from google.protobuf import json_format, text_format

from interlingua.protocols.dialect import Action, HttpEndpoint, Opened
from interlingua.protocols.trtis.codec import RESPONSE_HEADER, version_number
from interlingua.protocols.trtis.codec_http import (
    BINARY,
    RESPONSE,
    STATUS,
    MissingHeaderError,
    TrtisHttpReplyForm,
    decode_request,
    encode_response,
    numbered,
    query_format,
    read_header,
)
from interlingua.protocols.trtis.header_text import write_response_header, write_status
from interlingua.protocols.trtis.passthrough_http import PASSTHROUGH, prefix
from interlingua.protocols.trtis.status import (
    failure,
    probed,
    repository_index,
    server_status,
    shared_memory_status,
    success,
)
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    ModelStatus,
    Operation,
    Readiness,
    ServerStatus,
    SharedMemoryRegion,
    Signature,
    invalid_tensor,
    malformed,
)

_TEXT = ("Content-Type", "text/plain")
_JSON = ("Content-Type", "application/json")

_FAMILY = re.compile("/api/([^/]*)")
_METHODS = {
    "health": ("GET",),
    "status": ("GET",),
    "infer": ("POST",),
    "modelcontrol": ("POST",),
    "sharedmemorycontrol": ("GET", "POST"),
    "repository": ("GET",),
}
"""The methods of all paths below ``/api/{family}``, checked before the rest of the path."""


def unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    """The answer to an unknown path or method."""
    family = _FAMILY.match(request.path)
    methods = _METHODS.get(family[1]) if family else None
    if allowed or (methods and request.method not in methods):
        return HttpAnswer(405)
    return HttpAnswer(400)


def fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    """``error`` in ``NV-Status``; without that header for an unreadable request."""
    if opened is None and error.code is ErrorCode.MALFORMED:
        return HttpAnswer(400, (), [error.message.encode() if isinstance(error, MissingHeaderError) else b""])
    return HttpAnswer(400, ((STATUS, write_status(failure(request.context, opened, error))),))


def _fail_infer(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    answer = fail(request, opened, error)
    if answer.headers:
        # the header of a failure has only the id
        header = RESPONSE_HEADER(id=opened.message[1].id if opened else 0)
        answer.headers = ((RESPONSE, write_response_header(header)), *answer.headers, BINARY)
    return answer


def _succeeded(request: HttpRequest) -> tuple[str, str]:
    return STATUS, write_status(success(request.context))


# --- inference


def _open_infer(request: HttpRequest) -> Opened[HttpAnswer]:
    version = request.params.get("version", "")
    if version:
        version = str(_number(version))
    return Opened(_INFER, request.params["model"], version, (request, read_header(request)))


def _decode_infer(
    opened: Opened[HttpAnswer], signature: Signature
) -> tuple[InferRequest, TrtisHttpReplyForm]:
    request, header = opened.message
    return decode_request(request, header, opened.model, opened.version, signature)


_INFER: Action[HttpAnswer] = Action(
    Operation.INFER, encode_response, _decode_infer, passthrough=PASSTHROUGH, numbered=numbered
)


# --- all that is not inference


def _number(digits: str) -> int:
    """A number in a path. Raises MALFORMED for anything but digits, and beyond 64 bits."""
    number = version_number(digits)
    if number is None:
        raise malformed(f"{digits!a} in the path is no number")
    return number


def _encode_health(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    request: HttpRequest = opened.message
    return HttpAnswer(200 if state.ready else 400, ((STATUS, write_status(probed(request.context, state))),))


def _encode_done(opened: Opened[HttpAnswer], result: None) -> HttpAnswer:
    return HttpAnswer(200, (_succeeded(opened.message),))


def _encode_status(opened: Opened[HttpAnswer], status: ServerStatus) -> HttpAnswer:
    request: HttpRequest = opened.message
    wanted = query_format(request)
    # an exact match, as on the original server
    if wanted == "json" or (wanted is None and request.headers.get("accept") == _JSON[1]):
        text = json_format.MessageToJson(server_status(status), preserving_proto_field_name=True, indent=None)
        return HttpAnswer(200, (_succeeded(request), _JSON), [text.encode()])
    return _message(request, server_status(status))


def _encode_index(opened: Opened[HttpAnswer], models: Iterable[ModelStatus]) -> HttpAnswer:
    return _message(opened.message, repository_index(models))


def _encode_regions(opened: Opened[HttpAnswer], regions: Iterable[SharedMemoryRegion]) -> HttpAnswer:
    return _message(opened.message, shared_memory_status(regions))


def _message(request: HttpRequest, message: Any) -> HttpAnswer:
    """``message`` as the body, binary if requested, else as text of many lines."""
    if query_format(request) == "binary":
        return HttpAnswer(200, (_succeeded(request), BINARY), [message.SerializeToString()])
    text = text_format.MessageToString(message, as_utf8=False)
    return HttpAnswer(200, (_succeeded(request), _TEXT), [text.encode()])


def _open(action: Action[HttpAnswer], request: HttpRequest) -> Opened[HttpAnswer]:
    return Opened(action, request.params.get("model", ""), message=request)


def _open_register(request: HttpRequest) -> Opened[HttpAnswer]:
    params = request.params
    # a key begins with a slash, which makes an empty segment
    key, offset, size = f"/{params['key']}", _number(params["offset"]), _number(params["size"])
    region = SharedMemoryRegion(params["name"], key, offset, size)
    return Opened(_REGISTER, message=request, argument=region)


def _open_register_cuda(request: HttpRequest) -> Opened[HttpAnswer]:
    raise invalid_tensor(
        f"failed to register CUDA shared memory region: '{request.params['name']}', GPUs not supported"
    )


def _open_unregister(request: HttpRequest) -> Opened[HttpAnswer]:
    return Opened(_UNREGISTER, message=request, argument=request.params.get("name"))


_REGISTER: Action[HttpAnswer] = Action(Operation.SHARED_MEMORY_REGISTER, _encode_done)
_UNREGISTER: Action[HttpAnswer] = Action(Operation.SHARED_MEMORY_UNREGISTER, _encode_done)

_PLAIN: tuple[tuple[str, Operation, Any, tuple[str, ...]], ...] = (
    ("GET", Operation.LIVE, _encode_health, ("health/live",)),
    ("GET", Operation.READY, _encode_health, ("health/ready",)),
    ("GET", Operation.STATUS, _encode_status, ("status", "status/", "status/{model}")),
    ("POST", Operation.MODEL_LOAD, _encode_done, ("modelcontrol/load/{model}",)),
    ("POST", Operation.MODEL_UNLOAD, _encode_done, ("modelcontrol/unload/{model}",)),
    ("GET", Operation.REPOSITORY_INDEX, _encode_index, ("repository/index",)),
    # release 1.6 requests the regions with POST
    ("GET", Operation.SHARED_MEMORY_STATUS, _encode_regions, ("sharedmemorycontrol/status",)),
    ("POST", Operation.SHARED_MEMORY_STATUS, _encode_regions, ("sharedmemorycontrol/status",)),
)

HTTP_ENDPOINTS: tuple[HttpEndpoint, ...] = (
    *(
        HttpEndpoint(
            "POST",
            f"/api/infer/{path}",
            _open_infer,
            _fail_infer,
            prefix=prefix,
            operations=(Operation.INFER,),
        )
        for path in ("{model}", "{model}/{version}")
    ),
    *(
        HttpEndpoint(
            method,
            f"/api/{path}",
            partial(_open, Action(operation, encode)),
            fail,
            operations=(operation,),
        )
        for method, operation, encode, paths in _PLAIN
        for path in paths
    ),
    *(
        HttpEndpoint("POST", f"/api/sharedmemorycontrol/{path}", open_request, fail, operations=(operation,))
        for path, open_request, operation in (
            ("register/{name}//{key}/{offset}/{size}", _open_register, Operation.SHARED_MEMORY_REGISTER),
            (
                "cudaregister/{name}/{size}/{device}",
                _open_register_cuda,
                Operation.CUDA_SHARED_MEMORY_REGISTER,
            ),
            ("unregister/{name}", _open_unregister, Operation.SHARED_MEMORY_UNREGISTER),
            ("unregisterall", _open_unregister, Operation.SHARED_MEMORY_UNREGISTER),
        )
    ),
)
