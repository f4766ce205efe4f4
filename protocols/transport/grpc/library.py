"""A gRPC listener on grpcio's asyncio server, for a ``GrpcHandler``.

Messages pass as bytes: no protobuf class is known here. Methods are found when they are called, so a
handler may offer those of several services.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import grpc
import grpc.aio

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.grpc.status import (
    LARGEST_MESSAGE,
    RESOURCE_EXHAUSTED,
    cut,
    fitting,
    too_large,
    unforeseen,
)
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS, Http2Options
from interlingua.protocols.transport.listener import CUT_SECS
from interlingua.protocols.transport.load import SMALL_BYTES, BodyLoad, ListenerLoad
from interlingua.protocols.transport.sockets import SocketFile, cannot_listen, claim
from interlingua.protocols.transport.timeouts import DEFAULT_TIMEOUTS, Timeouts
from interlingua.protocols.wire import FORWARDED_FOR, GrpcAnswer, GrpcHandler, GrpcRequest
from interlingua.schemas import Context

_STATUS = {code.value[0]: code for code in grpc.StatusCode}

_FRAMING_BYTES = 1 << 20
"""How far grpcio lets a message exceed the limit, so that up to here the refusal names the option."""

_KEEPALIVE = (
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 2),
    ("grpc.http2.min_ping_interval_without_data_ms", 300_000),
    ("grpc.http2.max_ping_strikes", 2),
)

_log = logging.getLogger(__name__)


def _milliseconds(secs: float) -> int:
    return min(round(secs * 1000), 2**31 - 1)


class GrpcioServer:
    """Listens at one address. Start it once, stop it once."""

    def __init__(
        self,
        handler: GrpcHandler,
        address: Address,
        *,
        max_request_bytes: int | None = None,
        max_response_bytes: int | None = None,
        load: ListenerLoad | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        http2: Http2Options = DEFAULT_OPTIONS,
    ) -> None:
        self.address = address
        load = ListenerLoad() if load is None else load
        self._calls = _Calls(handler, max_request_bytes, max_response_bytes, load)
        receive = LARGEST_MESSAGE if max_request_bytes is None else max_request_bytes + _FRAMING_BYTES
        self._options = (
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", min(receive, LARGEST_MESSAGE)),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
            ("grpc.max_allowed_incoming_connections", load.most_connections),
            ("grpc.server_handshake_timeout_ms", _milliseconds(timeouts.header_secs)),
            ("grpc.max_connection_idle_ms", _milliseconds(timeouts.idle())),
            ("grpc.keepalive_time_ms", _milliseconds(http2.keepalive_secs)),
            ("grpc.keepalive_timeout_ms", _milliseconds(http2.keepalive_timeout_secs)),
            ("grpc.max_concurrent_streams", http2.max_streams),
            ("grpc.max_metadata_size", http2.max_header_list),
            *_KEEPALIVE,
        )

    async def start(self) -> Address:
        """Listen. The bound address, port filled in; ``OSError`` where that cannot be."""
        address = self.address
        try:
            if address.path:
                claim(address)
        except OSError as error:
            raise cannot_listen(address, error) from error
        target = str(address) if address.path or address.host else f"[::]:{address.port}"
        self._server = grpc.aio.server(handlers=(self._calls,), options=self._options)
        try:
            port = self._server.add_insecure_port(target)
        except RuntimeError as error:
            raise OSError(f"cannot listen at {address}: {error}") from error
        await self._server.start()
        if not address.path:
            self.address = Address(address.host, port)
        self._file = SocketFile(self.address)
        return self.address

    @property
    def at_work(self) -> int:
        """How many calls have not ended yet."""
        return self._calls.running

    def retire(self) -> None:
        """See ``Server``. grpcio does not stop to accept before it stops; no successor gets its socket."""

    async def stop(self, grace_secs: float) -> int:
        """Accept nothing more, let running calls end for ``grace_secs``, then cut the rest.

        How many calls were cut.
        """
        # we end the grace, not grpcio: it does not report which calls it cuts
        closing = asyncio.ensure_future(self._server.stop(grace_secs + CUT_SECS))
        await asyncio.sleep(0)
        cut = 0
        if not await self._calls.ended(grace_secs):
            cut = self._calls.running
            _log.warning(
                "requests cut on listener", extra={"facts": {"address": str(self.address), "count": cut}}
            )
            await self._server.stop(None)
            await self._calls.ended(CUT_SECS)
        await closing
        self._file.remove()
        return cut


class _OversizedError(Exception):
    """A message of a stream is above the limit; ``answer`` is how the stream ends."""

    def __init__(self, answer: GrpcAnswer) -> None:
        super().__init__(answer.details)
        self.answer = answer


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc] # grpcio ships no types
    """Hands each call to the handler, as bytes."""

    def __init__(
        self, handler: GrpcHandler, max_request: int | None, max_response: int | None, load: ListenerLoad
    ) -> None:
        self._handler = handler
        self._load = load
        self._max_request = max_request
        self._max_response = max_response
        self._methods: dict[str, Any] = {}
        self.running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """The entry for the method that is called, None (UNIMPLEMENTED) where the handler has none."""
        method = details.method
        entry = self._methods.get(method)
        if entry is None:
            kind = self._handler.offers(method)
            if kind is None:
                return None
            # kept only for methods that exist, since clients choose the names
            make, behaviour = _KINDS[kind]
            entry = self._methods[method] = make(partial(behaviour, self, method))
        return entry

    async def ended(self, within_secs: float) -> bool:
        """Whether every call has ended, for which this waits."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_secs):
                await self._idle.wait()
        return not self.running

    async def unary(self, method: str, message: bytes, call: grpc.aio.ServicerContext) -> Any:
        """One call of a unary method."""
        request = _request(method, message, call)
        held = BodyLoad(self._load)
        with self._running(request):
            try:
                if len(message) > SMALL_BYTES and (error := held.grow(len(message))) is not None:
                    answer = GrpcAnswer(code=RESOURCE_EXHAUSTED, details=error.message)
                elif self._max_request is not None and len(message) > self._max_request:
                    answer = too_large("request", len(message), "max_request_bytes", self._max_request)
                else:
                    answer = self._handler.refusal(request) or await self._handler.serve(request)
            except Exception:
                answer = unforeseen(method)
            finally:
                held.release()
            return _apply_status(fitting(answer, self._max_response), call)

    async def stream(
        self, method: str, messages: AsyncIterator[bytes], call: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        """One call of a streaming method."""
        head = _request(method, b"", call)
        with self._running(head):
            try:
                async with _closing(self._handler.stream(head, self._limited(messages))) as answers:
                    async for answer in answers:
                        answer = fitting(answer, self._max_response)
                        message = _apply_status(answer, call)
                        if answer.code:
                            return
                        yield message
            except _OversizedError as refused:
                _apply_status(refused.answer, call)
            except Exception:
                _apply_status(unforeseen(method), call)

    async def _limited(self, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """``messages`` up to the first one above the limit. Raises ``_OversizedError`` there."""
        async for message in messages:
            if self._max_request is not None and len(message) > self._max_request:
                raise _OversizedError(
                    too_large("request", len(message), "max_request_bytes", self._max_request)
                )
            yield message

    @contextlib.contextmanager
    def _running(self, request: GrpcRequest) -> Iterator[None]:
        self.running += 1
        self._idle.clear()
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            # the client went away, its deadline passed, or we are stopping
            request.context.cancel.cancel()
            raise
        finally:
            self.running -= 1
            if not self.running:
                self._idle.set()


_KINDS: dict[str, tuple[Any, Any]] = {
    "unary": (grpc.unary_unary_rpc_method_handler, _Calls.unary),
    "stream": (grpc.stream_stream_rpc_method_handler, _Calls.stream),
}


@contextlib.asynccontextmanager
async def _closing(answers: AsyncIterator[GrpcAnswer]) -> AsyncIterator[AsyncIterator[GrpcAnswer]]:
    """``answers``, closed at the end where they can be: what they still do must not outlive the call."""
    try:
        yield answers
    finally:
        if (close := getattr(answers, "aclose", None)) is not None:
            await close()


def _request(method: str, message: bytes, call: grpc.aio.ServicerContext) -> GrpcRequest:
    remaining = call.time_remaining()
    # keys that end in -bin carry bytes, for which no dialect has a use
    given = call.invocation_metadata() or ()
    fields = [(key, value.strip("\t ")) for key, value in given if isinstance(value, str)]
    metadata = dict(fields)
    if FORWARDED_FOR in metadata:  # a proxy may append a line of its own
        metadata[FORWARDED_FOR] = ", ".join(value for key, value in fields if key == FORWARDED_FOR)
    context = Context(
        deadline=None if remaining is None else time.monotonic() + remaining,
        traceparent=metadata.get("traceparent", ""),
        tracestate=metadata.get("tracestate", ""),
        peer=call.peer(),
        headers=metadata,
    )
    return GrpcRequest(method, message, metadata, context)


def _apply_status(answer: GrpcAnswer, call: grpc.aio.ServicerContext) -> bytes:
    """Set the status of the call; the message to send, as the bytes object that grpcio wants."""
    if answer.trailing:
        call.set_trailing_metadata(tuple(answer.trailing))
    if answer.code:
        call.set_code(_STATUS[answer.code])
        call.set_details(cut(answer.details))
    message = answer.whole
    return message if isinstance(message, bytes) else bytes(message)
