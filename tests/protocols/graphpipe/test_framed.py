"""GraphPipe with the size before each message: the form itself, the calls, and errors in band."""

from __future__ import annotations

from typing import Any

import flatbuffers
import flatbuffers.util
import numpy as np
import pytest
from graphpipe import convert
from graphpipe.graphpipefb import InferResponse as Answered
from graphpipe.graphpipefb import MetadataResponse
from hypothesis import given

from interlingua.protocols.graphpipe import codec, metadata, reader, writer
from interlingua.protocols.graphpipe.client import TCP_CALLS
from interlingua.protocols.graphpipe.server import FRAMED_ENDPOINT
from interlingua.protocols.wire import FramedReply, FramedRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Readiness,
    Tensor,
    TensorSpec,
)
from tests.standins.framed import failure
from tests.strategies import signature_of, tensor_tuples

X = Tensor.from_numpy("x", np.arange(4, dtype=np.int32))
Y = Tensor.from_numpy("y", np.arange(5, dtype=np.float64).reshape(1, 5))
SIGNATURE = signature_of([X], [Y])
CARRIED = [datatype for datatype in Datatype if datatype is not Datatype.BF16]
PROBES = (Operation.LIVE, Operation.READY, Operation.MODEL_READY)


def message_of(parts: Any) -> bytes:
    """What stands behind the size, by flatbuffers' own functions."""
    frame = b"".join(map(bytes, parts))
    assert flatbuffers.util.GetSizePrefix(frame, 0) == len(frame) - 4
    body, offset = flatbuffers.util.RemoveSizePrefix(frame, 0)
    return bytes(body[offset:])


def place_of(part: memoryview, whole: bytes) -> int:
    addresses = [np.frombuffer(each, np.uint8).ctypes.data for each in (part, whole)]
    return int(addresses[0] - addresses[1])


@given(tensor_tuples(CARRIED, min_size=1))
def test_everything_is_aligned_from_the_size_on(tensors: tuple[Tensor, ...]) -> None:
    frame = b"".join(map(bytes, codec.encode_response(None, tensors, prefixed=True)))
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    view = memoryview(frame)[4:]
    outputs, _ = reader.slots(view, reader.root(view), 2)
    for at, tensor in zip(reader.offsets(view, reader.root(view), outputs), tensors, strict=True):
        _, shape_slot, _, _ = reader.slots(view, at, 4)
        assert (4 + at) % 4 == 0
        assert (4 + reader.follow(view, at + shape_slot) + 4) % 8 == 0
        read = reader.tensor(view, at, tensor.name)
        if tensor.nbytes and tensor.datatype is not Datatype.BYTES:
            assert place_of(read.view, frame) % 16 == 0


@given(tensor_tuples(CARRIED))
def test_nothing_but_the_padding_differs(tensors: tuple[Tensor, ...]) -> None:
    signature = signature_of([], tensors)
    answers = [
        codec.decode_response(body, None, signature)
        for body in (
            b"".join(map(bytes, codec.encode_response(None, tensors))),
            message_of(codec.encode_response(None, tensors, prefixed=True)),
        )
    ]
    assert answers[0] == answers[1] == tensors


def test_graphpipes_own_reader_understands_it() -> None:
    call, _ = TCP_CALLS[Operation.INFER].encode(InferRequest("", (X,), parameters={"config": "c"}), None)
    asked = convert.deserialize_request(message_of(call.parts))
    assert (asked.config, asked.input_names) == (b"c", [b"x"])
    assert np.array_equal(asked.input_tensors[0], X.numpy())
    call, _ = TCP_CALLS[Operation.MODEL_METADATA].encode(ModelRef(""), None)
    assert convert.deserialize_request(message_of(call.parts)) is None
    opened = FRAMED_ENDPOINT.open(FramedRequest(message_of(call.parts)))
    told = opened.action.encode(opened, ModelMetadata("m", SIGNATURE, ("2",)))
    assert told is not None
    assert (
        MetadataResponse.MetadataResponse.GetRootAsMetadataResponse(message_of(told.parts), 0).Name() == b"m"
    )
    failed = FRAMED_ENDPOINT.fail(FramedRequest(b""), None, InferenceError(ErrorCode.TOO_LARGE, "é"))
    error = Answered.InferResponse.GetRootAsInferResponse(message_of(failed.parts), 0).Errors(0)
    assert (error.Code(), error.Message()) == (9, "é".encode())


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_keeps_its_code_and_its_words(code: ErrorCode) -> None:
    told = FRAMED_ENDPOINT.fail(FramedRequest(b""), None, InferenceError(code, "not so"))
    reply = FramedReply(message_of(told.parts))
    for operation, argument in (
        (Operation.INFER, InferRequest("", (X,))),
        (Operation.MODEL_METADATA, ModelRef("")),
    ):
        _, form = TCP_CALLS[operation].encode(argument, SIGNATURE)
        with pytest.raises(InferenceError, match="^not so$") as caught:
            TCP_CALLS[operation].decode(form, reply)
        assert caught.value.code is code
    for probe in PROBES:
        assert TCP_CALLS[probe].decode(None, reply) == Readiness(False, "not so")


def test_an_error_as_others_write_it() -> None:
    _, form = TCP_CALLS[Operation.INFER].encode(InferRequest("", (X,)), SIGNATURE)
    for operation in (Operation.INFER, Operation.MODEL_METADATA):
        with pytest.raises(InferenceError, match="^the model said no$") as caught:
            TCP_CALLS[operation].decode(form, FramedReply(failure(77, "the model said no")))
        assert caught.value.code is ErrorCode.MODEL_FAILED


@given(*[tensor_tuples(CARRIED, max_size=2)] * 2)
def test_metadata_are_no_error(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    described = metadata.describe(
        ModelMetadata("name", signature_of(inputs, outputs), ("3",), "platform", "words")
    )
    body = message_of([metadata.encode_metadata(described, prefixed=True)])
    assert codec.error_of_metadata(body) is None
    assert metadata.decode_metadata(body) == described


@pytest.mark.parametrize("texts", [(b"n", b"1"), (b"", b""), (b"name", b"a version")])
def test_metadata_that_say_next_to_nothing_are_no_error(texts: tuple[bytes, bytes]) -> None:
    builder = flatbuffers.Builder(64)
    name, version = (builder.CreateString(text.decode()) for text in texts)
    MetadataResponse.MetadataResponseStart(builder)
    MetadataResponse.MetadataResponseAddName(builder, name)
    MetadataResponse.MetadataResponseAddVersion(builder, version)
    builder.Finish(MetadataResponse.MetadataResponseEnd(builder))
    assert TCP_CALLS[Operation.READY].decode(None, FramedReply(bytes(builder.Output()))).ready


def test_bytes_that_are_nothing() -> None:
    for body in (b"", b"\xff" * 20, b"<html>"):
        assert not TCP_CALLS[Operation.READY].decode(None, FramedReply(body)).ready
        _, form = TCP_CALLS[Operation.INFER].encode(InferRequest("", (X,)), SIGNATURE)
        with pytest.raises(InferenceError) as caught:
            TCP_CALLS[Operation.INFER].decode(form, FramedReply(body))
        assert caught.value.code is ErrorCode.BAD_UPSTREAM


@pytest.mark.parametrize(("name", "version"), [("digits", ""), ("", "3")])
def test_there_is_no_place_for_a_name(name: str, version: str) -> None:
    calls: list[tuple[Operation, Any]] = [
        (Operation.INFER, InferRequest(name, (X,), version=version)),
        (Operation.MODEL_METADATA, ModelRef(name, version)),
        (Operation.MODEL_READY, ModelRef(name, version)),
    ]
    for operation, argument in calls:
        with pytest.raises(InferenceError, match=f"'{name or version}' was requested") as caught:
            TCP_CALLS[operation].encode(argument, None)
        assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_what_may_be_sent_again() -> None:
    for operation in (Operation.MODEL_METADATA, *PROBES):
        assert TCP_CALLS[operation].encode(None if operation in PROBES else ModelRef(""), None)[0].repeatable
    assert not TCP_CALLS[Operation.INFER].encode(InferRequest("", (X,)), None)[0].repeatable


def test_without_names_all_outputs_are_requested() -> None:
    specs = (TensorSpec("y", Datatype.FP64, (1, 5)),)
    message = message_of(writer.infer_request(b"", (), (), (), (), prefixed=True))
    opened = FRAMED_ENDPOINT.open(FramedRequest(message))
    assert opened.action.decode is not None
    request, form = opened.action.decode(opened, signature_of([], [Y]))
    assert (request.inputs, request.outputs, form) == ((), None, tuple(spec.name for spec in specs))
    answer = opened.action.encode(form, InferResponse("", (Y,)))
    assert answer is not None
    assert codec.decode_response(message_of(answer.parts), form, None) == (Y,)
