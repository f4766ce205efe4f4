"""Errors of the IR as the in-band ``Status`` of grps, and back.

grps has few codes: every refusal of a model or of a converter of tensors is 500, and so is an unknown model.
Our own refusals have the code of HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from interlingua.protocols.grps.message import GrpsMessage, Status, StatusFlag
from interlingua.protocols.upstream_reply import CODE_OF_HTTP_STATUS
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.bounded_text import shortened
from interlingua.schemas.errors import HTTP_STATUS, TRACEBACK

CODES: Mapping[ErrorCode, int] = {
    **HTTP_STATUS,
    ErrorCode.INVALID_TENSOR: 500,
    ErrorCode.UNREPRESENTABLE: 500,
    ErrorCode.NOT_FOUND: 500,
    ErrorCode.ALREADY_EXISTS: 409,
}
"""The code of each error."""

PY_CODES: Mapping[ErrorCode, int] = {**CODES, ErrorCode.MALFORMED: 500}
"""The same for the flavor ``py``, for which an unreadable request is an exception like any other."""

CODE_OF_STATUS: Mapping[int, ErrorCode] = {
    **CODE_OF_HTTP_STATUS,
    409: ErrorCode.ALREADY_EXISTS,
    415: ErrorCode.UNSUPPORTED,
    502: ErrorCode.BAD_UPSTREAM,
}
"""The meaning of an upstream's code, in its status or of HTTP; any other is BAD_UPSTREAM."""

_UNKNOWN_MODEL = re.compile(r"(?:Not found model: \S.*|Model \S.* not found\.)\s*\Z")
"""Both servers' message for an unknown model, one of them at the end of a traceback."""


_TRACEBACK = "Traceback (most recent call last):"
TEXT_CHARS = 1 << 16
"""The longest text of an upstream's error in the log."""

_FRAMES = "\n\nAt:\n  "
"""Begins the stack after the text of an exception in a Python model."""


def words(error: InferenceError) -> str:
    """The message of ``error`` for clients, without the stack in a model's code."""
    return error.message.partition(_FRAMES)[0]


def failure(error: InferenceError, flavor: str) -> Status:
    """The status of ``error`` in the flavor ``py`` or ``cpp``."""
    text = words(error)
    if flavor == "py":
        return Status(PY_CODES[error.code], text, StatusFlag.FAILURE)
    message = f"Bad Request, err: {text}" if error.code is ErrorCode.MALFORMED else text
    return Status(CODES[error.code], message, StatusFlag.FAILURE)


def check(message: GrpsMessage) -> None:
    """Raise the error in an upstream's ``message``, if any, in its words. Some answers have no status."""
    status = message.status
    if status is None or status.flag == StatusFlag.SUCCESS:
        return
    if status.flag != StatusFlag.FAILURE and status.code in (0, 200):
        return
    code = CODE_OF_STATUS.get(status.code, ErrorCode.BAD_UPSTREAM)
    if code is ErrorCode.MODEL_FAILED and _UNKNOWN_MODEL.search(status.msg):
        code = ErrorCode.NOT_FOUND
    text, details = last_line(status.msg)
    text = text or f"the upstream answered code {status.code} without a message"
    raise InferenceError(code, text, details=details)


def last_line(text: str) -> tuple[str, Mapping[str, str]]:
    """The ``text`` of an upstream's error for clients, without a traceback, and details for the log."""
    if _TRACEBACK not in text:
        return text, {}
    return text.rstrip().rpartition("\n")[2], {TRACEBACK: shortened(text, TEXT_CHARS)}
