"""The quirks of the two original servers that clients can notice.

The Python server (``py``) repeats the code of an answer in its HTTP status; the C++ server (``cpp``) answers
200 to any readable request, with the code in the message alone. ``json_quirks`` has their JSON.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from interlingua.protocols.brpc_status import BrpcStatus
from interlingua.protocols.grps import metadata
from interlingua.protocols.grps.message import Status, StatusFlag
from interlingua.protocols.grps.options import PredictOptions
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import Deployment
from interlingua.schemas.bounded_text import shortened

_HTML = """\
<!doctype html>
<html lang=en>
<title>{status} {title}</title>
<h1>{title}</h1>
<p>{text}</p>
"""


@dataclass(frozen=True, slots=True)
class Flavor:
    """The quirks of one server.

    ``mirrors``: the HTTP status is the code of the answer. ``any_method``: every method and a slash at the
    end of a path are accepted. ``streams_refusals``: the errors of a request for a stream are in the stream,
    except for its content type. ``first_tensor_only``: an ndarray drops further outputs. ``piece_indent``:
    the indentation of JSON in a stream, None for the usual one. ``names_charset``: a stream of text declares
    UTF-8. ``unread`` is the answer to an unreadable body, if it is not in band.
    """

    name: Literal["py", "cpp"]
    json_type: str
    mirrors: bool
    any_method: bool
    streams_refusals: bool
    first_tensor_only: bool
    piece_indent: int | None
    names_charset: bool
    no_content_type: str
    wrong_content_type: str
    empty_body: str
    unknown_model: str
    no_metadata: str
    no_name: Status
    empty_name: Status
    server_yaml: Callable[[Deployment, PredictOptions], str]
    model_yaml: Callable[[Deployment], str]
    unmatched: Callable[[HttpRequest, tuple[str, ...]], HttpAnswer]
    unread: Callable[[str], HttpAnswer]


_HTML_TYPE = ("Content-Type", "text/html; charset=utf-8")


def _page(status: int, title: str, text: str) -> bytes:
    return _HTML.format(status=status, title=title, text=html.escape(text, quote=False)).encode(
        errors="backslashreplace"
    )


def _py_unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    """Flask's HTML page; OPTIONS lists the methods."""
    if not allowed:
        page = _page(404, "Not Found", "The requested URL was not found on the server.")
        return HttpAnswer(404, (_HTML_TYPE,), [page])
    headers = (_HTML_TYPE, ("Allow", ", ".join((*allowed, "OPTIONS"))))
    if request.method == "OPTIONS":
        return HttpAnswer(200, headers)
    page = _page(405, "Method Not Allowed", "The method is not allowed for the requested URL.")
    return HttpAnswer(405, headers, [page])


def _py_unread(why: str) -> HttpAnswer:
    return HttpAnswer(400, (_HTML_TYPE,), [_page(400, "Bad Request", why)])


def _cpp_unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    if allowed:
        return _cpp_line(405, BrpcStatus.ENOMETHOD, f"Method {request.method} is not allowed")
    return _cpp_line(404, BrpcStatus.ENOMETHOD, f"Fail to find method on `{shortened(request.path)}'")


def _cpp_unread(why: str) -> HttpAnswer:
    return _cpp_line(
        400, BrpcStatus.EREQUEST, f"Fail to parse http body as grps.protos.v1.GrpsMessage, {why}"
    )


def _cpp_line(status: int, number: BrpcStatus, text: str) -> HttpAnswer:
    """bRPC's line of text with the number of the error."""
    headers = (("Content-Type", "text/plain"), ("x-bd-error-code", f"{number:d}"))
    return HttpAnswer(status, headers, [f"[E{number:d}]{text}".encode(errors="backslashreplace")])


PY = Flavor(
    name="py",
    json_type="application/json;charset=utf-8",
    mirrors=True,
    any_method=False,
    streams_refusals=True,
    first_tensor_only=True,
    piece_indent=2,
    names_charset=True,
    no_content_type="No content type in headers.",
    wrong_content_type="Unsupported content type.",
    empty_body="The http body is empty.",
    unknown_model="Model {} not found.",
    no_metadata="Model not found.",
    no_name=Status(400, "No model name.", StatusFlag.FAILURE),
    empty_name=Status(400, "The model name is empty.", StatusFlag.FAILURE),
    server_yaml=metadata.py_server,
    model_yaml=metadata.py_model,
    unmatched=_py_unmatched,
    unread=_py_unread,
)
CPP = Flavor(
    name="cpp",
    json_type="application/json",
    mirrors=False,
    any_method=True,
    streams_refusals=False,
    first_tensor_only=False,
    piece_indent=None,
    names_charset=False,
    no_content_type="Bad Request, err: Content type is not supported.",
    wrong_content_type="Bad Request, err: Content type is not supported.",
    empty_body="Bad Request, err: Parse json failed.",
    unknown_model="[ExecutorException] Not found model: {}",
    no_metadata="Not Found",
    no_name=Status(404, "Not Found", StatusFlag.FAILURE),
    empty_name=Status(404, "Not Found", StatusFlag.FAILURE),
    server_yaml=metadata.cpp_server,
    model_yaml=metadata.cpp_model,
    unmatched=_cpp_unmatched,
    unread=_cpp_unread,
)
