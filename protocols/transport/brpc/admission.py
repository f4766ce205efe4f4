"""Counts the calls of a bRPC connection and the bytes of their messages, and refuses those above a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from interlingua.protocols.transport.backlog import Backlog
from interlingua.protocols.transport.brpc import refusals
from interlingua.protocols.transport.brpc.bounded import Limited
from interlingua.protocols.transport.brpc.frame import BrpcFrameReader, Frame, Meta
from interlingua.protocols.transport.brpc.logoff import LogOff
from interlingua.protocols.transport.listener import ConnectionSet
from interlingua.protocols.transport.load import SMALL_BYTES, BodyLoad
from interlingua.protocols.wire import BrpcAnswer, BrpcHandler, BrpcRequest


class Admitting(Limited, Protocol):
    """The server of the connection."""

    handler: BrpcHandler
    connections: ConnectionSet[Any]


@dataclass(slots=True, eq=False)
class AdmittedCall:
    """A call that has begun. It has ``size`` bytes in the backlog; ``reserved`` of them are not here yet,
    but may be once its message is decompressed."""

    size: int
    reserved: int = 0


class CallAdmission:
    """The calls that ``frames`` reads, from the client ``peer``. ``backlog`` bounds those at work, ``fail``
    sends a refusal to the call with the given correlation id. ``since`` is when the large frame that is
    arriving began, in nanoseconds of the monotonic clock, 0 if there is none."""

    __slots__ = ("_backlog", "_fail", "_frames", "_held", "_logoff", "_peer", "_reserved", "_server", "since")

    def __init__(
        self,
        server: Admitting,
        frames: BrpcFrameReader,
        backlog: Backlog,
        logoff: LogOff,
        peer: str,
        fail: Callable[[int, BrpcAnswer], None],
    ) -> None:
        self._server = server
        self._frames = frames
        self._backlog = backlog
        self._logoff = logoff
        self._peer = peer
        self._fail = fail
        self._held = BodyLoad(server.connections.load)
        self._reserved = 0
        self.since = 0

    def count_received(self) -> None:
        """Count the bytes that are here. Where they are too many, refuse the call that is arriving, and throw
        its bytes away: other calls of the connection go on. Raises ``FrameError``."""
        frames, others = self._frames, self._backlog.size - self._reserved
        filled = frames.filled
        if filled and not self.since:
            self.since = time.monotonic_ns()
        excess = self._held.grow(others + filled)
        if excess is None or filled <= SMALL_BYTES or (frame := frames.skip()) is None:
            return
        self._held.grow(others)
        self.since = 0
        self.refuse(frame.meta, frame.size, refusals.overloaded(excess.message))

    def refusal(self, request: BrpcRequest, frame: Frame) -> BrpcAnswer | None:
        """The refusal of a call that has arrived in ``frame``, None if it may begin."""
        server, service, method = self._server, request.service, request.method
        if server.connections.stopping and self._logoff.refuses(frame):
            return refusals.STOPPING
        if server.max_concurrency is not None and server.at_work >= server.max_concurrency:
            return refusals.overloaded(refusals.full(server.max_concurrency))
        if request.size > SMALL_BYTES:
            excess = self._held.grow(self._backlog.size - self._reserved + request.size)
            if excess is not None:
                return refusals.overloaded(excess.message)
        if server.handler.offers(service, method):
            return None
        return refusals.unknown(service, method, server.handler.knows(service))

    def refuse(self, meta: Meta, size: int, answer: BrpcAnswer) -> None:
        """Send a refusal of a call with ``size`` bytes, which no handler sees, and record it."""
        self._server.connections.load.record(refusals.recorded(meta, self._peer, size, answer))
        self._fail(meta.correlation_id, answer)

    def begin(self, size: int, reserved: int = 0) -> AdmittedCall:
        """A call begins. It has ``size`` bytes, and may have ``reserved`` more once it is decompressed."""
        self._backlog.requests += 1
        self._backlog.size += size + reserved
        self._reserved += reserved
        return AdmittedCall(size + reserved, reserved)

    def decompressed(self, call: AdmittedCall, size: int) -> BrpcAnswer | None:
        """The message of ``call`` is decompressed, to ``size`` bytes. Returns the refusal if they are too
        many."""
        self._backlog.size += size - call.size
        self._reserved -= call.reserved
        call.size, call.reserved = size, 0
        excess = self._held.grow(self._backlog.size - self._reserved + self._frames.filled)
        return None if excess is None else refusals.overloaded(excess.message)

    def end(self, call: AdmittedCall) -> None:
        """``call`` has ended."""
        self._backlog.requests -= 1
        self._backlog.size -= call.size
        self._reserved -= call.reserved

    def release(self) -> None:
        """The connection has ended."""
        self._held.release()
