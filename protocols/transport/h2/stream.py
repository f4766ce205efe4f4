"""One HTTP/2 stream (RFC 9113, 5.1): its two windows and its queue of data to send.

Sans-IO. A subclass handles what arrives; the connection calls it, the sender takes what it queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from interlingua.protocols.transport.compiling import mypyc_attr
from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.wire import Buffer


class Sink(Protocol):
    """Where data in the middle of a message goes without a call: to ``buffer[filled:end]``; ``filled`` then
    grows."""

    buffer: memoryview
    filled: int
    end: int


@mypyc_attr(allow_interpreted_subclasses=True)
class Stream:
    """A request and its answer.

    ``send_window``: bytes of data the peer accepts now; negative after it shrank its window (6.9.2).
    ``received``: bytes of data received since the last WINDOW_UPDATE. ``body_left``: bytes of data that the
    content-length of the peer's message announces further, None without one (8.1.1). ``half_closed_remote``:
    the peer has sent all of its message; ``half_closed_local``: we have. ``closed``: nothing is sent or
    received any more. ``window_held``: send no WINDOW_UPDATE for now. ``loan``: how much larger its
    window is than the initial one (``h2.credit``). ``looked_at``: what ``received`` was when the window was
    last found low. ``queued``: bytes in the send queue.
    ``sent``: bytes that have left it.
    ``ending``: the queue ends our message, followed by ``trailers``, a field block, unless they are empty. A
    DATA frame that fits the ``sink`` with room to spare, or that ``passthrough`` passes on, does not reach
    :meth:`data_received`. ``feeder`` is the passthrough that sends what another stream receives.
    """

    __slots__ = (
        "_queue",
        "body_left",
        "closed",
        "ending",
        "feeder",
        "half_closed_local",
        "half_closed_remote",
        "id",
        "loan",
        "looked_at",
        "passthrough",
        "queued",
        "received",
        "send_window",
        "sent",
        "sink",
        "trailers",
        "window_held",
    )

    def __init__(self, number: int, send_window: int, half_closed_remote: bool) -> None:
        self.id = number
        self.send_window = send_window
        self.received = 0
        self.body_left: int | None = None
        self.half_closed_remote = half_closed_remote
        self.half_closed_local = self.closed = self.ending = False
        self.window_held = False
        self.loan = self.looked_at = 0
        self.queued = self.sent = 0
        self.sink: Any = None  # a ``Sink``, of a type that the subclass knows
        self.passthrough: Any = None  # a ``FramePassthrough``
        self.feeder: Any = None
        self.trailers = b""
        self._queue: deque[memoryview] | None = None

    @property
    def missing(self) -> int:
        """How many bytes the message lacks of which a part is here, 0 if none is."""
        return 0

    @property
    def arrived(self) -> int:
        """How many bytes of the message are here of which a part is missing."""
        return 0 if self.sink is None else int(self.sink.filled)

    def count_arrived(self) -> None:
        """Count the bytes that have reached the sink without a call."""

    def data_received(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        """Take ``data[start:stop]``, which may be empty, and changes afterwards unless it is ``bytes``;
        ``ended``: the peer's message is complete."""
        raise NotImplementedError

    def on_reset(self, code: int) -> None:
        """The peer reset the stream, or broke a rule of it. ``code`` is that of RST_STREAM."""
        raise NotImplementedError

    def headers_received(self, headers: Any, ended: bool) -> None:
        """What a client's ``interpret`` made of the field block of an answer, of its trailers, or of an
        interim answer; ``ended``: the answer is complete."""
        raise NotImplementedError

    def on_unprocessed(self) -> None:
        """The server will never process the request: another server may get it (RFC 9113, 8.7)."""
        raise NotImplementedError

    def on_lost(self) -> None:
        """The connection is lost."""
        self.on_reset(Code.CANCEL)

    def on_drained(self) -> None:
        """The send queue is empty."""

    def feeder_waits(self, waits: bool) -> None:
        """Whether the feeder waits for more to pass on, from now on."""

    def queue(self, pieces: Sequence[Buffer]) -> None:
        """Append ``pieces`` to the send queue."""
        if self._queue is None:
            self._queue = deque()
        for piece in pieces:
            if piece:
                self._queue.append(memoryview(piece))
                self.queued += len(piece)

    def take(self, size: int) -> list[memoryview]:
        """Remove the next ``size`` bytes from the send queue, which has that many."""
        assert self._queue is not None, "queued bytes are in a queue"  # noqa: S101
        taken: list[memoryview] = []
        self.queued -= size
        self.sent += size
        while size:
            piece = self._queue[0]
            if len(piece) > size:
                taken.append(piece[:size])
                self._queue[0] = piece[size:]
                break
            taken.append(piece)
            size -= len(piece)
            self._queue.popleft()
        return taken

    def discard(self) -> None:
        """Empty the send queue."""
        self._queue, self.queued = None, 0
