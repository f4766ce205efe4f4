"""Replays to models here, over the tables of each dialect and without a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Readiness,
    Sequence,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.translator.diff import Tolerance
from interlingua.translator.recording.pace import Pace
from interlingua.translator.recording.record import ANSWER, QUESTION, Record, RecordedAnswer
from interlingua.translator.recording.redaction import digest
from interlingua.translator.recording.replay import Destination, replay
from interlingua.translator.recording.replay_report import ReplayReport
from tests.loopback import GrpcLoopback, HttpLoopback, serving

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1,)),), (TensorSpec("y", Datatype.FP32, (-1,)),), max_batch_size=0
)


class Doubling(Target):
    """Answers with twice its input, and notes what it is asked; or does as ``act`` does."""

    def __init__(self, name: str = "m", act: Callable[[InferRequest], Any] | None = None) -> None:
        self.name = name
        self.asked: list[InferRequest] = []
        self.under_way = self.most = 0
        self._act = act

    async def infer(self, request: InferRequest) -> InferResponse:
        self.asked.append(request)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if self._act is not None:
                acted = self._act(request)
                if acted is not None:
                    return await acted  # type: ignore[no-any-return]
            return InferResponse(self.name, (output(request.inputs[0].numpy() * 2),), "1")
        finally:
            self.under_way -= 1

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        for factor in (1, 2, 3):
            outputs = (output(request.inputs[0].numpy() * factor),)
            yield InferResponse(self.name, outputs, final=factor == 3)

    async def signature(self, version: str = "") -> Signature:
        return SIGNATURE

    async def metadata(self, version: str = "") -> ModelMetadata:
        return ModelMetadata(self.name, SIGNATURE, ("1",), "test")

    async def ready(self, version: str = "") -> Readiness:
        return Readiness(True)

    async def close(self) -> None:
        """Nothing is open."""


def output(values: Any) -> Tensor:
    return Tensor.from_numpy("y", np.asarray(values, np.float32))


def record(number: int = 1, values: Iterable[float] = (2.0, 4.0), **fields: Any) -> Record:
    """A request for [1, 2], answered with ``values``."""
    inputs = (Tensor.from_numpy("x", np.array([1, 2], np.float32)),)
    request = InferRequest("m", inputs, id=str(number), **fields)
    return Record(
        number * 10**6,
        request,
        "oip",
        "here",
        RecordedAnswer("m", (InferResponse("m", (output(list(values)),)),), None, 5 * 10**6),
    )


def destination(
    target: Target | Doubling, dialect: str = "oip", transport: str = "grpc", **options: Any
) -> Destination:
    pipeline = serving({target.name: target}, dialect)  # type: ignore[dict-item]
    client = HttpLoopback(pipeline) if transport == "http" else GrpcLoopback(pipeline)
    capability = DIALECTS[dialect].bindings[transport].capability
    return Destination(
        lambda: Upstream("there", DIALECTS[dialect].bindings[transport].calls, [client], 5.0),
        capability,
        **options,
    )


async def played(*records: Record, to: Destination, pace: Pace | None = None, **options: Any) -> ReplayReport:
    return await replay(records, to, pace or Pace(concurrency=1), **options)


@pytest.mark.parametrize("dialect", ["oip", "graphpipe", "grps"])
async def test_answers_in_any_dialect_are_compared(dialect: str) -> None:
    model = Doubling()
    models = {"m": "m"}
    report = await played(record(1), record(2), to=destination(model, dialect, "http", models=models))
    assert (report.sent, report.equal, report.good) == (2, 2, True)
    assert len(report.latencies) == len(report.recorded) == 2
    assert report.recorded[0] == pytest.approx(0.005)
    assert report.outputs["m", "y"].compared == 2


async def test_a_different_answer_is_reported_with_its_worst_element() -> None:
    report = await played(
        record(1), record(2, (2.0, 4.5)), record(3, (2.25, 4.0)), to=destination(Doubling())
    )
    assert (report.equal, report.different, report.good) == (1, 2, False)
    [(place, worst)] = report.worst
    assert place == ("m", "y")
    assert (worst.different, worst.compared, worst.max_absolute) == (2, 3, 0.5)
    assert worst.example == "record 2 (id '2'): values at [1]: 4.0, recorded 4.5"
    assert "differs in 2 of 3 answers, by 0.5" in "\n".join(report.as_text())
    assert report.as_json()["outputs"][0]["max_absolute"] == 0.5


async def test_tolerances() -> None:
    near = record(1, (2.0, 4.001))
    assert not (await played(near, to=destination(Doubling()))).good
    assert (await played(near, to=destination(Doubling()), tolerance=Tolerance(atol=0.01))).good


async def test_a_model_may_be_called_otherwise_there() -> None:
    other = Doubling("other")
    assert (await played(record(), to=destination(other, models={"m": "other"}))).good
    assert (await played(record(), to=destination(other, model="other"))).good
    report = await played(record(), to=destination(other))
    assert (report.failed, report.good) == (1, False)
    assert "NOT_FOUND" in next(iter(report.failures))


async def test_errors_are_compared_by_their_code() -> None:
    def refuse(request: InferRequest) -> None:
        raise InferenceError(ErrorCode.INVALID_TENSOR, "no")

    failed = replace(
        record(), answer=RecordedAnswer("m", (), InferenceError(ErrorCode.INVALID_TENSOR, "never"))
    )
    other = replace(record(), answer=RecordedAnswer("m", (), InferenceError(ErrorCode.NOT_FOUND, "never")))
    assert (await played(failed, to=destination(Doubling(act=refuse)))).equal == 1
    assert (await played(other, to=destination(Doubling(act=refuse)))).different == 1
    assert (await played(failed, to=destination(Doubling()))).different == 1
    assert (await played(record(), to=destination(Doubling(act=refuse)))).failed == 1


@pytest.mark.parametrize("code", [ErrorCode.OVERLOADED, ErrorCode.CANCELLED])
async def test_what_failed_by_chance_is_not_compared(code: ErrorCode) -> None:
    failed = replace(record(), answer=RecordedAnswer("m", (), InferenceError(code, "then")))
    report = await played(failed, to=destination(Doubling()))
    assert report.uncompared == {f"the recorded one is {code.name}": 1}
    assert report.good


async def test_streams_are_requested_as_streams() -> None:
    responses = tuple(InferResponse("m", (output([k, 2 * k]),), final=k == 3) for k in (1, 2, 3))
    streamed = replace(record(), answer=RecordedAnswer("m", responses), streamed=True)

    class Streaming(GrpcLoopback):
        """Streams of one message."""

        async def stream(self, request: Any) -> AsyncIterator[Any]:
            async def messages() -> AsyncIterator[bytes]:
                yield bytes(request.message)

            async for answer in self._grpc.stream(request, messages()):
                yield answer

    client = Streaming(serving({"m": Doubling()}, "oip"))  # type: ignore[dict-item]
    calls = DIALECTS["oip"].bindings["grpc"].calls
    to = Destination(
        lambda: Upstream("there", calls, [client], 5.0), DIALECTS["oip"].bindings["grpc"].capability
    )
    report = await played(streamed, to=to)
    assert (report.equal, report.outputs["m", "y"].compared) == (1, 3)
    shorter = replace(streamed, answer=RecordedAnswer("m", responses[:2]))
    assert (await played(shorter, to=to)).different == 1
    # of one that was cut, however it ended, the beginning counts
    broken = InferenceError(ErrorCode.CANCELLED, "the caller has gone away")
    began = replace(streamed, answer=RecordedAnswer("m", responses[:2], broken, cut=True))
    report = await played(began, to=to)
    assert (report.equal, report.outputs["m", "y"].compared) == (1, 2)
    unknown = replace(streamed, answer=RecordedAnswer("m", (), cut=True))
    assert sum((await played(unknown, to=to)).uncompared.values()) == 1


async def test_redacted_inputs_are_refused_or_made_up() -> None:
    hidden = replace(record(), redacted={(QUESTION, 0, 0): "ab"})
    hidden.request.inputs = (Tensor("x", Datatype.FP32, (3,), memoryview(b"")),)
    model = Doubling()
    report = await played(hidden, to=destination(model))
    assert (report.sent, report.refused, report.good) == (0, {"inputs were redacted": 1}, False)
    assert not model.asked

    report = await played(hidden, hidden, to=destination(model), generate_redacted=True)
    assert (report.sent, report.uncompared, report.good) == (2, {"inputs were generated": 2}, True)
    one, other = (request.inputs[0] for request in model.asked)
    assert one.shape == (3,)
    assert one.numpy().tolist() != other.numpy().tolist()


@pytest.mark.parametrize(
    ("values", "tolerance", "counts"),
    [
        ((2.0, 4.0), 0.1, (1, 0, 0)),
        ((2.0, 4.5), 0.1, (0, 0, 1)),
        ((2.0, 4.5), 0.0, (0, 1, 0)),
        ((2.0, 4.0, 5.0), 0.1, (0, 1, 0)),
    ],
)
async def test_redacted_outputs_are_compared_by_digest(
    values: tuple[float, ...], tolerance: float, counts: tuple[int, int, int]
) -> None:
    given = record()
    shape = (len(values),)
    given.answer.responses[0].outputs = (Tensor("y", Datatype.FP32, shape, memoryview(b"")),)
    hidden = replace(given, redacted={(ANSWER, 0, 0): digest(output(values))})
    report = await played(hidden, to=destination(Doubling()), tolerance=Tolerance(atol=tolerance))
    assert (report.equal, report.different, report.uncompared.total()) == counts


async def test_requests_of_a_sequence_go_one_after_the_other() -> None:
    async def slowly(request: InferRequest) -> InferResponse:
        await asyncio.sleep(0.001)
        return InferResponse("m", (output([2, 4]),))

    model = Doubling(act=slowly)
    places = [Sequence(1 + number % 3, number < 3, number >= 27) for number in range(30)]
    records = [record(number, sequence=place) for number, place in enumerate(places)]
    reached: list[Upstream] = []
    given = destination(model)

    def reach() -> Upstream:
        reached.append(given.reach())
        return reached[-1]

    to = replace(given, reach=reach, own_connections=True)
    report = await played(*records, to=to, pace=Pace(concurrency=30))
    assert report.equal == 30
    for sequence in (1, 2, 3):
        asked = [
            request.id for request in model.asked if request.sequence and request.sequence.id == sequence
        ]
        assert asked == [str(number) for number in range(sequence - 1, 30, 3)]
    assert model.most == 3
    assert len(reached) == 4, "one for each sequence, one for the rest"


async def test_so_many_at_a_time() -> None:
    async def slowly(request: InferRequest) -> InferResponse:
        await asyncio.sleep(0.005)
        return InferResponse("m", (output([2, 4]),))

    model = Doubling(act=slowly)
    report = await played(*map(record, range(20)), to=destination(model), pace=Pace(concurrency=4), limit=12)
    assert (report.sent, model.most) == (12, 4)


async def test_an_open_loop_sends_when_requests_are_due() -> None:
    async def slowly(request: InferRequest) -> InferResponse:
        await asyncio.sleep(0.2)
        return InferResponse("m", (output([2, 4]),))

    model = Doubling(act=slowly)
    began = time.monotonic()
    report = await played(*map(record, range(10)), to=destination(model), pace=Pace(rate=100))
    assert model.most > 5, "the next one does not wait for the answer"
    assert time.monotonic() - began > 0.28
    assert min(report.latencies) >= 0.19


async def test_requests_come_as_they_came_so_many_times_as_fast() -> None:
    began = time.monotonic()
    records = [replace(record(number), began_unix_ns=number * 10**10) for number in range(5)]
    model = Doubling()
    async with asyncio.timeout(30):
        report = await played(*records, to=destination(model), pace=Pace(speed=200))
    assert report.equal == 5
    assert [request.id for request in model.asked] == ["0", "1", "2", "3", "4"]
    assert time.monotonic() - began > 0.19


async def test_an_unforeseen_failure_ends_the_replay() -> None:
    def broken(*_: Any) -> Upstream:
        raise OSError("no more sockets")

    with pytest.raises(OSError, match="no more sockets"):
        await played(record(), to=Destination(broken, DIALECTS["oip"].bindings["grpc"].capability))


async def test_a_server_that_is_not_there(unused_tcp_port: int) -> None:
    from interlingua.translator.cli.exchange import upstream_of

    def reach() -> Upstream:
        return upstream_of("oip", "http", f"127.0.0.1:{unused_tcp_port}", 5.0)

    report = await played(record(), to=Destination(reach, DIALECTS["oip"].bindings["grpc"].capability))
    assert (report.sent, report.failed, report.good) == (1, 1, False)
