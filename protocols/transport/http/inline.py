"""The inline path of one connection: requests of which one was answered, whose headers others repeat."""

from __future__ import annotations

from interlingua.protocols.fast_path import FindInline, InlineCaller, InlinePath
from interlingua.protocols.transport.http1.headers import RequestHeaders
from interlingua.protocols.transport.http1.reader import RequestReader
from interlingua.protocols.transport.load import SMALL_BYTES
from interlingua.protocols.wire import HttpAnswer, HttpRequest


class InlineRequests:
    """Finds the ``path`` in ``handler``, if it has any."""

    __slots__ = ("_find", "_headers", "path")

    def __init__(self, handler: object) -> None:
        self._find: FindInline | None = getattr(handler, "inline_path", None)
        self._headers: RequestHeaders | None = None
        self.path: InlinePath | None = None

    def find(self, request: HttpRequest, headers: RequestHeaders) -> None:
        """Find the path of requests that repeat ``request``, which has these ``headers``."""
        if self._find is not None and headers.length <= SMALL_BYTES:
            self.path, self._headers = self._find(request), headers

    def answers(self, reader: RequestReader, caller: InlineCaller) -> bool:
        """Answer the request of ``caller`` that ``reader`` has; False if its handler is to serve it, as it
        does pipelined ones: they give other connections their turn."""
        known, headers = self._headers, reader.headers
        if self.path is None or known is None or reader.pending:
            return False
        if headers is not known and not _differ_in_length(headers, known):
            return False
        answer = self.path.answer(reader.body)
        if answer is None:
            return False
        if type(answer) is HttpAnswer:
            caller.answered(answer)
        else:
            caller.fall_back(answer)
        return True


def _differ_in_length(headers: RequestHeaders, known: RequestHeaders) -> bool:
    """Whether the length of the body is all that differs in two header sections."""
    return (
        0 <= headers.length <= SMALL_BYTES
        and headers.path == known.path
        and (headers.method, headers.query, headers.minor) == (known.method, known.query, known.minor)
        and {**headers.headers, "content-length": ""} == {**known.headers, "content-length": ""}
    )
