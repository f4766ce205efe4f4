"""The worker's side of the socket: messages out from any thread, messages in for waiting threads.

There is no reader thread. A thread that waits for a message reads for all waiting threads: the main thread
for the next run, and within a run every thread that calls another model. So a model without such calls needs
no hop between threads.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.runtime.python_worker import channel, packing, regions
from interlingua.runtime.python_worker import triton_python_backend_utils as utils
from interlingua.runtime.python_worker.arenas import ArenaMaps
from interlingua.runtime.python_worker.strings import pack_strings, unpack_strings

CANCELLED = (1 << 64) - 1
"""The value of a slot whose caller has disconnected. Otherwise the slot counts the responses that were
taken."""

WINDOW = 256
"""How many responses to one request may be in flight before the model waits."""

_WAIT_SECS = 0.001


class Box:
    """Messages for one waiter; ``wake`` is called, from any thread, after more of them or at the end."""

    def __init__(self, wake: Callable[[], object] | None = None) -> None:
        self.content: deque[Any] = deque()
        self._wake = wake

    def put(self, what: Any) -> None:
        self.content.append(what)
        self.wake()

    def wake(self) -> None:
        """Notify a waiter outside of :meth:`WorkerConnection.wait`."""
        if self._wake is not None:
            self._wake()


class WorkerConnection:
    """A connection to the server. Any thread may send, without waiting for others. ``forked``: this process
    is a copy of the worker that the model has made."""

    def __init__(self, sock: socket.socket, slots: int, inputs: int, outputs: int) -> None:
        self._sock = sock
        self._frames = channel.ChannelReader()
        self._views = regions.RegionViews(regions.map_page(inputs))
        self._maps = ArenaMaps()
        self._pool = regions.RegionPool(regions.map_page(outputs))
        self._pool_lock = threading.Lock()
        self._slots = memoryview(regions.map_page(slots)).cast("Q")
        self._writing = threading.Lock()
        self._waiting: deque[tuple[bytes, list[int]]] = deque()
        self._turn = threading.Condition()
        self._reading = False
        self._closed = False
        self.forked = False
        self._work = Box()
        self._numbers = count(1)
        self._boxes: dict[int, Box] = {}
        self._aside: threading.Thread | None = None
        os.register_at_fork(after_in_child=self._forget)

    # --- in

    def next(self) -> channel.ChannelFrame | None:
        """The next message that is not an answer; None when the server has closed."""
        found: channel.ChannelFrame | None = self.wait(self._work)
        return found

    def wait(self, box: Box) -> Any:
        """The next message for ``box``; None when the server has closed."""
        with self._turn:
            while not box.content:
                if self._closed:
                    return None
                if self._reading:
                    self._turn.wait()
                    continue
                self._read()
            return box.content.popleft()

    def arrived(self) -> bool:
        """Whether :meth:`next` would not wait."""
        with self._turn:
            while not (self._work.content or self._closed or self._reading) and self._readable():
                self._read()
            return bool(self._work.content) or self._closed

    def read_aside(self) -> None:
        """Read messages while no thread is in :meth:`wait`, for callers that wait in an event loop."""
        if self._aside is None:
            self._aside = threading.Thread(target=self.wait, args=(Box(),), name="read", daemon=True)
            self._aside.start()

    def open(self, box: Box) -> int:
        """A number whose answers come into ``box``."""
        number = next(self._numbers)
        self._boxes[number] = box
        return number

    def forget(self, number: int) -> bool:
        """Drop further answers for ``number``. Returns whether there may be any."""
        return self._boxes.pop(number, None) is not None

    def _read(self) -> None:
        """Wait for the next message, for all waiting threads. The turn is held, and released meanwhile."""
        self._reading = True
        self._turn.release()
        try:
            data, descriptors = channel.receive(self._sock)
        finally:
            self._turn.acquire()
            self._reading = False
        if not data:
            self._close()
        for frame in self._frames.feed(data, descriptors):
            self._sort(frame)
        self._turn.notify_all()

    def _readable(self) -> bool:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def _close(self) -> None:
        self._closed = True
        for box in list(self._boxes.values()):
            box.wake()

    def _sort(self, frame: channel.ChannelFrame) -> None:
        if frame.value[0] == "forget":
            self._maps.forget(frame.value[1])
            return
        if frame.value[0] != "answer":
            self._work.put(frame)
            return
        _, number, packed, parameters, error, final = frame.value
        # even for a disconnected caller: unpacking returns the memory
        tensors = self.tensors(packed, frame)
        box = self._boxes.pop(number, None) if final else self._boxes.get(number)
        if box is not None:
            failure = None if error is None else utils.TritonError(error[1], error[0])
            box.put((utils.InferenceResponse(tensors, failure, parameters), final))

    # --- out

    def send(self, value: Any, payload: bytes = b"", descriptors: list[int] | None = None) -> None:
        """Send a message and close its ``descriptors``."""
        descriptors = descriptors or []
        self._waiting.append((channel.encode(value, payload, len(descriptors)), descriptors))
        # the writer sends what is added meanwhile, even by a destructor in the same thread
        while self._waiting and self._writing.acquire(blocking=False):
            try:
                while self._waiting:
                    self._write(*self._waiting.popleft())
            finally:
                self._writing.release()

    def _write(self, data: bytes, descriptors: list[int]) -> None:
        try:
            view = memoryview(data)[channel.send(self._sock, data, descriptors) :]
            self._sock.sendall(view)
        except OSError:
            # the server is gone, as next() reports
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _forget(self) -> None:
        """In a process that the model has forked: the connection belongs to the parent, and so do the threads
        that held the locks."""
        self.forked = self._closed = True
        self._sock.close()
        self._writing = threading.Lock()
        self._turn = threading.Condition()

    # --- tensors and slots

    def tensors(self, value: Any, frame: channel.ChannelFrame) -> list[utils.Tensor]:
        return [
            utils.Tensor(name, _array(datatype, shape, view))
            for name, datatype, shape, view in packing.unpack(value, frame, self._views, self._maps)
        ]

    def pack(self, tensors: list[utils.Tensor]) -> packing.Packed:
        """Put tensors into a message. Raises ``TritonModelException`` if memory is short, and for an array
        that no datatype stores."""
        parts = [_part(tensor) for tensor in tensors]
        try:
            with self._pool_lock:
                return packing.pack(parts, self._pool)
        except (MemoryError, OSError) as error:
            raise utils.TritonModelException(f"no shared memory for the tensors: {error}") from error

    def cancelled(self, slot: int) -> bool:
        """Whether the caller of ``slot`` has disconnected."""
        return self._slots[slot] == CANCELLED

    def wait_for_reader(self, slot: int, sent: int) -> None:
        """Wait while too many of the ``sent`` responses were not taken."""
        while sent - self._slots[slot] >= WINDOW:
            time.sleep(_WAIT_SECS)


def _array(datatype: str, shape: list[int], view: memoryview) -> NDArray[Any]:
    if datatype == "BYTES":
        return unpack_strings(view).reshape(shape)
    dtype = utils.TRITON_STRING_TO_NUMPY[f"TYPE_{datatype}"]
    return np.frombuffer(view, dtype).reshape(shape)


def _part(tensor: utils.Tensor) -> packing.NamedPart:
    array = tensor.as_numpy()
    datatype = tensor.triton_dtype()[len("TYPE_") :]
    if datatype == "STRING":
        return tensor.name(), "BYTES", array.shape, pack_strings(array)
    little = array.dtype.newbyteorder("<") if array.dtype.byteorder == ">" else array.dtype
    plain = np.ascontiguousarray(array, little).reshape(-1).view(np.uint8)
    return tensor.name(), datatype, array.shape, plain.data if plain.size else b""
