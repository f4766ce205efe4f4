"""What a client may send for an inference over HTTP, and what it is answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from interlingua.protocols.trtis.codec import RESPONSE_HEADER
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferResponse,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
    pack_bytes,
)
from tests.protocols.trtis.http_exchange import (
    CONTEXT,
    answered,
    asking,
    body,
    decoded,
    infer,
    opened,
    refused,
    response_header,
    status,
)

PAIR = tuple(TensorSpec(f"INPUT{index}", Datatype.INT32, (-1, 16)) for index in range(2))
SUMS = tuple(TensorSpec(f"OUTPUT{index}", Datatype.INT32, (-1, 16)) for index in range(2))
SIMPLE = Signature(PAIR, SUMS, 8)
ALONE = Signature(
    (TensorSpec("x", Datatype.FP32, (2, 3)),),
    (TensorSpec("y", Datatype.FP32, (2, 3), labels=("a", "b")), TensorSpec("s", Datatype.BYTES, (-1,))),
)
OPEN = Signature((TensorSpec("x", Datatype.UINT8, (-1, -1, 3)),), (), 4)
STRINGS = Signature((TensorSpec("s", Datatype.BYTES, (-1, 2)),), (), 2)
HALVES = Signature((TensorSpec("x", Datatype.BF16, (2,)),), (TensorSpec("y", Datatype.BF16, (2,)),))
CHOICE = Signature((PAIR[0], TensorSpec("INPUT1", Datatype.INT32, (-1, 16), optional=True)), (), 8)

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = Tensor.from_numpy("y", FLOATS)
S = Tensor.from_numpy("s", np.array(["é", ""], object))


def pair(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "INPUT0", **more}, {"name": "INPUT1"}]


def x(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "x", **more}]


def refusal(signature: Signature, sent: bytes = b"", **fields: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        decoded(infer(body=sent, **fields), signature)
    return caught.value


# --- requests


def test_a_request() -> None:
    sent = bytes(range(128))
    request, form = decoded(
        infer(
            "/api/infer/m/3?format=binary",
            sent,
            batch_size=1,
            input=[{"name": "INPUT1", "dims": [16]}, {"name": "INPUT0", "dims": [16]}],
            output=[{"name": "OUTPUT1"}, {"name": "OUTPUT0", "cls": {"count": 2}}],
            id=2**64 - 1,
            correlation_id=9,
            flags=3,
            priority=4,
            timeout_microseconds=5,
        ),
        SIMPLE,
    )
    assert request.inputs == (
        Tensor("INPUT1", Datatype.INT32, (1, 16), memoryview(sent[:64])),
        Tensor("INPUT0", Datatype.INT32, (1, 16), memoryview(sent[64:])),
    )
    assert all(tensor.view.obj is sent and tensor.view.readonly for tensor in request.inputs)
    assert request.outputs == (RequestedOutput("OUTPUT1"), RequestedOutput("OUTPUT0", classification=2))
    assert (request.model, request.version, request.id) == ("m", "3", str(2**64 - 1))
    assert request.sequence == Sequence(9, start=True, end=True)
    assert (request.priority, request.timeout_us, request.context) == (4, 5, CONTEXT)
    assert form.binary


@pytest.mark.parametrize(
    ("path", "model", "version"),
    [
        ("/api/infer/m", "m", ""),
        ("/api/infer/m/0", "m", "0"),
        ("/api/infer/m/007", "m", "7"),
        ("/api/infer/m/9223372036854775807", "m", "9223372036854775807"),
        ("/api/infer/a%20b", "a%20b", ""),
    ],
)
def test_model_and_version_stand_in_the_path(path: str, model: str, version: str) -> None:
    found = opened(infer(path))
    assert (found.model, found.version) == (model, version)


def test_no_requested_output_means_none() -> None:
    request, _ = decoded(infer(body=bytes(24), batch_size=1, input=x()), ALONE)
    assert request.outputs == ()


def test_flags_without_a_correlation_id_are_ignored() -> None:
    request, _ = decoded(infer(body=bytes(24), batch_size=1, input=x(), flags=3), ALONE)
    assert request.sequence is None


@pytest.mark.parametrize(
    ("signature", "batch_size", "entry", "shape"),
    [
        (ALONE, 1, {"dims": [2, 3]}, (2, 3)),
        (ALONE, 1, {}, (2, 3)),
        (ALONE, 1, {"batch_byte_size": 24}, (2, 3)),
        (OPEN, 3, {"dims": [2, 3]}, (3, 2, 3)),
        (OPEN, 4, {"dims": [0, 3]}, (4, 0, 3)),
        # models of the original server have no scalars: they are sent as one element
        (Signature((TensorSpec("x", Datatype.FP32, (-1,)),), (), 4), 4, {"dims": [1]}, (4,)),
        (Signature((TensorSpec("x", Datatype.FP32, (-1,)),), (), 4), 4, {}, (4,)),
        (Signature((TensorSpec("x", Datatype.FP32, ()),), ()), 1, {"dims": [1]}, ()),
        (Signature((TensorSpec("x", Datatype.FP32, (1,)),), ()), 1, {"dims": [1]}, (1,)),
        # an upstream that tells no shapes
        (Signature((TensorSpec("x", Datatype.FP32, ()),), ()), 1, {"dims": [5, 2]}, (5, 2)),
    ],
)
def test_the_batch_is_not_among_the_dims(
    signature: Signature, batch_size: int, entry: dict[str, Any], shape: tuple[int, ...]
) -> None:
    count = int(np.prod(shape)) * signature.inputs[0].datatype.itemsize
    request, _ = decoded(infer(body=bytes(count), batch_size=batch_size, input=x(**entry)), signature)
    assert request.inputs[0].shape == shape
    assert len(request.inputs[0].view) == count


def test_strings_take_the_bytes_that_the_header_tells() -> None:
    packed = pack_bytes([b"", b"\xff\x00", b"abc", b"d"])
    entry = {"name": "s", "dims": [2], "batch_byte_size": len(packed)}
    request, _ = decoded(infer(body=packed, batch_size=2, input=[entry]), STRINGS)
    assert request.inputs[0].shape == (2, 2)
    assert request.inputs[0].elements() == [b"", b"\xff\x00", b"abc", b"d"]


def test_shared_memory_takes_no_bytes_of_the_body() -> None:
    place = {"name": "r", "offset": 8, "byte_size": 64}
    request, _ = decoded(
        infer(
            body=bytes(64),
            batch_size=1,
            input=pair(shared_memory=place),
            output=[{"name": "OUTPUT0", "shared_memory": {"name": "o", "byte_size": 100}}],
        ),
        SIMPLE,
    )
    assert request.inputs[0].data == SharedMemoryRef("r", 8, 64)
    assert len(request.inputs[1].view) == 64
    assert request.outputs == (RequestedOutput("OUTPUT0", placement=SharedMemoryRef("o", 0, 100)),)


def test_optional_inputs() -> None:
    request, _ = decoded(infer(body=bytes(64), batch_size=1, input=pair()[:1]), CHOICE)
    assert len(request.inputs) == 1
    error = refusal(CHOICE, bytes(64), batch_size=1)
    assert error.message == "expected 1 inputs but got 0 inputs for model 'm'"


@pytest.mark.parametrize(
    ("signature", "sent", "fields", "message"),
    [
        (SIMPLE, 128, {"batch_size": 0, "input": pair()}, "inference request batch-size must be >= 1 for 'm'"),
        (SIMPLE, 128, {"batch_size": 9, "input": pair()}, "inference request batch-size must be <= 8 for 'm'"),
        (ALONE, 24, {"batch_size": 0, "input": x()}, "inference request batch-size must be >= 1 for 'm'"),
        (ALONE, 48, {"batch_size": 2, "input": x()}, "inference request batch-size must be <= 0 for 'm'"),
        (SIMPLE, 64, {"input": pair()[:1]}, "expected 2 inputs but got 1 inputs for model 'm'"),
        (SIMPLE, 0, {"input": pair() + x()}, "expected 2 inputs but got 3 inputs for model 'm'"),
        (SIMPLE, 0, {"input": pair()[:1] + x()}, "unexpected inference input 'x' for model 'm'"),
        (SIMPLE, 0, {"input": pair()[:1] * 2}, "input 'INPUT0' already exists in request"),
        (SIMPLE, 0, {"input": pair() + pair()[:1]}, "input 'INPUT0' already exists in request"),
        (ALONE, 24, {"input": x(), "output": [{"name": "z"}]}, "unexpected inference output 'z' for model 'm'"),
        (ALONE, 24, {"input": x(), "output": [{"name": "y"}] * 2}, "output 'y' already requested"),
        (SIMPLE, 124, {"input": pair(dims=[15])}, "unexpected shape for input 'INPUT0' for model 'm'. Expected [16], got [15]"),
        (SIMPLE, 128, {"input": pair(dims=[1, 16])}, "unexpected shape for input 'INPUT0' for model 'm'. Expected [16], got [1,16]"),
        (OPEN, 3, {"input": x(dims=[-1, 3])}, "unexpected shape for input 'x' for model 'm'. Expected [-1,3], got [-1,3]"),
        (OPEN, 3, {"input": x()}, "model supports variable-size for input 'x', request must specify input shape for model 'm'"),
        (
            ALONE, 24, {"input": x(batch_byte_size=23)},
            "specific batch-byte-size for input 'x' does not match expected byte-size "
            "calculated from shape and datatype for model 'm': 23 is not 24",
        ),
        (ALONE, 20, {"input": x()}, "unexpected size for input 'x', expecting 4 bytes for model 'm'"),
        (SIMPLE, 0, {"input": pair()}, "unexpected size for input 'INPUT0', expecting 64 bytes for model 'm'"),
        (ALONE, 25, {"input": x()}, "unexpected additional input data for model 'm'"),
        (
            ALONE, 0, {"input": x(shared_memory={"name": "r", "byte_size": 25})},
            "unexpected shared-memory size 25 for input 'x', expecting 24 for model 'm'",
        ),
        (
            ALONE, 24, {"input": x(), "output": [{"name": "s", "cls": {"count": 1}}]},
            "class result not available for output due to unsupported type 'BYTES' of 's'",
        ),
        (
            ALONE, 24,
            {"input": x(), "output": [{"name": "y", "cls": {"count": 1}, "shared_memory": {"name": "r"}}]},
            "output 'y' requests classification together with shared memory",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(signature: Signature, sent: int, fields: dict[str, Any], message: str) -> None:
    error = refusal(signature, bytes(sent), **{"batch_size": 1, **fields})
    assert (error.code, error.message) == (ErrorCode.INVALID_TENSOR, message)


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (pack_bytes([b"a"]), "unexpected number of string elements 1 for inference input 's', expecting 2"),
        (
            pack_bytes([b"a"] * 9),
            "unexpected number of string elements 3 for inference input 's', expecting 2",
        ),
        (b"", "unexpected number of string elements 0 for inference input 's', expecting 2"),
        (
            pack_bytes([b"abc", b"d"])[:-1],
            "incomplete string data for inference input 's': its 11 bytes end inside an element",
        ),
        (
            pack_bytes([b"abc"]) + b"\x00",
            "incomplete string data for inference input 's': its 8 bytes end inside an element",
        ),
    ],
)
def test_strings_that_are_refused(packed: bytes, message: str) -> None:
    entry = {"name": "s", "dims": [2], "batch_byte_size": len(packed)}
    assert refusal(STRINGS, packed, batch_size=1, input=[entry]).message == message


def test_strings_without_a_size_are_none() -> None:
    error = refusal(STRINGS, pack_bytes([b"a", b"b"]), batch_size=1, input=[{"name": "s", "dims": [2]}])
    assert error.message.startswith("unexpected number of string elements 0")


def test_uncountable_claims_are_refused() -> None:
    error = refusal(OPEN, b"", batch_size=4, input=x(dims=[2**62, 3]))
    assert error.code is ErrorCode.INVALID_TENSOR
    assert "'x'" in error.message


@pytest.mark.parametrize(
    ("fields", "kind", "name"), [({}, "input", "x"), ({"output": [{"name": "y"}]}, "output", "y")]
)
def test_bf16_has_no_form(fields: dict[str, Any], kind: str, name: str) -> None:
    error = refusal(HALVES, bytes(4), batch_size=1, input=x(), **fields)
    assert error.code is ErrorCode.UNREPRESENTABLE
    assert error.message == f"{kind} '{name}' has the datatype BF16, which dialect 'trtis' cannot carry"


# --- answers


def asking_for(*outputs: dict[str, Any], path: str = "/api/infer/m?format=binary", **fields: Any) -> Any:
    return infer(path, bytes(24), **{"batch_size": 1, "input": x(), "output": outputs, **fields})


def test_raw_outputs_and_the_header_behind_them() -> None:
    request = asking_for({"name": "s"}, {"name": "y"}, id=5)
    answer = answered(request, ALONE, InferResponse("m", (Y, S), "2"))
    assert answer.status == 200
    assert answer.headers == (
        (
            "NV-InferResponse",
            'model_name: "m" model_version: 2 batch_size: 1 output { name: "s" raw { dims: 2 batch_byte_size: 10 } } '
            'output { name: "y" raw { dims: 2 dims: 3 batch_byte_size: 24 } } id: 5',
        ),
        ("NV-Status", 'code: SUCCESS server_id: "inference:0" request_id: 7'),
        ("Content-Type", "application/octet-stream"),
    )
    strings, floats, trailer = answer.parts
    assert strings is S.data and floats is Y.data
    assert RESPONSE_HEADER.FromString(bytes(trailer)) == response_header(answer)


@pytest.mark.parametrize(
    "path",
    ["/api/infer/m", "/api/infer/m?format=text", "/api/infer/m?format=json", "/api/infer/m?a=b&format="],
)
def test_the_header_as_text_of_many_lines(path: str) -> None:
    answer = answered(asking_for({"name": "y"}, path=path), ALONE, InferResponse("m", (Y,), "2"))
    trailer = bytes(answer.parts[1]).decode()
    assert trailer.startswith('model_name: "m"\nmodel_version: 2\n') and trailer.endswith("}\n")
    assert text_format.Parse(trailer, RESPONSE_HEADER()) == response_header(answer)


def test_classes_stand_in_the_body_alone() -> None:
    request = asking_for({"name": "y", "cls": {"count": 2}}, {"name": "s"})
    answer = answered(request, ALONE, InferResponse("m", (Y, S), "1"))
    told = response_header(answer)
    assert [output.name for output in told.output] == ["y", "s"]
    assert not told.output[0].HasField("raw") and not told.output[0].batch_classes
    contents = body(answer)
    assert contents.startswith(bytes(S.view))
    trailer = RESPONSE_HEADER.FromString(contents[len(S.view) :])
    (classes,) = trailer.output[0].batch_classes
    assert [(each.idx, each.value, each.label) for each in classes.cls] == [(5, 5.0, ""), (4, 4.0, "")]


def test_classes_of_a_batch() -> None:
    signature = Signature((), (TensorSpec("y", Datatype.FP32, (-1, 3), labels=("a", "b", "c")),), 4)
    request = infer(batch_size=2, output=[{"name": "y", "cls": {"count": 1}}])
    answer = answered(request, signature, InferResponse("m", (Tensor.from_numpy("y", -FLOATS),), "1"))
    trailer = RESPONSE_HEADER.FromString(body(answer))
    assert [[each.label for each in entry.cls] for entry in trailer.output[0].batch_classes] == [["a"], ["a"]]


def test_classes_of_integers_are_rounded_to_floats_once() -> None:
    # by way of a double the first one would be 2**62
    values = np.array([2**62 + 2**38 + 1, -(2**63), 16], np.int64)
    signature = Signature((), (TensorSpec("y", Datatype.INT64, (3,)),))
    request = infer(batch_size=1, output=[{"name": "y", "cls": {"count": 3}}])
    answer = answered(request, signature, InferResponse("m", (Tensor.from_numpy("y", values),), "1"))
    (classes,) = RESPONSE_HEADER.FromString(body(answer)).output[0].batch_classes
    assert [(each.idx, each.value) for each in classes.cls] == [
        (0, 2.0**62 + 2**39),
        (2, 16.0),
        (1, -(2.0**63)),
    ]


def test_no_requested_output_is_answered_with_the_header_alone() -> None:
    answer = answered(asking_for(), ALONE, InferResponse("m", (), "1"))
    assert RESPONSE_HEADER.FromString(body(answer)) == RESPONSE_HEADER(
        model_name="m", model_version=1, batch_size=1
    )


def test_an_answer_without_a_version_has_that_of_status() -> None:
    answer = answered(asking_for(), ALONE, InferResponse("m", (), ""))
    assert response_header(answer).model_version == 1


@pytest.mark.parametrize("version", ["v0.1", "9" * 20, "-1", "²"])
def test_a_version_without_a_number_is_omitted(version: str) -> None:
    answer = answered(asking_for(), ALONE, InferResponse("m", (), version))
    assert response_header(answer).model_version == 0


def test_an_output_in_shared_memory_is_described() -> None:
    place = SharedMemoryRef("r", 0, 24)
    strings = Tensor("s", Datatype.BYTES, (2,), SharedMemoryRef("r", 24, 10))
    request = asking_for(
        {"name": "y", "shared_memory": {"name": "r", "byte_size": 24}},
        {"name": "s", "shared_memory": {"name": "r", "offset": 24, "byte_size": 99}},
    )
    answer = answered(
        request, ALONE, InferResponse("m", (Tensor("y", Datatype.FP32, (2, 3), place), strings), "1")
    )
    sizes = [(list(output.raw.dims), output.raw.batch_byte_size) for output in response_header(answer).output]
    assert sizes == [([2, 3], 24), ([2], 10)]
    assert RESPONSE_HEADER.FromString(body(answer)) == response_header(answer)


def test_scalars_and_empty_tensors() -> None:
    signature = Signature(
        ALONE.inputs, (TensorSpec("y", Datatype.FP32, ()), TensorSpec("e", Datatype.FP32, (0, 3)))
    )
    outputs = (Tensor.from_numpy("y", np.float32(2)), Tensor.from_numpy("e", np.zeros((0, 3), np.float32)))  # type: ignore[arg-type]
    answer = answered(asking_for({"name": "y"}, {"name": "e"}), signature, InferResponse("m", outputs, "1"))
    told = [(list(output.raw.dims), output.raw.batch_byte_size) for output in response_header(answer).output]
    assert told == [([1], 4), ([0, 3], 0)]


@pytest.mark.parametrize(
    ("outputs", "code", "words"),
    [
        ((), ErrorCode.MODEL_FAILED, "without output 'OUTPUT0'"),
        ((Tensor.from_numpy("OUTPUT0", np.zeros((2, 16), np.int32)),), ErrorCode.MODEL_FAILED, "not the batch of 1"),
        ((Tensor.from_numpy("OUTPUT0", np.int32(3)),), ErrorCode.MODEL_FAILED, "'OUTPUT0' of model 'm' has shape []"),  # type: ignore[arg-type]
        ((Tensor("OUTPUT0", Datatype.BF16, (1, 1), memoryview(b"ab")),), ErrorCode.UNREPRESENTABLE, "'OUTPUT0'.*BF16"),
    ],
)  # fmt: skip
def test_answers_that_cannot_be_expressed(outputs: tuple[Tensor, ...], code: ErrorCode, words: str) -> None:
    request = infer(body=bytes(128), batch_size=1, input=pair(), output=[{"name": "OUTPUT0"}])
    with pytest.raises(InferenceError, match=words.replace("[]", r"\[\]")) as caught:
        answered(request, SIMPLE, InferResponse("m", outputs, "1"))
    assert caught.value.code is code


# --- errors


def test_an_error_repeats_the_id_and_nothing_else() -> None:
    error = InferenceError(ErrorCode.INVALID_TENSOR, "not 'this'")
    answer = refused(infer(id=9), error)
    assert answer.status == 400
    assert answer.headers == (
        ("NV-InferResponse", "id: 9"),
        ("NV-Status", r'''code: INVALID_ARG msg: "not \'this\'" server_id: "inference:0" request_id: 7'''),
        ("Content-Type", "application/octet-stream"),
    )  # fmt: skip
    assert body(answer) == b""
    assert dict(refused(infer(), error).headers)["NV-InferResponse"] == ""
    # before the header was read there is no id to repeat
    too_large = refused(infer(id=9), InferenceError(ErrorCode.TOO_LARGE, "large"), opens=False)
    assert dict(too_large.headers)["NV-InferResponse"] == ""
    assert status(too_large).msg == "large"


@pytest.mark.parametrize(
    "value", ["x", "batch_size: 1 }", "dims: 1", "batch_size: 1 batch_size: 2", "\udcff", "id: -1"]
)
def test_a_header_that_makes_no_sense_gets_a_bare_400(value: str) -> None:
    request = asking("POST", "/api/infer/m", {"nv-inferrequest": value})
    with pytest.raises(InferenceError) as caught:
        opened(request)
    answer = refused(request, caught.value, opens=False)
    assert (answer.status, answer.headers, body(answer)) == (400, (), b"")


def test_a_request_without_the_header_is_refused() -> None:
    request = asking("POST", "/api/infer/m")
    with pytest.raises(InferenceError) as caught:
        opened(request)
    answer = refused(request, caught.value, opens=False)
    assert (answer.status, answer.headers) == (400, ())
    assert b"NV-InferRequest" in body(answer)
