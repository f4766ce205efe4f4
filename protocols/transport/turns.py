"""Shares the event loop between connections that have much to be handled.

libuv receives up to 32 times in a row from one socket, and any number of sockets may be readable in one turn
of the event loop. A connection therefore handles a bounded part of its input at once: so many frames or
chunks, so many bytes. With more it waits, its socket paused, and one of the connections that wait goes on in
each turn of the loop: however many there are, others are served in between. So are other threads: the lock of
Python's interpreter is not fair, and an event loop that frees it only for moments keeps them waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic, sleep
from weakref import WeakKeyDictionary

TURN_FRAMES = 256
"""How many frames a connection handles at once: 0.2 to 0.5 ms."""

TURN_CHUNKS = 128
"""How many chunks: 0.2 ms."""

TURN_REQUESTS = 8
"""How many requests that consist of one frame it begins at once."""

TURN_MESSAGES = 8
"""How many messages of a stream, which wait already, are taken at once."""

TURN_BYTES = 1 << 20
"""How many bytes it receives at once while no other connection waits."""

RECEIVE_BYTES = 1 << 19
"""How many bytes it receives with one system call, and at once while others wait. An event loop receives once
from every connection that has input before it goes on: with all that a socket holds, a hundred connections
would take a second."""

COUNTED_BYTES = 1 << 14
"""What arrives at once counts only above this size."""

_YIELD_EVERY_SECS, _YIELD_SECS = 0.01, 0.00005
"""How often an event loop with more than it can handle sleeps, and for how long: another thread gets the
processor and the interpreter's lock, which it would rarely get from a loop that frees the lock for
microseconds, whatever the switch interval. It costs 1 % of the time."""


class LoopTurns:
    """The connections of one event loop that wait, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._yielded = 0.0

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return len(self._waiting)

    def yield_to_threads(self) -> None:
        """Let other threads run, now and then."""
        if (now := monotonic()) - self._yielded >= _YIELD_EVERY_SECS:
            self._yielded = now
            sleep(_YIELD_SECS)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` in one of the next turns of the loop, when those before it have been called."""
        self._waiting.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        self.yield_to_threads()
        try:
            self._waiting.popleft()()
        finally:
            self._schedule()


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopTurns] = WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> LoopTurns:
    """Those of ``loop``."""
    return _turns.get(loop) or _turns.setdefault(loop, LoopTurns(loop))


async def next_turn(loop: asyncio.AbstractEventLoop) -> None:
    """Wait, in a task that has much to be handled, until connections that wait have had their turn."""
    turn: asyncio.Future[None] = loop.create_future()
    turns_of(loop).wait(partial(_set, turn))
    await turn


def _set(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class Turn:
    """Pauses and resumes reading from ``transport``. It is read as long as its owner wants input
    (:meth:`read`) and does not wait for its turn (:meth:`end`), when ``go_on`` is called."""

    __slots__ = ("_go_on", "_received", "_transport", "_turns", "_wanted", "lent", "reading", "waiting")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, go_on: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._go_on = go_on
        self._turns = turns_of(loop)
        self._wanted = self.reading = True
        self.waiting = self.lent = False
        self._received = 0

    def received(self, count: int) -> None:
        """``count`` bytes have arrived, which end the turn if they are enough."""
        self._received += count
        if self._received >= RECEIVE_BYTES and (self._received >= TURN_BYTES or self.contended):
            self._received = 0
            self.end()

    @property
    def contended(self) -> bool:
        """Whether other connections wait for their turns."""
        return self._turns.waiting > self.waiting

    def read(self, wanted: bool) -> None:
        """Whether the owner wants input."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._update()

    def lend(self, lent: bool) -> None:
        """Whether something else reads from the socket of ``transport``."""
        self.lent = lent
        self._update()

    def end(self) -> None:
        """Wait for the next turn: the owner has handled as much as it may at once."""
        if not self.waiting:
            self.waiting = True
            self._update()
            self._turns.wait(self._begin)

    def _begin(self) -> None:
        self.waiting = False
        if not self._transport.is_closing():
            self._go_on()
            self._update()

    def _update(self) -> None:
        read = self._wanted and not (self.waiting or self.lent)
        if read != self.reading and not self._transport.is_closing():
            self.reading = read
            (self._transport.resume_reading if read else self._transport.pause_reading)()
