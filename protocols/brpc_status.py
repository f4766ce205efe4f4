"""The error numbers of bRPC, and what they mean to a caller in the words of this project.

Numbers and texts are those of the original servers; an answer carries them beside an empty message.
Failures of an application are none of these: a dialect tells them inside its message.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from interlingua.protocols.wire import BrpcAnswer, BrpcRequest
from interlingua.schemas import ErrorCode


class BrpcStatus(enum.IntEnum):
    """Why a call failed before, or instead of, being answered by the application."""

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
"""What an upstream's error number means; any other is BAD_UPSTREAM."""


def unparsable(request: BrpcRequest) -> BrpcAnswer:
    """The answer to a message that is not the protobuf, or not in the compression, that it should be."""
    return BrpcAnswer(
        code=BrpcStatus.EREQUEST,
        text=f"Fail to parse request message, CompressType={request.compression}, "
        f"request_size={request.size}",
    )
