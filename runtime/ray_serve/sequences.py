"""The sequences that this process has sent to replicas.

A sequence stays at the replica that has answered its start. Its requests are sent one after another, because
Serve does not keep the order of two requests; so the second one waits for the replica of the first. One that
leaves without an answer ends the sequence, as here: the state of the replica may lack it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from interlingua.runtime.scheduling.sequence_table import not_started
from interlingua.schemas import ErrorCode, InferenceError, Sequence


@dataclass(slots=True)
class Course:
    """One sequence: its ``replica``, empty if it has none, and how many requests wait or run. One that is
    ``lost`` has to begin again, though its replica still has its state."""

    replica: str = ""
    requests: int = 0
    last: float = 0.0
    lost: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class SequenceCourses:
    """Of ``model``, by correlation id. A sequence without requests for ``idle_secs`` has ended, as at its
    replica. Use on one event loop."""

    def __init__(self, model: str, idle_secs: float) -> None:
        self._model = model
        self._idle_secs = idle_secs
        self._courses: dict[int | str, Course] = {}

    def __len__(self) -> int:
        return len(self._courses)

    @asynccontextmanager
    async def turn(self, place: Sequence) -> AsyncIterator[Course]:
        """The course of a sequence when all its requests before are answered; the caller sets its replica.
        Raises INVALID_TENSOR for a sequence that has not started."""
        course = self._courses.pop(place.id, None) or Course()
        self._forget_idle()
        self._courses[place.id] = course
        course.requests += 1
        try:
            async with course.turn:
                if place.start:
                    course.replica, course.lost = "", False
                elif course.lost or not course.replica:
                    raise not_started(self._model, place.id)
                yield course
                if place.end:
                    course.replica = ""
        except BaseException as end:
            # of those that fail only a refused one was certainly not sent
            course.lost = not (isinstance(end, InferenceError) and end.code is ErrorCode.OVERLOADED)
            raise
        finally:
            course.requests -= 1
            course.last = time.monotonic()
            kept = course.requests or (course.replica and not course.lost)
            if not kept and self._courses.get(place.id) is course:
                del self._courses[place.id]

    def end(self, is_lost: Callable[[int | str], bool]) -> None:
        """Have the sequences whose ids are lost begin again."""
        for identity in [each for each in self._courses if is_lost(each)]:
            course = self._courses[identity]
            course.lost = True
            if not course.requests:
                del self._courses[identity]

    def _forget_idle(self) -> None:
        """Forget those without a request for long; they are in the order of their last requests."""
        limit = time.monotonic() - self._idle_secs
        while self._courses:
            oldest, course = next(iter(self._courses.items()))
            if course.requests or course.last > limit:
                return
            del self._courses[oldest]
