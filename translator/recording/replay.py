"""Sends recorded requests to a server, in any dialect, and compares the answers.

The server is an upstream like any other, so it receives what the daemon would send. Requests of a sequence go
one after the other, over HTTP on a separate connection. Answers that may legitimately differ are not
compared: those recorded as transient errors, and redacted tensors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from interlingua.protocols.dialect import Capability
from interlingua.runtime.models.turns import Turns
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Signature,
)
from interlingua.translator.diff import TensorDiff, Tolerance, compare_answers
from interlingua.translator.recording.listening import repeat
from interlingua.translator.recording.pace import Numbered, Pace, in_order
from interlingua.translator.recording.record import QUESTION, Record, RecordedAnswer
from interlingua.translator.recording.replay_report import ReplayReport
from interlingua.translator.recording.unknown import (
    UnknowableError,
    compare_redacted,
    generated,
    seen_signature,
)

_TRANSIENT = frozenset(
    {ErrorCode.OVERLOADED, ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.CANCELLED}
)
"""Transient errors, which do not depend on the request."""

_IN_FLIGHT = 1000
"""The maximum number of requests in flight in an open loop; beyond it the next is sent late."""

_LARGE = 1 << 20
"""Records from this size on are compared in a thread."""


Key = tuple[str, int | str]
"""A model and the id of a sequence."""


@dataclass(slots=True)
class _Link:
    """Connections to the servers and the models used over them; for a sequence also the number of its
    requests in flight or waiting."""

    upstream: Upstream
    models: dict[tuple[str, Signature | None], UpstreamModel] = field(default_factory=dict)
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Destination:
    """Where to send recorded requests. ``reach`` connects to the servers, whose dialect has ``capability``.
    ``models`` maps recorded names to the server's; ``model`` replaces all others. ``signature`` is that of
    the models if the server has no metadata. With ``own_connections`` each sequence gets a separate
    connection."""

    reach: Callable[[], Upstream]
    capability: Capability
    models: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    signature: Signature | None = None
    own_connections: bool = False

    def name(self, model: str) -> str:
        if self.model is not None or model in self.models:
            return self.models.get(model, self.model or "")
        # a dialect without model names has one model per server
        return model if self.capability.model_name else ""


async def replay(
    records: Iterable[Record],
    destination: Destination,
    pace: Pace,
    *,
    tolerance: Tolerance | None = None,
    generate_redacted: bool = False,
    timeout_secs: float = 60.0,
    limit: int | None = None,
    progress: Callable[[ReplayReport], None] | None = None,
) -> ReplayReport:
    """Send ``records``, at most ``limit`` of them, and report the results; ``progress`` gets the report so
    far after each answer.

    With ``generate_redacted`` redacted inputs are generated; otherwise their requests are refused."""
    run = _Run(destination, tolerance or Tolerance(), generate_redacted, timeout_secs)
    slots = asyncio.Semaphore(pace.concurrency or _IN_FLIGHT)
    began, first = time.monotonic(), None

    def ended(_: object) -> None:
        slots.release()
        if progress is not None:
            progress(run.report)

    try:
        async with asyncio.TaskGroup() as group:
            for position, (number, record) in enumerate(islice(in_order(records), limit)):
                first = record.began_unix_ns if first is None else first
                await slots.acquire()
                due = began + pace.due_secs(position, (record.began_unix_ns - first) / 1e9)
                # yields even when late, so that requests in flight progress
                await asyncio.sleep(due - time.monotonic())
                sending = group.create_task(run.send((number, record), due if pace.is_open else None))
                sending.add_done_callback(ended)
    finally:
        await run.close()
    run.report.elapsed_secs = time.monotonic() - began
    return run.report


class _Run:
    """One replay: its open connections and its results so far."""

    def __init__(
        self, destination: Destination, tolerance: Tolerance, generate_redacted: bool, timeout_secs: float
    ) -> None:
        self.report = ReplayReport()
        self._destination = destination
        self._tolerance = tolerance
        self._generate = generate_redacted
        self._timeout = timeout_secs
        self._shared = _Link(destination.reach())
        self._sequences: dict[Key, _Link] = {}
        self._turns = Turns()

    async def close(self) -> None:
        for link in (self._shared, *self._sequences.values()):
            await link.upstream.close()

    async def send(self, numbered: Numbered, due: float | None) -> None:
        """Send one request. If it is ``due`` at a time (``time.monotonic()``), waiting counts as latency."""
        number, record = numbered
        recorded = record.request
        hidden = {place[2] for place in record.redacted if place[0] == QUESTION}
        if hidden and not self._generate:
            self.report.refused["inputs were redacted"] += 1
            return
        inputs = tuple(
            generated(tensor, number) if position in hidden else tensor
            for position, tensor in enumerate(recorded.inputs)
        )
        outputs = recorded.outputs and tuple(replace(output, placement=None) for output in recorded.outputs)
        began = time.monotonic() if due is None else due
        request = replace(recorded, inputs=inputs, outputs=outputs)
        self.report.sent += 1
        if request.sequence is None:
            answer = await self._ask(record, request, self._shared)
        else:
            answer = await self._ask_in_turn(record, request, (request.model, request.sequence.id))
        self.report.latencies.append(time.monotonic() - began)
        self.report.recorded.append(record.answer.elapsed_ns / 1e9)
        await self._compare(numbered, answer, bool(hidden))

    async def _ask_in_turn(self, record: Record, request: InferRequest, key: Key) -> RecordedAnswer:
        if not self._destination.own_connections:
            async with self._turns.of(key):
                return await self._ask(record, request, self._shared)
        link = self._sequences.get(key)
        if link is None:
            link = self._sequences[key] = _Link(self._destination.reach())
        link.waiting += 1
        try:
            async with self._turns.of(key):
                return await self._ask(record, request, link)
        finally:
            link.waiting -= 1
            if request.sequence is not None and request.sequence.end and not link.waiting:
                del self._sequences[key]
                await link.upstream.close()

    async def _ask(self, record: Record, request: InferRequest, link: _Link) -> RecordedAnswer:
        responses: list[InferResponse] = []
        target = self._target(record, link)
        request.context = Context(deadline=time.monotonic() + self._timeout)
        try:
            await repeat(target, request, record, responses)
        except InferenceError as error:
            return RecordedAnswer(target.name, tuple(responses), error)
        return RecordedAnswer(target.name, tuple(responses))

    def _target(self, record: Record, link: _Link) -> UpstreamModel:
        name, declared = record.request.model, self._destination.signature
        if declared is None and not self._destination.capability.signatures:
            declared = seen_signature(record)
        target = link.models.get((name, declared))
        if target is None:
            # the server, not this client, must repeat a recorded refusal
            target = UpstreamModel(
                name, link.upstream, self._destination.name(name), declared=declared, strict_signature=False
            )
            link.models[name, declared] = target
        return target

    async def _compare(self, numbered: Numbered, actual: RecordedAnswer, generated: bool) -> None:
        number, record = numbered
        reason = _incomparable(record, generated)
        if reason:
            self.report.uncompared[reason] += 1
            if actual.error is not None:
                self.report.fail(f"{actual.error.code.name}: {actual.error.message}")
            return
        expected = record.answer
        if expected.cut:
            expected = replace(expected, error=None)  # it ended responses that were not recorded
        if expected.error is not None and actual.error is not None:
            expected = replace(expected, error=self._expressible(expected.error, actual.error))
        digests: tuple[TensorDiff, ...] = ()
        if record.redacted:
            try:
                expected, actual, digests = compare_redacted(record, expected, actual, self._tolerance)
            except UnknowableError as error:
                self.report.uncompared[str(error)] += 1
                return
        if record.nbytes < _LARGE:
            diff = compare_answers(expected, actual, self._tolerance)
        else:
            diff = await asyncio.to_thread(compare_answers, expected, actual, self._tolerance)
        named = f" (id '{record.request.id}')" if record.request.id else ""
        diff = replace(diff, outputs=(*diff.outputs, *digests))
        self.report.add(record.request.model, f"record {number}{named}", diff)

    def _expressible(self, expected: InferenceError, actual: InferenceError) -> InferenceError:
        """``expected`` as the server's dialect can express it: some have no error codes."""
        capability = self._destination.capability
        if not capability.error_kinds:
            return actual
        return InferenceError(capability.reported_as.get(expected.code, expected.code), expected.message)


def _incomparable(record: Record, generated: bool) -> str:
    """Why an answer cannot be compared with the recorded one; empty if it can."""
    if generated:
        return "inputs were generated"
    if record.answer.cut and not record.answer.responses:
        return "no response of the stream had room in the recording"
    ended = None if record.answer.cut else record.answer.error
    errors = [ended, *(response.error for response in record.answer.responses)]
    transient = [error for error in errors if error is not None and error.code in _TRANSIENT]
    return f"the recorded one is {transient[0].code.name}" if transient else ""
