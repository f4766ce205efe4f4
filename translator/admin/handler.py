"""Serves the admin address: a table of read-only pages by path, made in ``translator.admin.site``, and of
actions.

Client listeners serve none of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from typing import Any

import orjson

from interlingua.protocols.accept import wants_openmetrics
from interlingua.protocols.wire import Headers, HttpAnswer, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.translator.access.classes import OperationClass
from interlingua.translator.admin.gate import AdminGate, refused
from interlingua.translator.admin.metrics import CONTENT_TYPE, OPENMETRICS, Family, exposition

Page = Callable[[], Awaitable[HttpAnswer]]


@dataclass(frozen=True, slots=True)
class AdminAction:
    """What a POST requests, of the class ``requested``: ``act`` gets the request, with a body of at most
    ``max_body_bytes``. It may raise ``QueryError``."""

    act: Callable[[HttpRequest], Awaitable[HttpAnswer]]
    requested: OperationClass = "control"
    max_body_bytes: int = 0


_METHODS: tuple[str, ...] = ("GET", "HEAD")
_ACTION_METHODS: tuple[str, ...] = ("POST",)
_COMMON: Headers = (("cache-control", "no-store"), ("x-content-type-options", "nosniff"))

_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS

_log = logging.getLogger(__name__)


class QueryError(ValueError):
    """The query of a request is not valid; the message says why."""


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """A ``Page`` with two forms: ``write`` makes that in OpenMetrics for true."""

    write: Callable[[bool], Awaitable[HttpAnswer]]

    async def __call__(self) -> HttpAnswer:
        return await self.write(False)

    async def openmetrics(self) -> HttpAnswer:
        return await self.write(True)


@dataclass(frozen=True, slots=True)
class QueryPage:
    """A page that depends on the query of the request, which ``write`` gets. It may raise ``QueryError``."""

    write: Callable[[str], Awaitable[HttpAnswer]]


class AdminHandler:
    """An ``HttpHandler`` for ``pages`` by path, and for ``actions``, which POST requests; ``gate`` permits
    both. The tables may be replaced at run time."""

    def __init__(self, pages: Mapping[str, Page | QueryPage], gate: AdminGate | None = None) -> None:
        self.pages = pages
        self.actions: Mapping[str, AdminAction] = {}
        self._gate = gate or AdminGate()

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        """Refuse what the gate refuses, unknown paths (404) and methods that a path does not have (405)."""
        gate, methods = self._gate, _ACTION_METHODS
        page: Page | QueryPage | AdminAction | None = self.actions.get(request.path)
        refusal = gate.refusal(request) if page is None else gate.misdirected(request)
        if refusal is not None:
            return plain(*refusal)
        if page is None:
            page, methods = self.pages.get(request.path), _METHODS
            if isinstance(page, MetricsPage) and wants_openmetrics(request.headers.get("accept", "")):
                page = page.openmetrics
            elif isinstance(page, QueryPage):
                page = partial(page.write, request.query)
        if page is None:
            known = " ".join((*self.pages, *self.actions))
            return plain(404, f"Not Found; there are {known}")
        if request.method not in methods:
            return plain(405, "Method Not Allowed", (("allow", ", ".join(methods)),))
        request.endpoint = page
        request.max_body_bytes = page.max_body_bytes if isinstance(page, AdminAction) else 0
        return None

    def prefix(self, request: HttpRequest) -> int | None:
        return None

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        page: Page | AdminAction = request.endpoint
        try:
            return await self._act(request, page) if isinstance(page, AdminAction) else await page()
        except QueryError as error:
            return plain(400, str(error))
        except Exception:
            _log.exception("unexpected error", extra={"facts": {"path": request.path}})
            return plain(500, "internal error; the server's log has the details")

    async def _act(self, request: HttpRequest, action: AdminAction) -> HttpAnswer:
        """Carry out an action for a caller who may, with a record in the audit log."""
        found: HttpAnswer | None = None
        try:
            with self._gate.recorded(request, action.requested, request.path.lstrip("/")):
                found = await action.act(request)
                if found.status >= 400:
                    raise InferenceError(ErrorCode.MALFORMED, "refused; the log has the reason")
        except InferenceError as error:
            return plain(*refused(error)) if found is None else found
        return found

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        """The answer to a request that the transport refuses: no page takes a body."""
        return plain(413 if error.code is ErrorCode.TOO_LARGE else 400, error.message)


def plain(status: int, text: str, headers: Headers = ()) -> HttpAnswer:
    return answer(status, "text/plain; charset=utf-8", f"{text}\n".encode(errors="replace"), headers)


def metrics_answer(families: Iterable[Family], openmetrics: bool) -> HttpAnswer:
    """``families`` in one of the two formats, see ``exposition``: more may follow."""
    kind = OPENMETRICS if openmetrics else CONTENT_TYPE
    return answer(200, kind, exposition(families, openmetrics), (("vary", "accept"),))


def document(value: Any, status: int = 200) -> HttpAnswer:
    return answer(status, "application/json", plain_json(value))


def plain_json(value: Any) -> bytes:
    """``value`` in indented JSON. Lone surrogates, which names from JSON may contain, are replaced."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError:
        return orjson.dumps(_printable(value), option=_OPTIONS)


def answer(status: int, content_type: str, body: bytes, headers: Headers = ()) -> HttpAnswer:
    """An answer that must not be cached or sniffed."""
    return HttpAnswer(status, (("content-type", content_type), *_COMMON, *headers), (body,))


def _printable(value: Any) -> Any:
    """``value`` with lone surrogates replaced."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if is_dataclass(value) and not isinstance(value, type):
        return _printable(asdict(value))
    if isinstance(value, Mapping):
        return {_printable(str(key)): _printable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(each) for each in value]
    return value
