"""A connection to a gRPC upstream: the asyncio protocol around an HTTP/2 ``ClientConnection``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from interlingua.protocols.transport.connect import reason_of
from interlingua.protocols.transport.deadlines import Deadlines
from interlingua.protocols.transport.grpc.client_call import ClientCall
from interlingua.protocols.transport.grpc.client_errors import ClientErrors
from interlingua.protocols.transport.grpc.client_headers import AnswerHeaders, CallBlocks, read_headers
from interlingua.protocols.transport.h2.client import ClientConnection
from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.transport.received import SharedReceiver
from interlingua.protocols.transport.sockets import send_at_once
from interlingua.protocols.transport.turns import Turn
from interlingua.protocols.transport.writes import WriteBatch, shared_writes_of
from interlingua.protocols.wire import Buffer
from interlingua.schemas import ErrorCode

_PING_SECS, _PING_TIMEOUT_SECS = 300.0, 20.0
"""After how long without a byte a server with running calls gets a PING, and how long it may take to answer.
Servers close connections that ping more often (grpc-core: "too_many_pings")."""

_GOODBYE_SECS = 1.0
"""How long a server may take to read what is unsent when a connection ends."""

_WRITE_BUFFER_BYTES = 1 << 20
"""How much output the transport buffers before requests are queued by stream."""


class GrpcClientConnection(SharedReceiver):
    """``changed`` is called when the connection has become ready, takes more calls than before, or none."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        space: memoryview,
        authority: str,
        errors: ClientErrors,
        limit: int | None,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(space)
        self.loop = loop
        self.errors = errors
        self.limit = limit
        self.heard = 0
        """How often something was received."""
        self.socket_closed: asyncio.Future[None] = loop.create_future()
        """Done when the socket is closed, if it was opened."""
        self._authority = authority
        self._changed = changed
        self._reason = "the connection was closed"
        self._heard_before = -1
        # when a call expired first since the last answer: the answers, and the newest stream
        self._answered, self._expired = -1, 0

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send our preface."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._batch = WriteBatch(self.loop, self._transport)
        self.turn = Turn(self.loop, self._transport, self._go_on)
        send_at_once(transport)
        self.connection: ClientConnection[AnswerHeaders, ClientCall] = ClientConnection(
            read_headers, self._batch.write, self._on_change
        )
        self.connection.sender.write_shared = self._batch.write_shared
        self._shared_writes = shared_writes_of(self.loop)
        scheme = b"http" if transport.get_extra_info("sslcontext") is None else b"https"
        self.headers = CallBlocks(self.connection.encoder, self._authority, scheme)
        self.deadlines = Deadlines(self.loop, self.connection.streams.values)
        self._timer = self.loop.call_later(_PING_SECS, self._check_liveness)

    def data_received(self, data: Buffer) -> None:
        """Frames, cut anywhere."""
        self.heard += 1
        connection = self.connection
        try:
            connection.receive(data)
        finally:
            if self._shared_writes.batches:
                self._shared_writes.flush()
        if connection.frames.inside is not None:
            self.direct = connection.space
        if connection.frames.pending:
            self.end_turn()
        if connection.closed:
            self._end()

    def _go_on(self) -> None:
        """It is this connection's turn again."""
        if self.connection.frames.pending:
            self.data_received(b"")

    def direct_received(self, count: int) -> None:
        """More of a message."""
        self.heard += 1
        self.connection.received(count)
        self.direct = self.connection.space

    def pause_writing(self) -> None:
        """The server reads too slowly: queue requests."""
        self.connection.sender.pause()

    def resume_writing(self) -> None:
        """The server has read most of them."""
        self.connection.sender.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every call."""
        if isinstance(exc, OSError):
            self._reason = reason_of(exc)
        self._timer.cancel()
        self.deadlines.cancel()
        self.connection.connection_lost()
        self._changed()
        self.socket_closed.set_result(None)

    # called by calls

    def lost(self) -> Exception:
        """See ``ClientHost``."""
        fault = self.connection.fault
        if fault is not None:
            what = f"gave an answer that is not HTTP/2: {fault}"
            return self.errors.failed(what, sent=True, code=ErrorCode.BAD_UPSTREAM)
        return self.errors.broken(self.connection.going_away or self._reason)

    def expired(self, number: int, heard: int) -> None:
        """See ``ClientHost``. The connection takes no more calls if nothing has been received since the call
        began: the system may take minutes to notice that a machine is gone. Nor does it if another call
        had expired before this one began, and no answer has begun since: the server may send frames without
        end that answer nothing."""
        answered, earlier = self.connection.answered, self._answered
        if heard == self.heard:
            self.connection.retire("it fell silent")
        elif answered == earlier and number > self._expired:
            self.connection.retire("it answers no calls")
        if answered != earlier:
            self._answered, self._expired = answered, self.connection.last_id

    # called by the client

    @property
    def usable(self) -> bool:
        """Whether it takes calls, now or when others have ended."""
        return self.connection.usable

    @property
    def closed(self) -> bool:
        """Whether it has ended, and its calls with it."""
        return self.connection.closed

    @property
    def free(self) -> int:
        """How many more calls it takes now."""
        # negative after the server has lowered its limit
        return max(0, self.connection.max_streams - len(self.connection.streams)) if self.usable else 0

    def unusable(self) -> str:
        """Why it takes no calls; empty if it does."""
        if self.connection.fault is not None:
            return f"cannot be reached: it does not speak HTTP/2 ({self.connection.fault})"
        if self.usable and self.connection.ready:
            return ""
        return f"cannot be reached: {self.connection.going_away or self._reason}"

    def close(self, why: str) -> None:
        """End every call and the connection."""
        self._reason = why
        self.connection.close(Code.NO_ERROR, "")
        self._end()

    def _on_change(self) -> None:
        if not self.usable and not self.connection.streams:
            self.connection.closed = True
            self._end()
        self._changed()

    def _end(self) -> None:
        """Close the socket; a server that is gone does not read what is unsent."""
        if not self._transport.is_closing():
            self._batch.flush()
            self._transport.close()
            self._timer.cancel()
            self._timer = self.loop.call_later(_GOODBYE_SECS, self._transport.abort)

    def _check_liveness(self) -> None:
        """Ping a server that is silent while calls run; abort where it does not answer."""
        connection = self.connection
        silent = self.heard == self._heard_before
        if silent and connection.ping_pending:
            self._reason = "it did not answer a ping"
            self._transport.abort()
            return
        self._heard_before = self.heard
        if silent and connection.streams:
            connection.ping()
        secs = _PING_TIMEOUT_SECS if connection.ping_pending else _PING_SECS
        self._timer = self.loop.call_later(secs, self._check_liveness)
