"""What real GraphPipe clients sent and real servers answered, read by our codec.

Among them are graphpipe-go's answers: strings without the NUL that FlatBuffers demands, shapes off
their alignment, messages of odd length.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.graphpipe import codec
from interlingua.protocols.graphpipe.client import HTTP_CALLS
from interlingua.protocols.wire import HttpReply, HttpRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    ModelRef,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.graphpipe import TYPES
from tests.properties.passing import Bridge

FOLDER = Path(__file__).parent.parent / "golden" / "graphpipe"
RECORDINGS = json.loads((FOLDER / "manifest.json").read_text())
INFERENCES = [one for one in RECORDINGS if one["request"] == "InferRequest"]
ANSWERED = [one for one in INFERENCES if "outputs" in one and one["errors"] == "[]"]
DATATYPES = {code: datatype for datatype, code in TYPES.items()}


def label(recording: dict[str, Any]) -> str:
    return recording["files"].split(".{")[0]


def read(recording: dict[str, Any], side: str) -> bytes:
    body = (FOLDER / recording["files"].replace("{req,resp}", side)).read_bytes()
    expected = recording["request_body_len" if side == "req" else "response_body_len"]
    assert len(body) == expected
    return body


def names(listed: str) -> list[str]:
    return [name.decode() for name in ast.literal_eval(listed)]


def signature(recording: dict[str, Any]) -> Signature:
    """The model behind the recorded server, with the datatypes of this exchange."""
    tensors = recording["decoded"]["inputs"]
    datatype = DATATYPES[tensors[0][0]]
    outputs = ("sum", "diff") if "test server (paths" in recording["server"] else ("first", "second")
    return Signature(
        tuple(TensorSpec(name, datatype, ()) for name in ("a", "b")),
        tuple(TensorSpec(name, datatype, ()) for name in outputs),
    )


def agrees(tensor: Tensor, listed: list[Any]) -> None:
    code, shape, content = listed
    assert (tensor.datatype, list(tensor.shape)) == (DATATYPES[code], shape)
    if tensor.datatype is Datatype.BYTES:
        assert tensor.elements() == ast.literal_eval(content)
    else:
        assert f"{tensor.nbytes} bytes" == content


def test_nothing_recorded_is_missing() -> None:
    assert len(RECORDINGS) == 33
    assert len(INFERENCES) == 31
    assert len(ANSWERED) == 27


@pytest.mark.parametrize("recording", INFERENCES, ids=label)
def test_a_recorded_request(recording: dict[str, Any]) -> None:
    listed = recording["decoded"]
    request, form = codec.decode_request(
        codec.open_request(read(recording, "req")), signature(recording), "m"
    )
    given = names(listed["input_names"]) or ["a", "b"][: len(listed["inputs"])]
    assert [tensor.name for tensor in request.inputs] == given
    for tensor, expected in zip(request.inputs, listed["inputs"], strict=True):
        agrees(tensor, expected)
    config = ast.literal_eval(listed["config"]).decode()
    assert request.parameters == ({"config": config} if config else {})
    assert form == (tuple(names(listed["output_names"])) or None)
    assert request.outputs == (form and tuple(RequestedOutput(name) for name in form))


def exact(recording: dict[str, Any], request: InferRequest) -> Signature:
    """A model with exactly the tensors of this exchange."""
    asked = names(recording["decoded"]["output_names"])
    listed = recording.get("outputs", [])
    return Signature(
        tuple(TensorSpec(tensor.name, tensor.datatype, tensor.shape) for tensor in request.inputs),
        tuple(
            TensorSpec(name, DATATYPES[code], tuple(shape))
            for name, (code, shape, _) in zip(asked or ["first", "second"], listed, strict=False)
        ),
    )


@pytest.mark.parametrize("recording", ANSWERED, ids=label)
async def test_a_bridge_passes_it_with_the_same_answer(recording: dict[str, Any]) -> None:
    message = HttpRequest("POST", "/graphpipe/model", body=read(recording, "req"))
    request, _ = codec.decode_request(codec.open_request(message.body), signature(recording))
    bridge = Bridge(("graphpipe", "http"), exact(recording, request))
    reply = HttpReply(200, {}, read(recording, "resp"))
    passed, decoded = [await bridge.ask(message, reply, passing=passing) for passing in (True, False)]
    bridge.agreed(request, passed, decoded)
    strings = any(tensor.datatype is Datatype.BYTES for tensor in request.inputs)
    assert passed.answer.status == 200 and not decoded.passed
    assert passed.passed is not (strings or bool(request.parameters))


@pytest.mark.parametrize("recording", ANSWERED, ids=label)
def test_a_recorded_answer(recording: dict[str, Any]) -> None:
    call = HTTP_CALLS[Operation.INFER]
    asked = names(recording["decoded"]["output_names"])
    declared = signature(recording)
    if not asked:
        # the recorded servers answer with their defaults, which are not all that their metadata lists
        declared = Signature(declared.inputs, declared.outputs[: len(recording["outputs"])])
    request = InferRequest("", (), tuple(map(RequestedOutput, asked)) or None)
    _, form = call.encode(request, declared)
    response = call.decode(form, HttpReply(200, recording["response_headers"], read(recording, "resp")))
    expected = asked or [spec.name for spec in declared.outputs]
    assert [tensor.name for tensor in response.outputs] == expected
    for tensor, listed in zip(response.outputs, recording["outputs"], strict=True):
        agrees(tensor, listed)


def test_the_recorded_servers_echo_their_input() -> None:
    """The first input comes back in the single-tensor exchanges, to the byte."""
    compared = 0
    for recording in ANSWERED:
        if len(recording["decoded"]["inputs"]) == 1:
            request, _ = codec.decode_request(
                codec.open_request(read(recording, "req")), signature(recording)
            )
            (output,) = codec.decode_response(read(recording, "resp"), ("out",), None)
            assert output == request.inputs[0].renamed("out")
            compared += 1
    assert compared > 10


@pytest.mark.parametrize("recording", ANSWERED, ids=label)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_body_that_arrived_in_chunks(recording: dict[str, Any], size: int) -> None:
    body = read(recording, "resp")
    joined = bytearray()
    for start in range(0, len(body), size):
        joined += body[start : start + size]
    asked = tuple(f"output{index}" for index in range(len(recording["outputs"])))
    assert codec.decode_response(joined, asked, None) == codec.decode_response(body, asked, None)


def test_a_recorded_error_in_band() -> None:
    (recording,) = [one for one in INFERENCES if one.get("errors", "[]") != "[]"]
    (_, message) = ast.literal_eval(recording["errors"])[0]
    with pytest.raises(InferenceError, match=f"^{message.decode()}$") as caught:
        codec.decode_response(read(recording, "resp"), None, None)
    # the server's own number means nothing here
    assert caught.value.code is ErrorCode.MODEL_FAILED


@pytest.mark.parametrize("recording", [one for one in RECORDINGS if "body_text" in one], ids=label)
def test_a_recorded_error_status(recording: dict[str, Any]) -> None:
    call = HTTP_CALLS[Operation.INFER]
    _, form = call.encode(InferRequest("", ()), None)
    status = int(recording["status_line"].split()[1])
    with pytest.raises(InferenceError) as caught:
        call.decode(form, HttpReply(status, recording["response_headers"], read(recording, "resp")))
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert caught.value.message == recording["body_text"].strip()


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("pyclient", ("fake", "0", ["a", "b"], ["sum", "diff"], [Datatype.FP32, Datatype.FP32])),
        ("raw", ("gptest", "v1", ["a", "b"], ["first", "second"], [Datatype.FP32, Datatype.BYTES])),
    ],
)
def test_recorded_metadata(recorded: str, expected: tuple[Any, ...]) -> None:
    (recording,) = [one for one in RECORDINGS if label(one) == f"{recorded}.py_metadata"]
    assert codec.open_request(read(recording, "req")).table is None
    call = HTTP_CALLS[Operation.MODEL_METADATA]
    _, form = call.encode(ModelRef(""), None)
    told = call.decode(form, HttpReply(200, {}, read(recording, "resp")))
    assert told.server is not None and not told.versions  # the version is the server's
    assert expected == (
        told.name,
        told.server.version,
        list(told.signature.input_names),
        list(told.signature.output_names),
        [spec.datatype for spec in told.signature.outputs],
    )
