"""Requests and their responses for observers: mirrors and taps.

An observer can neither delay nor change an answer. It may keep an ``Observed`` as long as it likes: nothing
in one lies in memory that a client, or a model's process, writes to again.
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
"""About what a response takes without its tensors: a stream of empty ones is not free."""

_STREAMS_BYTES = 256 << 20

# a third of what dataclasses.replace takes, while a caller waits
_of_request = attrgetter(*[field.name for field in fields(InferRequest)])
_of_response = attrgetter(*[field.name for field in fields(InferResponse)])


# not frozen: that takes twice as long to make, while a caller waits
@dataclass(slots=True)
class Observed:
    """A request and its outcome. Treat as immutable.

    ``request`` is as its codec decoded it, in the caller's names, inputs in shared memory resolved and
    copied, and widened where its route wants that; do not change it, since other observers have it too.
    ``answered_by`` is the model that it was routed to. ``responses`` are the model's, in the caller's names,
    before outputs went to shared memory or were ranked: one, or all of a stream, or the first ones where that
    is ``cut``, since a stream may have no end. ``error`` is what the caller got instead, or what ended its
    stream. ``elapsed_ns`` is from the decoding to the last response. ``streamed``: the model executed a
    stream. ``max_batch_size`` is that of the signature that decoded the request, None if unknown.
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
    """Observes requests. While a service has observers, no message passes through unread."""

    max_stream_bytes: int
    """How much of one stream it can use: further responses are not kept for it."""

    def should_observe(self, request: InferRequest) -> bool:
        """Whether to observe ``request``, decided before the model executes it: of one sequence all requests
        or none. Never raises, never waits."""

    def on_response(self, observed: Observed) -> None:
        """Take an observed request with its responses. Never raises, never waits; slow work happens later."""


class ByteBudget:
    """The bytes that the responses of all running streams may take while they are observed; ``free`` of them
    are left."""

    __slots__ = ("free",)

    def __init__(self, nbytes: int = _STREAMS_BYTES) -> None:
        self.free = nbytes


class Observation:
    """One request for ``observers``, from its decoding to its end: call :meth:`on_response` with every
    response and :meth:`end` once. Neither raises.

    Of a stream the responses are kept up to the one for which an observer's ``max_stream_bytes``, or the
    ``budget`` of all streams, is too small.
    """

    __slots__ = (
        "_began",
        "_budget",
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
        "_where",
    )

    def __init__(
        self,
        observers: tuple[Observer, ...],
        request: InferRequest,
        dialect: str,
        listener: str,
        by: str,
        budget: ByteBudget | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        self._observers = observers
        self._max_batch_size = max_batch_size
        # a copy, whose fields stay as they are now
        self._request = InferRequest(*_of_request(request))
        self._by = by
        self._where = dialect, listener
        self._budget = budget
        self._limit = max([each.max_stream_bytes for each in observers]) if budget is not None else 0
        self._held = 0
        self._cut = self._last = False
        self._responses: list[InferResponse] = []
        self._elapsed = 0
        self._began = time.monotonic_ns()

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
        None if no observer wants it. Inputs in memory that a client may write to again are copied in
        ``request`` itself: the model gets exactly the observed bytes."""
        wanting = tuple([observer for observer in observers if _should_observe(observer, request)])
        if not wanting:
            return None
        request.inputs = kept(request.inputs)
        return cls(wanting, request, dialect, listener, by, budget, max_batch_size)

    def redirect(self, model: str) -> None:
        """``model`` gets the request instead."""
        self._by = model

    def on_response(self, response: InferResponse) -> None:
        """Take note of ``response``, which may be changed afterwards."""
        self._elapsed = time.monotonic_ns() - self._began
        self._last = response.final
        if self._budget is not None and not self._takes(self._budget, response):
            return
        mine = InferResponse(*_of_response(response))
        mine.outputs = kept(response.outputs)
        self._responses.append(mine)

    def end(self, failure: BaseException | None = None) -> None:
        """The caller has its answer, or the ``failure``."""
        if self._budget is not None:
            self._budget.free += self._held
        if isinstance(failure, GeneratorExit) and self._last:
            failure = None  # nothing was left to come
        error = None if failure is None else mapped_error(failure)
        elapsed = self._elapsed if error is None else time.monotonic_ns() - self._began
        seen = Observed(
            self._request,
            self._by,
            *self._where,
            tuple(self._responses),
            error,
            elapsed,
            self._budget is not None,
            self._cut,
            self._max_batch_size,
        )
        for observer in self._observers:
            try:
                observer.on_response(seen)
            except Exception:
                _log.exception("observer failed")

    def _takes(self, budget: ByteBudget, response: InferResponse) -> bool:
        """Whether to keep one more response of a stream; after the first that is dropped all are."""
        nbytes = RESPONSE_BYTES + sum([output.nbytes for output in response.outputs])
        self._cut = self._cut or self._held + nbytes > self._limit or nbytes > budget.free
        if not self._cut:
            self._held += nbytes
            budget.free -= nbytes
        return not self._cut


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
