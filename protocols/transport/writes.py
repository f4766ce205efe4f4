"""Writes buffers to a socket with few system calls: small ones joined, large ones uncopied and gathered.

A connection with many requests in flight answers several in one turn of the event loop, and a large message
consists of many frames: a ``WriteBatch`` holds what is written until the end of the turn. Answers on several
connections leave together then too (``Flushes``). uvloop has one system call for a gathering write; asyncio's
own loop has one for each piece, and copies what the socket does not take.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from time import monotonic
from weakref import WeakKeyDictionary

from interlingua.protocols.wire import Buffer

JOINED_BYTES = 1 << 16
"""Up to this size, copying pieces into one costs less than a gathering write."""

WRITTEN_BYTES = 1 << 21
"""How much is written at once: while a fast client reads, one write goes on, and everyone else waits."""

_SLICE_BYTES = 1 << 16
"""How much is written over TLS at once: OpenSSL encrypts it into a buffer that grows by copying, and
everything then passes through the processor's cache."""

_FLUSHED_BYTES = 1 << 19
"""From this size on, pieces are not held back: the transport says when its buffer is full."""


_GATHERED = 512
"""Up to how many pieces are gathered by one system call; the system allows 1,024, and two pieces may be
added at once for each frame of half a MiB."""

_MOST_HELD = 16
"""After so many answers in one turn of the event loop they leave, so that none waits long for the others."""

_MOST_SECS = 0.0005
"""After so long too: models that answer at once run in that turn."""


def write_pieces(transport: asyncio.WriteTransport, pieces: Sequence[Buffer], size: int) -> None:
    """Write ``pieces`` of bytes, ``size`` of them together, which must not change before they are sent. The
    transport calls ``pause_writing`` where the socket takes much less."""
    if size <= JOINED_BYTES:
        transport.write(b"".join(pieces))
        return
    if transport.get_extra_info("sslcontext") is not None:
        _write_slices(transport, pieces)
        return
    if not isinstance(transport, asyncio.Transport):
        # uvloop's own: single writes would each go out when they pass the high-water mark
        transport.writelines(pieces)
        return
    # asyncio's writelines joins before Python 3.12, and forgets to pause before 3.12.9 and 3.13.2
    for piece in pieces:
        transport.write(piece)


def batches(pieces: Sequence[Buffer]) -> Iterator[tuple[list[Buffer], int]]:
    """``pieces`` of bytes in batches of up to ``WRITTEN_BYTES``, each with its size."""
    batch: list[Buffer] = []
    size = 0
    for piece in pieces:
        whole = memoryview(piece)
        while size + len(whole) >= WRITTEN_BYTES:
            fits = WRITTEN_BYTES - size
            yield [*batch, whole[:fits]], WRITTEN_BYTES
            batch, size, whole = [], 0, whole[fits:]
        if whole:
            batch.append(whole)
            size += len(whole)
    if batch:
        yield batch, size


def _write_slices(transport: asyncio.WriteTransport, pieces: Sequence[Buffer]) -> None:
    """Write ``pieces`` over TLS: small ones joined, large ones in slices."""
    held: list[Buffer] = []
    size = 0
    for piece in pieces:
        large = len(piece) >= _SLICE_BYTES
        if not large:
            held.append(piece)
            size += len(piece)
        if held and (large or size >= _SLICE_BYTES):
            transport.write(b"".join(held))
            held, size = [], 0
        if large:
            whole = memoryview(piece)
            for start in range(0, len(whole), _SLICE_BYTES):
                transport.write(whole[start : start + _SLICE_BYTES])
    if held:
        transport.write(b"".join(held))


class WriteBatch:
    """Writes to ``transport`` at the end of the current turn, or at :meth:`flush`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._pieces: list[Buffer] = []
        self._size = 0
        self._shared = shared_writes_of(loop)
        self._has_shared = False
        socket = transport.get_extra_info("socket")
        plain = socket is not None and transport.get_extra_info("sslcontext") is None
        self._descriptor = socket.fileno() if plain else -1

    def write(self, *pieces: Buffer) -> None:
        """Write ``pieces``, which must not change."""
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if self._size >= _FLUSHED_BYTES:
            self.flush()

    def write_shared(self, *pieces: Buffer) -> None:
        """Write ``pieces`` of the buffer that is being read, which change after ``SharedWrites.flush``."""
        if not self._has_shared:
            self._has_shared = True
            self._shared.batches.append(self)
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if len(self._pieces) >= _GATHERED:
            self.flush()

    def flush(self) -> None:
        """Write now what is held back."""
        pieces = self._pieces
        if not pieces:
            return
        self._pieces, size, self._size = [], self._size, 0
        if self._transport.is_closing():
            return
        if self._has_shared:
            self._write_now(pieces, size)
        elif len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            write_pieces(self._transport, pieces, size)

    def flush_shared(self) -> None:
        """Write now what is held back; a copy of what the socket does not take."""
        try:
            self.flush()
        finally:
            self._has_shared = False

    def _write_now(self, pieces: list[Buffer], size: int) -> None:
        """Write ``pieces``, of which no view may remain."""
        transport, sent = self._transport, 0
        if self._descriptor >= 0 and not transport.get_write_buffer_size():
            with suppress(OSError):  # the socket is full, or the transport notices what has happened
                sent = os.writev(self._descriptor, pieces)
        if sent < size:
            rest = b"".join(_after(pieces, sent))
            write_pieces(transport, (rest,), len(rest))


def _after(pieces: Iterable[Buffer], sent: int) -> Iterator[Buffer]:
    """What follows the first ``sent`` bytes of ``pieces``."""
    for piece in pieces:
        if sent < len(piece):
            yield memoryview(piece)[sent:]
        sent = max(0, sent - len(piece))


class SharedWrites:
    """The ``batches`` with pieces of a buffer that connections of one event loop share. The connection that
    has received into it flushes them before the next one does."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[WriteBatch] = []

    def flush(self) -> None:
        """Write them now."""
        while self.batches:
            self.batches.pop().flush_shared()


_shared_writes: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedWrites] = WeakKeyDictionary()


def shared_writes_of(loop: asyncio.AbstractEventLoop) -> SharedWrites:
    """Those of ``loop``."""
    return _shared_writes.get(loop) or _shared_writes.setdefault(loop, SharedWrites())


class Flushes:
    """Calls the functions that connections of one event loop add, which write what those hold back, at the
    end of the current turn. A client on this machine, or one with several connections, then wakes once for
    all of them, and the event loop keeps its processor meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: list[Callable[[], None]] = []
        self._since = 0.0

    def add(self, flush: Callable[[], None]) -> None:
        """Call ``flush``, which does not raise, at the end of the turn."""
        held, now = self._held, monotonic()
        if not held:
            self._loop.call_soon(self._run)
            self._since = now
        held.append(flush)
        if len(held) >= _MOST_HELD or now - self._since >= _MOST_SECS:
            self._run()

    def _run(self) -> None:
        held, self._held = self._held, []
        for flush in held:
            flush()


_flushes: WeakKeyDictionary[asyncio.AbstractEventLoop, Flushes] = WeakKeyDictionary()


def flushes_of(loop: asyncio.AbstractEventLoop) -> Flushes:
    """Those of ``loop``."""
    return _flushes.get(loop) or _flushes.setdefault(loop, Flushes(loop))
