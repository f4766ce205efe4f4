"""What the pipeline itself adds to an answer: the request id of its caller, ``x-request-id``, and the header
``Server-Timing``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from interlingua.protocols.wire import REQUEST_ID, GrpcAnswer

UPSTREAM_TIMING = "upstream;dur=%.3f"
"""``Server-Timing`` of a request with this stage alone, for milliseconds."""

_MS = (1e6).__rtruediv__
"""Nanoseconds in milliseconds, in C: every answer has some."""


def with_request_id(answer: Any, headers: Mapping[str, str]) -> Any:
    """A copy of ``answer``, which requests may share, to a request with ``headers``; see
    :func:`add_request_id`."""
    return add_request_id(replace(answer), headers) if headers.get(REQUEST_ID) else answer


def add_request_id(answer: Any, headers: Mapping[str, str]) -> Any:
    """``answer`` to a request with ``headers``: the id, if there is one, becomes a header over HTTP, trailing
    metadata over gRPC, a user field over bRPC."""
    request_id = headers.get(REQUEST_ID)
    if not request_id:
        return answer
    if not isinstance(answer, GrpcAnswer):
        answer.headers = (*answer.headers, (REQUEST_ID, request_id))
    elif request_id.isascii() and request_id.isprintable():
        answer.trailing = (*answer.trailing, (REQUEST_ID, request_id))
    return answer


def server_timing(timings: Mapping[str, int]) -> str:
    """The value of ``Server-Timing`` for ``timings``, nanoseconds by stage: in milliseconds."""
    return _format(*timings) % tuple(map(_MS, timings.values()))


@cache
def _format(*stages: str) -> str:
    return ", ".join(f"{stage};dur=%.3f" for stage in stages)
