"""What is told of a request once it is answered, to whoever looks on: mirrors and taps.

An observer can neither delay nor change an answer. What it keeps it may keep for as long as it likes: nothing
in an ``Observed`` lies in memory that a client, or a model's process, writes to again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas import InferenceError, InferRequest, InferResponse


@dataclass(frozen=True, slots=True)
class Observed:
    """A request and what became of it.

    ``request`` is as its codec read it, in the caller's names, inputs in shared memory found and copied; do
    not change it, since others look at it too. ``answered_by`` is the model that it was routed to.
    ``responses`` are as the model gave them, before outputs went to shared memory or were ranked: one, or
    those of a stream up to its end. ``error`` is what the caller got instead, or what ended its stream.
    ``elapsed_ns`` is from the request read to the last response.
    """

    request: InferRequest
    answered_by: str
    dialect: str
    listener: str
    responses: tuple[InferResponse, ...]
    error: InferenceError | None
    elapsed_ns: int


class Observer(Protocol):
    """Looks on. Messages that it might want are read even where they could pass to an upstream unread."""

    def wants(self, request: InferRequest) -> bool:
        """Whether it will be told of ``request``, decided before the model is asked: requests of one
        sequence all or none. Never raises, never waits."""

    def saw(self, observed: Observed) -> None:
        """Take note of a request that it wanted. Never raises, never waits; what takes time is done later."""
