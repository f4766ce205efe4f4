"""Messages whose names, datatypes and shapes repeat: cached, and never mistaken for one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from interlingua.protocols.oip import codec_grpc, passthrough
from interlingua.protocols.oip.codec_grpc import RESPONSE, decode_reply, encode_call
from interlingua.protocols.oip.known_messages import KnownAnswers, request_pieces
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Signature,
    Tensor,
)

NO_SIGNATURE = Signature((), ())
PLACE = SharedMemoryRef("r", 0, 8)


def tensor(values: list[float], name: str = "x") -> Tensor:
    return Tensor.from_numpy(name, np.array([values], np.float32))


def message(request: InferRequest) -> Any:
    return service_pb2.ModelInferRequest.FromString(bytes(encode_call(request, None)[0].whole))


def answer(raws: list[bytes], **fields: Any) -> GrpcAnswer:
    outputs = [{"name": f"y{index}", "datatype": "FP32", "shape": [1, 2]} for index in range(len(raws))]
    fields = {"model_name": "m", "outputs": outputs, **fields}
    return GrpcAnswer(RESPONSE(raw_output_contents=raws, **fields).SerializeToString())


def read(reply: GrpcAnswer) -> InferResponse:
    response: InferResponse = decode_reply({}, reply)
    return response


@pytest.mark.parametrize("values", [[1.0, 2.0], [3.0, 4.0], [5.0], []])
@pytest.mark.parametrize("outputs", [None, (RequestedOutput("y"),)])
def test_a_repeated_request_has_its_own_bytes(values: list[float], outputs: Any) -> None:
    for model in ("m", "n", "m"):
        written = message(InferRequest(model, (tensor(values), tensor(values[::-1], "z")), outputs, "1"))
        assert [np.frombuffer(raw, np.float32).tolist() for raw in written.raw_input_contents] == [
            values,
            values[::-1],
        ]
        assert [tuple(each.shape) for each in written.inputs] == [(1, len(values))] * 2
        assert (written.model_name, written.model_version) == (model, "1")
        assert [each.name for each in written.outputs] == [each.name for each in outputs or ()]


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "7"},
        {"parameters": {"k": 1}},
        {"sequence": Sequence(1)},
        {"priority": 1},
        {"timeout_us": 1},
        {"outputs": (RequestedOutput("y", placement=PLACE),)},
        {"outputs": (RequestedOutput("y", parameters={"k": 1}),)},
        {"inputs": (Tensor("x", Datatype.FP32, (2,), PLACE),)},
        {"version": "v" * 5000},
    ],
)
def test_a_request_with_more_than_tensors_is_not_cached(fields: dict[str, Any]) -> None:
    request = InferRequest(**{"model": "m", "inputs": (tensor([1.0]),), **fields})
    assert request_pieces(request) is None


def test_a_large_message_stays_in_pieces() -> None:
    large = Tensor.from_numpy("x", np.arange(1 << 16, dtype=np.float32))
    call, _ = encode_call(InferRequest("m", (large, tensor([1.0], "z"))), None)
    assert any(part is large.data for part in call.parts)
    written = service_pb2.ModelInferRequest.FromString(bytes(call.whole))
    assert [bytes(raw) for raw in written.raw_input_contents] == [
        bytes(large.view),
        np.float32(1).tobytes(),
    ]


def test_a_repeated_answer_has_its_own_bytes() -> None:
    for values in (b"abcdefgh", b"ijklmnop", b"qrstuvwx", b"abcdefgh"):
        reply = answer([values, values[::-1]], model_version="3")
        response = read(reply)
        assert (response.model, response.version) == ("m", "3")
        assert [(each.name, bytes(each.view)) for each in response.outputs] == [
            ("y0", values),
            ("y1", values[::-1]),
        ]
        # views of the message
        assert all(each.view.obj is reply.message for each in response.outputs)


def test_a_known_answer_of_another_size_is_refused() -> None:
    for _ in range(3):
        read(answer([b"abcdefgh"]))
    with pytest.raises(InferenceError) as caught:
        read(answer([b"abcd"]))
    assert caught.value.code is ErrorCode.BAD_UPSTREAM and "'y0'" in caught.value.message


def test_a_known_answer_with_other_contents_is_refused() -> None:
    outputs = [{"name": "y0", "datatype": "FP32", "shape": [1, 2]}]
    read(answer([b"abcdefgh"], outputs=outputs))
    with pytest.raises(InferenceError, match="1 outputs, but 2 raw_output_contents"):
        read(answer([b"abcdefgh", b"abcdefgh"], outputs=outputs))


@pytest.mark.parametrize("fields", [{"id": "7"}, {"parameters": {"k": {"int64_param": 1}}}])
def test_a_unique_answer_is_not_cached(fields: dict[str, Any]) -> None:
    known = KnownAnswers()
    head = RESPONSE(model_name="m", **fields)
    known.remember(head.SerializeToString(), head)
    assert known.response(b"", head.SerializeToString(), []) is None


def test_the_oldest_answer_leaves() -> None:
    known = KnownAnswers()
    for number in range(300):
        head = RESPONSE(model_name="m", model_version=str(number))
        known.remember(head.SerializeToString(), head)
    assert known.response(b"", RESPONSE(model_name="m", model_version="0").SerializeToString(), []) is None
    last = known.response(b"", RESPONSE(model_name="m", model_version="299").SerializeToString(), [])
    assert last is not None and last.version == "299"


@pytest.mark.parametrize("datatype", ["FP32", "BOOL", "BYTES"])
def test_a_repeated_request_is_decoded_like_a_new_one(datatype: str) -> None:
    texts = [b"\4\0\0\0abcd", b"\4\0\0\0efgh"] if datatype == "BYTES" else [bytes(range(8)), bytes(8)]
    shape = [1, {"FP32": 2, "BOOL": 8, "BYTES": 1}[datatype]]
    inputs = [{"name": name, "datatype": datatype, "shape": shape} for name in "xy"]
    for turn in range(6):
        for model in ("the first of two models", "the other of two models"):
            raws = texts[:: 1 if turn % 2 else -1]
            sent = service_pb2.ModelInferRequest(model_name=model, inputs=inputs, raw_input_contents=raws)
            request = GrpcRequest(passthrough.METHOD, sent.SerializeToString())
            opened = passthrough.open_infer(request)
            assert opened.message[-1] is (turn > 2)
            found = opened.action.decode(opened, NO_SIGNATURE)
            plain = codec_grpc.open_infer(request)
            assert found == codec_grpc.decode_infer(plain, NO_SIGNATURE)
            assert [bytes(each.view) for each in found[0].inputs] == raws and opened.model == model


def test_strings_of_a_repeated_request_are_checked() -> None:
    inputs = [{"name": "x", "datatype": "BYTES", "shape": [1]}]
    for text in (b"\4\0\0\0abcd",) * 4 + (b"\5\0\0\0abcd",):
        sent = service_pb2.ModelInferRequest(
            model_name="a model of strings", inputs=inputs, raw_input_contents=[text]
        )
        opened = passthrough.open_infer(GrpcRequest(passthrough.METHOD, sent.SerializeToString()))
        if text[0] == 4:
            opened.action.decode(opened, NO_SIGNATURE)
    assert opened.message[-1]
    with pytest.raises(InferenceError, match="needs 1 length-prefixed elements"):
        opened.action.decode(opened, NO_SIGNATURE)


def test_long_messages_that_pass_through_are_not_cached() -> None:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [2000], "contents": {"fp32_contents": [1.0] * 2000}}]
    long = service_pb2.ModelInferRequest(model_name="m", inputs=inputs).SerializeToString()
    passthrough.open_infer(GrpcRequest(passthrough.METHOD, long))
    assert long not in passthrough._requests
    short = service_pb2.ModelInferRequest(model_name="m").SerializeToString()
    passthrough.open_infer(GrpcRequest(passthrough.METHOD, short))
    assert short in passthrough._requests
