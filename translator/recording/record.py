"""One entry of a recording: a request and its answer. ``layout`` and ``files`` deal with bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from interlingua.schemas import InferenceError, InferRequest, InferResponse
from interlingua.translator.serving.observation import RESPONSE_BYTES, Observed

QUESTION, ANSWER, MIRRORED = "request", "answer", "mirrored"
"""The parts of a record that hold tensors."""

Place = tuple[str, int, int]
"""Identifies a tensor of a record: its part, the index of the response (0 in the request), and its index in
that message."""


# not frozen: a mirror makes one for every copy, and frozen ones cost three times as much
@dataclass(slots=True)
class RecordedAnswer:
    """The answer to a request: one response, or a stream of them, or an error, which may also end a stream.

    ``answered_by`` is the model chosen by the route; ``elapsed_ns`` counts from the request read to the last
    response. A ``cut`` stream has only its first responses; its end is unknown."""

    answered_by: str
    responses: tuple[InferResponse, ...] = ()
    error: InferenceError | None = None
    elapsed_ns: int = 0
    cut: bool = False


@dataclass(slots=True)
class Record:
    """A request, its answer, and the mirror's answer if a mirror recorded it. Immutable by convention.

    ``began_unix_ns`` is when the request was read, in nanoseconds since 1970. ``dialect`` is the caller's,
    ``listener`` the listener's address. The context of ``request`` keeps only the trace and the timings;
    headers may hold secrets, so only chosen ones are kept, in ``headers``. ``redacted`` has the digests of
    tensors whose data were removed (their view is empty, whatever their shape), ``dropped_parameters`` the
    names of removed parameters. ``streamed``: the request was for a stream. ``max_batch_size`` is the
    model's, None if unknown."""

    began_unix_ns: int
    request: InferRequest
    dialect: str
    listener: str
    answer: RecordedAnswer
    mirrored: RecordedAnswer | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    redacted: Mapping[Place, str] = field(default_factory=dict)
    dropped_parameters: tuple[str, ...] = ()
    streamed: bool = False
    max_batch_size: int | None = None

    @classmethod
    def of(cls, observed: Observed, mirrored: RecordedAnswer | None = None) -> Record:
        since = time.monotonic_ns() - observed.ended if observed.ended else 0
        return cls(
            time.time_ns() - since - observed.elapsed_ns,
            observed.request,
            observed.dialect,
            observed.listener,
            RecordedAnswer(
                observed.answered_by, observed.responses, observed.error, observed.elapsed_ns, observed.cut
            ),
            mirrored,
            streamed=observed.streamed,
            max_batch_size=observed.max_batch_size,
        )

    @property
    def nbytes(self) -> int:
        """The approximate size: the bytes of all tensors, and an overhead per streamed response."""
        messages = [self.request.inputs]
        overhead = 0
        for answer in (self.answer, self.mirrored):
            if answer is not None:
                messages += [response.outputs for response in answer.responses]
                overhead += RESPONSE_BYTES * max(0, len(answer.responses) - 1)
        return overhead + sum(tensor.nbytes for tensors in messages for tensor in tensors)
