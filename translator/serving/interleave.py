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
from typing import TypeVar

Message = TypeVar("Message")
Answer = TypeVar("Answer")

StreamItem = tuple[Answer | None, bool]
"""An answer, None if there is none now, and whether it is the last one to its message."""


async def interleave(
    messages: AsyncIterator[Message],
    work: Callable[[Message], AsyncGenerator[StreamItem[Answer], None]],
    window: int,
    small_window: int = 0,
    is_small: Callable[[Message], bool] = lambda message: False,
) -> AsyncGenerator[Answer, None]:
    """The answers of ``work`` to each of ``messages``.

    ``work`` raises nothing. An exception of ``messages`` is raised after the answers to the messages before
    it. Closing this generator cancels everything at work.
    """
    answers: asyncio.Queue[Answer | None] = asyncio.Queue()
    large_window, little_window = asyncio.Semaphore(window), asyncio.Semaphore(small_window)
    space = asyncio.Semaphore(window)
    at_work: set[asyncio.Task[None]] = set()

    async def answer(
        message: Message, slot: asyncio.Semaphore, turn: asyncio.Future[None], done: asyncio.Future[None]
    ) -> None:
        waits = True
        try:
            async with aclosing(work(message)) as every:
                async for item, last in every:
                    if waits and last:
                        await turn
                    elif waits:
                        # one of several answers: no message waits for another
                        waits = False
                        _hand_over(turn, done)
                    if item is not None:
                        await space.acquire()
                        answers.put_nowait(item)
        finally:
            if waits:
                _hand_over(turn, done)
            slot.release()

    async def read() -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        turn.set_result(None)
        try:
            async for message in messages:
                slot = little_window if is_small(message) else large_window
                await slot.acquire()
                done = loop.create_future()
                task = asyncio.create_task(answer(message, slot, turn, done))
                at_work.add(task)
                task.add_done_callback(at_work.discard)
                turn = done
        finally:
            if at_work:
                await asyncio.wait(at_work)
            answers.put_nowait(None)

    reading = asyncio.create_task(read())
    try:
        while (item := await answers.get()) is not None:
            space.release()
            yield item
        await reading
    finally:
        unfinished = [reading, *at_work]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


def _hand_over(turn: asyncio.Future[None], done: asyncio.Future[None]) -> None:
    """Set ``done`` once ``turn`` is done: the next message must not overtake earlier ones."""
    if turn.done():
        _finish(done)
    else:
        turn.add_done_callback(lambda _: _finish(done))


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
