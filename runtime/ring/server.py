"""The end of a channel in the runtime process: answers one front end."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from math import inf
from typing import Any, TypeVar

from interlingua.runtime.ring import records
from interlingua.runtime.ring.channel import Channel, Ends, ignore
from interlingua.runtime.ring.records import (
    ANSWER,
    CALL,
    CANCEL,
    EVENT,
    FAILURE,
    INFER,
    PART,
    RESULT,
    SEEN,
    STREAM,
    TAKEN,
)
from interlingua.runtime.target import Target
from interlingua.schemas import CancelToken, ErrorCode, InferenceError, InferRequest, InferResponse

Calls = Mapping[str, Callable[..., Awaitable[object]]]
"""Functions that front ends call by name."""

WINDOW = 16
"""How many responses of a stream may be on their way to a caller that has not taken them."""

_UNEXPECTED = "internal error; the server's log has the details"

_log = logging.getLogger(__name__)

T = TypeVar("T")

Work = Callable[["RuntimeServer", "_Running", int, T], Awaitable[None]]


class _Running:
    """A request or call that runs: its task, its caller's token, and how many responses may be sent."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.cancel = CancelToken()
        self._credit = WINDOW
        self._more: asyncio.Event | None = None

    def taken(self) -> None:
        """The caller has taken one response."""
        self._credit += 1
        if self._more is not None:
            self._more.set()

    async def sent(self) -> None:
        """Count a response, and wait until another may be sent."""
        self._credit -= 1
        if self._credit:
            return
        self._more = self._more or asyncio.Event()
        while not self._credit:
            self._more.clear()
            await self._more.wait()


class RuntimeServer:
    """Answers the requests of one front end with the models that ``find`` returns, and its ``calls``. Calls
    ``lost`` after the front end has exited and its requests are cancelled. Use on one event loop. Raises
    ``OSError``."""

    def __init__(
        self, ends: Ends, find: Callable[[str], Target], calls: Calls, lost: Callable[[], object]
    ) -> None:
        self._find = find
        self._calls = calls
        self._lost = lost
        self._running: dict[int, _Running] = {}
        self._loop = asyncio.get_running_loop()
        self._seen: float = 0
        self._seeing: list[asyncio.Future[None]] = []
        self._channel = Channel(ends, self._receive, self._end)

    def notify(self, notice: bytes) -> None:
        """Send a pickled ``notice`` to the front end. Raises OVERLOADED if it does not fit into the
        channel."""
        records.send(self._channel, EVENT, 0, notice)

    async def seen(self, notice: int) -> None:
        """Wait until the notice ``notice``, or a later one, has taken effect, or the front end has exited."""
        while self._seen < notice:
            waiter = self._loop.create_future()
            self._seeing.append(waiter)
            await waiter

    async def close(self) -> None:
        """Cancel what runs, and close the channel."""
        self._channel.close()
        self._lost = ignore
        await self._cancel_all()

    def _receive(self, sent: Any) -> None:
        kind, number, values, views = records.read(self._channel, sent)
        if kind == INFER:
            self._receive_request(number, records.read_request(values, views))
        elif kind == STREAM:
            self._start(number, RuntimeServer._stream, records.read_request(values, views))
        elif kind == CALL:
            self._start(number, RuntimeServer._call, values)
        elif kind == SEEN:
            self._see(number)
        elif (running := self._running.get(number)) is None:
            return  # it has ended meanwhile
        elif kind == CANCEL:
            running.cancel.cancel()
            running.task.cancel()
        elif kind == TAKEN:
            running.taken()

    def _receive_request(self, number: int, request: InferRequest) -> None:
        """Answer ``request``, in a task if the model waits for something."""
        try:
            target = self._find(request.model)
            response = target.infer_now(request)
            if response is None:
                self._start(number, RuntimeServer._infer, request)
            else:
                self._send(ANSWER, number, request, response)
        except Exception as error:
            self._fail(number, error)

    def _start(self, number: int, work: Work[T], argument: T) -> None:
        running = self._running[number] = _Running()
        running.task = self._loop.create_task(self._carry_out(running, number, work, argument))
        # not in the task, which may be cancelled before it begins
        running.task.add_done_callback(lambda _: self._ended(number))

    def _ended(self, number: int) -> None:
        # a cancelled task refers to its frames: a cycle would keep the memory of the request
        del self._running.pop(number).task

    async def _carry_out(self, running: _Running, number: int, work: Work[T], argument: T) -> None:
        """Carry out ``work``, and send its error."""
        try:
            await work(self, running, number, argument)
        except Exception as error:
            self._fail(number, error)

    def _fail(self, number: int, error: Exception) -> None:
        if not isinstance(error, InferenceError):
            _log.error("unexpected error", exc_info=error, extra={"facts": {"request": f"record {number}"}})
            error = InferenceError(ErrorCode.INTERNAL, _UNEXPECTED)
        records.send(self._channel, FAILURE, number, records.plain_error(error))

    async def _infer(self, running: _Running, number: int, request: InferRequest) -> None:
        request.context.cancel = running.cancel
        response = await self._find(request.model).infer(request)
        self._send(ANSWER, number, request, response)

    async def _stream(self, running: _Running, number: int, request: InferRequest) -> None:
        request.context.cancel = running.cancel
        async with aclosing(self._find(request.model).stream(request)) as responses:
            async for response in responses:
                self._send(PART, number, request, response)
                if not response.final:
                    await running.sent()

    async def _call(self, _: _Running, number: int, call: tuple[str, bytes]) -> None:
        name, arguments = call
        # written by another process of this server
        result = await self._calls[name](*pickle.loads(arguments))  # noqa: S301
        records.send(self._channel, RESULT, number, pickle.dumps(result))

    def _send(self, kind: int, number: int, request: InferRequest, response: InferResponse) -> None:
        places: records.Places = []
        values = records.plain_response(self._channel, response, request, places)
        records.send(self._channel, kind, number, values, places)

    def _see(self, notice: float) -> None:
        self._seen = max(self._seen, notice)
        seeing, self._seeing = self._seeing, []
        for waiter in seeing:
            if not waiter.done():
                waiter.set_result(None)

    def _end(self) -> None:
        self._see(inf)
        ending = self._loop.create_task(self._cancel_all())
        ending.add_done_callback(lambda _: self._over())

    def _over(self) -> None:
        lost, self._lost = self._lost, ignore
        lost()

    async def _cancel_all(self) -> None:
        running = list(self._running.values())
        for each in running:
            each.cancel.cancel()
            each.task.cancel()
        await asyncio.gather(*(each.task for each in running), return_exceptions=True)
