"""What the dialect offers over HTTP: one table of endpoints.

Whatever is asked, the answer is 200, or 400 with the header ``NV-Status`` telling why; never another
status, but for a method that an endpoint does not have. A path or a request header that makes no sense
gets a 400 with nothing in it. Paths are taken as sent: clients do not quote the names in them. What
bodies and headers mean belongs to ``codec_http`` and ``status``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
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
    query_format,
    read_header,
)
from interlingua.protocols.trtis.header_text import write_response_header, write_status
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

Open = Callable[[HttpRequest], Opened[HttpAnswer]]

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
"""The methods of everything below ``/api/{family}``; they are looked at before the rest of the path."""


def unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    """The answer to a path or method that no endpoint has."""
    family = _FAMILY.match(request.path)
    methods = _METHODS.get(family[1]) if family else None
    if allowed or (methods and request.method not in methods):
        return HttpAnswer(405)
    return HttpAnswer(400)


def fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    """``error`` as the dialect has it: in ``NV-Status``, or nowhere for a request that makes no sense."""
    if opened is None and error.code is ErrorCode.MALFORMED:
        return HttpAnswer(400, (), [error.message.encode() if isinstance(error, MissingHeaderError) else b""])
    return HttpAnswer(400, ((STATUS, write_status(failure(request.context, opened, error))),))


def _fail_infer(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    answer = fail(request, opened, error)
    if answer.headers:
        # the header of an answer that is none repeats the id alone
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


_INFER: Action[HttpAnswer] = Action(Operation.INFER, encode_response, _decode_infer)


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


def _encode_status(opened: Opened[HttpAnswer], told: ServerStatus) -> HttpAnswer:
    request: HttpRequest = opened.message
    wanted = query_format(request)
    # an exact match, since that is what the original server looks for
    if wanted == "json" or (wanted is None and request.headers.get("accept") == _JSON[1]):
        text = json_format.MessageToJson(server_status(told), preserving_proto_field_name=True, indent=None)
        return HttpAnswer(200, (_succeeded(request), _JSON), [text.encode()])
    return _message(request, server_status(told))


def _encode_index(opened: Opened[HttpAnswer], models: Iterable[ModelStatus]) -> HttpAnswer:
    return _message(opened.message, repository_index(models))


def _encode_regions(opened: Opened[HttpAnswer], regions: Iterable[SharedMemoryRegion]) -> HttpAnswer:
    return _message(opened.message, shared_memory_status(regions))


def _message(request: HttpRequest, message: Any) -> HttpAnswer:
    """``message`` as the body, binary where that is asked for, else as text of many lines."""
    if query_format(request) == "binary":
        return HttpAnswer(200, (_succeeded(request), BINARY), [message.SerializeToString()])
    text = text_format.MessageToString(message, as_utf8=False)
    return HttpAnswer(200, (_succeeded(request), _TEXT), [text.encode()])


def _open(action: Action[HttpAnswer], request: HttpRequest) -> Opened[HttpAnswer]:
    return Opened(action, request.params.get("model", ""), message=request)


def _open_register(request: HttpRequest) -> Opened[HttpAnswer]:
    params = request.params
    # the path shows it as an empty segment: a key begins with a slash
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

_LIVE: Open = partial(_open, Action(Operation.LIVE, _encode_health))
_READY: Open = partial(_open, Action(Operation.READY, _encode_health))
_STATUS: Open = partial(_open, Action(Operation.STATUS, _encode_status))
_LOAD: Open = partial(_open, Action(Operation.MODEL_LOAD, _encode_done))
_UNLOAD: Open = partial(_open, Action(Operation.MODEL_UNLOAD, _encode_done))
_INDEX: Open = partial(_open, Action(Operation.REPOSITORY_INDEX, _encode_index))
_REGIONS: Open = partial(_open, Action(Operation.SHARED_MEMORY_STATUS, _encode_regions))

HTTP_ENDPOINTS: tuple[HttpEndpoint, ...] = (
    HttpEndpoint("POST", "/api/infer/{model}", _open_infer, _fail_infer),
    HttpEndpoint("POST", "/api/infer/{model}/{version}", _open_infer, _fail_infer),
    *(
        HttpEndpoint(method, f"/api/{path}", open_request, fail)
        for method, path, open_request in (
            ("GET", "health/live", _LIVE),
            ("GET", "health/ready", _READY),
            ("GET", "status", _STATUS),
            ("GET", "status/", _STATUS),
            ("GET", "status/{model}", _STATUS),
            ("POST", "modelcontrol/load/{model}", _LOAD),
            ("POST", "modelcontrol/unload/{model}", _UNLOAD),
            ("GET", "repository/index", _INDEX),
            ("POST", "sharedmemorycontrol/register/{name}//{key}/{offset}/{size}", _open_register),
            ("POST", "sharedmemorycontrol/cudaregister/{name}/{size}/{device}", _open_register_cuda),
            ("POST", "sharedmemorycontrol/unregister/{name}", _open_unregister),
            ("POST", "sharedmemorycontrol/unregisterall", _open_unregister),
            ("GET", "sharedmemorycontrol/status", _REGIONS),
            ("POST", "sharedmemorycontrol/status", _REGIONS),
        )
    ),
)
"""The endpoints of a listener. Release 1.6 asked for the regions of shared memory with POST."""
