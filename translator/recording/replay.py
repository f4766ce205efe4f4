"""Sends recorded requests to a server, in whatever dialect that speaks, and compares the answers.

The server is an upstream like any other, so that what is sent is what the daemon would send. Requests of a
sequence go one after the other, over HTTP on a connection of their own. What the server may answer
otherwise is not compared: requests that failed by chance when they were recorded, tensors that were redacted.
"""

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
from interlingua.translator.recording.listening import listen
from interlingua.translator.recording.pace import Numbered, Pace, in_order
from interlingua.translator.recording.record import QUESTION, Answer, Record
from interlingua.translator.recording.tally import Tally
from interlingua.translator.recording.unknown import (
    UnknowableError,
    compare_redacted,
    generated,
    seen_signature,
)

_CHANCE = frozenset(
    {ErrorCode.OVERLOADED, ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.CANCELLED}
)
"""Errors that say nothing of the request."""

_IN_FLIGHT = 1000
"""How many requests of an open loop may be under way; above it the next one is sent late."""

_LARGE = 1 << 20
"""Answers from this size on are compared in a thread."""


Key = tuple[str, int | str]
"""A model and the id of a sequence."""


@dataclass(slots=True)
class _Link:
    """Connections to the servers, and the models that have been asked over them; for one sequence also how
    many of its requests are under way or wait for their turn."""

    upstream: Upstream
    models: dict[tuple[str, Signature | None], UpstreamModel] = field(default_factory=dict)
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Aim:
    """What recorded requests are sent to: servers that ``reach`` connects to, which speak a dialect of
    ``capability``. ``models`` maps recorded names to the server's, ``model`` is for all others, where given.
    ``signature`` is that of the models, where the server does not tell it. With ``own_connections`` a
    sequence needs a connection of its own to stay on one."""

    reach: Callable[[], Upstream]
    capability: Capability
    models: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    signature: Signature | None = None
    own_connections: bool = False

    def name(self, model: str) -> str:
        """What ``model`` is called there."""
        if self.model is not None or model in self.models:
            return self.models.get(model, self.model or "")
        # a dialect without model names has one model per server
        return model if self.capability.model_name else ""


async def replay(
    records: Iterable[Record],
    aim: Aim,
    pace: Pace,
    *,
    tolerance: Tolerance | None = None,
    generate_redacted: bool = False,
    timeout_secs: float = 60.0,
    limit: int | None = None,
) -> Tally:
    """Send ``records``, at most ``limit`` of them, and tell what came of it.

    Requests with redacted inputs are sent with generated ones, or refused.
    """
    run = _Run(aim, tolerance or Tolerance(), generate_redacted, timeout_secs)
    room = asyncio.Semaphore(pace.concurrency or _IN_FLIGHT)
    began, first = time.monotonic(), None
    try:
        async with asyncio.TaskGroup() as group:
            for position, (number, record) in enumerate(islice(in_order(records), limit)):
                first = record.began_unix_ns if first is None else first
                await room.acquire()
                due = began + pace.due_secs(position, (record.began_unix_ns - first) / 1e9)
                # however late it is, those under way get a turn
                await asyncio.sleep(due - time.monotonic())
                sending = group.create_task(run.send((number, record), due if pace.is_open else None))
                sending.add_done_callback(lambda _: room.release())
    finally:
        await run.close()
    run.tally.elapsed_secs = time.monotonic() - began
    return run.tally


class _Run:
    """One replay: the connections that it has open, and what has come of it so far."""

    def __init__(self, aim: Aim, tolerance: Tolerance, generate_redacted: bool, timeout_secs: float) -> None:
        self.tally = Tally()
        self._aim = aim
        self._tolerance = tolerance
        self._generate = generate_redacted
        self._timeout = timeout_secs
        self._shared = _Link(aim.reach())
        self._sequences: dict[Key, _Link] = {}
        self._turns = Turns()

    async def close(self) -> None:
        """Close every connection."""
        for link in (self._shared, *self._sequences.values()):
            await link.upstream.close()

    async def send(self, numbered: Numbered, due: float | None) -> None:
        """Send one request; where it is ``due`` (``time.monotonic()``), waiting counts as latency."""
        number, record = numbered
        asked = record.request
        hidden = {place[2] for place in record.redacted if place[0] == QUESTION}
        if hidden and not self._generate:
            self.tally.refused["inputs were redacted"] += 1
            return
        inputs = tuple(
            generated(tensor, number) if position in hidden else tensor
            for position, tensor in enumerate(asked.inputs)
        )
        outputs = asked.outputs and tuple(replace(output, placement=None) for output in asked.outputs)
        began = time.monotonic() if due is None else due
        request = replace(asked, inputs=inputs, outputs=outputs)
        self.tally.sent += 1
        if request.sequence is None:
            answer = await self._ask(record, request, self._shared)
        else:
            answer = await self._ask_in_turn(record, request, (request.model, request.sequence.id))
        self.tally.latencies.append(time.monotonic() - began)
        self.tally.recorded.append(record.answer.elapsed_ns / 1e9)
        await self._compare(numbered, answer, bool(hidden))

    async def _ask_in_turn(self, record: Record, request: InferRequest, key: Key) -> Answer:
        if not self._aim.own_connections:
            async with self._turns.of(key):
                return await self._ask(record, request, self._shared)
        link = self._sequences.get(key)
        if link is None:
            link = self._sequences[key] = _Link(self._aim.reach())
        link.waiting += 1
        try:
            async with self._turns.of(key):
                return await self._ask(record, request, link)
        finally:
            link.waiting -= 1
            if request.sequence is not None and request.sequence.end and not link.waiting:
                del self._sequences[key]
                await link.upstream.close()

    async def _ask(self, record: Record, request: InferRequest, link: _Link) -> Answer:
        responses: list[InferResponse] = []
        target = self._target(record, link)
        request.context = Context(deadline=time.monotonic() + self._timeout)
        try:
            if record.streamed:
                await listen(target, request, record.answer, responses)
            else:
                responses.append(await target.infer(request))
        except InferenceError as error:
            return Answer(target.name, tuple(responses), error)
        return Answer(target.name, tuple(responses))

    def _target(self, record: Record, link: _Link) -> UpstreamModel:
        name, declared = record.request.model, self._aim.signature
        if declared is None and not self._aim.capability.signatures:
            declared = seen_signature(record)
        target = link.models.get((name, declared))
        if target is None:
            # a refusal that was recorded is the server's to repeat
            target = UpstreamModel(
                name, link.upstream, self._aim.name(name), declared=declared, strict_signature=False
            )
            link.models[name, declared] = target
        return target

    async def _compare(self, numbered: Numbered, actual: Answer, generated: bool) -> None:
        number, record = numbered
        reason = _incomparable(record, generated)
        if reason:
            self.tally.uncompared[reason] += 1
            if actual.error is not None:
                self.tally.fail(f"{actual.error.code.name}: {actual.error.message}")
            return
        expected = record.answer
        if expected.cut:
            expected = replace(expected, error=None)  # of responses that are not there
        if expected.error is not None and actual.error is not None:
            expected = replace(expected, error=self._as_told(expected.error, actual.error))
        told: tuple[TensorDiff, ...] = ()
        if record.redacted:
            try:
                expected, actual, told = compare_redacted(record, expected, actual, self._tolerance)
            except UnknowableError as error:
                self.tally.uncompared[str(error)] += 1
                return
        if record.nbytes < _LARGE:
            diff = compare_answers(expected, actual, self._tolerance)
        else:
            diff = await asyncio.to_thread(compare_answers, expected, actual, self._tolerance)
        named = f" (id '{record.request.id}')" if record.request.id else ""
        diff = replace(diff, outputs=(*diff.outputs, *told))
        self.tally.add(record.request.model, f"record {number}{named}", diff)

    def _as_told(self, expected: InferenceError, actual: InferenceError) -> InferenceError:
        """``expected`` as the server's dialect can tell it, in some only that something failed."""
        capability = self._aim.capability
        if not capability.error_kinds:
            return actual
        return InferenceError(capability.told.get(expected.code, expected.code), expected.message)


def _incomparable(record: Record, generated: bool) -> str:
    """Why an answer cannot be held against the recorded one; empty where it can."""
    if generated:
        return "inputs were generated"
    if record.answer.cut and not record.answer.responses:
        return "no response of the stream had room in the recording"
    ended = None if record.answer.cut else record.answer.error
    errors = [ended, *(response.error for response in record.answer.responses)]
    chance = [error for error in errors if error is not None and error.code in _CHANCE]
    return f"the recorded one is {chance[0].code.name}" if chance else ""
