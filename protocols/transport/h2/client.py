"""The client's end of an HTTP/2 connection, without a socket; see ``h2.connection``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from interlingua.protocols.transport.h2.connection import H2Connection
from interlingua.protocols.transport.h2.flood import BURST, DATA_CREDIT, REQUEST_CREDIT
from interlingua.protocols.transport.h2.frame_reader import FRAME_BYTES
from interlingua.protocols.transport.h2.frames import (
    DEFAULT_WINDOW,
    MAX_STREAM_ID,
    MAX_WINDOW,
    PREFACE,
    Code,
    H2Error,
    Setting,
    name_of,
    settings,
    window_update,
)
from interlingua.protocols.transport.h2.hpack import MAX_HEADER_LIST, FieldLines
from interlingua.protocols.transport.h2.hpack_encoder import HpackEncoder
from interlingua.protocols.transport.h2.stream import Stream

STREAM_WINDOW = 64 << 20
"""The flow-control window of an answer. The server sends half of it before it needs a WINDOW_UPDATE, which is
then already on its way: a tensor of 64 MiB does not wait."""

CONNECTION_WINDOW = MAX_WINDOW
"""That of all answers together; the windows of the streams bound memory."""

H = TypeVar("H")
S = TypeVar("S", bound=Stream)


class ClientConnection(H2Connection[H, S]):
    """One connection; it may be used once it is ``ready``. ``interpret`` turns the field lines of an answer
    into its headers; ``changed`` is called when the connection can take more streams than before, or none any
    more."""

    def __init__(
        self,
        interpret: Callable[[FieldLines], H],
        write: Callable[..., None],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(
            interpret,
            write,
            preface=b"",
            stream_window=STREAM_WINDOW,
            connection_window=CONNECTION_WINDOW,
        )
        self._changed = changed
        self.encoder = HpackEncoder()
        self.max_streams = MAX_STREAM_ID
        self.answered = 0
        """How many field blocks of answers have been received."""
        self.ready = False
        """Whether the server's settings have come."""
        self.going_away = ""
        """Why there are no more streams, empty if there may be."""
        self.fault: H2Error | None = None
        """The rule that the server broke."""
        stated = (
            (Setting.ENABLE_PUSH, 0),
            (Setting.INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (Setting.MAX_FRAME_SIZE, FRAME_BYTES),
            (Setting.MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST),
        )
        write(PREFACE + settings(stated) + window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW))

    @property
    def usable(self) -> bool:
        """Whether it takes streams, now or when others have ended."""
        return not self.closed and not self.going_away and self.last_id < MAX_STREAM_ID

    @property
    def available(self) -> bool:
        """Whether it takes a stream now."""
        return (
            self.ready
            and not self.closed
            and not self.going_away
            and len(self.streams) < self.max_streams
            and self.last_id < MAX_STREAM_ID
        )

    def open(self, stream: S) -> None:
        """Give ``stream`` the next number; its headers must be the next frame (RFC 9113, 5.1.1)."""
        self.last_id += 2 if self.last_id else 1
        stream.id = self.last_id
        stream.send_window = self.sender.initial_window
        guard = self.guard
        if guard.tokens < BURST:
            guard.tokens += REQUEST_CREDIT
        self.streams[stream.id] = stream

    def release(self, stream: Stream) -> None:
        """The answer is complete. Stop sending a request that is not (RFC 9113, 8.1)."""
        if not stream.closed:
            if stream.half_closed_local:  # Sender.forget, inlined: nothing is queued
                stream.closed = True
                self.streams.pop(stream.id, None)
            else:
                self.sender.reset(stream, Code.NO_ERROR)
            guard = self.guard
            if guard.tokens < BURST:
                guard.tokens += DATA_CREDIT
            self.on_freed()

    def cancel(self, stream: Stream, code: Code = Code.CANCEL) -> None:
        """Reset a stream whose answer is no longer wanted."""
        if not stream.closed:
            self.sender.reset(stream, code)
            self.on_freed()

    def retire(self, why: str) -> None:
        """Open no more streams."""
        self.going_away = self.going_away or why
        self._changed()

    def on_freed(self) -> None:
        """A stream has ended: others may wait for its place, or the connection for its end."""
        if len(self.streams) + 1 >= self.max_streams or self.going_away:
            self._changed()

    def on_fault(self, fault: H2Error) -> None:
        """See ``H2Connection``."""
        self.fault = fault
        super().on_fault(fault)

    def on_settings(self, stated: Mapping[int, int]) -> None:
        """See ``H2Connection``."""
        self.max_streams = stated.get(Setting.MAX_CONCURRENT_STREAMS, self.max_streams)
        if Setting.HEADER_TABLE_SIZE in stated:
            self.encoder.limit_table(stated[Setting.HEADER_TABLE_SIZE])
        self.ready = True
        self._changed()

    def on_goaway(self, last: int, code: int, text: str) -> None:
        """Streams after ``last`` were not processed (RFC 9113, 6.8)."""
        self.going_away = f"GOAWAY {name_of(code)} {text}".rstrip()
        for number in [number for number in self.streams if number > last]:
            stream = self.streams[number]
            self.sender.forget(stream)
            stream.on_unprocessed()
        self._changed()

    def on_field_block(self, block: bytes, ended: bool, number: int) -> None:
        """The headers of an answer, or its trailers (RFC 9113, 8.1)."""
        headers = self._headers.known.get(block) or self._headers.read(block)
        stream = self.streams.get(number)
        if stream is not None:
            self.answered += 1
            self.guard.tokens -= 1  # interim answers may come without end
            if self.guard.tokens < 0:
                self.guard.idle_frame(0)
            stream.half_closed_remote = ended
            stream.headers_received(headers, ended)
        else:
            self.check_closed(number, "HEADERS")
            self.guard.idle_frame()
