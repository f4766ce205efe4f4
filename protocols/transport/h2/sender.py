"""What a server sends on a connection of HTTP/2: answers, as far as the peer and the socket have room.

Sans-IO. Nothing is kept of an answer for which there is room; what there is none for waits in its stream, and
streams that wait take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from interlingua.protocols.transport.h2.frames import (
    FIRST_FRAME_BYTES,
    FIRST_WINDOW,
    Code,
    data_header,
    header_frames,
    rst_stream,
    window_update,
)
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.wire import Buffer

_AT_ONCE = 1 << 18
"""How much of one stream is sent before the next one has its turn."""

_JOINED_BYTES = 1 << 16
"""Up to this size copying the pieces of an answer into one costs less than sending each."""


class Sender:
    """``first_room`` and ``largest_frame`` are what the peer has stated; ``room`` is how many bytes of data
    it takes at present on all streams together."""

    def __init__(self, write: Callable[[Buffer], None]) -> None:
        self._write = write
        self.streams: dict[int, Stream] = {}
        self.given_up = 0
        """How many streams that the peer has given up on are still at work; whoever does the work counts."""
        self.first_room = FIRST_WINDOW
        self.largest_frame = FIRST_FRAME_BYTES
        self.room = FIRST_WINDOW
        self._paused = False
        self._queued: dict[Stream, None] = {}

    # what the owner of the socket calls

    def pause(self) -> None:
        """The socket takes no more: have answers wait."""
        self._paused = True

    def resume(self) -> None:
        """The socket takes more."""
        self._paused = False
        self._pump()

    # what streams call

    def send_whole(
        self, stream: Stream, head: bytes, message: Sequence[Buffer], size: int, tail: bytes
    ) -> None:
        """Answer a stream on which nothing was sent yet: blocks of headers before and after, and the pieces
        of the body between them, ``size`` bytes together."""
        number, largest = stream.id, self.largest_frame
        if size <= self.room and size <= stream.room and size <= largest and not self._paused:
            self.room -= size
            self._write(
                b"".join(
                    (
                        header_frames(head, number, ended=False, largest=largest),
                        data_header(size, number),
                        *message,
                        header_frames(tail, number, ended=True, largest=largest),
                    )
                )
            )
            self._told_all(stream)
        else:
            self.send_head(stream, head)
            self.send(stream, message, tail)

    def send_head(self, stream: Stream, head: bytes) -> None:
        """Send the block of headers that an answer begins with."""
        self._write(header_frames(head, stream.id, ended=False, largest=self.largest_frame))

    def send(self, stream: Stream, message: Sequence[Buffer], tail: bytes = b"") -> None:
        """Send the pieces of a message, and with ``tail``, a block of headers, the end. What there is no room
        for waits: ``stream.waiting`` tells how much that is."""
        stream.queue(message)
        stream.last = tail
        if stream.waiting:
            self._queued[stream] = None
            self._pump()
        elif tail:
            self._finish(stream)

    def send_end(self, stream: Stream, block: bytes) -> None:
        """End a stream now, with a block of headers; what waits to be sent is dropped."""
        self._drop(stream)
        stream.last = block
        self._finish(stream)

    def refuse(self, number: int, head: bytes, ended: bool) -> None:
        """Answer stream ``number``, which was not accepted, with headers alone. ``ended``: nothing more of
        it is to come."""
        answer = header_frames(head, number, ended=True, largest=self.largest_frame)
        self._write(answer if ended else answer + rst_stream(number, Code.NO_ERROR))

    def reset(self, stream: Stream, code: Code) -> None:
        """End a stream without an answer."""
        self._forget(stream)
        self._write(rst_stream(stream.id, code))

    def credit(self, stream: Stream) -> None:
        """Give the peer of a stream the room back that it has used."""
        if stream.credit and not stream.heard_all and not stream.told_all:
            self._write(window_update(stream.id, stream.credit))
            stream.credit = 0

    # the rest is for the connection

    def _pump(self) -> None:
        """Send what waits, as far as there is room, streams by turns."""
        while self._queued and self.room > 0 and not self._paused:
            stream = next(iter(self._queued))
            del self._queued[stream]
            size = min(stream.waiting, stream.room, self.room, _AT_ONCE)
            if size <= 0:
                continue  # it comes back as soon as there is room
            self._send_data(stream, size)
            if stream.waiting:
                self._queued[stream] = None
                continue
            if stream.last:
                self._finish(stream)
            stream.drained()

    def _send_data(self, stream: Stream, size: int) -> None:
        stream.room -= size
        self.room -= size
        self._progress()
        written: list[Buffer] = []
        left = size
        while left:
            part = min(left, self.largest_frame)
            left -= part
            written.append(data_header(part, stream.id))
            written += stream.take(part)
        if size <= _JOINED_BYTES:
            self._write(b"".join(written))
        else:
            for piece in written:
                self._write(piece)

    def _finish(self, stream: Stream) -> None:
        self._write(header_frames(stream.last, stream.id, ended=True, largest=self.largest_frame))
        self._told_all(stream)

    def _told_all(self, stream: Stream) -> None:
        stream.told_all = True
        self.streams.pop(stream.id, None)
        self._progress()
        if not stream.heard_all:
            self._write(rst_stream(stream.id, Code.NO_ERROR))

    def _forget(self, stream: Stream) -> None:
        stream.told_all = True
        self.streams.pop(stream.id, None)
        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        """What waits on a stream is not to be sent."""
        stream.unsent, stream.waiting = None, 0
        self._queued.pop(stream, None)

    def _progress(self) -> None:
        """Something was answered."""
