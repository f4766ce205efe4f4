"""HTTP: endpoints by method and path, answers to unknown paths, streamed bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import Any
from urllib.parse import unquote

from interlingua.protocols.accept import wants_html
from interlingua.protocols.dialect import Binding, HttpEndpoint
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.wire import Buffer, HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import ErrorCode, InferenceError, Operation
from interlingua.translator.serving.answer_headers import with_request_id
from interlingua.translator.serving.handler import Handling, Items, TransportPipeline
from interlingua.translator.serving.in_flight import answer_size
from interlingua.translator.serving.plans.cache import HeadForm
from interlingua.translator.serving.request_metrics import RequestMetrics


class HttpPipeline(TransportPipeline):
    """An ``HttpHandler``. An endpoint with the path ``*`` counts where its dialect is alone."""

    _key = attrgetter("endpoint")
    _body = attrgetter("body")
    _headers = attrgetter("headers")
    _label, _transport = "{0.method} {0.path}", "http"
    _status = attrgetter("status")
    _head = HeadForm(attrgetter("method", "path", "query"), attrgetter("headers"))
    _has_body = True
    _names_model = True

    def __init__(self, handling: Handling, bindings: Sequence[Binding]) -> None:
        super().__init__(handling, bindings)
        self._paths = PathTable(self._endpoints)
        self._unowned = self._endpoint_log()

    def _keys(self, endpoint: HttpEndpoint) -> Iterable[HttpEndpoint]:
        return (endpoint,) if endpoint.path != "*" or len(self._bindings) == 1 else ()

    def _is_timed(self, endpoint: HttpEndpoint) -> bool:
        return endpoint.timed

    def _model(self, request: HttpRequest) -> str:
        return unquote(request.params.get("model", ""))

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        """Choose the endpoint. Refuse unknown paths and methods, and callers who may not request it, before
        the body is read."""
        methods, params = self._paths.find(request.path)
        endpoint = methods.get(request.method) or methods.get("*")
        if endpoint is None:
            answer = self._unmatched(request, tuple(methods))
            self._record_unmatched(request, answer, tuple(methods))
            refusal: HttpAnswer = with_request_id(answer, request.headers)
            return refusal
        if endpoint.page and not wants_html(request.headers.get("accept", "")):
            endpoint = self._paths.without_html.get(endpoint, endpoint)
        request.endpoint = endpoint
        request.params = params
        request.max_body_bytes = self._handling.max_request_bytes
        refused: HttpAnswer | None = self.refusal(request)
        return refused

    def prefix(self, request: HttpRequest) -> int | None:
        """See ``HttpHandler``: None unless the tensors may go to an upstream as they arrive."""
        endpoint, binding, *_ = self._endpoints[request.endpoint]
        if endpoint.prefix is None:
            return None
        try:
            opened = endpoint.open(request)
        except InferenceError:
            return None
        may_pass = self._processor.may_pass(opened, binding, request.context)
        found: int | None = endpoint.prefix(request.headers) if may_pass else None
        return found

    def refuse(self, request: HttpRequest, error: InferenceError, operation: Operation | None = None) -> Any:
        """See ``TransportPipeline``; plain text for a request without an endpoint."""
        if request.endpoint is not None:
            return super().refuse(request, error, operation)
        answer = _plain(400, error.message)
        self._unowned.refused(request, answer, error, len(request.body), answer_size(answer))
        return answer

    def _unmatched(self, request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
        owner = next((each for each in self._bindings if request.path.startswith(each.prefixes)), None)
        for binding in self._bindings[:1] if owner is None else (owner,):
            self._handling.metrics[binding.dialect].refuse(ErrorCode.NOT_FOUND)
            if binding.unmatched is not None:
                return binding.unmatched(request, allowed)
        return _plain(405, "Method Not Allowed") if allowed else _plain(404, "Not Found")

    def _record_unmatched(self, request: HttpRequest, answer: HttpAnswer, allowed: tuple[str, ...]) -> None:
        what = "method not allowed" if allowed else "unknown path"
        owner = next((each for each in self._bindings if request.path.startswith(each.prefixes)), None)
        access = self._unowned if owner is None else self._access[owner.dialect]
        error = InferenceError(ErrorCode.NOT_FOUND, what)
        access.refused(request, answer, error, 0, answer_size(answer))

    async def _whole(self, items: Items, collects: bool, metrics: RequestMetrics) -> HttpAnswer:
        """An answer with a streamed body, which begins as the first of ``items``; with ``collects`` that
        answer itself. Raises as ``items`` before the first."""
        first: HttpAnswer
        async for answer, _ in items:
            if answer is not None:
                first = answer
                break
        else:
            raise RuntimeError("a stream of answers has at least one")
        if collects:
            await items.aclose()
            return first

        async def body() -> AsyncIterator[Buffer]:
            async with aclosing(items):
                for part in parts_of(first):
                    metrics.sent_bytes += len(part)
                    yield part
                async for answer, _ in items:
                    for part in () if answer is None else parts_of(answer):
                        metrics.sent_bytes += len(part)
                        yield part

        return HttpAnswer(first.status, first.headers, body())


def _plain(status: int, text: str) -> HttpAnswer:
    body = f"{text}\n".encode()
    return HttpAnswer(status, (("content-type", "text/plain; charset=utf-8"),), (body,))
