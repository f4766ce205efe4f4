"""The errors of a gRPC client, with the address of its upstream: the same from both engines."""

from __future__ import annotations

from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.inflated import limited_answer
from interlingua.protocols.wire import ConnectionFailedError, GrpcRequest
from interlingua.schemas import ErrorCode, InferenceError


class ClientErrors:
    """For the upstream at ``url``; ``limit`` is its ``max_response_bytes``."""

    def __init__(self, url: Url, limit: int | None) -> None:
        self._url = url
        self._limit = limit

    def failed(self, what: str, *, sent: bool, code: ErrorCode = ErrorCode.UNAVAILABLE) -> InferenceError:
        """The connection failed; see ``ConnectionFailedError``."""
        return ConnectionFailedError(code, f"the upstream at {self._url} {what}", sent=sent)

    def broken(self, why: str) -> InferenceError:
        """The connection ended during the call."""
        return self.failed(f"closed the connection without an answer: {why}", sent=True)

    def too_late(self) -> InferenceError:
        """The deadline had passed before the call."""
        return self._error(ErrorCode.DEADLINE_EXCEEDED, "was not called: the deadline has passed")

    def timed_out(self) -> InferenceError:
        """The deadline passed during the call."""
        return self._error(ErrorCode.DEADLINE_EXCEEDED, "did not answer before the deadline")

    def too_large(self, details: str) -> InferenceError:
        """The answer is above the limit."""
        return self._error(
            ErrorCode.TOO_LARGE,
            f"gave an answer larger than the {self._limit} bytes that max_response_bytes of this "
            f"upstream allows: {details}",
        )

    def limited(self, fault: InferenceError) -> InferenceError:
        """See ``limited_answer``."""
        return limited_answer(self._url, fault)

    def _error(self, code: ErrorCode, what: str) -> InferenceError:
        return InferenceError(code, f"the upstream at {self._url} {what}")


def unsendable(request: GrpcRequest) -> InferenceError:
    """The metadata has a key or a value that HTTP/2 lacks."""
    return InferenceError(
        ErrorCode.MALFORMED, f"the metadata of this request cannot be sent: {sorted(request.metadata)}"
    )
