"""The sequences that this process has sent to replicas.

A sequence stays at the replica that has answered its start. Its requests are sent one after another, because
Serve does not keep the order of two requests; so the second one waits for the replica of the first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from interlingua.schemas import Sequence

IDLE_SECS = 600.0
"""A sequence without requests for so long is forgotten here; its replica forgets it by its own limit."""


@dataclass(slots=True)
class Course:
    """One sequence: its ``replica``, empty until it is known, and how many requests wait or run. One that is
    ``lost`` has to begin again, though its replica still has its state."""

    replica: str = ""
    requests: int = 0
    last: float = 0.0
    lost: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class SequenceCourses:
    """By correlation id. Use on one event loop."""

    def __init__(self) -> None:
        self._courses: dict[int | str, Course] = {}

    def __len__(self) -> int:
        return len(self._courses)

    @asynccontextmanager
    async def turn(self, place: Sequence) -> AsyncIterator[Course]:
        """The course of a sequence when all its requests before are answered. The caller sets its replica."""
        course = self._courses.pop(place.id, None) or Course()
        self._forget_idle()
        self._courses[place.id] = course
        course.requests += 1
        try:
            async with course.turn:
                if place.start:
                    course.replica, course.lost = "", False
                yield course
                if place.end:
                    course.replica = ""
        finally:
            course.requests -= 1
            course.last = time.monotonic()
            kept = course.requests or course.replica or course.lost
            if not kept and self._courses.get(place.id) is course:
                del self._courses[place.id]

    def end(self, is_lost: Callable[[int | str], bool]) -> None:
        """Have the sequences whose ids are lost begin again."""
        for identity, course in self._courses.items():
            course.lost = course.lost or is_lost(identity)

    def _forget_idle(self) -> None:
        """Forget those without a request for long; they are in the order of their last requests."""
        limit = time.monotonic() - IDLE_SECS
        while self._courses:
            oldest, course = next(iter(self._courses.items()))
            if course.requests or course.last > limit:
                return
            del self._courses[oldest]
