"""Answers to a stream of messages: many messages at work at once, their answers in one order.

Contract: what is answered once is answered in the order of the messages, as clients count on that for
ordinary models; what is answered any number of times goes out as it comes, between the others. No more
than a window of messages is at work, and no more than a window of answers waits to be taken, however
fast the messages come. Messages that are small have a window of their own, a larger one: one that waits
for a later one, as the first of a sequence may for the end of another, is not to keep it from being read.
What an answer is belongs to the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

Message = TypeVar("Message")
Answer = TypeVar("Answer")

Told = tuple[Answer | None, bool]
"""An answer, None where nothing is to be said, and whether it is the last one to its message."""


async def interleave(
    messages: AsyncIterator[Message],
    work: Callable[[Message], AsyncGenerator[Told[Answer], None]],
    window: int,
    small_window: int = 0,
    is_small: Callable[[Message], bool] = lambda message: False,
) -> AsyncGenerator[Answer, None]:
    """The answers that ``work`` has for each of ``messages``; ends when all are answered.

    ``work`` raises nothing. What ``messages`` raises is raised here, after the answers to what came
    before. To close this generator is to cancel what is at work.
    """
    answers: asyncio.Queue[Answer | None] = asyncio.Queue()
    large_room, small_room = asyncio.Semaphore(window), asyncio.Semaphore(small_window)
    space = asyncio.Semaphore(window)
    at_work: set[asyncio.Task[None]] = set()

    async def answer(
        message: Message, room: asyncio.Semaphore, turn: asyncio.Future[None], done: asyncio.Future[None]
    ) -> None:
        waits = True
        try:
            async with aclosing(work(message)) as every:
                async for told, last in every:
                    if waits and last:
                        await turn
                    elif waits:
                        # more will follow: nobody waits for this one, and it waits for nobody
                        waits = False
                        _pass_on(turn, done)
                    if told is not None:
                        await space.acquire()
                        answers.put_nowait(told)
        finally:
            if waits:
                _pass_on(turn, done)
            room.release()

    async def read() -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        turn.set_result(None)
        try:
            async for message in messages:
                room = small_room if is_small(message) else large_room
                await room.acquire()
                done = loop.create_future()
                task = asyncio.create_task(answer(message, room, turn, done))
                at_work.add(task)
                task.add_done_callback(at_work.discard)
                turn = done
        finally:
            if at_work:
                await asyncio.wait(at_work)
            answers.put_nowait(None)

    reading = asyncio.create_task(read())
    try:
        while (told := await answers.get()) is not None:
            space.release()
            yield told
        await reading
    finally:
        unfinished = [reading, *at_work]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


def _pass_on(turn: asyncio.Future[None], done: asyncio.Future[None]) -> None:
    """``done`` once it was its turn: who gives up a turn must not let the next one overtake others."""
    if turn.done():
        _finish(done)
    else:
        turn.add_done_callback(lambda _: _finish(done))


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
