"""The options of a listener that concern GraphPipe alone."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationInfo, field_validator

from interlingua.protocols.section import Section


class GraphpipeListenerOptions(Section):
    """The keys that GraphPipe adds to a listener."""

    accept_te_with_length: bool = False
    """Over http, where GraphPipe is the only dialect: accept requests with both `Transfer-Encoding:
    chunked` and `Content-Length`, as TensorFlow's GraphPipe plug-in sends them. The chunks count, and the
    connection closes after the answer. Never use it behind a proxy: a proxy that honours the length lets a
    client send part of a request as another client's (request smuggling)."""
    graphpipe_errors: Literal["status", "inband"] = "status"
    """The form of GraphPipe errors over http: a status and a text, which every client notices, or the
    `errors` of an answer with status 200, which few clients read. Over tcp errors are always in band."""

    @field_validator("accept_te_with_length")
    @classmethod
    def _for_graphpipe_alone(cls, value: bool, info: ValidationInfo) -> bool:
        if not value:
            return value
        if info.data.get("transport", "http") != "http":
            raise ValueError(f"is for transport http, not {info.data['transport']}")
        dialects = info.data.get("dialects", ("graphpipe",))
        if dialects != ("graphpipe",):
            raise ValueError(f"is for listeners that speak graphpipe alone, not {', '.join(dialects)}")
        if info.data.get("engine") == "library":
            raise ValueError("is for engine native, not library")
        return value
