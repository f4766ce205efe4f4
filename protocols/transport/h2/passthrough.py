"""Passes a message on from one stream to a stream of another connection, while it arrives.

What arrives leaves in the same turn of the event loop, out of the buffer that it was received into: it is
neither copied nor kept, and still in the processor's cache. What the other stream's windows or socket do not
take is copied into its queue. The window of the source follows that of the other stream, so that its initial
one, of a server or of a client, bounds the queue.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from interlingua.protocols.transport.h2.connection import H2Connection
from interlingua.protocols.transport.h2.sender import Sender
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.wire import Buffer

PASSED_BYTES = 1 << 18
"""Larger messages may leave before they have arrived."""

BEGIN_BYTES = 1 << 13
"""The least of a message that must be here for that: it has the names and shapes."""

HELD_BYTES = 1 << 20
"""As how much such a message counts: its initial window, and a frame, may wait for the other stream."""

_NUMBER, _NUMBER_AT = Struct(">L").pack_into, 5
"""The place of the stream's number in the header of a frame (RFC 9113, 4.1)."""


class FramePassthrough:
    """Passes ``size`` bytes from ``source``, a stream of ``connection``, to ``target``, whose connection has
    ``sender``; ``ends``: they end what ``target`` sends. ``left``: how many are still to come."""

    __slots__ = ("_connection", "_ends", "_sender", "_waits", "left", "size", "source", "target")

    def __init__(
        self,
        source: Stream,
        connection: H2Connection[Any, Any],
        target: Stream,
        sender: Sender[Any],
        size: int,
        *,
        ends: bool,
    ) -> None:
        self.source, self._connection = source, connection
        self.target, self._sender = target, sender
        self.size = self.left = size
        self._ends, self._waits = ends, True

    def take(self, data: Buffer, start: int, stop: int) -> int:
        """Pass ``data[start:stop]`` on, which changes afterwards unless it is ``bytes``. Returns how many
        bytes there are after the last one that is passed on."""
        size = min(stop - start, self.left)
        self.left -= size
        target = self.target
        if size and not target.closed:
            view = memoryview(data)[start : start + size]
            self._sender.forward(target, view, ended=self._ends and not self.left)
            if not self.left or self.allowance <= 0:
                self._waits = False
                target.feeder_waits(False)
        return stop - start - size

    def pass_frame(self, frame: memoryview, size: int) -> bool:
        """Pass on a whole DATA frame with ``size`` bytes in the middle of the message, in place: its header
        gets the number of the other stream. False if :meth:`take` has to do it."""
        target, sender = self.target, self._sender
        if (
            size >= self.left
            or target.queued
            or target.closed
            or size > target.send_window
            or size > sender.window
            or size > sender.max_frame_size
            or sender.paused
            or frame.readonly
        ):
            return False
        self.left -= size
        _NUMBER(frame, _NUMBER_AT, target.id)
        sender.count_passed(target, size)
        sender.write_shared(frame)
        return True

    def detach(self) -> None:
        """Both streams are done with the message: they refer to each other through this."""
        self.source.passthrough = self.target.feeder = None

    @property
    def allowance(self) -> int:
        """How many bytes the peer of the source may send now."""
        source = self.source
        return self._connection.stream_window + source.loan - source.received

    def grant(self) -> None:
        """Let the peer of the source send as much as the target's window takes. While data are queued for
        the target, its connection or socket takes no more, however wide that window is."""
        if self.target.queued:
            return
        source, target, allowance = self.source, self.target, self.allowance
        more = min(source.received, target.send_window - allowance)
        if more > 0 and self.left > allowance:
            self._connection.replenish(source, source.received - more)
            if not self._waits:
                self._waits = True
                target.feeder_waits(True)
