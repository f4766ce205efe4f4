"""The request id of a caller, ``x-request-id``, in the answer: a header over HTTP, trailing metadata over
gRPC, a user field over bRPC. A caller that sends none gets none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from interlingua.protocols.wire import REQUEST_ID, BrpcAnswer, GrpcAnswer, HttpAnswer


def in_http(answer: HttpAnswer, headers: Mapping[str, str]) -> HttpAnswer:
    """``answer`` to a request with ``headers``."""
    given = headers.get(REQUEST_ID)
    # an answer may be one for all, so it is not changed
    return replace(answer, headers=(*answer.headers, (REQUEST_ID, given))) if given else answer


def in_grpc(answer: GrpcAnswer, metadata: Mapping[str, str]) -> GrpcAnswer:
    """``answer`` to a call with ``metadata``."""
    given = metadata.get(REQUEST_ID)
    if not given or not (given.isascii() and given.isprintable()):
        return answer
    return replace(answer, trailing=(*answer.trailing, (REQUEST_ID, given)))


def in_brpc(answer: BrpcAnswer, headers: Mapping[str, str]) -> BrpcAnswer:
    """``answer`` to a call with ``headers``."""
    given = headers.get(REQUEST_ID)
    return replace(answer, headers=(*answer.headers, (REQUEST_ID, given))) if given else answer
