"""Requests and their responses for observers: mirrors and taps.

An observer can neither delay nor change an answer. It may keep an ``Observed`` for any time: no client and no
model process writes to its memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Protocol

from interlingua.runtime.models.kept import kept
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, InferResponse

_log = logging.getLogger(__name__)

RESPONSE_BYTES = 1024
"""The memory of a response without its tensors, roughly."""

_STREAMS_BYTES = 256 << 20

# a third of the time of dataclasses.replace, while a caller waits
_of_request = attrgetter(*[each.name for each in fields(InferRequest)])
_of_response = attrgetter(*[each.name for each in fields(InferResponse)])


# not frozen: an Observation fills it in
@dataclass(slots=True)
class Observed:
    """A request and its outcome. Observers share it and treat it as immutable.

    ``request`` is as its codec decoded it, in the caller's names: inputs in shared memory are copied, and
    those that the route widens are wider. ``answered_by`` is the model that it was routed to. ``responses``
    are the model's, in the caller's names, before outputs went to shared memory or were ranked: one, or those
    of a stream, the first ones if ``cut``. ``error`` replaced the answer, or ended the stream. ``elapsed_ns``
    is from the decoding to the last response. ``streamed``: the model executed a stream. ``max_batch_size``
    is that of the signature that decoded the request, None if unknown. ``ended`` is the
    ``time.monotonic_ns()`` of the hand-over to observers, 0 for now.
    """

    request: InferRequest
    answered_by: str
    dialect: str
    listener: str
    responses: tuple[InferResponse, ...] = ()
    error: InferenceError | None = None
    elapsed_ns: int = 0
    streamed: bool = False
    cut: bool = False
    max_batch_size: int | None = None
    ended: int = 0


class Observer(Protocol):
    """Observes requests."""

    max_stream_bytes: int
    """The limit for the kept responses of one stream."""

    def should_observe(self, request: InferRequest) -> bool:
        """Whether to observe ``request``, before the model executes it: all requests of a sequence or none.
        One that may pass through has no inputs yet, and no sequence. Never raises, never waits."""

    def on_response(self, observed: Observed) -> None:
        """Take an observed request with its responses. Never raises, never waits."""


class ByteBudget:
    """The memory for the observed responses of all running streams; ``free`` bytes are left."""

    __slots__ = ("free",)

    def __init__(self, nbytes: int = _STREAMS_BYTES) -> None:
        self.free = nbytes


@dataclass(slots=True, eq=False)
class Observation:
    """One request for ``observers``, from its decoding to its end: call :meth:`on_response` with every
    response and :meth:`end` once. Neither raises.

    The responses of a stream have a ``budget``. They are kept up to the one that exceeds it, or the largest
    ``max_stream_bytes`` of the observers.
    """

    observers: tuple[Observer, ...]
    observed: Observed
    budget: ByteBudget | None = None
    _limit: int = 0
    _held: int = 0
    _last: bool = False
    _responses: list[InferResponse] = field(default_factory=list)
    _began: int = field(default_factory=time.monotonic_ns)

    @classmethod
    def begin(
        cls,
        observers: Iterable[Observer],
        request: InferRequest,
        dialect: str,
        listener: str,
        by: str,
        budget: ByteBudget | None = None,
        max_batch_size: int | None = None,
    ) -> Observation | None:
        """The observation of ``request``, which goes to the model ``by``, with a ``budget`` if it streams;
        None without an observer for it. Inputs in memory that a client may write to again are copied in
        ``request`` itself: the model gets exactly the observed bytes."""
        chosen = choosing(observers, request)
        if not chosen:
            return None
        request.inputs = kept(request.inputs)
        # a copy, whose fields stay as they are now
        mine = InferRequest(*_of_request(request))
        observed = Observed(mine, by, dialect, listener, max_batch_size=max_batch_size)
        if budget is None:
            return cls(chosen, observed)
        observed.streamed = True
        return cls(chosen, observed, budget, max([each.max_stream_bytes for each in chosen]))

    def redirect(self, model: str) -> None:
        self.observed.answered_by = model

    def on_response(self, response: InferResponse) -> None:
        """Keep a copy of ``response``, which may change afterwards."""
        self.observed.elapsed_ns = time.monotonic_ns() - self._began
        self._last = response.final
        if self.budget is not None and not self._fits(self.budget, response):
            return
        mine = InferResponse(*_of_response(response))
        mine.outputs = kept(response.outputs)
        self._responses.append(mine)

    def end(self, failure: BaseException | None = None) -> None:
        """The caller has its answer, or the ``failure``."""
        observed = self.observed
        if self.budget is not None:
            self.budget.free += self._held
        # a closed stream whose last response has been sent is complete
        if failure is not None and not (isinstance(failure, GeneratorExit) and self._last):
            observed.error = mapped_error(failure)
            observed.elapsed_ns = time.monotonic_ns() - self._began
        observed.responses = tuple(self._responses)
        self.publish()

    def publish(self) -> None:
        """Hand the complete request to the observers."""
        self.observed.ended = time.monotonic_ns()
        for observer in self.observers:
            try:
                observer.on_response(self.observed)
            except Exception:
                _log.exception("observer failed")

    def _fits(self, budget: ByteBudget, response: InferResponse) -> bool:
        """Whether to keep one more response of a stream; none after the first that is dropped."""
        nbytes = RESPONSE_BYTES + sum([output.nbytes for output in response.outputs])
        if self.observed.cut or self._held + nbytes > self._limit or nbytes > budget.free:
            self.observed.cut = True
            return False
        self._held += nbytes
        budget.free -= nbytes
        return True


def choosing(observers: Iterable[Observer], request: InferRequest) -> tuple[Observer, ...]:
    """Those of ``observers`` that choose ``request``."""
    return tuple([observer for observer in observers if _should_observe(observer, request)])


def _should_observe(observer: Observer, request: InferRequest) -> bool:
    try:
        return observer.should_observe(request)
    except Exception:
        _log.exception("observer failed")
        return False


def mapped_error(failure: BaseException) -> InferenceError:
    """``failure`` as the error that the caller gets."""
    if isinstance(failure, InferenceError):
        return failure
    if isinstance(failure, Exception):
        return InferenceError(ErrorCode.INTERNAL, "internal error; the server's log has the details")
    # a cancelled task or a closed stream
    return InferenceError(ErrorCode.CANCELLED, "the caller has gone away")
