"""Calls back when descriptors are ready, one in each turn of the event loop, in order.

An event loop by itself calls back for all that are ready before it goes on. This is for work that takes long
at once, 0.2 ms for example: others have their turns in between, however many descriptors are ready.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from weakref import WeakKeyDictionary

from interlingua.protocols.transport.turns import turns_of


class ReadyDescriptors:
    """The descriptors of one event loop. They are its own: no transport has them. It needs epoll(7), which
    Linux alone has."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turns = turns_of(loop)
        self._calls: dict[int, Callable[[], None]] = {}
        self._epoll: select.epoll | None = None

    def to_read(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call ``call``, which does not raise, while ``descriptor`` has input, or has ended. Raises
        ``OSError`` if the system has no room for it."""
        self._add(descriptor, select.EPOLLIN, call)

    def to_write(self, descriptor: int, call: Callable[[], None]) -> None:
        """The same while ``descriptor`` takes output, or has failed."""
        self._add(descriptor, select.EPOLLOUT, call)

    def forget(self, descriptor: int) -> None:
        """Call back no more, before ``descriptor`` is closed."""
        if self._calls.pop(descriptor, None) is None or self._epoll is None:
            return
        self._epoll.unregister(descriptor)
        if not self._calls:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _add(self, descriptor: int, events: int, call: Callable[[], None]) -> None:
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._run)
        self._epoll.register(descriptor, events)
        self._calls[descriptor] = call

    def _run(self) -> None:
        self._turns.yield_to_threads()
        ready = self._epoll.poll(0, 1) if self._epoll is not None else ()
        for descriptor, _ in ready:
            self._calls[descriptor]()


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, ReadyDescriptors] = WeakKeyDictionary()


def ready_descriptors_of(loop: asyncio.AbstractEventLoop) -> ReadyDescriptors:
    """That of ``loop``."""
    return _of_loop.get(loop) or _of_loop.setdefault(loop, ReadyDescriptors(loop))
