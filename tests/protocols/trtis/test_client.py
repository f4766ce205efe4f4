"""Calls to an upstream over both transports, and its answers: as they should be, and as they are."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from interlingua.protocols.trtis import DIALECT
from interlingua.protocols.wire import GrpcAnswer, HttpReply
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    ModelStatus,
    Operation,
    Readiness,
    RequestedOutput,
    ServerMetadata,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas import Sequence as SequencePosition
from tests.protocols.trtis.grpc_exchange import BATCHED
from tests.standins.trtis_contract import SERVICE, from_line, message, one_line, parse

GOLDEN = Path(__file__).parents[2] / "golden" / "trtis" / "http_exchanges.json"
RECORDED = orjson.loads(GOLDEN.read_bytes())
SIMPLE = Signature(
    tuple(TensorSpec(f"INPUT{i}", Datatype.INT32, (-1, 16)) for i in range(2)),
    tuple(TensorSpec(f"OUTPUT{i}", Datatype.INT32, (-1, 16)) for i in range(2)),
    8,
)
SUCCESS = message("RequestStatus", code="SUCCESS", server_id="s", request_id=1)
HTTP, GRPC = DIALECT.bindings["http"].calls, DIALECT.bindings["grpc"].calls
transports = pytest.mark.parametrize("transport", ["http", "grpc"])

NUMBERS = np.arange(4, dtype=np.int32).tobytes()
STRINGS = b"\x01\0\0\0a\0\0\0\0"
A = Tensor.checked("a", Datatype.INT32, (2, 2), NUMBERS)
S = Tensor.checked("s", Datatype.BYTES, (2, 1), STRINGS)
PLACE = SharedMemoryRef("region", 4, 16)


def call(transport: str, operation: Operation) -> Any:
    return (HTTP if transport == "http" else GRPC)[operation]


def requested(
    transport: str, request: InferRequest, signature: Signature | None = BATCHED
) -> tuple[Any, Any]:
    """The header that a request is sent with, in the stand-in's class, and what its answer is read with."""
    sent, form = call(transport, Operation.INFER).encode(request, signature)
    if transport == "http":
        return from_line("InferRequestHeader", sent.headers["NV-InferRequest"]), form
    return parse("InferRequest", bytes(sent.message)).meta_data, form


def answer(
    transport: str,
    head: Any,
    raws: Sequence[bytes],
    *,
    status: Any = SUCCESS,
    trailer: bytes | None = None,
    code: int = 200,
) -> Any:
    """An upstream's answer to an inference."""
    if transport == "grpc":
        fields = {"request_status": status, "meta_data": head, "raw_output": raws}
        return GrpcAnswer(message("InferResponse", **fields).SerializeToString())
    headers = {"nv-status": one_line(status), "nv-inferresponse": one_line(head)}
    tail = head.SerializeToString() if trailer is None else trailer
    return HttpReply(code, headers, b"".join(raws) + tail)


def read(transport: str, reply: Any, request: InferRequest | None = None) -> InferResponse:
    """What the client makes of ``reply``."""
    _, form = requested(transport, request or InferRequest("m", (A, S)))
    found: InferResponse = call(transport, Operation.INFER).decode(form, reply)
    return found


def head(*outputs: Any, **fields: Any) -> Any:
    found = {"model_name": "m", "model_version": 3, "batch_size": 2, **fields}
    return message("InferResponseHeader", output=outputs, **found)


def raw(name: str, *dims: int, size: int = 0) -> dict[str, Any]:
    return {"name": name, "raw": {"dims": dims, "batch_byte_size": size}}


X = raw("x", 2, size=16)
T = raw("t", 1, size=len(STRINGS))


def refusal(function: Any, *arguments: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(InferenceError) as caught:
        function(*arguments)
    return caught.value.code, caught.value.message


# --- requests


def test_as_the_original_client_writes_it() -> None:
    recorded = base64.b64decode(RECORDED[1]["request_b64"])
    lines, _, body = recorded.partition(b"\r\n\r\n")
    zero, one = (
        Tensor.checked(f"INPUT{i}", Datatype.INT32, (1, 16), body[64 * i : 64 * i + 64]) for i in range(2)
    )
    outputs = (RequestedOutput("OUTPUT1"), RequestedOutput("OUTPUT0"))
    sent, _ = HTTP[Operation.INFER].encode(InferRequest("simple", (zero, one), outputs, "1"), SIMPLE)
    line, *headers = lines.decode().split("\r\n")
    assert f"{sent.method} {sent.path}?{sent.query} HTTP/1.1" == line
    recorded_headers = {name: value.strip() for name, value in (each.split(":", 1) for each in headers)}
    assert sent.headers.items() <= recorded_headers.items()
    assert "NV-InferRequest" in sent.headers
    assert b"".join(sent.parts) == body


@transports
def test_everything_that_has_a_place(transport: str) -> None:
    request = InferRequest(
        "m",
        (A, Tensor("s", Datatype.BYTES, (2, 1), PLACE)),
        (RequestedOutput("p", 3), RequestedOutput("x", placement=PLACE)),
        id="18446744073709551615",
        parameters={"own": 1},
        sequence=SequencePosition(2**64 - 1, end=True),
        priority=2**32 - 1,
        timeout_us=2**64 - 1,
    )
    place = {"name": "region", "offset": 4, "byte_size": 16}
    assert requested(transport, request)[0] == message(
        "InferRequestHeader",
        batch_size=2,
        input=[
            {"name": "a", "dims": [2]},
            {"name": "s", "dims": [1], "batch_byte_size": 16, "shared_memory": place},
        ],
        # classes are ranked here
        output=[{"name": "p"}, {"name": "x", "shared_memory": place}],
        id=2**64 - 1,
        correlation_id=2**64 - 1,
        flags=2,
        priority=2**32 - 1,
        timeout_microseconds=2**64 - 1,
    )


@transports
@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (None, ["x", "t", "p"]),
        ((), []),
        ((RequestedOutput("p"), RequestedOutput("x"), RequestedOutput("p")), ["p", "x"]),
    ],
)
def test_all_outputs_are_named(transport: str, outputs: Any, expected: list[str]) -> None:
    found, _ = requested(transport, InferRequest("m", (A, S), outputs))
    assert [output.name for output in found.output] == expected


@transports
@pytest.mark.parametrize(
    ("identity", "number"),
    [
        ("7", 7),
        ("", 0),
        ("0", 0),
        ("007", 0),
        ("-7", 0),
        ("seven", 0),
        ("²", 0),
        (str(2**64), 0),
        ("9" * 5000, 0),
    ],
)
def test_numbers_are_ids(transport: str, identity: str, number: int) -> None:
    assert requested(transport, InferRequest("m", (A, S), id=identity))[0].id == number


@pytest.mark.parametrize(
    ("version", "path", "number"),
    [("", "/api/infer/m", -1), ("0", "/api/infer/m/0", 0), ("12", "/api/infer/m/12", 12)],
)
def test_versions(version: str, path: str, number: int) -> None:
    request = InferRequest("m", (A, S), version=version)
    assert HTTP[Operation.INFER].encode(request, BATCHED)[0].path == path
    sent = GRPC[Operation.INFER].encode(request, BATCHED)[0]
    assert sent.method == f"{SERVICE}Infer"
    assert parse("InferRequest", sent.message).model_version == number


def tensor(datatype: Datatype, *shape: int) -> Tensor:
    return Tensor.from_numpy("a", np.zeros(shape, datatype.dtype), datatype)


REFUSED: dict[str, tuple[InferRequest, str]] = {
    "datatype": (InferRequest("m", (tensor(Datatype.BF16, 1, 2),)), "input 'a' has the datatype BF16"),
    "no batch": (InferRequest("m", (tensor(Datatype.INT32),)), "input 'a'"),
    "empty batch": (InferRequest("m", (tensor(Datatype.INT32, 0, 2),)), "empty batch of input 'a'"),
    "two batches": (InferRequest("m", (A, tensor(Datatype.INT32, 3, 2).renamed("b"))), "input 'b'"),
    "sequence": (InferRequest("m", (A, S), sequence=SequencePosition("seven")), "sequence id 'seven'"),
    "priority": (InferRequest("m", (A, S), priority=2**32), "cannot carry"),
    "version": (InferRequest("m", (A, S), version="v1.2"), "version 'v1.2' of model 'm'"),
    "large version": (InferRequest("m", (A, S), version=str(2**63)), "version '9223372036854775808'"),
    "name": (InferRequest("m", (A.renamed("\ud800"), S)), "cannot carry"),
    "model": (InferRequest("\ud800", (A, S)), "model name '\\ud800'"),
}


@transports
@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_form(transport: str, case: str) -> None:
    request, words = REFUSED[case]
    code, text = refusal(call(transport, Operation.INFER).encode, request, BATCHED)
    assert code is ErrorCode.UNREPRESENTABLE
    assert words in text and "trtis" in text


@transports
def test_a_datatype_that_the_server_would_take_for_its_own(transport: str) -> None:
    other = Tensor.checked("a", Datatype.FP32, (2, 2), NUMBERS)
    code, text = refusal(requested, transport, InferRequest("m", (other, S)))
    assert (code, "'a'" in text, "FP32" in text, "INT32" in text) == (ErrorCode.INVALID_TENSOR, *[True] * 3)


@pytest.mark.parametrize("model", ["a b", "a/b", "a?b", "a#b", "é", ""])
def test_names_that_no_path_can_hold(model: str) -> None:
    for operation, argument in (
        (Operation.INFER, InferRequest(model, (A, S))),
        (Operation.MODEL_METADATA, ModelRef(model)),
        (Operation.MODEL_LOAD, ModelRef(model)),
    ):
        assert refusal(HTTP[operation].encode, argument, BATCHED)[0] is ErrorCode.UNREPRESENTABLE


def test_an_unknown_signature() -> None:
    found, _ = requested("http", InferRequest("m", (A,)), None)
    assert (found.batch_size, list(found.input[0].dims), list(found.output)) == (1, [2, 2], [])


# --- answers


def test_a_recorded_answer() -> None:
    request = InferRequest("simple", (), (RequestedOutput("OUTPUT1"), RequestedOutput("OUTPUT0")))
    _, form = HTTP[Operation.INFER].encode(request, SIMPLE)
    lines, _, body = base64.b64decode(RECORDED[1]["response_b64"]).partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in lines.decode().split("\r\n")[1:])
    reply = HttpReply(200, {name.lower(): value for name, value in headers.items()}, body)
    found = HTTP[Operation.INFER].decode(form, reply)
    assert (found.model, found.version) == ("simple", "1")
    assert [(tensor.name, tensor.shape) for tensor in found.outputs] == [
        ("OUTPUT1", (1, 16)),
        ("OUTPUT0", (1, 16)),
    ]
    assert found.outputs[1].numpy().tolist() == [list(range(0, 32, 2))]


@transports
def test_an_answer(transport: str) -> None:
    reply = answer(transport, head(T, X, id=9), [STRINGS, NUMBERS])
    found = read(transport, reply)
    assert found == InferResponse("m", (S.renamed("t"), A.renamed("x")), "3", "9")
    held = reply.body if transport == "http" else reply.message
    assert all(tensor.view.obj is held for tensor in found.outputs)


@transports
def test_outputs_in_shared_memory(transport: str) -> None:
    request = InferRequest("m", (A, S), (RequestedOutput("x", placement=PLACE), RequestedOutput("t")))
    raws = [STRINGS] if transport == "http" else [b"", STRINGS]
    found = read(transport, answer(transport, head(X, T), raws), request)
    assert found.outputs == (Tensor("x", Datatype.INT32, (2, 2), PLACE), S.renamed("t"))


@transports
def test_no_outputs(transport: str) -> None:
    assert read(transport, answer(transport, head(), []), InferRequest("m", (A, S), ())).outputs == ()


@pytest.mark.parametrize("trailer", [b"", b"model_name: 'm'", b"\xff\xff", STRINGS])
def test_whatever_ends_the_body(trailer: bytes) -> None:
    assert read("http", answer("http", head(T, X), [STRINGS, NUMBERS], trailer=trailer)).outputs == (
        S.renamed("t"),
        A.renamed("x"),
    )


TOLERATED: dict[str, tuple[Any, list[bytes]]] = {
    "no size": (head(raw("x", 2)), [NUMBERS]),
    "no batch": (head(X, batch_size=0), [NUMBERS]),
    "wrong size of strings": (head(raw("t", 1, size=3), X), [STRINGS, NUMBERS]),
    "no size of strings": (head(X, raw("t", 1)), [NUMBERS, STRINGS]),
    "empty": (head(raw("t", 0), X), [b"", NUMBERS]),
}


@transports
@pytest.mark.parametrize("case", TOLERATED)
def test_what_is_tolerated(transport: str, case: str) -> None:
    found = read(transport, answer(transport, *TOLERATED[case]))
    by_name = {tensor.name: tensor for tensor in found.outputs}
    assert by_name["x"].view == NUMBERS
    assert case == "empty" or "t" not in by_name or by_name["t"].view == STRINGS


BAD: dict[str, tuple[Any, list[bytes]]] = {
    "output 'z'": (head(raw("z", 2, size=16)), [NUMBERS]),
    "output 'p' is classes": (
        head({"name": "p", "batch_classes": [{"cls": [{"idx": 1}]}, {"cls": [{"idx": 1}]}]}),
        [b""],
    ),
    "output 'x' is in the answer twice": (head(X, X), [NUMBERS, NUMBERS]),
    "a batch of 3": (head(X, batch_size=3), [NUMBERS]),
    "output 'x' of shape": (head(raw("x", 2, size=15)), [NUMBERS]),
    "output 't' has no dims": (head(X, raw("t")), [NUMBERS, STRINGS]),
    "'x' has a negative dimension": (head(raw("x", -2)), [NUMBERS]),
    "'x' of shape [2, 9223372036854775807]": (head(raw("x", 2**63 - 1)), [NUMBERS]),
    "output 't' has": (head(raw("t", 2**40)), [STRINGS]),
}


@transports
@pytest.mark.parametrize("words", BAD)
def test_answers_that_make_no_sense(transport: str, words: str) -> None:
    code, text = refusal(read, transport, answer(transport, *BAD[words]))
    assert (code, words in text) == (ErrorCode.BAD_UPSTREAM, True), text


def test_a_body_that_is_cut() -> None:
    for trailer, outputs in (
        (NUMBERS[:-1], (X,)),
        (STRINGS[:-5], (T,)),
        (b"\x01\0\0\0a\xff\xff\xff\xff", (T,)),
    ):
        code, text = refusal(read, "http", answer("http", head(*outputs), [], trailer=trailer))
        assert code is ErrorCode.BAD_UPSTREAM
        assert f"output '{outputs[0]['name']}'" in text


@pytest.mark.parametrize(
    ("outputs", "raws", "words"),
    [
        ((X, T), [NUMBERS], "2 outputs, but 1 raw_output"),
        ((X,), [NUMBERS, b""], "1 outputs, but 2 raw_output"),
        ((X,), [NUMBERS + b"\0"], "output 'x'"),
        ((X,), [NUMBERS[1:]], "output 'x'"),
        ((T,), [STRINGS + b"\0\0\0\0"], "output 't'"),
        ((T,), [STRINGS[:-1]], "output 't'"),
    ],
)
def test_raw_outputs_that_do_not_fit(outputs: Any, raws: list[bytes], words: str) -> None:
    code, text = refusal(read, "grpc", answer("grpc", head(*outputs), raws))
    assert (code, words in text) == (ErrorCode.BAD_UPSTREAM, True), text


# --- errors


@transports
@pytest.mark.parametrize("http_status", [200, 400])
@pytest.mark.parametrize(
    ("wire", "text", "code"),
    [
        ("UNKNOWN", "why", ErrorCode.MODEL_FAILED),
        ("INTERNAL", "why", ErrorCode.MODEL_FAILED),
        ("NOT_FOUND", "Unable to find shared memory region: 'r'", ErrorCode.NOT_FOUND),
        ("INVALID_ARG", "why", ErrorCode.INVALID_TENSOR),
        ("UNAVAILABLE", "Server not ready", ErrorCode.UNAVAILABLE),
        ("UNAVAILABLE", "Request for unknown model: 'm' is not found", ErrorCode.NOT_FOUND),
        ("UNAVAILABLE", "Request for unknown model: 'm' version 9 is not found", ErrorCode.NOT_FOUND),
        ("UNAVAILABLE", "Request for unknown model: 'm' has no available versions", ErrorCode.UNAVAILABLE),
        (
            "UNAVAILABLE",
            "Request for unknown model: 'm' version 1 is not at ready state",
            ErrorCode.UNAVAILABLE,
        ),
        ("UNAVAILABLE", "Inference request for unknown model 'm'", ErrorCode.NOT_FOUND),
        ("UNSUPPORTED", "why", ErrorCode.UNSUPPORTED),
        ("ALREADY_EXISTS", "why", ErrorCode.ALREADY_EXISTS),
        ("INVALID", "why", ErrorCode.BAD_UPSTREAM),
    ],
)
def test_errors(transport: str, http_status: int, wire: str, text: str, code: ErrorCode) -> None:
    status = message("RequestStatus", code=wire, msg=text, server_id="s")
    found = refusal(
        read,
        transport,
        answer(transport, message("InferResponseHeader"), [], status=status, code=http_status),
    )
    assert found == (code, text)


def test_an_error_without_words() -> None:
    status = message("RequestStatus", code="INTERNAL")
    found = refusal(read, "grpc", answer("grpc", head(), [], status=status))
    assert found == (ErrorCode.MODEL_FAILED, "the upstream failed with code 3 and no message")


def test_an_answer_without_a_status() -> None:
    assert refusal(read, "grpc", GrpcAnswer(b""))[0] is ErrorCode.BAD_UPSTREAM
    found = refusal(read, "http", HttpReply(200, {}, NUMBERS))
    assert found == (ErrorCode.BAD_UPSTREAM, "the upstream answered HTTP status 200 without NV-Status")


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        (400, b"", ErrorCode.BAD_UPSTREAM, "the upstream answered HTTP status 400 without NV-Status"),
        (400, b"missing header\n", ErrorCode.BAD_UPSTREAM, "missing header"),
        (405, b"", ErrorCode.UNSUPPORTED, "the upstream answered HTTP status 405 without NV-Status"),
        (401, b"who?", ErrorCode.UNAUTHENTICATED, "who?"),
        (503, b"gone", ErrorCode.UNAVAILABLE, "gone"),
        (418, b"\xff", ErrorCode.BAD_UPSTREAM, "\\xff"),
    ],
)
def test_what_is_between_us_and_the_server(status: int, body: bytes, code: ErrorCode, text: str) -> None:
    assert refusal(read, "http", HttpReply(status, {}, body)) == (code, text)


def test_success_under_another_http_status() -> None:
    found = refusal(read, "http", answer("http", head(X), [NUMBERS], code=201))
    assert found == (ErrorCode.BAD_UPSTREAM, "the upstream reports success under HTTP status 201")


@pytest.mark.parametrize(
    "headers",
    [
        {"nv-inferresponse": "no such text"},
        {"nv-status": "nor such"},
        {"nv-status": "\udcff"},
        {"nv-status": "code: \udcff"},
    ],
)
def test_headers_that_are_no_text(headers: dict[str, str]) -> None:
    reply = answer("http", head(X), [NUMBERS])
    reply.headers.update(headers)
    assert refusal(read, "http", reply)[0] is ErrorCode.BAD_UPSTREAM


def test_an_answer_without_its_header() -> None:
    reply = answer("http", head(X), [NUMBERS])
    del reply.headers["nv-inferresponse"]
    code, text = refusal(read, "http", reply)
    assert (code, "NV-InferResponse" in text) == (ErrorCode.BAD_UPSTREAM, True)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (13, ErrorCode.MODEL_FAILED),
        (14, ErrorCode.UNAVAILABLE),
        (12, ErrorCode.UNSUPPORTED),
        (15, ErrorCode.BAD_UPSTREAM),
    ],
)
def test_grpc_statuses(status: int, code: ErrorCode) -> None:
    assert refusal(read, "grpc", GrpcAnswer(code=status, details="why")) == (code, "why")
    assert refusal(read, "grpc", GrpcAnswer(code=status))[0] is code


# --- what a server tells


def config(**fields: Any) -> dict[str, Any]:
    return {
        "name": "m",
        "platform": "custom",
        "input": [
            {"name": "a", "data_type": "TYPE_STRING", "dims": [-1, 3]},
            {"name": "b", "data_type": "TYPE_BOOL", "dims": [1], "reshape": {}},
            {"name": "c", "data_type": "TYPE_FP16", "dims": [4], "reshape": {"shape": [2, 2]}},
        ],
        "output": [{"name": "x", "data_type": "TYPE_FP64", "dims": [1], "label_filename": "labels.txt"}],
        **fields,
    }


def server_status(**model: Any) -> Any:
    status = message("ServerStatus", id="inference:1", version="1.15.0", ready_state="SERVER_READY")
    status.model_status["m"].CopyFrom(message("ModelStatus", **model))
    return status


def versions(status: Any, **states: str) -> Any:
    for version, state in states.items():
        status.model_status["m"].version_status[int(version[1:])].ready_state = state
    return status


def reported(transport: str, operation: Operation, argument: Any, status: Any, code: Any = SUCCESS) -> Any:
    """What the client makes of a server's status."""
    sent, form = call(transport, operation).encode(argument, None)
    if transport == "grpc":
        assert sent.method == f"{SERVICE}Status"
        assert parse("StatusRequest", sent.message).model_name == ("m" if argument else "")
        reply = message("StatusResponse", request_status=code, server_status=status).SerializeToString()
        return GRPC[operation].decode(form, GrpcAnswer(reply))
    path = "/api/status/m" if argument else "/api/status"
    assert (sent.method, sent.path, sent.query) == ("GET", path, "format=binary")
    ok = code.code == 1
    headers = {"nv-status": one_line(code)}
    return HTTP[operation].decode(
        form, HttpReply(200 if ok else 400, headers, status.SerializeToString() if ok else b"")
    )


@transports
@pytest.mark.parametrize("limit", [0, 8])
def test_metadata(transport: str, limit: int) -> None:
    batch = (-1,) if limit else ()
    status = versions(
        server_status(config=config(max_batch_size=limit)),
        v10="MODEL_READY",
        v9="MODEL_READY",
        v2="MODEL_LOADING",
    )
    found = reported(transport, Operation.MODEL_METADATA, ModelRef("m"), status)
    assert found == ModelMetadata(
        "m",
        Signature(
            (
                TensorSpec("a", Datatype.BYTES, (*batch, -1, 3)),
                TensorSpec("b", Datatype.BOOL, batch),
                TensorSpec("c", Datatype.FP16, (*batch, 4)),
            ),
            (TensorSpec("x", Datatype.FP64, (*batch, 1)),),
            limit,
        ),
        ("9", "10"),
        "custom",
    )


@transports
def test_a_version_that_is_not_there(transport: str) -> None:
    status = versions(server_status(config=config()), v1="MODEL_READY")
    assert reported(transport, Operation.MODEL_METADATA, ModelRef("m", "1"), status).versions == ("1",)
    code, text = refusal(reported, transport, Operation.MODEL_METADATA, ModelRef("m", "3"), status)
    assert (code, text) == (ErrorCode.NOT_FOUND, "Request for unknown model: 'm' version 3 is not found")


UNUSABLE = {
    "input 'i' has the unknown data_type 0": {"input": [{"name": "i", "dims": [1]}]},
    "output 'o' has the unknown data_type 99": {"output": [{"name": "o", "data_type": 99, "dims": [1]}]},
    "input 'i' has the dims [-2]": {"input": [{"name": "i", "data_type": "TYPE_FP32", "dims": [-2]}]},
}


@transports
@pytest.mark.parametrize("words", UNUSABLE)
def test_configurations_that_make_no_sense(transport: str, words: str) -> None:
    status = server_status(config=config(**UNUSABLE[words]))
    code, text = refusal(reported, transport, Operation.MODEL_METADATA, ModelRef("m"), status)
    assert (code, words in text) == (ErrorCode.BAD_UPSTREAM, True), text


@transports
def test_shape_tensors(transport: str) -> None:
    shape = {"name": "i", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True}
    status = server_status(config=config(input=[shape], max_batch_size=1))
    code, text = refusal(reported, transport, Operation.MODEL_METADATA, ModelRef("m"), status)
    assert (code, "input 'i'" in text) == (ErrorCode.UNREPRESENTABLE, True)
    status = server_status(config=config(input=[shape]))
    found = reported(transport, Operation.MODEL_METADATA, ModelRef("m"), status)
    assert found.signature.inputs[0].shape == (2,)


@transports
def test_a_status_of_another_model(transport: str) -> None:
    code, text = refusal(
        reported, transport, Operation.MODEL_METADATA, ModelRef("m"), message("ServerStatus")
    )
    assert (code, "'m'" in text) == (ErrorCode.BAD_UPSTREAM, True)


@transports
@pytest.mark.parametrize(
    ("states", "version", "ready"),
    [
        ({"v1": "MODEL_READY"}, "", True),
        ({"v1": "MODEL_UNAVAILABLE", "v2": "MODEL_READY"}, "", True),
        ({"v1": "MODEL_UNAVAILABLE", "v2": "MODEL_READY"}, "2", True),
        ({"v1": "MODEL_UNAVAILABLE", "v2": "MODEL_READY"}, "1", False),
        ({"v1": "MODEL_READY"}, "3", False),
        ({"v1": "MODEL_LOADING"}, "", False),
        ({}, "", False),
    ],
)
def test_readiness_of_a_model(transport: str, states: dict[str, str], version: str, ready: bool) -> None:
    said = reported(
        transport, Operation.MODEL_READY, ModelRef("m", version), versions(server_status(), **states)
    )
    assert said.ready is ready
    assert ready or "'m'" in said.reason


@transports
def test_an_unknown_model(transport: str) -> None:
    words = "no status available for unknown model 'm'"
    status = message("RequestStatus", code="INVALID_ARG", msg=words)
    nothing = message("ServerStatus")
    assert reported(transport, Operation.MODEL_READY, ModelRef("m"), nothing, status) == Readiness(
        False, words
    )
    found = refusal(reported, transport, Operation.MODEL_METADATA, ModelRef("m"), nothing, status)
    assert found == (ErrorCode.NOT_FOUND, words)


@transports
def test_a_server_that_is_leaving(transport: str) -> None:
    status = message("RequestStatus", code="UNAVAILABLE", msg="Server exiting")
    for operation in (Operation.MODEL_READY, Operation.MODEL_METADATA):
        found = refusal(reported, transport, operation, ModelRef("m"), message("ServerStatus"), status)
        assert found == (ErrorCode.UNAVAILABLE, "Server exiting")


@transports
def test_the_server(transport: str) -> None:
    found = reported(transport, Operation.SERVER_METADATA, None, server_status())
    assert found == ServerMetadata("inference:1", "1.15.0")


@pytest.mark.parametrize(("mode", "operation"), [("live", Operation.LIVE), ("ready", Operation.READY)])
def test_health(mode: str, operation: Operation) -> None:
    sent, form = HTTP[operation].encode(None, None)
    assert (sent.method, sent.path) == ("GET", f"/api/health/{mode}")
    status = {"nv-status": one_line(SUCCESS)}
    assert HTTP[operation].decode(form, HttpReply(200, status, b"")) == Readiness(True)
    assert HTTP[operation].decode(form, HttpReply(200, {}, b"")) == Readiness(True)
    assert not HTTP[operation].decode(form, HttpReply(400, status, b"")).ready
    leaving = {"nv-status": 'code: UNAVAILABLE msg: "Server exiting"'}
    assert HTTP[operation].decode(form, HttpReply(400, leaving, b"")) == Readiness(False, "Server exiting")
    sent, form = GRPC[operation].encode(None, None)
    assert (sent.method, parse("HealthRequest", sent.message).mode) == (f"{SERVICE}Health", mode)
    for health in (True, False):
        reply = message("HealthResponse", request_status=SUCCESS, health=health).SerializeToString()
        assert GRPC[operation].decode(form, GrpcAnswer(reply)) == Readiness(health)


def test_the_repository() -> None:
    index = message("ModelRepositoryIndex", models=[{"name": "m"}, {"name": "n"}])
    sent, form = HTTP[Operation.REPOSITORY_INDEX].encode(None, None)
    assert (sent.method, sent.path, sent.query) == ("GET", "/api/repository/index", "format=binary")
    reply = HttpReply(200, {"nv-status": one_line(SUCCESS)}, index.SerializeToString())
    expected = (ModelStatus("m"), ModelStatus("n"))
    assert HTTP[Operation.REPOSITORY_INDEX].decode(form, reply) == expected
    sent, form = GRPC[Operation.REPOSITORY_INDEX].encode(None, None)
    assert parse("RepositoryRequest", sent.message).index is True
    answered = message("RepositoryResponse", request_status=SUCCESS, index=index).SerializeToString()
    assert GRPC[Operation.REPOSITORY_INDEX].decode(form, GrpcAnswer(answered)) == expected


@pytest.mark.parametrize(
    ("kind", "operation"), [("load", Operation.MODEL_LOAD), ("unload", Operation.MODEL_UNLOAD)]
)
def test_model_control(kind: str, operation: Operation) -> None:
    sent, form = HTTP[operation].encode(ModelRef("m"), None)
    assert (sent.method, sent.path, list(sent.parts)) == ("POST", f"/api/modelcontrol/{kind}/m", [])
    HTTP[operation].decode(form, HttpReply(200, {"nv-status": one_line(SUCCESS)}, b""))
    failed = message("RequestStatus", code="INTERNAL", msg="failed to load 'm', no version is available")
    reply = HttpReply(400, {"nv-status": one_line(failed)}, b"")
    assert refusal(HTTP[operation].decode, form, reply) == (ErrorCode.MODEL_FAILED, failed.msg)
    sent, form = GRPC[operation].encode(ModelRef("m"), None)
    told = parse("ModelControlRequest", sent.message)
    assert (told.model_name, told.type) == ("m", int(kind == "load"))
    answered = message("ModelControlResponse", request_status=failed).SerializeToString()
    assert refusal(GRPC[operation].decode, form, GrpcAnswer(answered)) == (ErrorCode.MODEL_FAILED, failed.msg)


@pytest.mark.parametrize("operation", [Operation.MODEL_METADATA, Operation.REPOSITORY_INDEX])
def test_bodies_that_are_no_message(operation: Operation) -> None:
    reply = HttpReply(200, {"nv-status": one_line(SUCCESS)}, b"\xff")
    assert refusal(HTTP[operation].decode, ModelRef("m"), reply)[0] is ErrorCode.BAD_UPSTREAM
    assert refusal(GRPC[operation].decode, ModelRef("m"), GrpcAnswer(b"\xff"))[0] is ErrorCode.BAD_UPSTREAM
