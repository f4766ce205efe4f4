"""The answers to a stream of messages: many messages at work at once, their answers in one order.

Contract: single answers keep the order of the messages, as clients of ordinary models expect; several answers
to one message go out as they arrive, between the others. One window limits the messages at work and the
answers to be sent. Small messages have their own, larger window: a message may wait for a later one, as the
first of a sequence waits for the end of another, and must not keep it from being read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

Message = TypeVar("Message")
Answer = TypeVar("Answer")

StreamItem = tuple[Answer | None, bool]
"""An answer, None if there is none now, and whether it is the last one to its message."""

_Work = Callable[[Message], AsyncGenerator[StreamItem[Answer], None]]


async def interleave(
    messages: AsyncIterator[Message],
    work: _Work[Message, Answer],
    window: int,
    small_window: int = 0,
    is_small: Callable[[Message], bool] = lambda message: False,
) -> AsyncGenerator[Answer, None]:
    """The answers of ``work`` to each of ``messages``.

    ``work`` raises nothing. An exception of ``messages`` is raised after the answers to the messages before
    it. Closing this generator cancels everything at work.
    """
    interleaving = _Interleaving(work, window, small_window, is_small)
    reading = asyncio.create_task(interleaving.read(messages))
    try:
        while (item := await interleaving.answers.get()) is not None:
            interleaving.space.release()
            yield item
        await reading
    finally:
        unfinished = [reading, *interleaving.at_work]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


class _Interleaving(Generic[Message, Answer]):
    """The messages of one stream: the tasks ``at_work``, and the ``answers`` to be sent, None after the last.
    The owner releases ``space`` for each answer that it takes."""

    __slots__ = ("_is_small", "_large_window", "_small_window", "_work", "answers", "at_work", "space")

    def __init__(
        self,
        work: _Work[Message, Answer],
        window: int,
        small_window: int,
        is_small: Callable[[Message], bool],
    ) -> None:
        self._work = work
        self._is_small = is_small
        self._large_window, self._small_window = asyncio.Semaphore(window), asyncio.Semaphore(small_window)
        self.answers: asyncio.Queue[Answer | None] = asyncio.Queue()
        self.space = asyncio.Semaphore(window)
        self.at_work: set[asyncio.Task[None]] = set()

    async def read(self, messages: AsyncIterator[Message]) -> None:
        """Begin the work of ``messages`` within the windows, and wait for its end. Raises as they do."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        turn.set_result(None)
        try:
            async for message in messages:
                slot = self._small_window if self._is_small(message) else self._large_window
                await slot.acquire()
                done = loop.create_future()
                task = asyncio.create_task(self._answer(message, slot, turn, done))
                self.at_work.add(task)
                task.add_done_callback(self.at_work.discard)
                turn = done
        finally:
            if self.at_work:
                await asyncio.wait(self.at_work)
            self.answers.put_nowait(None)

    async def _answer(
        self,
        message: Message,
        slot: asyncio.Semaphore,
        turn: asyncio.Future[None],
        done: asyncio.Future[None],
    ) -> None:
        """Put the answers to ``message`` in the queue, a single one after ``turn``; ``done`` is the turn of
        the next message."""
        waits, work = True, self._work(message)
        del message  # its memory is free while the answer waits
        try:
            async with aclosing(work) as every:
                async for item, last in every:
                    if waits and last:
                        await turn
                    elif waits:
                        # one of several answers: no message waits for another
                        waits = False
                        _hand_over(turn, done)
                    if item is not None:
                        await self.space.acquire()
                        self.answers.put_nowait(item)
        finally:
            if waits:
                _hand_over(turn, done)
            slot.release()


def _hand_over(turn: asyncio.Future[None], done: asyncio.Future[None]) -> None:
    """Set ``done`` once ``turn`` is done: the next message must not overtake earlier ones."""
    if turn.done():
        _finish(done)
    else:
        turn.add_done_callback(lambda _: _finish(done))


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
