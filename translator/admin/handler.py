"""Answers what comes to the operator's own address: a table of paths, all of them to be read only.

What stands behind a path is a function that gives an answer; which there are is put together in
``translator.admin.site``. Nothing here is served where clients connect.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import orjson

from interlingua.protocols.wire import Headers, HttpAnswer, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError

Page = Callable[[], Awaitable[HttpAnswer]]

_METHODS = ("GET", "HEAD")
_COMMON: Headers = (("cache-control", "no-store"), ("x-content-type-options", "nosniff"))

_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS

_log = logging.getLogger(__name__)


class AdminHandler:
    """An ``HttpHandler`` for ``pages`` by path, which may become others."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self.pages = pages

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        """Refuse unknown paths (404) and methods that would change something (405)."""
        page = self.pages.get(request.path)
        if page is None:
            known = " ".join(self.pages)
            return plain(404, f"Not Found; there are {known}")
        if request.method not in _METHODS:
            return plain(405, "Method Not Allowed", (("allow", ", ".join(_METHODS)),))
        request.endpoint = page
        request.max_body_bytes = 0
        return None

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request whose page :meth:`head` has chosen."""
        page: Page = request.endpoint
        try:
            return await page()
        except Exception:
            _log.exception("unexpected error", extra={"facts": {"path": request.path}})
            return plain(500, "internal error; the server's log has the details")

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        """Say why the transport gives up: no page takes a body."""
        return plain(413 if error.code is ErrorCode.TOO_LARGE else 400, error.message)


def plain(status: int, text: str, headers: Headers = ()) -> HttpAnswer:
    """A line of text."""
    return answer(status, "text/plain; charset=utf-8", f"{text}\n".encode(errors="replace"), headers)


def document(told: Any, status: int = 200) -> HttpAnswer:
    """``told`` in JSON."""
    return answer(status, "application/json", plain_json(told))


def plain_json(told: Any) -> bytes:
    """``told`` in JSON, laid out for people. What has no bytes in its texts is replaced: a name that came
    over JSON may hold a lone surrogate."""
    try:
        return orjson.dumps(told, option=_OPTIONS)
    except orjson.JSONEncodeError:
        return orjson.dumps(_printable(told), option=_OPTIONS)


def answer(status: int, content_type: str, body: bytes, headers: Headers = ()) -> HttpAnswer:
    """Any answer: for this moment only, and of no other type than it says."""
    return HttpAnswer(status, (("content-type", content_type), *_COMMON, *headers), (body,))


def _printable(told: Any) -> Any:
    """``told`` with nothing in its texts that has no bytes."""
    if isinstance(told, str):
        return told.encode(errors="replace").decode()
    if is_dataclass(told) and not isinstance(told, type):
        return _printable(asdict(told))
    if isinstance(told, Mapping):
        return {_printable(str(key)): _printable(value) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [_printable(each) for each in told]
    return told
