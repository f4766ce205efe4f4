"""Errors of the IR as the in-band ``Status`` of grps, and back.

grps knows few codes: whatever a model or a converter of tensors refuses is 500, and so is a model that is not
there. What only we refuse has the code that HTTP has for it. The words of particular endpoints, and what else
an answer looks like, belong to the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from interlingua.protocols.grps.message import GrpsMessage, Status, StatusFlag
from interlingua.protocols.upstream_reply import CODE_OF_HTTP_STATUS
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.errors import HTTP_STATUS

CODES: Mapping[ErrorCode, int] = {
    **HTTP_STATUS,
    ErrorCode.INVALID_TENSOR: 500,
    ErrorCode.UNREPRESENTABLE: 500,
    ErrorCode.NOT_FOUND: 500,
    ErrorCode.ALREADY_EXISTS: 409,
}
"""The code that we answer with for each error."""

PY_CODES: Mapping[ErrorCode, int] = {**CODES, ErrorCode.MALFORMED: 500}
"""In the flavor ``py``, to which a request that it cannot read is an exception like any other."""

CODE_OF_STATUS: Mapping[int, ErrorCode] = {
    **CODE_OF_HTTP_STATUS,
    409: ErrorCode.ALREADY_EXISTS,
    415: ErrorCode.UNSUPPORTED,
    502: ErrorCode.BAD_UPSTREAM,
}
"""What the code of an upstream means, of its status or of HTTP; any other is BAD_UPSTREAM."""

_UNKNOWN_MODEL = re.compile(r"(?:Not found model: \S.*|Model \S.* not found\.)\s*\Z")
"""How both servers, the one of them at the end of a traceback, say that there is no such model."""


_FRAMES = "\n\nAt:\n  "
"""Begins what stands behind the text of an exception in a Python model: the files and lines of its code."""


def words(error: InferenceError) -> str:
    """What a client is told of ``error``: never where in a model's code it arose."""
    return error.message.partition(_FRAMES)[0]


def failure(error: InferenceError, flavor: str) -> Status:
    """The status that tells of ``error`` in the flavor ``py`` or ``cpp``; over HTTP the status line of the
    former has its code too."""
    text = words(error)
    if flavor == "py":
        return Status(PY_CODES[error.code], text, StatusFlag.FAILURE)
    told = f"Bad Request, err: {text}" if error.code is ErrorCode.MALFORMED else text
    return Status(CODES[error.code], told, StatusFlag.FAILURE)


def check(message: GrpsMessage) -> None:
    """Raise the error that an upstream's ``message`` tells of, in its words. A message without a status is
    fine: there are answers that have none."""
    status = message.status
    if status is None or status.flag == StatusFlag.SUCCESS:
        return
    if status.flag != StatusFlag.FAILURE and status.code in (0, 200):
        return
    code = CODE_OF_STATUS.get(status.code, ErrorCode.BAD_UPSTREAM)
    if code is ErrorCode.MODEL_FAILED and _UNKNOWN_MODEL.search(status.msg):
        code = ErrorCode.NOT_FOUND
    raise InferenceError(code, status.msg or f"the upstream answered code {status.code} without a message")
