"""The errors of an HTTP client, with the address of its upstream: the same from both engines."""

from __future__ import annotations

from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.inflated import is_limit, limited_answer
from interlingua.protocols.wire import ConnectionFailedError
from interlingua.schemas import ErrorCode, InferenceError


class HttpClientErrors:
    """For the upstream at ``url``; ``limit`` is its ``max_response_bytes``."""

    def __init__(self, url: Url, limit: int | None) -> None:
        self._url = url
        self._limit = limit

    def failed(
        self, what: str, code: ErrorCode = ErrorCode.UNAVAILABLE, *, sent: bool = True
    ) -> ConnectionFailedError:
        """The connection failed; see ``ConnectionFailedError``."""
        return ConnectionFailedError(code, f"the upstream at {self._url} {what}", sent=sent)

    def unanswered(self) -> ConnectionFailedError:
        """The connection ended before the headers of an answer."""
        return self.failed("closed the connection without an answer")

    def broken_off(self) -> ConnectionFailedError:
        """The body of an answer ended early, or its framing broke."""
        return self.failed("broke off in the middle of its answer")

    def foreign(self, reason: str) -> ConnectionFailedError:
        """The answer is not HTTP."""
        return self.failed(f"does not speak HTTP: {reason}", ErrorCode.BAD_UPSTREAM)

    def timed_out(self) -> InferenceError:
        """The deadline has passed."""
        return self._error(ErrorCode.DEADLINE_EXCEEDED, "did not answer before the deadline")

    def too_large(self, size: int | None) -> InferenceError:
        """The answer of ``size`` bytes, if that is known, is above the limit."""
        what = "an answer" if size is None else f"an answer of {size} bytes"
        return self._error(
            ErrorCode.TOO_LARGE,
            f"gave {what}, more than the {self._limit} that max_response_bytes of this upstream allows",
        )

    def bad_coding(self, fault: InferenceError) -> InferenceError:
        """The body does not decompress, or not within the limit."""
        if is_limit(fault):
            return limited_answer(self._url, fault)
        if fault.code is ErrorCode.TOO_LARGE:
            return self.too_large(None)
        return self._error(ErrorCode.BAD_UPSTREAM, f"answered badly: {fault.message}")

    def _error(self, code: ErrorCode, what: str) -> InferenceError:
        return InferenceError(code, f"the upstream at {self._url} {what}")


def unwritable(fault: object) -> InferenceError:
    """The request has a line break in a header, for example."""
    return InferenceError(ErrorCode.MALFORMED, f"this request cannot be written as HTTP: {fault}")
