"""What an operator may choose about prediction over HTTP: how a client asks for a stream, a path of one's
own, and whether a model is given the whole HTTP request.

The names in the configuration are those of the original servers. Reading a request by these choices
belongs to ``server_predict``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote_plus

from interlingua.protocols.wire import HttpRequest

Place = Literal["query_param", "header_param", "body_param"]


@dataclass(frozen=True, slots=True)
class StreamingControl:
    """A client asks for a stream with ``key`` in the query, in a header, or in a JSON body (where it must
    be the boolean true); the answer then has ``content_type``."""

    place: Place = "query_param"
    key: str = "streaming"
    content_type: str = "application/octet-stream"

    def asked(self, request: HttpRequest, query: Mapping[str, str], document: Any) -> bool:
        """Whether ``request`` asks for a stream; ``document`` is its body, where that is JSON."""
        if self.place == "body_param":
            return isinstance(document, dict) and document.get(self.key) is True
        given = query.get(self.key) if self.place == "query_param" else request.headers.get(self.key.lower())
        return given is not None and is_true(given)


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """``path`` answers beside ``/grps/v1/infer/predict``, empty for none. With ``whole_request`` the models
    get the HTTP request as it is, on both paths, and write the answer."""

    path: str = ""
    whole_request: bool = False
    streaming: StreamingControl = field(default_factory=StreamingControl)


def is_true(text: str) -> bool:
    """Whether a switch in a query or a header is on: the original servers know this one word."""
    return text.lower() == "true"


def query_of(request: HttpRequest) -> Mapping[str, str]:
    """The query of ``request``, percent-decoded; of a key that stands twice the first value."""
    found: dict[str, str] = {}
    for pair in request.query.split("&") if request.query else ():
        key, _, value = pair.partition("=")
        found.setdefault(unquote_plus(key), unquote_plus(value))
    return found
