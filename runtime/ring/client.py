"""The end of a channel in a front end: sends requests to the runtime process and receives its answers."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from interlingua.runtime.ring import records
from interlingua.runtime.ring.channel import Channel, Ends, ignore
from interlingua.runtime.ring.records import (
    CALL,
    CANCEL,
    EVENT,
    FAILURE,
    INFER,
    PART,
    SEEN,
    STREAM,
    TAKEN,
    Record,
)
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Tensor,
    unavailable,
)

_EXITED = "the runtime process has exited"

_GRACE_SECS = 0.1
"""How long a request waits after its deadline. The runtime enforces deadlines, unless it is stopped."""


class _Stream:
    """The responses of a stream that the caller has not taken."""

    def __init__(self) -> None:
        self._arrived: deque[Record] = deque()
        self._more = asyncio.Event()

    def put(self, arrived: Record) -> None:
        self._arrived.append(arrived)
        self._more.set()

    async def next(self) -> Record:
        while not self._arrived:
            self._more.clear()
            await self._more.wait()
        return self._arrived.popleft()


class RuntimeClient:
    """Calls the runtime process at the other end of ``ends``. Calls ``notice`` with its notices and ``lost``
    after it has exited. Use on one event loop. Raises ``OSError``.

    Requests raise the model's errors, OVERLOADED if the channel is full, UNAVAILABLE if the process exits,
    DEADLINE_EXCEEDED if it does not answer.
    """

    def __init__(
        self,
        ends: Ends,
        notice: Callable[[Any], object] = lambda _: None,
        lost: Callable[[], object] = lambda: None,
    ) -> None:
        self._channel = Channel(ends, self._receive, self._end)
        self._loop = asyncio.get_running_loop()
        self._notice = notice
        self._lost = lost
        self._open = True
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Record]] = {}
        self._streams: dict[int, _Stream] = {}

    def allocate(self, size: int) -> memoryview | None:
        """Memory for a message whose tensors are then sent without a copy; None without space. Half of the
        arena is for copies: slow callers, or those that announce more than they send, do not take it."""
        arena = self._channel.arena
        return arena.allocate(size, arena.size // 2) if self._open else None

    async def infer(self, request: InferRequest, model: str, *, headers: bool = False) -> InferResponse:
        """The answer of ``model`` to ``request``, whose context gets the timings. ``headers``: the model
        needs those of the caller."""
        number, inputs = self._begin(INFER, request, model, headers), request.inputs
        answer = self._waiting[number] = self._loop.create_future()
        deadline, late = request.context.deadline, None
        if deadline is not None:
            late = self._loop.call_later(deadline - self._loop.time() + _GRACE_SECS, self._late, number)
        try:
            arrived = await answer
        except BaseException:
            self._cancel(number)
            raise
        finally:
            del self._waiting[number]
            if late is not None:
                late.cancel()
        return _response(request.context, inputs, arrived)

    async def stream(
        self, request: InferRequest, model: str, *, headers: bool = False
    ) -> AsyncGenerator[InferResponse, None]:
        """The responses of ``model`` to ``request`` as they arrive."""
        number, inputs = self._begin(STREAM, request, model, headers), request.inputs
        arriving = self._streams[number] = _Stream()
        final = False
        try:
            while not final:
                arrived = await arriving.next()
                final = arrived[0] != PART
                response = _response(request.context, inputs, arrived)
                final = final or response.final
                yield response
                if not final:
                    self._notify(TAKEN, number)
        finally:
            del self._streams[number]
            if not final:
                self._cancel(number)

    async def call(self, name: str, *arguments: object) -> Any:
        """The result of the call ``name`` of the runtime process. Raises its errors and UNAVAILABLE."""
        if not self._open:
            raise unavailable(_EXITED)
        self._number = number = self._number + 1
        records.send(self._channel, CALL, number, (name, pickle.dumps(arguments)))
        result = self._waiting[number] = self._loop.create_future()
        try:
            kind, _, values, _ = await result
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        finally:
            del self._waiting[number]
        if kind == FAILURE:
            raise records.read_error(values)
        # written by another process of this server
        return pickle.loads(values)  # noqa: S301

    def acknowledge(self, notice: int) -> None:
        """Report that the notice with the number ``notice`` has taken effect."""
        self._notify(SEEN, notice)

    def close(self) -> None:
        """Send nothing more; running requests fail."""
        self._channel.close()
        self._end()

    def _begin(self, kind: int, request: InferRequest, model: str, headers: bool) -> int:
        if not self._open:
            raise unavailable(_EXITED)
        channel, self._number = self._channel, self._number + 1
        if channel.waiting:
            raise InferenceError(ErrorCode.OVERLOADED, "too many requests wait for the runtime process")
        places: records.Places = []
        values = records.plain_request(channel, request, model, headers, places)
        records.send(channel, kind, self._number, values, places)
        return self._number

    def _cancel(self, number: int) -> None:
        self._notify(CANCEL, number)

    def _notify(self, kind: int, number: int) -> None:
        if self._open:
            records.send(self._channel, kind, number, None)

    def _receive(self, sent: Any) -> None:
        record = kind, number, values, _ = records.read(self._channel, sent)
        answer = self._waiting.get(number)
        if answer is not None:
            if not answer.done():
                answer.set_result(record)
        elif (stream := self._streams.get(number)) is not None:
            stream.put(record)
        elif kind == EVENT:
            # written by another process of this server
            self._notice(pickle.loads(values))  # noqa: S301

    def _late(self, number: int) -> None:
        answer = self._waiting.get(number)
        if answer is not None and not answer.done():
            late = "the runtime process did not answer before the deadline"
            answer.set_exception(InferenceError(ErrorCode.DEADLINE_EXCEEDED, late))

    def _end(self) -> None:
        if not self._open:
            return
        self._open = False
        failure = FAILURE, 0, records.plain_error(unavailable(_EXITED, begun=True)), ()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(failure)
        for stream in self._streams.values():
            stream.put(failure)
        lost, self._lost, self._notice = self._lost, ignore, ignore
        lost()


def _response(context: Context, inputs: Sequence[Tensor], arrived: Record) -> InferResponse:
    kind, _, values, views = arrived
    if kind == FAILURE:
        raise records.read_error(values)
    response, timings, ended = records.read_response(values, views, inputs)
    context.timings.update(timings)
    context.ended.update(ended)
    return response
