"""One stream of an HTTP/2 connection, as the server has it: what may still be sent on it, what waits.

Sans-IO. A subclass says what is done with what arrives; the connection calls it and takes what it sends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interlingua.protocols.wire import Buffer

if TYPE_CHECKING:
    from interlingua.protocols.transport.h2.sender import Sender


class Stream:
    """A request and its answer. ``connection`` and the rest are set by the connection that opens it.

    ``room`` is how many bytes the peer takes on it at present (below zero where it has taken room back),
    ``credit`` how many it has sent since it was last given room. ``heard_all`` and ``told_all`` say which of
    the two sides has ended. ``holding`` keeps the peer from being given more room.
    """

    __slots__ = (
        "connection",
        "credit",
        "heard_all",
        "holding",
        "id",
        "last",
        "room",
        "told_all",
        "unsent",
        "waiting",
    )

    def __init__(self, connection: Sender, number: int, heard_all: bool) -> None:
        self.connection = connection
        self.id = number
        self.room = connection.first_room
        self.credit = 0
        self.heard_all = heard_all
        self.told_all = False
        self.holding = False
        self.unsent: deque[memoryview] | None = None
        self.waiting = 0
        self.last = b""

    def received(self, data: bytes, start: int, stop: int, ended: bool) -> None:
        """``data[start:stop]`` came in; ``ended``: it is the end. Between two calls the peer may have sent
        nothing at all."""
        raise NotImplementedError

    def abandoned(self) -> None:
        """The peer has given up on the answer, or is gone. The stream is closed."""
        raise NotImplementedError

    def drained(self) -> None:
        """Everything that waited has been handed over to be sent."""

    def queue(self, pieces: Sequence[Buffer]) -> None:
        """Have ``pieces`` wait until there is room for them."""
        if self.unsent is None:
            self.unsent = deque()
        for piece in pieces:
            if piece:
                self.unsent.append(memoryview(piece))
                self.waiting += len(piece)

    def take(self, size: int) -> list[memoryview]:
        """The next ``size`` bytes that wait, of which there are as many."""
        assert self.unsent is not None, "bytes that wait are queued"  # noqa: S101
        taken: list[memoryview] = []
        self.waiting -= size
        while size:
            piece = self.unsent[0]
            if len(piece) > size:
                taken.append(piece[:size])
                self.unsent[0] = piece[size:]
                break
            taken.append(piece)
            size -= len(piece)
            self.unsent.popleft()
        return taken
