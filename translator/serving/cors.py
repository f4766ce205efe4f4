"""Cross-Origin Resource Sharing (Fetch Standard, section 3.3): which pages of other origins a browser lets
read the answers of a listener, and send more than simple requests.

A browser enforces it, and sends no credentials in a preflight request: that one is answered before anything
is permitted or refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from interlingua.protocols.wire import Headers, HttpAnswer, HttpHandler, HttpRequest
from interlingua.schemas import InferenceError

ANY_ORIGIN = "*"

_REQUESTED_METHOD = "access-control-request-method"
_REQUESTED_HEADERS = "access-control-request-headers"


@dataclass(frozen=True, slots=True)
class CorsPolicy:
    """The ``origins`` of pages, or any. They may send ``headers``, all if that is empty, and with
    ``credentials`` certificates of the browser; it remembers a preflight for ``max_age_secs``."""

    origins: frozenset[str]
    headers: tuple[str, ...] = ()
    credentials: bool = False
    max_age_secs: int = 600

    def permits(self, origin: str) -> bool:
        """Whether pages of ``origin`` may read answers."""
        return origin in self.origins or ANY_ORIGIN in self.origins

    def headers_for(self, origin: str) -> Headers:
        """What every answer for a page of ``origin`` has."""
        found = ("Access-Control-Allow-Origin", origin), ("Vary", "Origin")
        return (*found, ("Access-Control-Allow-Credentials", "true")) if self.credentials else found


class CorsHandler:
    """An ``HttpHandler`` that adds ``policy`` to the answers of ``handler``."""

    def __init__(self, handler: HttpHandler, policy: CorsPolicy) -> None:
        self._handler = handler
        self._policy = policy

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        """Answer preflight requests of permitted origins."""
        headers = request.headers
        origin = headers.get("origin", "")
        if request.method == "OPTIONS" and _REQUESTED_METHOD in headers and self._policy.permits(origin):
            return self._preflight(origin, headers[_REQUESTED_METHOD], headers.get(_REQUESTED_HEADERS, ""))
        answer = self._handler.head(request)
        return None if answer is None else self._readable(request, answer)

    def prefix(self, request: HttpRequest) -> int | None:
        return self._handler.prefix(request)

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        return self._readable(request, await self._handler.serve(request))

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        return self._readable(request, self._handler.refuse(request, error))

    def _preflight(self, origin: str, method: str, headers: str) -> HttpAnswer:
        policy = self._policy
        permitted = ", ".join(policy.headers) or headers
        return HttpAnswer(
            204,
            (
                *policy.headers_for(origin),
                ("Access-Control-Allow-Methods", method),
                *((("Access-Control-Allow-Headers", permitted),) if permitted else ()),
                ("Access-Control-Max-Age", str(policy.max_age_secs)),
            ),
        )

    def _readable(self, request: HttpRequest, answer: HttpAnswer) -> HttpAnswer:
        """``answer``, all of which the page may read if its origin is permitted."""
        origin = request.headers.get("origin")
        if origin is None or not self._policy.permits(origin):
            return answer
        names = ", ".join(dict.fromkeys(name.lower() for name, _ in answer.headers))
        exposed = (("Access-Control-Expose-Headers", names),) if names else ()
        # a copy, since requests may share an answer
        return replace(answer, headers=(*answer.headers, *self._policy.headers_for(origin), *exposed))
