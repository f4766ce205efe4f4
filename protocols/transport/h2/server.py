"""The server's end of an HTTP/2 connection, without a socket; see ``h2.connection``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from interlingua.protocols.transport.h2.connection import H2Connection
from interlingua.protocols.transport.h2.credit import WindowCredit
from interlingua.protocols.transport.h2.fields import fit_trailers
from interlingua.protocols.transport.h2.flood import BURST, REQUEST_CREDIT
from interlingua.protocols.transport.h2.frame_reader import FRAME_BYTES, NotHttp2Error
from interlingua.protocols.transport.h2.frames import (
    DEFAULT_WINDOW,
    MAX_STREAM_ID,
    PREFACE,
    Code,
    H2Error,
    Setting,
    goaway,
    settings,
    window_update,
)
from interlingua.protocols.transport.h2.hpack import FieldLines
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS, Http2Options
from interlingua.protocols.transport.h2.stream import Stream

_NOT_HTTP2 = (
    b"HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"this address speaks gRPC, which is HTTP/2 from the first byte on\n"
)
"""The answer to a client without the HTTP/2 preface, which probably speaks HTTP/1."""

_UNCOUNTED_BYTES = 1 << 20
"""How many bytes reach their sinks until the streams count them: each time takes as long as a few frames."""

_RESET_EARLY = 1024
"""How many streams that clients have reset before their headers are remembered."""

H = TypeVar("H")


class ServerConnection(H2Connection[H, Stream]):
    """One connection. ``interpret`` turns a request's field lines into its headers; ``accept`` begins to
    answer it (``ended``: it has no body) and returns its stream, or None if it has refused it."""

    def __init__(
        self,
        interpret: Callable[[FieldLines], H],
        accept: Callable[[ServerConnection[H], int, H, bool], Stream | None],
        write: Callable[..., None],
        options: Http2Options = DEFAULT_OPTIONS,
    ) -> None:
        super().__init__(
            interpret,
            write,
            preface=PREFACE,
            stream_window=options.stream_window,
            connection_window=options.connection_window,
        )
        self._options = options
        self._credit = WindowCredit(options.connection_window, self.grant)
        self._headers.limit(options.max_header_list)
        self._accept = accept
        self._uncounted = 0
        self.reset_at_work = 0
        """How many streams the peer has reset whose work goes on; the streams count themselves."""
        self._refuse_after = MAX_STREAM_ID

    def on_window_low(self, stream: Stream) -> None:
        """Let the peer send more of a message that is arriving as the connection has room; else what is
        received has been consumed."""
        if stream.loan:
            left = self.stream_window + stream.loan - stream.received
            if stream.missing > left and stream.received >= left:
                self.replenish(stream)
        elif stream.missing:
            self._credit.request(stream)
        else:
            super().on_window_low(stream)

    def on_placed(self, size: int) -> None:
        """See ``FrameHandler``."""
        super().on_placed(size)
        self._uncounted += size
        if self._uncounted >= _UNCOUNTED_BYTES:
            self._uncounted = 0
            for stream in tuple(self.streams.values()):
                if stream.sink is not None:
                    stream.count_arrived()

    def grant(self, stream: Stream, loan: int) -> None:
        """Let the peer send as much again as was received, and ``loan`` bytes more."""
        received = max(0, stream.received)  # negative after a loan that was given back
        if received + loan and not stream.half_closed_remote:
            self._write(window_update(stream.id, received + loan))
            stream.received -= received
            stream.looked_at = 0

    def message_ended(self, stream: Stream) -> None:
        """The message of a stream with a loan is complete, or the stream has ended."""
        self._credit.give_back(stream)

    def cancel(self, stream: Stream) -> None:
        """Reset a stream whose client does not read its answer."""
        self.sender.reset(stream, Code.CANCEL)
        stream.on_reset(Code.CANCEL)

    def announce_shutdown(self) -> None:
        """Send GOAWAY: the peer opens no more streams. Streams it has opened meanwhile are accepted until
        :meth:`refuse_new` (RFC 9113, 6.8)."""
        self._write(goaway(MAX_STREAM_ID, Code.NO_ERROR, "the server is stopping"))
        self.ping()

    def refuse_new(self) -> None:
        """Ignore streams after the last one opened, and send its number to the peer (RFC 9113, 6.8)."""
        if self._refuse_after == MAX_STREAM_ID:
            self._refuse_after = self.last_id
            self._write(goaway(self.last_id, Code.NO_ERROR, "the server is stopping"))

    @property
    def last_processed(self) -> int:
        """See ``H2Connection``."""
        return min(self.last_id, self._refuse_after)

    def on_fault(self, fault: H2Error) -> None:
        """See ``H2Connection``."""
        if isinstance(fault, NotHttp2Error):
            self.closed = True
            self._write(_NOT_HTTP2)
        else:
            super().on_fault(fault)

    def on_preface(self) -> None:
        """Send our settings (RFC 9113, 3.4)."""
        super().on_preface()
        options = self._options
        stated = (
            (Setting.MAX_CONCURRENT_STREAMS, options.max_streams),
            (Setting.INITIAL_WINDOW_SIZE, options.stream_window),
            (Setting.MAX_FRAME_SIZE, FRAME_BYTES),
            (Setting.MAX_HEADER_LIST_SIZE, options.max_header_list),
        )
        self._write(settings(stated) + window_update(0, options.connection_window - DEFAULT_WINDOW))

    def on_early_reset(self, number: int) -> None:
        """A client of gRPC numbers calls before it sends them, and may cancel one meanwhile. As in gRPC's
        servers, that ends no connection. Streams with lower numbers may still open."""
        self.reset_early[number] = None
        if len(self.reset_early) > _RESET_EARLY:
            del self.reset_early[next(iter(self.reset_early))]

    def on_field_block(self, block: bytes, ended: bool, number: int) -> None:
        """A request, or the trailers of one (RFC 9113, 8.1)."""
        if number <= self.last_id or number in self.reset_early:
            self._trailers(number, block, ended)
            return
        self.last_id = number
        headers = self._headers.known.get(block) or self._headers.read(block)
        if number > self._refuse_after:
            return
        if len(self.streams) + self.reset_at_work >= self._options.max_streams:
            self.sender.reject(number, Code.REFUSED_STREAM)  # RFC 9113, 5.1.2
            self.guard.refused(len(block))
            return
        stream = self._accept(self, number, headers, ended)
        if stream is None:
            self.guard.refused(len(block))
            return
        if self.guard.tokens < BURST:
            self.guard.tokens += REQUEST_CREDIT
        self.streams[number] = stream
        if ended and stream.body_left:
            self.reset_stream(stream, Code.PROTOCOL_ERROR)  # RFC 9113, 8.1.1
        elif ended:
            stream.data_received(b"", 0, 0, True)

    def _trailers(self, number: int, block: bytes, ended: bool) -> None:
        fields = self._headers.decode(block)
        stream = self.streams.get(number)
        if stream is None:
            if number in self.reset_early:
                self.sender.reject(number, Code.STREAM_CLOSED)  # RFC 9113, 5.1
            elif number <= self._refuse_after and number not in self.sender.cut:  # RFC 9113, 5.1 and 5.1.1
                raise H2Error(Code.PROTOCOL_ERROR, f"HEADERS on stream {number}, which is closed")
            self.guard.refused(len(block))
        elif stream.half_closed_remote:
            self.reset_stream(stream, Code.STREAM_CLOSED)  # RFC 9113, 5.1
        elif not ended or stream.body_left or not fit_trailers(fields):
            self.reset_stream(stream, Code.PROTOCOL_ERROR)  # RFC 9113, 8.1 and 8.1.1
        else:
            stream.half_closed_remote = True
            stream.data_received(b"", 0, 0, True)
