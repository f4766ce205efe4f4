"""Inference that is passed on unread, held against the same inference read and written anew."""

from __future__ import annotations

from typing import Any

import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Datatype, Signature, TensorSpec
from interlingua.schemas.oip import MESSAGES
from tests.loopback import serving

REQUEST: Any = MESSAGES["inference.ModelInferRequest"]
RESPONSE: Any = MESSAGES["inference.ModelInferResponse"]
INFER = "/inference.GRPCInferenceService/ModelInfer"
SIGNATURE = Signature(
    (TensorSpec("A", Datatype.FP32, (-1, 2)), TensorSpec("B", Datatype.BYTES, (-1,))),
    (TensorSpec("X", Datatype.FP32, (-1, 2)), TensorSpec("Y", Datatype.BYTES, (-1,))),
    max_batch_size=8,
)
FLOATS, TEXT = bytes(range(16)), b"\3\0\0\0abc\0\0\0\0"


class Server:
    """A ``GrpcClient`` whose server answers every inference with ``answer``."""

    def __init__(self, answer: GrpcAnswer) -> None:
        self.answer = answer
        self.seen: list[bytes] = []

    async def send(self, request: GrpcRequest) -> GrpcAnswer:
        assert request.method == INFER
        self.seen.append(bytes(request.message))
        return self.answer

    async def close(self) -> None:
        """Nothing is open."""


def question(**changes: Any) -> Any:
    message = REQUEST(model_name="ours", id="seven")
    message.inputs.add(name="A", datatype="FP32", shape=[2, 2])
    message.inputs.add(name="B", datatype="BYTES", shape=[2])
    message.raw_input_contents.extend([FLOATS, TEXT])
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def answer(*names: str, model: str = "ours", identity: str = "seven", typed: bool = False) -> Any:
    message = RESPONSE(model_name=model, model_version="3", id=identity)
    for name in names:
        text = name.endswith("Y")
        output = message.outputs.add(
            name=name, datatype="BYTES" if text else "FP32", shape=[2] if text else [2, 2]
        )
        if typed and text:
            output.contents.bytes_contents.extend([b"abc", b""])
        elif typed:
            output.contents.fp32_contents.extend([1, 2, 3, 4])
        else:
            message.raw_output_contents.append(TEXT if text else FLOATS)
    return message


short = answer("X", "Y")
short.raw_output_contents[0] = FLOATS[:12]


async def both(
    monkeypatch: pytest.MonkeyPatch, asked: Any, told: Any, remote: str = "ours", **names: Any
) -> tuple[GrpcAnswer, bytes, bool]:
    """The answer, which is the same either way; what the server was asked; whether that was passed on."""
    told = told if isinstance(told, GrpcAnswer) else GrpcAnswer(told.SerializeToString())
    answers, seen, counted = [], [], []
    passed = 0
    for relayed in (True, False):
        server = Server(told)
        upstream = Upstream("there", DIALECTS["oip"].bindings["grpc"].calls, [server], 5.0)
        target = UpstreamModel("ours", upstream, remote, declared=SIGNATURE, **names)
        if relayed:
            usual = upstream.forward

            async def forward(*arguments: Any, usual: Any = usual) -> Any:
                nonlocal passed
                passed += 1
                return await usual(*arguments)

            monkeypatch.setattr(upstream, "forward", forward)
        else:
            monkeypatch.setattr(upstream, "passthrough", None)
        pipeline = serving({"ours": target}, "oip").handlers["grpc"]
        answers.append(await pipeline.serve(GrpcRequest(INFER, asked.SerializeToString())))
        seen.append([REQUEST.FromString(each) for each in server.seen])
        assert len(target.statistics) == 1 or not server.seen
        counted.append(
            [
                (number, each.inference_count, each.execution_count, list(each.by_batch_size))
                for number, each in target.statistics.items()
            ]
        )
    monkeypatch.undo()
    assert answers[0].code == answers[1].code and answers[0].details == answers[1].details
    assert RESPONSE.FromString(answers[0].message) == RESPONSE.FromString(answers[1].message)
    assert seen[0] == seen[1] and counted[0] == counted[1]
    return answers[0], b"".join(server.seen), bool(passed)


async def test_the_message_goes_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, told = question(), answer("X", "Y")
    said, seen, passed = await both(monkeypatch, asked, told)
    assert passed and seen == asked.SerializeToString() and said.message == told.SerializeToString()


async def test_only_names_are_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question()
    asked.outputs.add(name="Y")
    names = {"inputs": {"A": "left"}, "outputs": {"Y": "otherY"}}
    said, seen, passed = await both(monkeypatch, asked, answer("otherY", model="far"), "far", **names)
    assert passed
    sent, got = REQUEST.FromString(seen), RESPONSE.FromString(said.message)
    assert (sent.model_name, [each.name for each in sent.inputs]) == ("far", ["left", "B"])
    assert list(sent.raw_input_contents) == [FLOATS, TEXT]
    assert (got.model_name, [each.name for each in got.outputs]) == ("ours", ["Y"])
    assert list(got.raw_output_contents) == [TEXT]


@pytest.mark.parametrize(
    "told",
    [
        answer("Y", "X"),
        answer("X", "Y", "Z"),
        answer("X"),
        answer("X", "Y", typed=True),
        answer("X", "Y", model="else", identity=""),
        GrpcAnswer(code=14, details="not now"),
        GrpcAnswer(code=3, details="no such shape"),
        GrpcAnswer(b"\xff\xff"),
        short,
    ],
    ids=["order", "more", "fewer", "typed", "names", "status", "refusal", "junk", "short"],
)
@pytest.mark.parametrize("outputs", [(), ("X",), ("Y", "X")])
async def test_answers_of_every_form(monkeypatch: pytest.MonkeyPatch, told: Any, outputs: Any) -> None:
    asked = question()
    for name in outputs:
        asked.outputs.add(name=name)
    await both(monkeypatch, asked, told)


def with_parameter(target: str, **value: Any) -> Any:
    asked = question()
    asked.outputs.add(name="X")
    holder = {"request": asked, "input": asked.inputs[0], "output": asked.outputs[0]}[target]
    for name, kind in value.items():
        setattr(holder.parameters[name], kind[0], kind[1])
    return asked


@pytest.mark.parametrize(
    "asked",
    [
        with_parameter("request", sequence_id=("int64_param", 5), sequence_start=("bool_param", True)),
        with_parameter("request", priority=("uint64_param", 3)),
        with_parameter("output", classification=("int64_param", 1)),
        with_parameter("input", own=("string_param", "x")),
    ],
    ids=["sequence", "priority", "classification", "own"],
)
async def test_requests_that_need_more_are_read(monkeypatch: pytest.MonkeyPatch, asked: Any) -> None:
    *_, passed = await both(monkeypatch, asked, answer("X"))
    assert not passed


async def test_a_failure_is_reported_in_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    said, _, passed = await both(monkeypatch, question(), GrpcAnswer(code=8, details="too much"))
    assert passed and (said.code, said.details) == (8, "too much")


def mistaken(change: str) -> Any:
    asked = question()
    if change == "missing":
        del asked.inputs[1], asked.raw_input_contents[1]
    elif change == "unknown":
        asked.inputs[0].name = "Q"
    elif change == "doubled":
        asked.inputs[1].CopyFrom(asked.inputs[0])
        asked.raw_input_contents[1] = FLOATS
    elif change == "datatype":
        asked.inputs[0].datatype = "INT32"
    elif change == "no datatype":
        asked.inputs[0].datatype = "FLOAT"
    elif change == "shape":
        asked.inputs[0].shape[:] = [4, 1]
    elif change == "negative":
        asked.inputs[0].shape[:] = [-2, -2]
    elif change == "batch":
        asked.inputs[0].shape[:], asked.inputs[1].shape[:] = [9, 2], [9]
        asked.raw_input_contents[:] = [bytes(72), bytes(36)]
    elif change == "batches":
        asked.inputs[1].shape[:] = [1]
        asked.raw_input_contents[1] = bytes(4)
    elif change == "size":
        asked.raw_input_contents[0] = FLOATS[:12]
    elif change == "size of BYTES":
        asked.raw_input_contents[1] = bytes(7)
    elif change == "output":
        asked.outputs.add(name="Q")
    return asked


MISTAKES = (
    "missing", "unknown", "doubled", "datatype", "no datatype", "shape", "negative", "batch", "batches", "size",
    "size of BYTES", "output",
)  # fmt: skip


@pytest.mark.parametrize("change", MISTAKES)
async def test_what_does_not_fit_is_not_passed_on(change: str) -> None:
    """Nor written anew: the words are those of a request that is read."""
    server = Server(GrpcAnswer(answer("X", "Y").SerializeToString()))
    upstream = Upstream("there", DIALECTS["oip"].bindings["grpc"].calls, [server], 5.0)
    target = UpstreamModel("ours", upstream, "ours", declared=SIGNATURE)
    pipeline = serving({"ours": target}, "oip").handlers["grpc"]
    said = await pipeline.serve(GrpcRequest(INFER, mistaken(change).SerializeToString()))
    assert said.code == 3 and said.details
    assert not server.seen


async def test_what_does_not_fit_is_passed_on_where_the_signature_is_not_believed() -> None:
    server = Server(GrpcAnswer(answer("X", "Y").SerializeToString()))
    upstream = Upstream("there", DIALECTS["oip"].bindings["grpc"].calls, [server], 5.0)
    target = UpstreamModel("ours", upstream, "ours", declared=SIGNATURE, strict_signature=False)
    asked = mistaken("shape").SerializeToString()
    said = await serving({"ours": target}, "oip").handlers["grpc"].serve(GrpcRequest(INFER, asked))
    assert said.code == 0 and server.seen == [asked]


async def test_what_repeats_is_still_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that differ in their contents alone, or in an id, are cached by nothing else."""

    def asked(contents: bytes = FLOATS, identity: str = "", text: bytes = TEXT) -> Any:
        message = question(id=identity)
        message.raw_input_contents[:] = [contents, text]
        return message

    def told(contents: bytes = FLOATS, identity: str = "", version: str = "3") -> Any:
        message = answer("X", "Y", identity=identity)
        message.model_version = version
        message.raw_output_contents[0] = contents
        return message

    one = asked()
    one.outputs.add(name="X")
    other = asked()
    other.inputs[0].shape[:] = [1, 4]
    short_text = asked(text=TEXT[:4])
    for question_, answer_ in [
        (asked(), told()),
        (asked(FLOATS[::-1]), told(FLOATS[::-1])),
        (asked(FLOATS[:12]), told()),
        (asked(), told(FLOATS[:12])),
        (asked(identity="9"), told(identity="9")),
        (asked(), told(identity="9")),
        (one, told()),
        (one, answer("X", identity="")),
        (other, told()),
        (short_text, told()),
        (asked(), told(version="4")),
        (asked(), told()),
    ]:
        await both(monkeypatch, question_, answer_)
    _, _, passed = await both(monkeypatch, asked(), told())
    assert passed
