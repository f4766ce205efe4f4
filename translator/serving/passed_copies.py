"""Copies of messages that pass through, decoded for observers after the caller has the answer.

Contract: observers choose a request before anything of it is kept. The bytes of its message and of its reply
are kept until they are decoded, within a budget. A copy that exceeds the budget, or that cannot be decoded,
is counted and logged; no caller notices.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from interlingua.runtime.models.kept import kept
from interlingua.runtime.target import PassedMessage
from interlingua.schemas import InferenceError, InferRequest, Signature
from interlingua.schemas.offload import DEFAULT_LIMITS, Offloader, OffloadRequired
from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.serving.observation import (
    RESPONSE_BYTES,
    ByteBudget,
    Observation,
    Observed,
    Observer,
    mapped_error,
)

_log = logging.getLogger(__name__)

Decode = Callable[[Signature], Any]
"""Decodes a request with a signature: an object with the ``request``. Raises ``InferenceError``."""


@dataclass(slots=True, eq=False)
class PassedCopy:
    """One message for ``observers``: the target ``answered_by`` fills ``passed``, ``decode`` decodes the
    request. ``failure`` is that of the caller."""

    observers: tuple[Observer, ...]
    answered_by: str
    dialect: str
    listener: str
    decode: Decode
    passed: PassedMessage = field(default_factory=PassedMessage)
    failure: BaseException | None = None
    elapsed_ns: int = 0
    began: int = field(default_factory=time.monotonic_ns)


@dataclass(slots=True, eq=False)
class PassedCopies:
    """The copies of a server; use on one event loop. ``dropped`` ones exceeded the ``budget``, ``failed``
    ones could not be decoded."""

    budget: ByteBudget = field(default_factory=ByteBudget)
    dropped: int = 0
    failed: int = 0
    _waiting: deque[PassedCopy] = field(default_factory=deque)
    _decoding: asyncio.Task[None] | None = None

    def add(self, copy: PassedCopy, failure: BaseException | None = None) -> None:
        """Decode ``copy`` later; its caller has an answer, or the ``failure``."""
        if copy.passed.signature is None:
            return  # the target has not sent the message
        copy.elapsed_ns, copy.failure = time.monotonic_ns() - copy.began, failure
        nbytes = copy.passed.nbytes = copy.passed.nbytes + RESPONSE_BYTES
        if nbytes > self.budget.free:
            self.dropped += 1
            _report(self.dropped, "passed message not observed", copy, "no memory left for copies")
            return
        self.budget.free -= nbytes
        self._waiting.append(copy)
        if self._decoding is None:
            self._decoding = asyncio.get_running_loop().create_task(self._decode_all())

    async def finish(self) -> None:
        """Decode what is left."""
        if self._decoding is not None:
            await self._decoding

    async def _decode_all(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # answers go out first
                # every copy of this turn of the loop, or a busy server would fall behind and drop some
                for _ in range(len(self._waiting)):
                    copy = self._waiting.popleft()
                    self.budget.free += copy.passed.nbytes
                    try:
                        self._decode(copy, partial(_observed, copy))
                    except OffloadRequired as required:
                        await self._decode_long(copy, required.offloader)
        finally:
            self._decoding = None

    async def _decode_long(self, copy: PassedCopy, offloader: Offloader) -> None:
        outcome = asyncio.ensure_future(offloader.run(DEFAULT_LIMITS, _observed, copy))
        await asyncio.wait((outcome,))
        self._decode(copy, outcome.result)

    def _decode(self, copy: PassedCopy, observe: Callable[[], Observed]) -> None:
        try:
            observed = observe()
        except OffloadRequired:
            raise
        except Exception as failure:
            self.failed += 1
            reason = failure.message if isinstance(failure, InferenceError) else repr(failure)
            _report(self.failed, "passed message not decodable", copy, reason)
            return
        Observation(copy.observers, observed).publish()

    def metrics(self) -> Iterator[Family]:
        outcomes = {"dropped": self.dropped, "failed": self.failed}
        yield Family(
            "interlingua_passed_copies_lost_total",
            "counter",
            "Passed messages that observers chose and did not get, by outcome: no memory left for the copy "
            "(dropped), or not decodable (failed).",
            [Sample(count, {"outcome": outcome}) for outcome, count in outcomes.items()],
        )


def _observed(copy: PassedCopy) -> Observed:
    """Raises as the codecs do."""
    passed, signature = copy.passed, copy.passed.signature
    assert signature is not None, "only a message that was sent is decoded"  # noqa: S101
    request: InferRequest = copy.decode(signature).request
    request.inputs = kept(request.inputs)
    observed = Observed(request, copy.answered_by, copy.dialect, copy.listener, elapsed_ns=copy.elapsed_ns)
    observed.max_batch_size, observed.ended = signature.max_batch_size, copy.began + copy.elapsed_ns
    if copy.failure is not None:
        observed.error = mapped_error(copy.failure)
    elif passed.response is not None:
        response = passed.response(request)
        response.outputs = kept(response.outputs)
        observed.responses = (response,)
    return observed


def _report(count: int, message: str, copy: PassedCopy, reason: str) -> None:
    """Log the first of such events, and then ever fewer."""
    if not count & (count - 1):
        facts = {"model": copy.answered_by, "reason": reason, "count": count}
        _log.warning(message, extra={"facts": facts})
