"""Makes calls to one gRPC upstream over one channel, messages as bytes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import grpc.aio

from protocols.transport.address import Url
from protocols.wire import GrpcAnswer, GrpcRequest
from schemas import ErrorCode, InferenceError

LARGEST_MESSAGE = 2**31 - 1

_NOBODY_THERE = ("failed to connect to all addresses", "connection refused", "connections to all backends")
"""How grpcio tells that it reached nobody. A status that a server sent has other words."""

_TOO_LARGE = "received message larger than max"
_BY_THE_SERVER = "server:"
"""grpcio's words for a message above a limit, and its mark on those that the other side wrote."""


class GrpcChannelClient:
    """A ``GrpcClient``: a channel to ``url``, connected when first needed and again when it breaks."""

    def __init__(
        self, url: Url, *, connect_timeout_secs: float = 5.0, max_response_bytes: int | None = None
    ) -> None:
        self._url = url
        self._limit = max_response_bytes
        self._options = (
            ("grpc.max_receive_message_length", max_response_bytes or LARGEST_MESSAGE),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.min_reconnect_backoff_ms", int(connect_timeout_secs * 1000)),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
        )
        self._channel: grpc.aio.Channel | None = None
        self._methods: dict[str, Any] = {}

    async def send(self, request: GrpcRequest) -> GrpcAnswer:
        """Make one unary call; errors are those of ``GrpcClient``."""
        call = self._method(request.method, stream=False)(
            bytes(request.message), timeout=self._timeout(request), metadata=tuple(request.metadata.items())
        )
        try:
            message = await call
        except grpc.aio.AioRpcError as status:
            return self._status(status)
        except grpc.aio.InternalError as fault:
            raise _unsendable(request) from fault
        return GrpcAnswer(message)

    async def stream(self, request: GrpcRequest) -> AsyncGenerator[GrpcAnswer, None]:
        """Make one call of a streaming method; answers and errors are those of ``GrpcClient``."""
        call = self._method(request.method, stream=True)(
            bytes(request.message), timeout=self._timeout(request), metadata=tuple(request.metadata.items())
        )
        try:
            async for message in call:
                yield GrpcAnswer(message)
        except grpc.aio.AioRpcError as status:
            answer = self._status(status)
        except grpc.aio.InternalError as fault:
            raise _unsendable(request) from fault
        else:
            return
        finally:
            call.cancel()
        yield answer

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()

    def _timeout(self, request: GrpcRequest) -> float | None:
        """The seconds that are left, None for no limit. Raises DEADLINE_EXCEEDED where none are."""
        deadline = request.context.deadline
        timeout = None if deadline is None else deadline - time.monotonic()
        if timeout is not None and timeout <= 0:
            raise self._error(ErrorCode.DEADLINE_EXCEEDED, "was not asked: the deadline has passed")
        return timeout

    def _method(self, name: str, *, stream: bool) -> Any:
        method = self._methods.get(name)
        if method is None:
            if self._channel is None:
                self._channel = grpc.aio.insecure_channel(str(self._url.address), options=self._options)
            # one message goes out whatever the method takes; where a stream of them is written, grpcio has
            # INTERNAL in place of the status of a server that answers before it has read
            make = self._channel.unary_stream if stream else self._channel.unary_unary
            method = self._methods[name] = make(name)
        return method

    def _status(self, status: grpc.aio.AioRpcError) -> GrpcAnswer:
        """The server's own status as an answer. Raises where it is grpcio that speaks."""
        code, details = status.code(), status.details() or ""
        words = details.lower()
        if code is grpc.StatusCode.UNAVAILABLE and any(text in words for text in _NOBODY_THERE):
            raise self._error(ErrorCode.UNAVAILABLE, f"cannot be reached: {details}") from status
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise self._error(ErrorCode.DEADLINE_EXCEEDED, "did not answer before the deadline") from status
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in words and _BY_THE_SERVER not in words:
            raise self._error(
                ErrorCode.TOO_LARGE,
                f"gave an answer larger than the {self._limit} bytes that max_response_bytes of this "
                f"upstream allows: {details}",
            ) from status
        return GrpcAnswer(code=code.value[0], details=details)

    def _error(self, code: ErrorCode, what: str) -> InferenceError:
        return InferenceError(code, f"the upstream at {self._url} {what}")


def _unsendable(request: GrpcRequest) -> InferenceError:
    """The metadata has a key or a value that HTTP/2 lacks."""
    return InferenceError(
        ErrorCode.MALFORMED, f"the metadata of this request cannot be sent: {sorted(request.metadata)}"
    )
