"""Calls and results between an offload thread and its process.

A frame is a pickle; its large buffers are in a file in memory whose descriptor travels with it. The sender
copies a buffer into the file once; the receiver maps the file, so that tensors are views of it. Both ends run
the same version, and only they have the socket.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interlingua.schemas import ErrorCode, InferenceError

_HEADER = struct.Struct("<QQ")
"""The size of the pickle, and the number of large buffers, whose sizes precede the pickle."""

_IN_PICKLE_BYTES = 1 << 16
"""Smaller buffers are part of the pickle: a file costs more."""


def send(sock: socket.socket, value: Any) -> None:
    """Send ``value``. Blocks, without the interpreter's lock for large buffers. Raises ``OSError``."""
    large: list[memoryview] = []
    pickled = _pickled(value, large)
    sizes = [each.nbytes for each in large]
    header = _HEADER.pack(len(pickled), len(large))
    if not large:
        sock.sendall(header)
    else:
        file = os.memfd_create("interlingua-offload", os.MFD_CLOEXEC)
        try:
            for each in large:
                _write(file, each)
            socket.send_fds(sock, [header], [file])
        finally:
            os.close(file)
        sock.sendall(struct.pack(f"<{len(sizes)}Q", *sizes))
    sock.sendall(pickled)


def receive(sock: socket.socket) -> Any:
    """The next value. Blocks. Raises ``EOFError`` at the end, ``OSError``."""
    header, files, _, _ = socket.recv_fds(sock, _HEADER.size, 1, socket.MSG_WAITALL | socket.MSG_CMSG_CLOEXEC)
    try:
        if len(header) < _HEADER.size:
            raise EOFError("the other side has closed the connection")
        size, count = _HEADER.unpack(header)
        sizes = struct.unpack(f"<{count}Q", _exactly(sock, 8 * count))
        pickled = _exactly(sock, size)
        memory = memoryview(mmap.mmap(files[0], sum(sizes), prot=mmap.PROT_READ) if count else b"")
    finally:
        for file in files:
            os.close(file)
    # sent by the other end of a private socket pair
    return pickle.loads(pickled, buffers=_cut(memory, sizes))  # noqa: S301


class _FramePickler(pickle.Pickler):
    """Pickles views too, which become read-only, and errors."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is memoryview:
            return _read_only, (pickle.PickleBuffer(value),)
        if isinstance(value, InferenceError):
            return _error, (value.code, value.message, value.origin, value.retryable, dict(value.details))
        return NotImplemented


def _pickled(value: Any, large: list[memoryview]) -> memoryview:
    """The pickle of ``value`` without the buffers that it adds to ``large``."""

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= _IN_PICKLE_BYTES:
            large.append(raw)
        return raw.nbytes < _IN_PICKLE_BYTES

    stream = io.BytesIO()
    _FramePickler(stream, pickle.HIGHEST_PROTOCOL, buffer_callback=is_small).dump(value)
    return stream.getbuffer()


def _read_only(buffer: Any) -> memoryview:
    return memoryview(buffer).toreadonly()


def _error(
    code: ErrorCode, message: str, origin: str, retryable: bool, details: Mapping[str, Any]
) -> InferenceError:
    return InferenceError(code, message, origin=origin, retryable=retryable, details=details)


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def _exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = sock.recv_into(view)
        if not count:
            raise EOFError("the other side has closed the connection")
        view = view[count:]
    return data


def _cut(memory: memoryview, sizes: Sequence[int]) -> Iterator[memoryview]:
    position = 0
    for size in sizes:
        yield memory[position : position + size]
        position += size
