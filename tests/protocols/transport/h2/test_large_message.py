"""The windows of a stream whose message is larger than the initial one: few looks, few frames, exact limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interlingua.protocols.transport.grpc.messages import PREFIX, MessageStream
from interlingua.protocols.transport.h2.credit import MAX_LOAN
from interlingua.protocols.transport.h2.frame_reader import FrameReader
from interlingua.protocols.transport.h2.frames import PREFACE, Code
from interlingua.protocols.transport.h2.options import Http2Options
from interlingua.protocols.transport.h2.server import ServerConnection
from interlingua.protocols.transport.memory import unfilled
from interlingua.protocols.wire import Buffer
from tests.protocols.transport.h2.peer import (
    DATA,
    RST_STREAM,
    START,
    WINDOW_UPDATE,
    Frame,
    Reader,
    frame,
    head,
)

FRAME, WINDOW = 1 << 14, 640 << 10


class Call(MessageStream):
    """Receives messages."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(number, 65_535, False)
        self.server = server
        self.messages: list[Buffer] = []

    def data_received(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        for message in self.messages_in(data, start, stop, "", None, unfilled):
            self.messages.append(message)
            self.server.connection.message_ended(self)

    def on_reset(self, code: int) -> None:
        self.sink = None


class Looks:
    """The handler of a connection's frames; ``count`` are the DATA frames that it was called for."""

    def __init__(self, connection: ServerConnection[Any]) -> None:
        self.connection = connection
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def on_data_frame(self, number: int, size: int) -> Any:
        self.count += 1
        return self.connection.on_data_frame(number, size)


class Server:
    def __init__(self, connection_window: int) -> None:
        self.sent: list[bytes] = []
        self.calls: dict[int, Call] = {}
        self.reader = Reader()
        options = Http2Options(stream_window=WINDOW, connection_window=connection_window)
        self.connection: ServerConnection[Any] = ServerConnection(
            lambda given: given, self.accept, lambda *pieces: self.sent.extend(map(bytes, pieces)), options
        )
        connection = self.connection
        self.looks = Looks(connection)
        handler: Any = self.looks
        connection.frames = FrameReader(handler, connection.guard, PREFACE, connection.streams, WINDOW)
        self.take(START)

    def accept(self, connection: Any, number: int, given: Any, ended: bool) -> Call:
        self.calls[number] = Call(self, number)
        return self.calls[number]

    def take(self, *parts: bytes) -> list[Frame]:
        """Let it receive; what it sends."""
        self.connection.receive(b"".join(parts))
        while self.connection.frames.pending:
            self.connection.receive(b"")
        made = self.reader.feed(b"".join(self.sent))
        self.sent.clear()
        return made

    def send(self, number: int, content: bytes, window: int) -> int:
        """Send a message in small frames, as many bytes as ``window`` and what it opens permit: how often it
        was opened."""
        wire, place, opened = PREFIX.pack(0, len(content)) + content, 0, 0
        while place < len(wire):
            size = min(FRAME, len(wire) - place, window)
            assert size, "the window stays closed"
            window -= size
            for made in self.take(frame(DATA, 0, number, wire[place : place + size])):
                assert made.kind == WINDOW_UPDATE
                if made.stream == number:
                    window += int.from_bytes(made.payload, "big")
                    opened += 1
            place += size
        return opened


def test_a_loan_that_is_enough_is_the_only_window_update() -> None:
    server = Server(1 << 30)
    server.take(head(1))
    content = bytes(range(256)) * (4 << 12)
    opened = server.send(1, content, WINDOW)
    (call,) = server.calls.values()
    assert (opened, bytes(call.messages[0]) == content) == (1, True)


def test_most_frames_of_a_message_are_put_into_their_place_at_once() -> None:
    server = Server(1 << 30)
    server.take(head(1))
    server.send(1, bytes(MAX_LOAN), WINDOW)
    (call,) = server.calls.values()
    assert len(call.messages) == 1
    assert server.looks.count <= 2 * MAX_LOAN // WINDOW + 4


@pytest.mark.parametrize("size", [WINDOW // 2, MAX_LOAN - 5, MAX_LOAN + WINDOW, 3 * MAX_LOAN + 77])
def test_messages_of_any_size_one_after_the_other(size: int) -> None:
    server = Server(1 << 30)
    server.take(head(1))
    (call,) = server.calls.values()
    window = WINDOW
    for _ in range(3):
        server.send(1, bytes(size), window)
        window = WINDOW - call.received
    assert [len(message) for message in call.messages] == [size] * 3


@pytest.mark.parametrize("size", [(1 << 17) + 1, 4 << 20, 3 * MAX_LOAN + 77])
def test_a_tensor_at_the_end_of_a_message_is_aligned(size: int) -> None:
    server = Server(1 << 30)
    server.take(head(1))
    server.send(1, bytes(size), WINDOW)
    (call,) = server.calls.values()
    assert np.frombuffer(call.messages[0], np.float64, 100, size - 800).flags.aligned


@pytest.mark.parametrize("lent", [False, True])
def test_more_than_the_window_is_refused_in_the_middle_of_a_message(lent: bool) -> None:
    server = Server(1 << 30)
    server.take(head(1))
    (call,) = server.calls.values()
    wire = PREFIX.pack(0, 4 * MAX_LOAN) + bytes(4 * MAX_LOAN)
    call.window_held = not lent  # it gets nothing more from then on
    received = 0
    for place in range(0, len(wire), FRAME):
        made = server.take(frame(DATA, 0, 1, wire[place : place + FRAME]))
        received += FRAME
        if [each.kind for each in made] == [RST_STREAM]:
            break
        if made:
            received, call.window_held = 0, True
    limit = WINDOW + lent * MAX_LOAN
    assert made[0].code == Code.FLOW_CONTROL_ERROR
    assert limit < received <= limit + FRAME
