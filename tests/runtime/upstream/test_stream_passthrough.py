"""Streamed inference that passes through, compared with the same inference decoded and encoded again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from interlingua.protocols.oip.stream_grpc import METHOD
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import ConnectionFailedError, GrpcAnswer, GrpcRequest
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context, Datatype, ErrorCode, ServerMetadata, Signature, TensorSpec
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Split

REQUEST: Any = MESSAGES["inference.ModelInferRequest"]
ANSWER: Any = MESSAGES["inference.ModelStreamInferResponse"]
SIGNATURE = Signature(
    (TensorSpec("A", Datatype.FP32, (-1, 2)),),
    (TensorSpec("X", Datatype.FP32, (-1, 2)), TensorSpec("Y", Datatype.BYTES, (-1,))),
    max_batch_size=8,
)
FLOATS, TEXT = bytes(range(16)), b"\3\0\0\0abc\0\0\0\0"
EMPTY_FINAL = "triton_enable_empty_final_response"

Replies = Sequence[GrpcAnswer | BaseException]


class Server:
    """A ``GrpcClient`` whose server answers every stream with ``replies``; None: it knows no such method."""

    def __init__(self, replies: Replies | None) -> None:
        self.replies = replies
        self.seen: list[Any] = []
        self.unary = 0
        self.closed = 0

    async def stream(self, request: GrpcRequest) -> AsyncIterator[GrpcAnswer]:
        assert request.method == METHOD
        self.seen.append(REQUEST.FromString(bytes(request.whole)))
        if self.replies is None:
            yield GrpcAnswer(code=12, details="no such method")
            return
        try:
            for reply in self.replies:
                await asyncio.sleep(0)
                if isinstance(reply, BaseException):
                    raise reply
                yield reply
        finally:
            self.closed += 1

    async def send(self, request: GrpcRequest) -> GrpcAnswer:
        self.unary += 1
        answer: Any = ANSWER.FromString(reply("X").message).infer_response
        answer.parameters.clear()
        return GrpcAnswer(answer.SerializeToString())

    async def close(self) -> None:
        """Nothing is open."""


def question(*outputs: str, identity: str = "seven", empty_final: bool = False, model: str = "ours") -> Any:
    message = REQUEST(model_name=model, id=identity)
    message.inputs.add(name="A", datatype="FP32", shape=[2, 2])
    message.raw_input_contents.append(FLOATS)
    for name in outputs:
        message.outputs.add(name=name)
    if empty_final:
        message.parameters[EMPTY_FINAL].bool_param = True
    return message


def reply(
    *names: str,
    final: bool | None = False,
    model: str = "ours",
    identity: str = "seven",
    error: str = "",
    **more: str,
) -> GrpcAnswer:
    message = ANSWER(error_message=error)
    answer = message.infer_response
    answer.model_name, answer.model_version, answer.id = model, "3", identity
    if final is not None:
        answer.parameters["triton_final_response"].bool_param = final
    for key, value in more.items():
        answer.parameters[key].string_param = value
    for name in names:
        text = name.endswith("Y")
        answer.outputs.add(name=name, datatype="BYTES" if text else "FP32", shape=[2] if text else [2, 2])
        answer.raw_output_contents.append(TEXT if text else FLOATS)
    return GrpcAnswer(message.SerializeToString())


def short() -> GrpcAnswer:
    message = ANSWER.FromString(reply("X").message)
    message.infer_response.raw_output_contents[0] = FLOATS[:8]
    return GrpcAnswer(message.SerializeToString())


def bare() -> GrpcAnswer:
    """An answer as MLServer sends it."""
    return GrpcAnswer(ANSWER.FromString(reply("X", final=None).message).infer_response.SerializeToString())


async def streamed(handler: Any, *messages: Any, metadata: dict[str, str] | None = None) -> list[GrpcAnswer]:
    async def each() -> AsyncIterator[bytes]:
        for message in messages:
            yield message.SerializeToString()

    call = GrpcRequest(METHOD, b"", metadata or {})
    return [answer async for answer in handler.stream(call, each())]


def target_of(server: Server, remote: str = "ours", **names: Any) -> UpstreamModel:
    upstream = Upstream("there", DIALECTS["oip"].bindings["grpc"].calls, [server], 5.0)
    return UpstreamModel("ours", upstream, remote, declared=SIGNATURE, **names)


def handler_of(target: Any, *routes: Route, spare: Any = None) -> Any:
    models = {"ours": target} | ({} if spare is None else {"spare": spare})
    service = Service(Router(models, routes), ServerMetadata("interlingua", "0"))
    return Pipeline(service, "here", [DIALECTS["oip"].bindings["grpc"]]).handlers["grpc"]


async def both(
    monkeypatch: pytest.MonkeyPatch,
    asked: Any,
    replies: Replies | None,
    remote: str = "ours",
    metadata: dict[str, str] | None = None,
    **names: Any,
) -> tuple[list[GrpcAnswer], bool]:
    """The answers, which are the same either way, and whether they passed through."""
    found, seen, counted, unary, passed = [], [], [], [], 0
    for passing in (True, False):
        server = Server(replies)
        target = target_of(server, remote, **names)
        if passing:
            usual = target.upstream.forward_stream

            def forward(*arguments: Any, usual: Any = usual) -> Any:
                nonlocal passed
                passed += 1
                return usual(*arguments)

            monkeypatch.setattr(target.upstream, "forward_stream", forward)
        else:
            monkeypatch.setattr(target.upstream, "stream_passthrough", None)
        found.append(await streamed(handler_of(target), asked, metadata=metadata))
        seen.append(server.seen[-1:])
        unary.append(server.unary)
        counted.append(
            {
                version: (each.inference_count, each.execution_count, dict(each.failures), each.refused)
                for version, each in target.statistics.items()
            }
        )
    monkeypatch.undo()
    assert [(each.code, each.details) for each in found[0]] == [
        (each.code, each.details) for each in found[1]
    ]
    assert [ANSWER.FromString(each.message) for each in found[0]] == [
        ANSWER.FromString(each.message) for each in found[1]
    ]
    assert seen[0] == seen[1] and counted[0] == counted[1] and unary[0] == unary[1]
    return found[0], bool(passed)


async def test_messages_pass_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [reply("X", "Y"), reply("X"), reply("Y", final=True)]
    answers, passed = await both(monkeypatch, question(), replies)
    assert passed and [each.message for each in answers] == [each.message for each in replies]


async def test_only_names_are_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"inputs": {"A": "left"}, "outputs": {"Y": "otherY"}}
    replies = [reply("X", "otherY", model="far", identity="x"), reply("otherY", model="far", final=True)]
    answers, passed = await both(monkeypatch, question(), replies, "far", **names)
    assert passed and len(answers) == 2
    found = ANSWER.FromString(answers[1].message).infer_response
    assert (found.model_name, found.id, found.outputs[0].name) == ("ours", "seven", "Y")


REPLIES: dict[str, Replies | None] = {
    "none": [],
    "one": [reply("X", final=True)],
    "many": [reply("X"), reply("X", "Y"), reply("Y")],
    "empty final": [reply("X"), reply(final=True)],
    "only final": [reply(final=True)],
    "after the final one": [reply("X", final=True), reply("Y", final=True)],
    "no flag": [reply("X", final=None), reply("Y", final=None)],
    "parameters": [reply("X", own="text"), reply("X", final=True)],
    "order": [reply("Y", "X"), reply(final=True)],
    "surplus": [reply("X", "Z"), reply(final=True)],
    "names": [reply("X", model="else", identity=""), reply(final=True)],
    "short": [reply("X"), short()],
    "bare": [bare(), bare()],
    "error": [reply("X"), reply(error="it broke", final=True)],
    "error first": [reply(error="it broke", final=True)],
    "refused": [GrpcAnswer(ANSWER(error_message="wrong shape").SerializeToString())],
    "unknown": [GrpcAnswer(ANSWER(error_message="Request for unknown model: 'm'").SerializeToString())],
    "status": [GrpcAnswer(code=14, details="not now")],
    "status later": [reply("X"), GrpcAnswer(code=13, details="broke")],
    "unsupported": None,
    "unsupported later": [reply("X"), GrpcAnswer(code=12, details="no more")],
    "junk": [GrpcAnswer(b"\xff\xff")],
    "junk later": [reply("X"), GrpcAnswer(b"\xff\xff")],
    "connection": [ConnectionFailedError(ErrorCode.UNAVAILABLE, "gone", sent=True)],
    "connection later": [reply("X"), ConnectionFailedError(ErrorCode.UNAVAILABLE, "gone", sent=True)],
}


@pytest.mark.parametrize("replies", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("empty_final", [False, True], ids=["", "empty final"])
@pytest.mark.parametrize("outputs", [(), ("X",)], ids=["all", "X"])
@pytest.mark.parametrize("as_status", [False, True], ids=["items", "status"])
async def test_replies_of_every_form(
    monkeypatch: pytest.MonkeyPatch,
    replies: Replies | None,
    empty_final: bool,
    outputs: tuple[str, ...],
    as_status: bool,
) -> None:
    metadata = {"triton_grpc_error": "true"} if as_status else {}
    asked = question(*outputs, empty_final=empty_final)
    _, passed = await both(monkeypatch, asked, replies, metadata=metadata)
    assert passed


@pytest.mark.parametrize(
    "fault",
    [
        GrpcAnswer(code=13, details="broke"),
        GrpcAnswer(code=12, details="no more"),
        ConnectionFailedError(ErrorCode.UNAVAILABLE, "gone", sent=True),
    ],
    ids=["status", "unsupported", "connection"],
)
async def test_a_request_that_has_its_last_answer_does_not_fail(
    monkeypatch: pytest.MonkeyPatch, fault: GrpcAnswer | BaseException
) -> None:
    answers, passed = await both(monkeypatch, question(), [reply("X"), reply("Y", final=True), fault])
    assert passed and [ANSWER.FromString(each.message).error_message for each in answers] == ["", ""]


def with_sequence() -> Any:
    asked = question()
    asked.parameters["sequence_id"].int64_param = 5
    asked.parameters["sequence_start"].bool_param = True
    return asked


def wrong(**changes: Any) -> Any:
    asked = question()
    for name, value in changes.items():
        setattr(asked.inputs[0], name, value)
    return asked


def cut() -> Any:
    asked = question()
    asked.raw_input_contents[0] = FLOATS[:12]
    return asked


@pytest.mark.parametrize(
    "asked",
    [with_sequence(), wrong(name="B"), wrong(datatype="INT32"), cut(), question("Z")],
    ids=["sequence", "name", "datatype", "size", "output"],
)
async def test_requests_that_do_not_fit_are_decoded(monkeypatch: pytest.MonkeyPatch, asked: Any) -> None:
    _, passed = await both(monkeypatch, asked, [reply("X", final=True)])
    assert not passed


async def test_a_server_without_streams_is_tried_once() -> None:
    server = Server(None)
    handler = handler_of(target_of(server))
    for number in range(3):
        (answer,) = await streamed(handler, question())
        assert ANSWER.FromString(answer.message).infer_response.outputs[0].name == "X"
        assert server.unary == number + 1
    assert len(server.seen) == 2, "once for each way"


async def test_messages_of_one_stream_are_at_work_together() -> None:
    """Several answers to one message arrive between those to others; one answer waits for its turn."""
    server = Server([reply("X", final=True)])
    answers = await streamed(
        handler_of(target_of(server)), *[question(identity=str(number)) for number in range(20)]
    )
    found = [ANSWER.FromString(each.message).infer_response.id for each in answers]
    assert found == [str(number) for number in range(20)]


async def test_a_caller_that_leaves_ends_the_call() -> None:
    endless: Any = [reply("X")] * 1000
    server = Server(endless)
    target = target_of(server)
    handler = handler_of(target)

    async def messages() -> AsyncIterator[bytes]:
        yield question().SerializeToString()
        await asyncio.Event().wait()

    async with aclosing(handler.stream(GrpcRequest(METHOD, b""), messages())) as answers:
        async for _ in answers:
            break
    assert server.closed == 1
    (counted,) = target.statistics.values()
    assert counted.failures == {ErrorCode.CANCELLED: 1}
    assert not target.upstream.pool.members[0].running


async def test_falls_back_before_the_first_answer() -> None:
    refused = ConnectionFailedError(ErrorCode.UNAVAILABLE, "refused", sent=False)
    spare = Server([reply("X", final=True)])
    route = Route(Split.only("ours"), fallback="spare")
    upstream = Upstream("spare", DIALECTS["oip"].bindings["grpc"].calls, [spare], 5.0)
    other = UpstreamModel("spare", upstream, "ours", declared=SIGNATURE)
    handler = handler_of(target_of(Server([refused])), route, spare=other)
    (answer,) = await streamed(handler, question())
    assert ANSWER.FromString(answer.message).infer_response.model_name == "ours" and len(spare.seen) == 1
    assert route.counts.requests == 1 and route.counts.fallbacks == 1
    handler = handler_of(target_of(Server([reply("X"), refused])), route, spare=other)
    assert len(await streamed(handler, question())) == 2
    assert len(spare.seen) == 1 and route.counts.fallbacks == 1 and route.counts.requests == 2


async def test_pinned_messages_stay_at_one_server() -> None:
    servers = [Server([reply("X", final=True)]) for _ in range(3)]
    upstream = Upstream("there", DIALECTS["oip"].bindings["grpc"].calls, servers, 5.0)
    target = UpstreamModel("ours", upstream, "ours", declared=SIGNATURE)
    opened = DIALECTS["oip"].bindings["grpc"]
    endpoint = next(each for each in opened.endpoints if each.method == METHOD)
    context = Context(pins={})
    for _ in range(5):
        message = endpoint.open(GrpcRequest(METHOD, question().SerializeToString()))
        async with aclosing(target.pass_stream(message, "ours", "", context)) as answers:
            assert [last async for _, last in answers] == [True]
    assert sorted(len(server.seen) for server in servers) == [0, 0, 5]
