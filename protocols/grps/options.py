"""Options of prediction over HTTP: the flag for a stream, a second path, and models of whole HTTP requests.
``settings`` has their names in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote_plus

from interlingua.protocols.wire import HttpRequest

Place = Literal["query_param", "header_param", "body_param"]


@dataclass(frozen=True, slots=True)
class StreamingControl:
    """A client requests a stream with ``key`` in the query, in a header, or in a JSON body (the boolean
    true); the answer then has ``content_type``."""

    place: Place = "query_param"
    key: str = "streaming"
    content_type: str = "application/octet-stream"

    def requested(self, request: HttpRequest, query: Mapping[str, str], document: Any) -> bool:
        """Whether ``request`` is for a stream; ``document`` is its body if that is JSON."""
        if self.place == "body_param":
            return isinstance(document, dict) and document.get(self.key) is True
        given = query.get(self.key) if self.place == "query_param" else request.headers.get(self.key.lower())
        return given is not None and is_true(given)


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """``path`` is a second path, empty for none. With ``whole_request`` the models get the HTTP request, on
    both paths, and write the answer."""

    path: str = ""
    whole_request: bool = False
    streaming: StreamingControl = field(default_factory=StreamingControl)


def is_true(text: str) -> bool:
    """Whether a flag in a query or a header is on: the original servers accept only this word."""
    return text.lower() == "true"


def query_of(request: HttpRequest) -> Mapping[str, str]:
    """The query of ``request``, percent-decoded, with the first value of a repeated key."""
    found: dict[str, str] = {}
    for pair in request.query.split("&") if request.query else ():
        key, _, value = pair.partition("=")
        found.setdefault(unquote_plus(key), unquote_plus(value))
    return found
