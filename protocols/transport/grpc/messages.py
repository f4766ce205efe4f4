"""Reads the messages of a gRPC call out of the bytes of its stream.

Contract: a message is a flag, four bytes of length, and its bytes ("Length-Prefixed-Message"). One above the
limit is refused by its length, before any of it is buffered. No sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from interlingua.protocols.content_coding import inflate
from interlingua.protocols.transport.grpc.status import INTERNAL, RESOURCE_EXHAUSTED, too_large
from interlingua.protocols.wire import Buffer, GrpcAnswer
from interlingua.schemas import ErrorCode, InferenceError

PREFIX = struct.Struct(">BL")
"""The prefix of a message: whether it is compressed, and its length."""

PREFIX_BYTES = 5

_COPIED_BYTES = 4096
"""Parts of a message up to this size are joined as they arrive: an object for each would take more memory
than its bytes."""


class RefusedMessageError(Exception):
    """A message is refused; ``answer`` ends the call."""

    def __init__(self, answer: GrpcAnswer) -> None:
        super().__init__(answer.details)
        self.answer = answer


class MessageReader:
    """For one call: ``coding`` is the compression of messages with the compressed flag, ``limit`` the largest
    size of a message, before and after decompression."""

    def __init__(self, coding: str, limit: int | None) -> None:
        self._coding = coding
        self._limit = limit
        self._prefix = b""
        self._compressed = 0
        self._size = self._missing = 0
        self._parts: list[bytearray | memoryview] = []

    @property
    def partial(self) -> bool:
        """Whether part of a message has arrived."""
        return bool(self._prefix)

    def read(self, data: bytes, start: int, stop: int) -> Iterator[Buffer]:
        """The messages that ``data[start:stop]`` completes. Raises ``RefusedMessageError``."""
        while start < stop:
            if len(self._prefix) < PREFIX_BYTES:
                missing = PREFIX_BYTES - len(self._prefix)
                self._prefix += data[start : min(start + missing, stop)]
                start += missing
                if len(self._prefix) < PREFIX_BYTES:
                    break
                self._compressed, self._size = PREFIX.unpack(self._prefix)
                self._missing = self._size
                self._check()
            upto = min(start + self._missing, stop)
            if upto > start:
                self._keep(data, start, upto)
                self._missing -= upto - start
                start = upto
            if not self._missing:
                yield self._whole()

    def _check(self) -> None:
        if self._limit is not None and self._size > self._limit:
            raise RefusedMessageError(too_large("request", self._size, "max_request_bytes", self._limit))
        if self._compressed & 1 and not self._coding:
            details = "Compression bit set but no encoding configured"
            raise RefusedMessageError(GrpcAnswer(code=INTERNAL, details=details))

    def _keep(self, data: bytes, start: int, stop: int) -> None:
        parts = self._parts
        if stop - start > _COPIED_BYTES:
            parts.append(memoryview(data)[start:stop])
        elif parts and isinstance(parts[-1], bytearray):
            parts[-1] += data[start:stop]
        else:
            parts.append(bytearray(data[start:stop]))

    def _whole(self) -> Buffer:
        parts, self._parts, self._prefix = self._parts, [], b""
        message: Buffer = parts[0] if len(parts) == 1 and type(parts[0]) is memoryview else b"".join(parts)
        if not self._compressed & 1:
            return message
        try:
            return inflate(self._coding, message, self._limit)
        except InferenceError as fault:
            if fault.code is ErrorCode.TOO_LARGE:
                details = (
                    f"the request has more bytes when decompressed than the {self._limit} that "
                    "max_request_bytes of this listener allows"
                )
                answer = GrpcAnswer(code=RESOURCE_EXHAUSTED, details=details)
            else:
                answer = GrpcAnswer(code=INTERNAL, details=f"Decompression failed: {fault.message}")
            raise RefusedMessageError(answer) from None
