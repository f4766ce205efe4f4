"""Reads the messages of a gRPC call out of the bytes of its stream.

Contract: a message is a flag, four bytes of length, and its bytes ("Length-Prefixed-Message"). One above the
limit is refused by its length, before any of it is buffered. A message is received into one buffer, which
grows with what has arrived rather than with what the peer claims. No sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from interlingua.protocols.content_coding import SHORT_BYTES, inflate
from interlingua.protocols.transport.compiling import mypyc_attr
from interlingua.protocols.transport.grpc.status import INTERNAL, RESOURCE_EXHAUSTED
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.transport.inflated import is_limit
from interlingua.protocols.transport.memory import Allocate, end_aligned, unfilled
from interlingua.protocols.transport.threads import in_thread
from interlingua.protocols.wire import Buffer
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits

PREFIX = struct.Struct(">BL")
"""The prefix of a message: whether it is compressed, and its length."""

PREFIX_BYTES = 5

_COPIED_BYTES = 1 << 14
"""Up to this size a message in one DATA frame is copied out of the received bytes; a larger one is a view."""

_CLAIMED_BYTES = 8 << 20
"""How much is allocated for a message of which nothing has arrived."""

_GROWTH = 8
"""How many times what has arrived the buffer may be: few copies of long messages, no memory for a claim."""

_FILLED_BYTES = 1 << 17
"""Up to this size, a buffer is filled with zeros once much of its message is here: they cost less than a call
of NumPy, whose code and data have left the processor's cache between two messages."""

_NOTHING = memoryview(b"")
_READ = bytes(PREFIX_BYTES)
"""In the place of a prefix that has been read."""


class MessageError(Exception):
    """A message cannot be taken. ``code`` is RESOURCE_EXHAUSTED for one above the limit, of ``size`` bytes
    (None for one whose size is unknown, as it is compressed), otherwise INTERNAL. ``fault`` is a
    limit on decompression or a lack of memory; ``details`` are for the peer as they are then."""

    def __init__(
        self, code: int, details: str, size: int | None = None, *, fault: InferenceError | None = None
    ) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.size = size
        self.fault = fault

    def error(self) -> InferenceError:
        """The same as an error of a request."""
        code = ErrorCode.TOO_LARGE if self.code == RESOURCE_EXHAUSTED else ErrorCode.MALFORMED
        return self.fault or InferenceError(code, self.details)


class CompressedMessage:
    """A message that is not decompressed yet: that may take long."""

    __slots__ = ("_coding", "_data", "_limit")

    def __init__(self, coding: str, data: Buffer, limit: int | None) -> None:
        self._coding = coding
        self._data = data
        self._limit = limit

    def __len__(self) -> int:
        return len(self._data)

    async def inflated(self, limits: DecodingLimits) -> Buffer:
        """The message. Raises ``MessageError``."""
        try:
            return await in_thread(limits, self.inflated_here, limits)
        except InferenceError as error:  # too many messages wait
            raise MessageError(RESOURCE_EXHAUSTED, error.message, fault=error) from None

    def inflated_here(self, limits: DecodingLimits = DEFAULT_LIMITS) -> Buffer:
        """The same without a thread, for a short one."""
        try:
            return inflate(self._coding, self._data, self._limit, limits)
        except InferenceError as fault:
            if fault.code in (ErrorCode.TOO_LARGE, ErrorCode.OVERLOADED):
                own = fault if is_limit(fault) else None
                raise MessageError(RESOURCE_EXHAUSTED, fault.message, fault=own) from None
            raise MessageError(INTERNAL, f"Decompression failed: {fault.message}") from None


class MessageReader:
    """For one call: ``coding`` is the compression of messages with the compressed flag, ``limit`` the largest
    size of a message, before and after decompression, ``allocate`` gets memory for large ones. A ``Sink``,
    except for the last byte of a message."""

    __slots__ = (
        "_allocate",
        "_coding",
        "_compressed",
        "_limit",
        "_prefix",
        "_size",
        "buffer",
        "end",
        "filled",
    )

    def __init__(self, coding: str, limit: int | None, allocate: Allocate) -> None:
        self._allocate = allocate
        self._coding = coding
        self._limit = limit
        self._prefix = b""
        self._compressed = self._size = 0
        self.buffer = _NOTHING
        self.filled = self.end = 0

    @property
    def partial(self) -> bool:
        """Whether part of a message has arrived."""
        return bool(self._prefix)

    @property
    def missing(self) -> int:
        """How many bytes the message lacks whose length is known."""
        return self._size - self.filled if len(self._prefix) == PREFIX_BYTES else 0

    def read(self, data: Buffer, start: int, stop: int) -> Iterator[Any]:
        """The messages that ``data[start:stop]`` completes, each a buffer or a ``CompressedMessage``. Raises
        ``MessageError``."""
        view = memoryview(data)
        while start < stop:
            if len(self._prefix) < PREFIX_BYTES:
                missing = PREFIX_BYTES - len(self._prefix)
                self._prefix += data[start : min(start + missing, stop)]
                start += missing
                if len(self._prefix) < PREFIX_BYTES:
                    break
                self._begin()
                if self._size <= min(stop - start, _COPIED_BYTES):
                    start += self._size
                    self._prefix = b""
                    yield self._unpacked(bytes(view[start - self._size : start]))
                    continue
                self._extend(0, 0)
            filled = self.filled
            upto = max(start, min(start + self._size - filled, stop))
            after = filled + upto - start
            if after > len(self.buffer):
                self._extend(filled, after)
            self.buffer[filled:after] = view[start:upto]
            start, self.filled = upto, after
            if after == self._size:
                yield self._whole()

    def begin(self, data: Buffer, start: int, stop: int, size: int) -> None:
        """As :meth:`read` for the beginning of a message of ``size`` bytes, which is within the limit and not
        compressed."""
        begin = start + PREFIX_BYTES
        filled = stop - begin
        self._prefix, self._compressed, self._size = _READ, 0, size
        self._extend(0, filled)
        self.buffer[:filled] = memoryview(data)[begin:stop]
        self.filled = filled

    def end_with(self, data: Buffer, start: int, stop: int) -> Any:
        """As :meth:`read` for the rest of a message, which is returned."""
        filled = self.filled
        if self._size > len(self.buffer):
            self._extend(filled, self._size)
        self.buffer[filled:] = memoryview(data)[start:stop]
        return self._whole()

    def _begin(self) -> None:
        self._compressed, self._size = PREFIX.unpack(self._prefix)
        if self._limit is not None and self._size > self._limit:
            details = f"a message of {self._size} bytes, more than {self._limit}"
            raise MessageError(RESOURCE_EXHAUSTED, details, self._size)
        if self._compressed & 1 and not self._coding:
            raise MessageError(INTERNAL, "Compression bit set but no encoding configured")

    def _extend(self, filled: int, needed: int) -> None:
        """Get a buffer for at least ``needed`` bytes; the first ``filled`` are there already."""
        size = self._size
        if size > _CLAIMED_BYTES:
            size = min(size, max(_CLAIMED_BYTES, _GROWTH * needed))
        try:
            if size <= _FILLED_BYTES and size <= _GROWTH * needed and self._allocate is unfilled:
                buffer = memoryview(bytearray(size))
            else:
                buffer = end_aligned(self._allocate, size)
        except MemoryError:
            details = f"no memory for a message of {self._size} bytes"
            fault = InferenceError(ErrorCode.OVERLOADED, details)
            raise MessageError(RESOURCE_EXHAUSTED, details, fault=fault) from None
        if filled:
            buffer[:filled] = self.buffer[:filled]
        self.buffer, self.filled, self.end = buffer, filled, size - (size == self._size)

    def _whole(self) -> Buffer | CompressedMessage:
        message = self.buffer.toreadonly()
        self.buffer = _NOTHING
        self._prefix, self.filled, self.end = b"", 0, 0
        return self._unpacked(message) if self._compressed else message

    def _unpacked(self, message: Buffer) -> Buffer | CompressedMessage:
        """The message, without its compression if that is quick."""
        if not self._compressed & 1:
            return message
        compressed = CompressedMessage(self._coding, message, self._limit)
        return compressed if len(message) > SHORT_BYTES else compressed.inflated_here()


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageStream(Stream):
    """A stream that receives messages: either end of a call."""

    __slots__ = ()

    def messages_in(
        self, data: Buffer, start: int, stop: int, coding: str, limit: int | None, allocate: Allocate
    ) -> Iterable[Any]:
        """The messages that ``data[start:stop]`` completes, each a buffer or a ``CompressedMessage``;
        ``coding``, ``limit`` and ``allocate`` are those of ``MessageReader``. Raises ``MessageError`` between
        them."""
        reader: MessageReader | None = self.sink
        if reader is None or not reader._prefix:
            if stop - start >= PREFIX_BYTES:
                # nearly every message fills one DATA frame, or begins one
                compressed, size = PREFIX.unpack_from(data, start)
                begin = start + PREFIX_BYTES
                if not compressed and (limit is None or size <= limit):
                    if size == stop - begin:
                        if size > _COPIED_BYTES and isinstance(data, bytes):
                            return (memoryview(data)[begin:stop],)
                        return (bytes(data[begin:stop]),)
                    if size > stop - begin:
                        if reader is None:
                            reader = self.sink = MessageReader(coding, limit, allocate)
                        reader.begin(data, start, stop, size)
                        return ()
        elif 0 < stop - start == reader.missing:
            return (reader.end_with(data, start, stop),)
        if reader is None:
            reader = self.sink = MessageReader(coding, limit, allocate)
        return reader.read(data, start, stop)

    @property
    def partial(self) -> bool:
        """Whether part of a message has arrived."""
        reader: MessageReader | None = self.sink
        return reader is not None and reader.partial

    @property
    def missing(self) -> int:
        """See ``Stream``."""
        reader: MessageReader | None = self.sink
        return 0 if reader is None else reader.missing


def prefixed(message: Buffer, parts: Sequence[Buffer] = ()) -> tuple[int, Sequence[Buffer]]:
    """The pieces of ``message``, which ``parts`` continue, with its prefix, and their size together. What may
    change while it is queued is copied."""
    size = len(message)
    # _lasting, inlined
    if not parts and (type(message) is bytes or (type(message) is memoryview and message.readonly)):
        return size + PREFIX_BYTES, (PREFIX.pack(0, size), message)
    for part in parts:
        size += len(part)
    return size + PREFIX_BYTES, (PREFIX.pack(0, size), _lasting(message), *map(_lasting, parts))


def _lasting(message: Buffer) -> Buffer:
    if isinstance(message, bytes) or (isinstance(message, memoryview) and message.readonly):
        return message
    return bytes(message)
