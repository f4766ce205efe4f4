"""What observers are told of a request: whole, unchanged by what happens to it later, and theirs to keep."""

from __future__ import annotations

import asyncio
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.dialect import Action, Opened, Passthrough
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.runtime.models.kept import kept
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.unloaded import UnloadedModels
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    Operation,
    RequestedOutput,
    ServerMetadata,
    SharedMemoryRef,
    SharedMemoryRegion,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.serving.observation import RESPONSE_BYTES, ByteBudget, Observed
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.router import Router
from tests.runtime.python_models import ECHO, loaded
from tests.streaming_models import Repeat
from tests.waiting import until

OIP = DIALECTS["oip"].bindings["http"]


class Looker:
    """An observer that notes everything; ``wanted`` is what it answers."""

    def __init__(self, wanted: bool = True, max_stream_bytes: int = 1 << 20) -> None:
        self.wanted = wanted
        self.max_stream_bytes = max_stream_bytes
        self.asked: list[InferRequest] = []
        self.seen: list[Observed] = []

    def should_observe(self, request: InferRequest) -> bool:
        self.asked.append(request)
        return self.wanted

    def on_response(self, observed: Observed) -> None:
        self.seen.append(observed)


class Echo(Target):
    """A ``Target`` that answers with its inputs, or fails with ``failure``, after ``secs``."""

    name = "echo"

    def __init__(self, failure: BaseException | None = None, secs: float = 0.0) -> None:
        self._failure = failure
        self._secs = secs

    async def infer(self, request: InferRequest) -> InferResponse:
        await asyncio.sleep(self._secs)
        if self._failure is not None:
            raise self._failure
        return InferResponse(self.name, request.inputs, "3", request.id)

    async def signature(self, version: str = "") -> Signature:
        return Signature((), ())


def serving(target: Any, *observers: Looker) -> Service:
    models: Any = {"m": target}
    return Service(Router(models), ServerMetadata("s", "1"), observers=observers)


def opened(request: InferRequest, operation: Operation = Operation.INFER) -> Opened[Any]:
    action: Action[Any] = Action(operation, lambda form, response: response, lambda *_: (request, None))
    return Opened(action, "m")


def request(*values: int, **more: Any) -> InferRequest:
    return InferRequest("m", (Tensor.from_numpy("IN", np.array(values, np.int32)),), id="7", **more)


def ask(service: Service, asked: InferRequest) -> Any:
    return RequestProcessor(service, "here:1").perform(opened(asked), OIP, Context(peer="127.0.0.1"))


async def test_a_request_and_its_answer() -> None:
    looker, other = Looker(), Looker(wanted=False)
    answer = await ask(serving(Echo(), looker, other), request(1, 2))
    (seen,) = looker.seen
    assert (seen.dialect, seen.listener, seen.answered_by, seen.error) == ("oip", "here:1", "echo", None)
    assert seen.request == request(1, 2)
    (response,) = seen.responses
    assert (response.model, answer.model) == ("echo", "m"), "as the model gave it"
    assert seen.elapsed_ns > 0
    assert len(other.asked) == 1
    assert not other.seen


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (InferenceError(ErrorCode.MODEL_FAILED, "no"), ErrorCode.MODEL_FAILED),
        (InferenceError(ErrorCode.DEADLINE_EXCEEDED, "late"), ErrorCode.DEADLINE_EXCEEDED),
        (RuntimeError("secret"), ErrorCode.INTERNAL),
    ],
)
async def test_a_request_that_fails(failure: Exception, code: ErrorCode) -> None:
    looker = Looker()
    with pytest.raises(type(failure)):
        await ask(serving(Echo(failure), looker), request(1))
    (seen,) = looker.seen
    assert not seen.responses
    assert seen.error is not None
    assert seen.error.code is code
    assert "secret" not in seen.error.message


async def test_an_answer_that_cannot_be_written() -> None:
    looker = Looker()

    def refuse(form: Any, response: InferResponse) -> Any:
        raise InferenceError(ErrorCode.UNREPRESENTABLE, "not so")

    asked = opened(request(1))
    asked.action = replace(asked.action, encode=refuse)
    with pytest.raises(InferenceError):
        await RequestProcessor(serving(Echo(), looker), "here:1").perform(asked, OIP, Context())
    (seen,) = looker.seen
    assert len(seen.responses) == 1
    assert seen.error is not None
    assert seen.error.code is ErrorCode.UNREPRESENTABLE


async def test_a_caller_that_goes_away() -> None:
    looker = Looker()
    waiting = asyncio.create_task(ask(serving(Echo(secs=60), looker), request(1)))
    await until(lambda: looker.asked)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert looker.seen[0].error is not None
    assert looker.seen[0].error.code is ErrorCode.CANCELLED


async def test_what_cannot_be_read_is_not_seen() -> None:
    looker = Looker()

    def refuse(*_: Any) -> Any:
        raise InferenceError(ErrorCode.MALFORMED, "no")

    action: Action[Any] = Action(Operation.INFER, lambda form, response: response, refuse)
    with pytest.raises(InferenceError):
        await RequestProcessor(serving(Echo(), looker), "here:1").perform(Opened(action, "m"), OIP, Context())
    assert not looker.asked
    assert not looker.seen


async def test_a_failing_observer_harms_no_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Looker):
        def on_response(self, observed: Observed) -> None:
            raise RuntimeError("broken")

    class Blind(Looker):
        def should_observe(self, request: InferRequest) -> bool:
            raise RuntimeError("blind")

    looker = Looker()
    assert (await ask(serving(Echo(), Broken(), Blind(), looker), request(1))).outputs
    assert len(looker.seen) == 1
    assert not looker.seen[0].streamed
    assert [record.message for record in caplog.records] == ["observer failed"] * 2


# --- streams


async def test_the_responses_of_a_stream() -> None:
    looker = Looker()
    stream = RequestProcessor(serving(Repeat(), looker), "here:1").stream(
        opened(request(4, -1, 5), Operation.INFER_STREAM), OIP, Context()
    )
    assert [final async for _, final in stream] == [False, False, False, True]
    (seen,) = looker.seen
    assert [len(response.outputs) for response in seen.responses] == [1, 0, 1, 0]
    assert [response.final for response in seen.responses] == [False, False, False, True]
    assert seen.responses[1].error is not None
    assert seen.error is None
    assert seen.streamed


@pytest.mark.parametrize(("taken", "code"), [(2, ErrorCode.CANCELLED), (4, None)])
async def test_a_stream_that_is_closed(taken: int, code: ErrorCode | None) -> None:
    """Whoever has heard the last response may close the stream without having gone away."""
    looker = Looker()
    stream = RequestProcessor(serving(Repeat(), looker), "here:1").stream(
        opened(request(1, 2, 3), Operation.INFER_STREAM), OIP, Context()
    )
    async with aclosing(stream) as answers:
        for _ in range(taken):
            await anext(answers)
    (seen,) = looker.seen
    assert len(seen.responses) == taken
    assert (seen.error and seen.error.code) is code


async def heard_in_full(service: Service, *values: int) -> int:
    """How many responses the caller of a stream gets."""
    asked = opened(request(*values), Operation.INFER_STREAM)
    return len(
        [final async for _, final in RequestProcessor(service, "here:1").stream(asked, OIP, Context())]
    )


@pytest.mark.parametrize(("fit", "cut"), [(2, True), (4, False)])
async def test_a_stream_is_kept_as_far_as_observers_use_it(fit: int, cut: bool) -> None:
    lookers = Looker(max_stream_bytes=fit * (RESPONSE_BYTES + 4)), Looker(max_stream_bytes=0)
    service = serving(Repeat(), *lookers)
    assert await heard_in_full(service, 1, 2, 3) == 4, "callers get all"
    for looker in lookers:
        (seen,) = looker.seen
        assert (len(seen.responses), seen.cut, seen.error) == (fit, cut, None)


async def test_nothing_is_kept_behind_a_gap() -> None:
    """A small response has no place behind a large one that was left out."""

    class Uneven(Repeat):
        async def stream(self, request: InferRequest) -> Any:
            for size in (1, 1 << 20, 1):
                yield InferResponse("m", (Tensor.from_numpy("OUT", np.zeros(size)),), final=False)

    looker = Looker()
    assert await heard_in_full(serving(Uneven(), looker), 1) == 3
    assert [len(seen.responses) for seen in looker.seen] == [1]


async def test_all_streams_together_have_room_and_give_it_back() -> None:
    looker = Looker()
    service = serving(Repeat(), looker)
    service.stream_budget = ByteBudget(3 * (RESPONSE_BYTES + 4))
    first = RequestProcessor(service, "here:1").stream(
        opened(request(1, 2, 3), Operation.INFER_STREAM), OIP, Context()
    )
    async with aclosing(first) as answers:
        await anext(answers)
        await anext(answers)
        assert await heard_in_full(service, 1, 2, 3) == 4
    assert [(len(seen.responses), seen.cut) for seen in looker.seen] == [(1, True), (2, False)]
    assert service.stream_budget.free == 3 * (RESPONSE_BYTES + 4)


async def test_one_answer_is_kept_however_large() -> None:
    looker = Looker(max_stream_bytes=0)
    await ask(serving(Echo(), looker), request(1, 2))
    assert [(len(seen.responses), seen.cut) for seen in looker.seen] == [(1, False)]


# --- memory that others write to


@pytest.fixture
def key() -> Iterator[str]:
    path = Path(f"/dev/shm/interlingua_test_{os.getpid()}_{time.monotonic_ns()}")
    path.write_bytes(np.arange(8, dtype=np.float32).tobytes())
    yield f"/{path.name}"
    path.unlink()


async def test_the_content_of_a_clients_region_is_copied(key: str) -> None:
    looker = Looker()
    service = serving(Echo(), looker)
    service.shared_memory.register(SharedMemoryRegion("r", key, 0, 32))
    placed = (RequestedOutput("x", placement=SharedMemoryRef("r", 16, 16)),)
    asked = InferRequest("m", (Tensor("x", Datatype.FP32, (4,), SharedMemoryRef("r", 0, 16)),), placed)
    answer = await ask(service, asked)
    assert answer.outputs[0].data == SharedMemoryRef("r", 16, 16)
    Path("/dev/shm", key[1:]).write_bytes(bytes(32))
    (seen,) = looker.seen
    assert seen.request.inputs[0].numpy().tolist() == [0, 1, 2, 3]
    assert seen.responses[0].outputs[0].numpy().tolist() == [0, 1, 2, 3], "an echo lies where its input does"


async def test_what_a_python_model_gives_is_copied(tmp_path: Path) -> None:
    """To keep its memory would take it away from the model's process."""
    model = loaded(tmp_path, ECHO)
    looker = Looker()
    values = np.arange(1 << 16, dtype=np.int32)
    asked = InferRequest("m", (Tensor.from_numpy("IN", values),))
    try:
        response = await model.infer(asked)
        assert kept(response.outputs)[0].view.obj is not response.outputs[0].view.obj
        await ask(serving(model, looker), asked)
    finally:
        await model.close()
    (output,) = looker.seen[0].responses[0].outputs
    assert isinstance(output.view.obj, bytes)
    assert output.numpy().tolist() == values.tolist()


def test_only_what_is_shared_is_copied() -> None:
    shared = mmap.mmap(-1, 64)
    array = np.frombuffer(shared, np.float32)
    for data in (memoryview(shared), array.data.cast("B"), array[4:].view(np.uint8).data):
        tensor = Tensor("x", Datatype.UINT8, (len(data),), data.toreadonly())
        assert isinstance(kept([tensor])[0].view.obj, bytes)
    own = Tensor.from_numpy("x", np.zeros(4))
    assert kept([own])[0] is own


# --- what passes through


SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1,)),), (TensorSpec("x", Datatype.FP32, (-1,)),), max_batch_size=8
)
INFER = "/inference.GRPCInferenceService/ModelInfer"
REQUEST: Any = MESSAGES["inference.ModelInferRequest"]
RESPONSE: Any = MESSAGES["inference.ModelInferResponse"]


class Server:
    """A ``GrpcClient`` whose server answers with ``answer``; ``sent`` are the messages that it got."""

    def __init__(self, answer: GrpcAnswer | BaseException) -> None:
        self.answer = answer
        self.sent: list[bytes] = []

    async def send(self, call: GrpcRequest) -> GrpcAnswer:
        self.sent.append(bytes(call.message))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        """Nothing is open."""


def message(contents: bytes = np.arange(4, dtype=np.float32).tobytes(), datatype: str = "FP32") -> bytes:
    asked = REQUEST(model_name="m", id="seven")
    asked.inputs.add(name="x", datatype=datatype, shape=[4])
    asked.raw_input_contents.append(contents)
    return bytes(asked.SerializeToString())


def reply(contents: bytes = np.ones(4, np.float32).tobytes()) -> GrpcAnswer:
    answer = RESPONSE(model_name="m", model_version="3", id="seven")
    answer.outputs.add(name="x", datatype="FP32", shape=[4])
    answer.raw_output_contents.append(contents)
    return GrpcAnswer(answer.SerializeToString())


def passing(
    server: Server, *observers: Any, declared: Signature | None = SIGNATURE, remote: str = "m", **names: Any
) -> tuple[Service, Any]:
    """A service in front of ``server``, and the handler of its gRPC listener."""
    upstream = Upstream("there", DIALECTS["oip"].bindings["grpc"].calls, [server], 5.0)
    service = serving(UpstreamModel("m", upstream, remote, declared=declared, **names), *observers)
    pipeline = Pipeline(service, "here:1", [DIALECTS["oip"].bindings["grpc"]])
    return service, pipeline.handlers["grpc"]


async def test_what_is_observed_passes_through() -> None:
    """The observer gets what it would get of a decoded message, after the caller has its answer."""
    looker, server, began = Looker(), Server(reply()), time.monotonic_ns()
    service, handler = passing(server, looker)
    answer = await handler.serve(GrpcRequest(INFER, message()))
    assert server.sent == [message()] and answer.message == reply().message
    assert [each.model for each in looker.asked] == ["m"] and not looker.seen
    await service.copies.finish()
    (seen,) = looker.seen
    assert (seen.request.model, seen.request.id, seen.answered_by) == ("m", "seven", "m")
    assert (seen.dialect, seen.listener, seen.max_batch_size) == ("oip", "here:1", 8)
    assert seen.request.inputs[0].numpy().tolist() == [0, 1, 2, 3]
    (response,) = seen.responses
    assert (response.model, response.version, response.id) == ("m", "3", "seven")
    assert response.outputs[0].numpy().tolist() == [1, 1, 1, 1]
    assert seen.error is None and seen.elapsed_ns > 0 and not seen.streamed
    assert began <= seen.ended - seen.elapsed_ns < seen.ended <= time.monotonic_ns()
    assert service.copies.budget.free == ByteBudget().free


async def test_what_passes_is_observed_in_the_names_of_the_caller() -> None:
    told = RESPONSE.FromString(reply().message)
    told.model_name, told.outputs[0].name = "far", "there"
    looker, server = Looker(), Server(GrpcAnswer(told.SerializeToString()))
    names = {"inputs": {"x": "there"}, "outputs": {"x": "there"}}
    service, handler = passing(server, looker, remote="far", **names)
    await handler.serve(GrpcRequest(INFER, message()))
    await service.copies.finish()
    (seen,) = looker.seen
    assert REQUEST.FromString(server.sent[0]).inputs[0].name == "there"
    assert seen.request.inputs[0].name == seen.responses[0].outputs[0].name == "x"
    assert seen.responses[0].model == "m"


@pytest.mark.parametrize(
    "answer", [GrpcAnswer(code=14, details="not now"), GrpcAnswer(b"\xff"), asyncio.CancelledError()]
)
async def test_failures_of_what_passes_are_observed(answer: Any) -> None:
    looker = Looker()
    service, handler = passing(Server(answer), looker)
    code = ErrorCode.CANCELLED
    try:
        said = await handler.serve(GrpcRequest(INFER, message()))
        assert said.code
        code = ErrorCode.UNAVAILABLE if answer.code else ErrorCode.BAD_UPSTREAM
    except asyncio.CancelledError:
        pass
    await service.copies.finish()
    (seen,) = looker.seen
    assert seen.error is not None and seen.error.code is code and not seen.responses


async def test_what_nobody_chooses_is_not_kept() -> None:
    looker = Looker(wanted=False)
    service, handler = passing(Server(reply()), looker)
    service.copies.budget.free = 0
    assert not (await handler.serve(GrpcRequest(INFER, message()))).code
    await service.copies.finish()
    assert len(looker.asked) == 1 and not looker.seen and not service.copies.dropped


async def test_copies_of_what_passes_have_a_budget() -> None:
    looker = Looker()
    service, handler = passing(Server(reply()), looker)
    free = service.copies.budget.free = len(message()) + len(reply().message) + RESPONSE_BYTES
    for _ in range(3):
        await handler.serve(GrpcRequest(INFER, message()))
    await service.copies.finish()
    assert len(looker.seen) == 1 and service.copies.dropped == 2 and service.copies.budget.free == free
    await handler.serve(GrpcRequest(INFER, message()))
    await service.copies.finish()
    assert len(looker.seen) == 2


async def test_copies_keep_up_with_a_busy_server() -> None:
    """However many answers a turn of the loop has."""
    looker = Looker()
    _, handler = passing(Server(reply()), looker)
    await asyncio.gather(*(handler.serve(GrpcRequest(INFER, message())) for _ in range(200)))
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(looker.seen) == 200


async def test_a_copy_that_cannot_be_decoded_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Elements of BYTES are not checked where a message passes."""
    text = Signature((TensorSpec("x", Datatype.BYTES, (-1,)),), SIGNATURE.outputs)
    looker = Looker()
    service, handler = passing(Server(reply()), looker, declared=text)
    answer = await handler.serve(GrpcRequest(INFER, message(b"\xff" * 16, "BYTES")))
    assert not answer.code and answer.message == reply().message
    await service.copies.finish()
    assert not looker.seen and service.copies.failed == 1 and service.copies.budget.free == ByteBudget().free
    assert [each.message for each in caplog.records] == ["passed message not decodable"]
    (family,) = service.copies.metrics()
    assert [sample.value for sample in family.samples] == [0, 1]


async def test_what_cannot_be_decoded_beside_its_path_is_decoded() -> None:
    passthrough: Any = Passthrough(
        lambda _: InferHeads((), ()),
        lambda *_: object(),
        lambda *_: None,
        observable=False,  # type: ignore[arg-type]
    )
    upstream: Any = SimpleNamespace(
        name="there", offers=lambda _: False, passthrough=passthrough, unloaded=UnloadedModels()
    )
    target: Any = UpstreamModel("m", upstream, "m")
    echo, looker = Echo(), Looker()
    target.infer, target.signature = echo.infer, echo.signature
    asked = opened(request(1))
    asked.action = replace(asked.action, passthrough=passthrough)
    await RequestProcessor(serving(target, looker), "here:1").perform(asked, OIP, Context())
    assert len(looker.seen) == len(looker.asked) == 1
