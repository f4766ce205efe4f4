"""Moves the rest of a body from one socket to another through a pipe of the kernel (splice(2)), which copies
neither into this process nor out of it.

Linux has that call. On other systems, over TLS, and while many file descriptors are in use, there is no pipe:
the body then passes in pieces.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable

from interlingua.protocols.transport.descriptors import pipe_ceiling
from interlingua.protocols.transport.ready_descriptors import ready_descriptors_of

PIPED_BYTES = 1 << 18
"""The least that a pipe moves: its file descriptors cost more than a small copy."""

_MOST_BYTES = 1 << 20
"""How much is moved at once, in 0.2 ms, if the user may have a pipe of that size: the 16 pages of a usual one
take twice as long for a body."""

_LEAST_PIPE_BYTES = 1 << 16
"""A smaller pipe takes more time than pieces. A user whose pipes have all the pages they may gets 8 KiB."""

_FLAGS = getattr(os, "SPLICE_F_NONBLOCK", 0) | getattr(os, "SPLICE_F_MOVE", 0)

Blocked = Callable[["KernelPipe", bool], None]
"""Gets a pipe, and whether its sink takes no more, or does again."""


class KernelPipe:
    """Moves ``left`` bytes from the socket of ``source``, from which nothing else reads meanwhile, to that of
    ``sink``, whose buffer is empty. ``moved`` gets how many bytes have left the source."""

    __slots__ = ("_blocked", "_done", "_ends", "_held", "_left", "_moved", "_ready", "_sink", "_source")

    def __init__(
        self,
        source: asyncio.Transport,
        sink: asyncio.Transport,
        left: int,
        moved: Callable[[int], None],
        blocked: Blocked,
    ) -> None:
        """Raises ``OSError`` if there are not enough file descriptors, or pages for a pipe."""
        self._left = left
        self._held = 0  # bytes in the pipe
        self._moved = moved
        self._blocked = blocked
        loop = asyncio.get_running_loop()
        self._ready = ready_descriptors_of(loop)
        self._done: asyncio.Future[None] = loop.create_future()
        # descriptors of its own: the event loop has those of the transports
        self._source, self._sink, *self._ends = _descriptors(source, sink)  # no pipe: it is closed

    async def run(self) -> None:
        """Move them. Returns early if the source ends or fails, which its transport finds out by itself, or
        has what a pipe does not take; or after :meth:`stop`. Raises ``OSError`` if the sink fails."""
        try:
            self._ready.to_read(self._source, self._receive)
        except OSError:
            self._close()  # as without descriptors: nothing has moved
            return
        try:
            await self._done
        finally:
            self._close()

    def stop(self) -> None:
        """Move no more."""
        if not self._done.done():
            self._done.set_result(None)
            self._close()

    def unsent(self) -> int:
        """How many bytes wait for the sink."""
        return self._held

    def _receive(self) -> None:
        """The source has more, or has ended."""
        try:
            count = os.splice(self._source, self._ends[1], min(self._left, _MOST_BYTES), flags=_FLAGS)
        except OSError:
            count = 0  # EAGAIN: the next byte is urgent data, which only an ordinary receive skips
        if not count:
            self.stop()
            return
        self._left -= count
        self._held = count
        if not self._left:
            self._ready.forget(self._source)
        try:
            self._moved(count)
            self._send()
            if self._held and self._ends:
                self._ready.forget(self._source)
                self._ready.to_write(self._sink, self._go_on)
                self._blocked(self, True)
            elif not self._left:
                self.stop()
        except Exception as fault:
            self._fail(fault)

    def _go_on(self) -> None:
        """The sink takes more, or has failed."""
        try:
            self._send()
            if not self._held:
                self._ready.forget(self._sink)
                self._blocked(self, False)
                if not self._left:
                    self.stop()
                elif self._ends:
                    self._ready.to_read(self._source, self._receive)
        except Exception as fault:
            self._fail(fault)

    def _send(self) -> None:
        """Empty the pipe as far as the sink lets it."""
        while self._held and self._ends:
            try:
                self._held -= os.splice(self._ends[0], self._sink, self._held, flags=_FLAGS)
            except BlockingIOError:
                break

    def _fail(self, fault: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(fault)
            self._close()

    def _close(self) -> None:
        if self._ends:
            self._ready.forget(self._source)
            self._ready.forget(self._sink)
            for descriptor in (self._source, self._sink, *self._ends):
                os.close(descriptor)
            self._ends = []


def can_pipe(source: asyncio.Transport, sink: asyncio.Transport) -> bool:
    """Whether a pipe from ``source`` to ``sink`` is possible now."""
    return (
        bool(_FLAGS)
        and not sink.get_write_buffer_size()
        and not sink.is_closing()
        and source.get_extra_info("sslcontext") is None
        and sink.get_extra_info("sslcontext") is None
    )


def _descriptors(source: asyncio.Transport, sink: asyncio.Transport) -> list[int]:
    """Copies of the descriptors of both, and the two ends of a pipe. Raises ``OSError``."""
    found: list[int] = []
    try:
        found.append(os.dup(source.get_extra_info("socket").fileno()))
        found.append(os.dup(sink.get_extra_info("socket").fileno()))
        found += os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.fcntl(found[-1], fcntl.F_SETPIPE_SZ, _MOST_BYTES)
        except OSError as fault:
            if fcntl.fcntl(found[-1], fcntl.F_GETPIPE_SZ) < _LEAST_PIPE_BYTES:
                raise OSError("the pipe is small") from fault
        if max(found) >= pipe_ceiling():
            raise OSError("too many file descriptors are in use")
    except OSError:
        for descriptor in found:
            os.close(descriptor)
        raise
    return found
