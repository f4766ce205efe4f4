"""The error numbers of bRPC, and their error codes.

Numbers and texts are those of the original servers, in an answer with an empty message. Errors of an
application are inside the message of a dialect.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from functools import lru_cache

from interlingua.protocols.wire import BrpcAnswer, BrpcRequest
from interlingua.schemas import ErrorCode


class BrpcStatus(enum.IntEnum):
    """Why a call failed without an answer of the application."""

    ENOSERVICE = 1001
    ENOMETHOD = 1002
    EREQUEST = 1003
    ERPCAUTH = 1004
    ERPCTIMEDOUT = 1008
    EFAILEDSOCKET = 1009
    EHTTP = 1010
    EOVERCROWDED = 1011
    EEOF = 1014
    EINTERNAL = 2001
    ERESPONSE = 2002
    ELOGOFF = 2003
    ELIMIT = 2004
    ECLOSE = 2005


ERROR_CODES: Mapping[int, ErrorCode] = {
    BrpcStatus.ENOSERVICE: ErrorCode.UNSUPPORTED,
    BrpcStatus.ENOMETHOD: ErrorCode.UNSUPPORTED,
    BrpcStatus.EREQUEST: ErrorCode.MALFORMED,
    BrpcStatus.ERPCAUTH: ErrorCode.UNAUTHENTICATED,
    BrpcStatus.ERPCTIMEDOUT: ErrorCode.DEADLINE_EXCEEDED,
    BrpcStatus.EFAILEDSOCKET: ErrorCode.UNAVAILABLE,
    BrpcStatus.EOVERCROWDED: ErrorCode.OVERLOADED,
    BrpcStatus.EEOF: ErrorCode.UNAVAILABLE,
    BrpcStatus.EINTERNAL: ErrorCode.MODEL_FAILED,
    BrpcStatus.ELOGOFF: ErrorCode.UNAVAILABLE,
    BrpcStatus.ELIMIT: ErrorCode.OVERLOADED,
    BrpcStatus.ECLOSE: ErrorCode.UNAVAILABLE,
}
"""The meaning of an upstream's error number; any other is BAD_UPSTREAM."""


def unparsable(request: BrpcRequest) -> BrpcAnswer:
    """The answer to a message that is not valid protobuf, or not in its compression."""
    return BrpcAnswer(
        code=BrpcStatus.EREQUEST,
        text=f"Fail to parse request message, CompressType={request.compression}, "
        f"request_size={request.size}",
    )


@lru_cache(maxsize=64)
def disguised(place: str) -> str:
    """A server's address as the original shows it to strangers: hashed, the digits of each byte swapped."""
    digest = hashlib.md5(place.encode(), usedforsecurity=False).digest()
    return bytes((octet >> 4) | (octet & 0xF) << 4 for octet in digest).hex()
