"""The answers to a stream of messages: many messages at work at once, their answers in one order.

Contract: single answers keep the order of the messages, since clients count on it for ordinary models;
messages with several answers get them as they come, between the others. At most a window of messages is at
work, and at most a window of answers waits to be sent, however fast the messages come. Small messages have
their own, larger window: a message that waits for a later one, as the first of a sequence may for the end of
another sequence, must not keep that one from being read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

Message = TypeVar("Message")
Answer = TypeVar("Answer")

StreamItem = tuple[Answer | None, bool]
"""An answer, None where the message gets none now, and whether it is the last one to its message."""


async def interleave(
    messages: AsyncIterator[Message],
    work: Callable[[Message], AsyncGenerator[StreamItem[Answer], None]],
    window: int,
    small_window: int = 0,
    is_small: Callable[[Message], bool] = lambda message: False,
) -> AsyncGenerator[Answer, None]:
    """The answers of ``work`` to each of ``messages``; ends when all are answered.

    ``work`` raises nothing. An exception of ``messages`` is raised here, after the answers to the messages
    before it. To close this generator cancels everything at work.
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
                        # more will follow: this one neither waits nor is waited for
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
    """Set ``done`` once ``turn`` is done: a message that gives up its turn must not let the next overtake."""
    if turn.done():
        _finish(done)
    else:
        turn.add_done_callback(lambda _: _finish(done))


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
