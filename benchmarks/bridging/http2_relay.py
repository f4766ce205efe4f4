"""A bare relay of HTTP/2 on asyncio: frames, streams, windows and header tables alone.

The streams of all callers share one connection to the upstream. Each connection has a header table of its
own: field blocks are decoded, and encoded as literals; a cache by their bytes saves both.
``python -m benchmarks.bridging.http2_relay UPSTREAM`` prints the address.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections import deque
from typing import cast

from interlingua.protocols.transport import loop
from interlingua.protocols.transport.h2.hpack import HpackDecoder
from interlingua.runtime.allocator import tune_allocator

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_INITIAL_WINDOW_SIZE = 4
_LARGEST_WINDOW, _FIRST_WINDOW, _UPDATE_BYTES = 2**31 - 1, 65_535, 1 << 20
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">HBBBL")
_SETTING = struct.Struct(">HI")
_CACHED = 256

Route = tuple["Peer", int]
"""The connection on the other side, and the number of the stream there."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def _opening() -> bytes:
    """Windows that never close, and a connection window to match."""
    settings = _SETTING.pack(_INITIAL_WINDOW_SIZE, _LARGEST_WINDOW)
    more = (_LARGEST_WINDOW - _FIRST_WINDOW).to_bytes(4, "big")
    return _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW_UPDATE, 0, 0, more)


class Peer(asyncio.Protocol):
    """A connection of either side; ``routes`` by stream."""

    transport: asyncio.Transport
    preface = b""

    def __init__(self) -> None:
        self.routes: dict[int, Route] = {}
        self._got = b""
        self._out: list[bytes] = []
        self._touched: set[Peer] = set()
        self._decoder = HpackDecoder()
        self._blocks: dict[bytes, bytes] = {}
        self._window = self._initial_window = _FIRST_WINDOW
        self._windows: dict[int, int] = {}
        self._held: dict[int, deque[tuple[bytes, int]]] = {}
        self._received = 0
        self._ended: set[int] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.preface + _opening())

    def connection_lost(self, exc: Exception | None) -> None:
        for stream in tuple(self.routes):
            self._reset(stream, bytes((0, 0, 0, 2)))
        self._flush_touched()

    def data_received(self, data: bytes) -> None:
        data = self._got + data if self._got else data
        position, end = self._skip_preface(data), len(data)
        while end - position >= 9:
            upper, lower, kind, flags, stream = _HEAD.unpack_from(data, position)
            stop = position + 9 + (upper << 8 | lower)
            if stop > end:
                break
            self._take(kind, flags, stream, data[position + 9 : stop])
            position = stop
        self._got = data[position:]
        self.flush()
        self._flush_touched()

    def _skip_preface(self, data: bytes) -> int:
        return 0

    def flush(self) -> None:
        """One write for all that has been queued."""
        if self._out:
            self.transport.write(b"".join(self._out))
            self._out.clear()

    def _flush_touched(self) -> None:
        for peer in self._touched:
            peer.flush()
        self._touched.clear()

    def route(self, stream: int) -> Route | None:
        """Where ``stream`` goes on."""
        return self.routes.get(stream)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (_DATA, _HEADERS):
            self._pass_on(kind, flags, stream, payload)
        elif kind == _WINDOW_UPDATE:
            self._widen(stream, int.from_bytes(payload, "big"))
        elif kind == _SETTINGS and not flags & _ACK:
            for name, value in _SETTING.iter_unpack(payload):
                if name == _INITIAL_WINDOW_SIZE:
                    for each in self._windows:
                        self._windows[each] += value - self._initial_window
                    self._initial_window = value
            self._out.append(_frame(_SETTINGS, _ACK, 0, b""))
            self._widen(0, 0)
        elif kind == _PING and not flags & _ACK:
            self._out.append(_frame(_PING, _ACK, 0, payload))
        elif kind == _RST_STREAM:
            self._reset(stream, payload)
        elif kind == _GOAWAY:
            self.transport.close()

    def _pass_on(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if flags & (_PADDED | _PRIORITY):
            payload = _bare(kind, flags, payload)
        if kind == _HEADERS:
            payload = self._reencoded(payload)
        else:
            self._received += len(payload)
            if self._received > _UPDATE_BYTES:
                self._out.append(_frame(_WINDOW_UPDATE, 0, 0, self._received.to_bytes(4, "big")))
                self._received = 0
        found = self.route(stream)
        if found is None:
            return
        other, number = found
        self._touched.add(other)
        end = flags & _END_STREAM
        if kind == _HEADERS:
            other.send_headers(number, payload, end)
        else:
            other.send_data(number, payload, end)
        if end:
            self._end(stream, other, number)

    def _end(self, stream: int, other: Peer, number: int) -> None:
        """This side of the stream is over; after both, nothing is kept."""
        if number in other._ended:
            other._ended.discard(number)
            self.forget(stream)
            other.forget(number)
        else:
            self._ended.add(stream)

    def forget(self, stream: int) -> None:
        """Keep nothing of a stream, but for what its window still holds back."""
        self.routes.pop(stream, None)
        if stream not in self._held:
            self._windows.pop(stream, None)

    def send_headers(self, stream: int, block: bytes, end: int) -> None:
        """Queue a field block; those of one frame are all that a benchmark has."""
        if stream in self._held:  # trailers wait for the data before them
            self._held[stream].append((block, -1 - end))
            return
        self._out.append(_frame(_HEADERS, _END_HEADERS | end, stream, block))

    def send_data(self, stream: int, payload: bytes, end: int) -> None:
        """Queue data as far as the windows let it go."""
        window = self._windows.get(stream, self._initial_window)
        if stream in self._held or len(payload) > min(window, self._window):
            self._held.setdefault(stream, deque()).append((payload, end))
            return
        self._window -= len(payload)
        self._windows[stream] = window - len(payload)
        self._out.append(_frame(_DATA, end, stream, payload))

    def _widen(self, stream: int, more: int) -> None:
        if stream:
            self._windows[stream] = self._windows.get(stream, self._initial_window) + more
        else:
            self._window += more
        for each in tuple(self._held):
            waiting = self._held.pop(each)
            while waiting:
                payload, end = waiting.popleft()
                if end < 0:
                    self.send_headers(each, payload, -1 - end)
                    continue
                self.send_data(each, payload, end)
                if each in self._held:
                    self._held[each].extend(waiting)
                    break

    def _reset(self, stream: int, payload: bytes) -> None:
        found = self.routes.pop(stream, None)
        if found is not None:
            other, number = found
            other.forget(number)
            other._out.append(_frame(_RST_STREAM, 0, number, payload))
            self._touched.add(other)

    def _reencoded(self, block: bytes) -> bytes:
        """The same fields as literals that enter no table."""
        known = self._blocks.get(block)
        if known is not None:
            return known
        parts = []
        for name, value in self._decoder.decode(block):
            parts += [b"\0", string(name), string(value)]
        encoded = b"".join(parts)
        if self._decoder.changed:  # the same bytes mean something else the next time
            self._blocks.clear()
        elif len(self._blocks) < _CACHED:
            self._blocks[block] = encoded
        return encoded


class Upstream(Peer):
    """The connection to the upstream."""

    preface = _PREFACE

    def __init__(self) -> None:
        super().__init__()
        self._last = -1

    def open(self, caller: Peer, stream: int) -> int:
        """A new stream here for a stream of ``caller``."""
        self._last += 2
        self.routes[self._last] = (caller, stream)
        return self._last


class Caller(Peer):
    """A caller's connection: its new streams become streams of ``upstream``."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__()
        self._upstream = upstream
        self._greeted = False

    def _skip_preface(self, data: bytes) -> int:
        if self._greeted:
            return 0
        self._greeted = len(data) >= len(_PREFACE)
        return len(_PREFACE) if self._greeted else len(data)

    def route(self, stream: int) -> Route | None:
        found = self.routes.get(stream)
        if found is None:
            found = self.routes[stream] = (self._upstream, self._upstream.open(self, stream))
        return found


def _bare(kind: int, flags: int, payload: bytes) -> bytes:
    """Without padding and priority."""
    start, stop = 0, len(payload)
    if flags & _PADDED:
        start, stop = 1, stop - payload[0]
    if kind == _HEADERS and flags & _PRIORITY:
        start += 5
    return payload[start:stop]


def string(text: bytes) -> bytes:
    """A string of HPACK without the Huffman code (RFC 7541, 5.2)."""
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    size -= 127
    head = bytearray(b"\x7f")
    while size >= 128:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + text


async def main(address: str, caller: type[Caller] = Caller) -> None:
    """Serve until the process is ended."""
    host, _, port = address.rpartition(":")
    here = asyncio.get_running_loop()
    _, upstream = await here.create_connection(Upstream, host, int(port))
    server = await here.create_server(lambda: caller(upstream), "127.0.0.1", 0)
    sys.stdout.write("{}:{}\n".format(*server.sockets[0].getsockname()))
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    tune_allocator()
    loop.run(main(sys.argv[1]))
