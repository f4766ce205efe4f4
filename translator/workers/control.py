"""Messages between the supervisor and a process that it has started, over a socket pair.

Both ends run the same version. A message has a kind, a value and perhaps descriptors; a request has a number,
which its reply repeats.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable, Sequence
from typing import Any

from interlingua.runtime.python_worker import channel

REPLY = "reply"

Receive = Callable[[str, Any, list[int], Callable[[Any], None]], None]
"""Takes a message: its kind, value and descriptors, which it owns, and the function that replies."""


class ControlLostError(Exception):
    """The other process has exited."""


class ControlChannel:
    """One end. Calls ``receive`` with messages and ``lost`` once after the other process has exited. Use on
    one event loop."""

    def __init__(self, sock: socket.socket, receive: Receive, lost: Callable[[], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._receive = receive
        self._lost = lost
        self._frames = channel.ChannelReader()
        self._outgoing = channel.ChannelWriter(sock)
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._open = True
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._read)

    def send(self, kind: str, value: object = None, descriptors: Sequence[int] = ()) -> None:
        """Send a message without a reply. Its ``descriptors`` belong to the message. After the other process
        has exited it is dropped."""
        self._put(kind, 0, value, descriptors)

    async def request(self, kind: str, value: object = None) -> Any:
        """The reply to a message. Raises ``ControlLostError``."""
        if not self._open:
            raise ControlLostError
        self._numbers += 1
        number = self._numbers
        reply = self._waiting[number] = self._loop.create_future()
        self._put(kind, number, value, ())
        try:
            return await reply
        finally:
            del self._waiting[number]

    def close(self) -> None:
        """Close this end; the other process is notified."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._outgoing.drop()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(ControlLostError())

    def _put(self, kind: str, number: int, value: object, descriptors: Sequence[int]) -> None:
        first = not self._outgoing.waiting
        data = channel.encode([kind, number], pickle.dumps(value), len(descriptors))
        self._outgoing.put(data, descriptors)
        if not self._open:
            self._outgoing.drop()
        elif first:
            self._write()

    def _write(self) -> None:
        try:
            sent = self._outgoing.flush()
        except OSError:
            # as the next read finds
            sent = True
        if sent:
            self._loop.remove_writer(self._sock.fileno())
        else:
            self._loop.add_writer(self._sock.fileno(), self._write)

    def _read(self) -> None:
        try:
            data, descriptors = channel.receive(self._sock)
        except BlockingIOError:
            return
        if not data:
            self.close()
            self._lost()
            return
        for frame in self._frames.feed(data, descriptors):
            kind, number = frame.value
            # sent by another process of this server
            value = pickle.loads(frame.payload)  # noqa: S301
            if kind == REPLY:
                reply = self._waiting.get(number)
                if reply is not None and not reply.done():
                    reply.set_result(value)
            else:
                self._receive(kind, value, frame.descriptors, self._replying(number))

    def _replying(self, number: int) -> Callable[[Any], None]:
        return lambda value: self._put(REPLY, number, value, ())
