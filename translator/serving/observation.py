"""What is told of a request once it is answered, to whoever looks on: mirrors and taps.

An observer can neither delay nor change an answer. What it keeps it may keep for as long as it likes: nothing
in an ``Observed`` lies in memory that a client, or a model's process, writes to again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Protocol

from interlingua.runtime.models.kept import kept
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, InferResponse

_log = logging.getLogger(__name__)

RESPONSE_BYTES = 1024
"""What a response takes beside its tensors, about: a stream of empty ones is not free."""

_STREAMS_BYTES = 256 << 20

# a third of what dataclasses.replace takes, while a caller waits
_of_request = attrgetter(*[field.name for field in fields(InferRequest)])
_of_response = attrgetter(*[field.name for field in fields(InferResponse)])


# not frozen: that takes twice as long to make, while a caller waits
@dataclass(slots=True)
class Observed:
    """A request and what became of it. Treat as immutable.

    ``request`` is as its codec read it, in the caller's names, inputs in shared memory found and copied, and
    widened where its route wants that; do not change it, since others look at it too. ``answered_by`` is the
    model that it was routed to. ``responses`` are as the model gave them, in the caller's names, before
    outputs went to shared memory or were ranked: one, or those of a stream up to its end, or where that is
    ``cut`` the first ones, since a stream may have no end. ``error`` is what the caller got instead, or what
    ended its stream.
    ``elapsed_ns`` is from the request read to the last response. ``streamed``: the model was asked for a
    stream. ``max_batch_size`` is that of the signature with which the request was read, None where nobody
    knows it.
    """

    request: InferRequest
    answered_by: str
    dialect: str
    listener: str
    responses: tuple[InferResponse, ...]
    error: InferenceError | None
    elapsed_ns: int
    streamed: bool = False
    cut: bool = False
    max_batch_size: int | None = None


class Observer(Protocol):
    """Looks on. Messages that it might want are read even where they could pass to an upstream unread."""

    max_stream_bytes: int
    """How much of one stream it can use: no more responses are kept for it."""

    def wants(self, request: InferRequest) -> bool:
        """Whether it will be told of ``request``, decided before the model is asked: requests of one
        sequence all or none. Never raises, never waits."""

    def saw(self, observed: Observed) -> None:
        """Take note of a request that it wanted. Never raises, never waits; what takes time is done later."""


class Room:
    """How many bytes the responses of all streams that go on may take while they are observed; ``free`` of
    them are left."""

    __slots__ = ("free",)

    def __init__(self, nbytes: int = _STREAMS_BYTES) -> None:
        self.free = nbytes


class Watch:
    """One request on behalf of ``observers``, all of whom want it, from when it was read to its end: call
    :meth:`heard` with every response and :meth:`ended` once. Neither raises.

    Of a stream the responses are kept up to the one for which an observer's ``max_stream_bytes``, or the
    ``room`` that streams have together, is too small.
    """

    __slots__ = (
        "_began",
        "_by",
        "_cut",
        "_elapsed",
        "_held",
        "_last",
        "_limit",
        "_max_batch_size",
        "_observers",
        "_request",
        "_responses",
        "_room",
        "_where",
    )

    def __init__(
        self,
        observers: tuple[Observer, ...],
        request: InferRequest,
        dialect: str,
        listener: str,
        by: str,
        room: Room | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        self._observers = observers
        self._max_batch_size = max_batch_size
        # a copy, whose fields stay as they are now
        self._request = InferRequest(*_of_request(request))
        self._by = by
        self._where = dialect, listener
        # that of a stream alone: one answer is there anyhow
        self._room = room
        self._limit = max([each.max_stream_bytes for each in observers]) if room is not None else 0
        self._held = 0
        self._cut = self._last = False
        self._responses: list[InferResponse] = []
        self._elapsed = 0
        self._began = time.monotonic_ns()

    @classmethod
    def over(
        cls,
        observers: Iterable[Observer],
        request: InferRequest,
        dialect: str,
        listener: str,
        by: str,
        room: Room | None = None,
        max_batch_size: int | None = None,
    ) -> Watch | None:
        """Look on for those who want ``request``, which the model ``by`` is about to answer, with a ``room``
        in a stream; None where nobody does. Inputs in memory that a client may write to again are copied in
        ``request`` itself: the model is given what is seen."""
        wanting = tuple([observer for observer in observers if _wants(observer, request)])
        if not wanting:
            return None
        request.inputs = kept(request.inputs)
        return cls(wanting, request, dialect, listener, by, room, max_batch_size)

    def goes_to(self, model: str) -> None:
        """``model`` is asked after all."""
        self._by = model

    def heard(self, response: InferResponse) -> None:
        """The model has given ``response``, which may be changed from now on."""
        self._elapsed = time.monotonic_ns() - self._began
        self._last = response.final
        if self._room is not None and not self._takes(self._room, response):
            return
        mine = InferResponse(*_of_response(response))
        mine.outputs = kept(response.outputs)
        self._responses.append(mine)

    def ended(self, failure: BaseException | None = None) -> None:
        """The caller has its answer, or ``failure`` in its place."""
        if self._room is not None:
            self._room.free += self._held
        if isinstance(failure, GeneratorExit) and self._last:
            failure = None  # nothing was left to come
        error = None if failure is None else _told(failure)
        elapsed = self._elapsed if error is None else time.monotonic_ns() - self._began
        seen = Observed(
            self._request,
            self._by,
            *self._where,
            tuple(self._responses),
            error,
            elapsed,
            self._room is not None,
            self._cut,
            self._max_batch_size,
        )
        for observer in self._observers:
            try:
                observer.saw(seen)
            except Exception:
                _log.exception("observer failed")

    def _takes(self, room: Room, response: InferResponse) -> bool:
        """Whether one more response of a stream is kept; none is after the first that is not."""
        nbytes = RESPONSE_BYTES + sum([output.nbytes for output in response.outputs])
        self._cut = self._cut or self._held + nbytes > self._limit or nbytes > room.free
        if not self._cut:
            self._held += nbytes
            room.free -= nbytes
        return not self._cut


def _wants(observer: Observer, request: InferRequest) -> bool:
    try:
        return observer.wants(request)
    except Exception:
        _log.exception("observer failed")
        return False


def _told(failure: BaseException) -> InferenceError:
    """What the caller is told of ``failure``."""
    if isinstance(failure, InferenceError):
        return failure
    if isinstance(failure, Exception):
        return InferenceError(ErrorCode.INTERNAL, "internal error; the server's log has the details")
    # a task that was cancelled, a stream that was closed
    return InferenceError(ErrorCode.CANCELLED, "the caller has gone away")
