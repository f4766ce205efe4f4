"""A gRPC client on grpcio: calls to one upstream over one channel, messages as bytes.

A channel whose server is silent is replaced: the system may take minutes to notice that a machine is gone,
and servers reject clients that ping often.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from interlingua.protocols.transport.address import Address, Url
from interlingua.protocols.transport.client_options import DEFAULT_OPTIONS, ClientOptions
from interlingua.protocols.transport.grpc.client_errors import ClientErrors, unsendable
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest

_INTERNAL = grpc.StatusCode.INTERNAL.value[0]

LARGEST_MESSAGE = 2**31 - 1

_NOBODY_THERE = ("failed to connect to all addresses", "errors resolving", "dns resolution failed")
"""How grpcio's details begin if it has no connection. A server may send the same, about its own upstream."""

_BROKEN = ("stream removed", "socket closed", "connection reset", "broken pipe", "goaway")
"""Parts of its details if a connection has ended."""

_TOO_LARGE = "received message larger than max"
_BY_THE_SERVER = "server:"
"""grpcio's details for a message above a limit, and its mark on those from the other side."""


class GrpcioClient:
    """A ``GrpcClient``: a channel to ``url``, connected when first needed and again when it breaks."""

    def __init__(self, url: Url, options: ClientOptions = DEFAULT_OPTIONS) -> None:
        self._errors = ClientErrors(url, options.max_response_bytes)
        self._options: tuple[tuple[str, int | str], ...] = (
            ("grpc.max_receive_message_length", options.max_response_bytes or LARGEST_MESSAGE),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.min_reconnect_backoff_ms", int(options.connect_timeout_secs * 1000)),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 250),
            ("grpc.dns_min_time_between_resolutions_ms", 1000),
        )
        self._target = str(url.address)
        if at := options.at:
            self._options += (("grpc.default_authority", self._target),)
            self._target = f"{'ipv6' if ':' in at else 'ipv4'}:{Address(at, url.address.port)}"
        self._channel: _Channel | None = None

    async def send(self, request: GrpcRequest) -> GrpcAnswer:
        """Make one unary call; errors are those of ``GrpcClient``."""
        timeout, channel = self._timeout(request), self._current()
        heard = channel.begin()
        try:
            message = await channel.method(request.method, stream=False)(
                bytes(request.whole), timeout=timeout, metadata=tuple(request.metadata.items())
            )
            channel.heard += 1
        except grpc.aio.AioRpcError as status:
            return self._status(status, channel, heard)
        except grpc.aio.InternalError as fault:
            raise unsendable(request) from fault
        finally:
            await channel.end()
        if message is None:  # the server gave status OK without a whole message
            return GrpcAnswer(code=_INTERNAL, details="the answer to a unary call has no message")
        return GrpcAnswer(message)

    async def stream(
        self, request: GrpcRequest, messages: AsyncIterator[Buffer] | None = None
    ) -> AsyncGenerator[GrpcAnswer, None]:
        """Make one call of a streaming method; answers and errors are those of ``GrpcClient``."""
        timeout, channel = self._timeout(request), self._current()
        heard = channel.begin()
        call = None
        try:
            metadata = tuple(request.metadata.items())
            if messages is None:
                method = channel.method(request.method, stream=True)
                call = method(bytes(request.whole), timeout=timeout, metadata=metadata)
            else:
                method = channel.method(request.method, stream=True, streamed=True)
                call = method(_as_bytes(messages), timeout=timeout, metadata=metadata)
            async for message in call:
                channel.heard += 1
                yield GrpcAnswer(message)
        except grpc.aio.AioRpcError as status:
            answer = self._status(status, channel, heard)
        except grpc.aio.InternalError as fault:
            raise unsendable(request) from fault
        else:
            return
        finally:
            if call is not None:
                call.cancel()
            await channel.end()
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
            raise self._errors.too_late()
        return timeout

    def _current(self) -> _Channel:
        if self._channel is None or self._channel.retired:
            self._channel = _Channel(self._target, self._options)
        return self._channel

    def _status(self, status: grpc.aio.AioRpcError, channel: _Channel, heard: int) -> GrpcAnswer:
        """The server's own status as an answer. Raises for a status that grpcio has made."""
        code, details = status.code(), status.details() or ""
        words = details.lower()
        if code is grpc.StatusCode.UNAVAILABLE:
            # with a connection, the status may be that of a server that cannot reach its upstream
            connected = channel.connected
            if words.startswith(_NOBODY_THERE):
                raise self._errors.failed(f"cannot be reached: {details}", sent=connected) from status
            if not connected or any(text in words for text in _BROKEN):
                raise self._errors.broken(details) from status
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            if channel.heard == heard:
                channel.retired = True
            raise self._errors.timed_out() from status
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in words and _BY_THE_SERVER not in words:
            raise self._errors.too_large(details) from status
        channel.heard += 1
        return GrpcAnswer(code=code.value[0], details=details)


class _Channel:
    """A channel and its running calls. ``heard`` counts the server's messages; a ``retired`` channel takes no
    more calls and closes after the last."""

    def __init__(self, target: str, options: Sequence[tuple[str, int | str]]) -> None:
        self._channel = grpc.aio.insecure_channel(target, options=options)
        self._methods: dict[tuple[str, bool], Any] = {}
        self._running = 0
        self.heard = 0
        self.retired = False

    def method(self, name: str, *, stream: bool, streamed: bool = False) -> Any:
        """What calls ``name`` with messages as bytes; ``stream``: it answers with many, ``streamed``: it gets
        many. If many are sent, grpcio has INTERNAL in place of the status of a server that answers before it
        has read them, so one message is sent as such."""
        method = self._methods.get((name, streamed))
        if method is None:
            channel = self._channel
            make = channel.unary_stream if stream else channel.unary_unary
            method = self._methods[name, streamed] = (channel.stream_stream if streamed else make)(name)
        return method

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        state: grpc.ChannelConnectivity = self._channel.get_state()
        return state is grpc.ChannelConnectivity.READY

    def begin(self) -> int:
        """Count a new call. Returns ``heard`` as it was before."""
        self._running += 1
        return self.heard

    async def end(self) -> None:
        """It has ended."""
        self._running -= 1
        if self.retired and not self._running:
            await self.close()

    async def close(self) -> None:
        """Close it; calls on it fail."""
        await self._channel.close()


async def _as_bytes(messages: AsyncIterator[Buffer]) -> AsyncIterator[bytes]:
    async for message in messages:
        yield bytes(message)
