"""What a recording holds of one request: the question, and what was answered.

Values only: bytes belong to ``layout``, files to ``files``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from interlingua.schemas import InferenceError, InferRequest, InferResponse
from interlingua.translator.serving.observation import RESPONSE_BYTES, Observed

QUESTION, ANSWER, MIRRORED = "request", "answer", "mirrored"
"""The parts of a record that hold tensors."""

Place = tuple[str, int, int]
"""A tensor of a record: its part, the number of the response there (0 in the question), and its own number
in that message."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: one response, those of a stream, or an error; the last may end a stream.

    ``answered_by`` is the model that it was routed to; ``elapsed_ns`` is from the request read to the last
    response. Of a stream that was ``cut`` the first responses alone are there, and its end is unknown.
    """

    answered_by: str
    responses: tuple[InferResponse, ...] = ()
    error: InferenceError | None = None
    elapsed_ns: int = 0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A request, its answer, and where it was sampled by a mirror that one's too.

    ``began_unix_ns`` is when the request had been read, in nanoseconds since 1970. ``dialect`` is the
    caller's, ``listener`` where it was asked. Of the context of ``request`` the trace and the timings are
    kept; of its headers, which may hold secrets, only what stands in ``headers``. ``redacted`` has the
    digests of tensors whose data were left out: their ``data`` is empty, whatever their shape;
    ``left_out`` the names of parameters that were. ``streamed``: the model was asked for a stream.
    ``max_batch_size`` is the model's, None in files from before it was kept.
    """

    began_unix_ns: int
    request: InferRequest
    dialect: str
    listener: str
    answer: Answer
    mirrored: Answer | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    redacted: Mapping[Place, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    streamed: bool = False
    max_batch_size: int | None = None

    @classmethod
    def of(cls, observed: Observed, mirrored: Answer | None = None) -> Record:
        """The record of a request that has been answered just now."""
        return cls(
            time.time_ns() - observed.elapsed_ns,
            observed.request,
            observed.dialect,
            observed.listener,
            Answer(
                observed.answered_by, observed.responses, observed.error, observed.elapsed_ns, observed.cut
            ),
            mirrored,
            streamed=observed.streamed,
            max_batch_size=observed.max_batch_size,
        )

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors, about what the record takes in memory and in a file; the
        responses of a stream take something beside them."""
        messages = [self.request.inputs]
        beside = 0
        for answer in (self.answer, self.mirrored):
            if answer is not None:
                messages += [response.outputs for response in answer.responses]
                beside += RESPONSE_BYTES * max(0, len(answer.responses) - 1)
        return beside + sum(tensor.nbytes for tensors in messages for tensor in tensors)
