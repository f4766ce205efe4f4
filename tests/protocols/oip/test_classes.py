"""An output as its classes, over HTTP and gRPC; the values and texts are Triton's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from interlingua.protocols.oip.codec_http import encode_response
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferResponse,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.datatypes import DATATYPES
from tests.protocols.oip.grpc_exchange import opened
from tests.protocols.oip.http_exchange import decoded, post

LABELS = ("cat", "dog", "bird")
ROWS = np.array([[0.1, 0.9, 0.3, 0.2], [5, 4, 3, 9]], np.float32)
RANKED = [b"0.900000:1:dog", b"0.300000:2:bird", b"9.000000:3", b"5.000000:0:cat"]


def signature(
    datatype: Datatype = Datatype.FP32, max_batch_size: int = 4, shape: tuple[int, ...] = (-1, 4)
) -> Signature:
    return Signature((), (TensorSpec("y", datatype, shape, labels=LABELS),), max_batch_size)


def asked_over_http(count: Any, of: Signature, *, binary: bool = False) -> tuple[Any, Any]:
    parameters = {"classification": count, "binary_data": binary}
    sent = {"inputs": [], "outputs": [{"name": "y", "parameters": parameters}]}
    return decoded(post(json.dumps(sent).encode()), of)


def over_http(count: Any, of: Signature, output: Tensor, *, binary: bool = False) -> tuple[Any, bytes]:
    """The output in JSON, and what follows the JSON."""
    _, form = asked_over_http(count, of, binary=binary)
    _, parts = encode_response(form, InferResponse("m", (output,), "1"))
    return json.loads(bytes(parts[0]))["outputs"][0], b"".join(parts[1:])


def asked_over_grpc(count: int) -> bytes:
    output = {"name": "y", "parameters": {"classification": {"int64_param": count}}}
    sent: bytes = service_pb2.ModelInferRequest(model_name="m", outputs=[output]).SerializeToString()
    return sent


def over_grpc(count: int, of: Signature, output: Tensor) -> Tensor:
    """The output as tritonclient's own classes read it."""
    found = opened("ModelInfer", asked_over_grpc(count))
    assert found.action.decode is not None
    _, form = found.action.decode(found, of)
    answer = found.action.encode(form, InferResponse("m", (output,), "1"))
    told = service_pb2.ModelInferResponse.FromString(bytes(answer.message))
    (written,), (contents,) = told.outputs, told.raw_output_contents
    return Tensor.checked(written.name, DATATYPES[written.datatype], written.shape, contents)


def test_json() -> None:
    told, rest = over_http(2, signature(), Tensor.from_numpy("y", ROWS))
    data = [element.decode() for element in RANKED]
    assert told == {"name": "y", "datatype": "BYTES", "shape": [2, 2], "data": data}
    assert rest == b""


def test_binary() -> None:
    told, rest = over_http(2, signature(), Tensor.from_numpy("y", ROWS), binary=True)
    assert told["parameters"] == {"binary_data_size": 69}
    assert Tensor.checked("y", Datatype.BYTES, told["shape"], rest).elements() == RANKED


def test_grpc() -> None:
    told = over_grpc(2, signature(), Tensor.from_numpy("y", ROWS))
    assert (told.datatype, told.shape, told.elements()) == (Datatype.BYTES, (2, 2), RANKED)


@pytest.mark.parametrize(
    ("values", "count", "max_batch_size", "shape", "expected"),
    [
        # more classes than there are
        (ROWS[:1], 9, 4, (1, 4), [RANKED[0], RANKED[1], b"0.200000:3", b"0.100000:0:cat"]),
        # without batches the whole tensor is one entry, and places count through it
        (ROWS, 2, 0, (2,), [b"9.000000:7", b"5.000000:4"]),
        (np.zeros((2, 0), np.float32), 3, 4, (2, 0), []),
        (np.zeros((0, 4), np.float32), 3, 4, (0, 0), []),
        (np.array([2**63 - 1, -1], np.int64), 2, 0, (2,), [b"9223372036854775807:0:cat", b"-1:1:dog"]),
        (np.array([7, 7], np.uint8), 1, 0, (1,), [b"7:0:cat"]),
        (np.array([np.nan, -np.inf, 1e300]), 3, 0, (3,), [b"%f:2:bird" % 1e300, b"nan:0:cat", b"-inf:1:dog"]),
    ],
)  # fmt: skip
def test_shapes_and_values(
    values: Any, count: int, max_batch_size: int, shape: tuple[int, ...], expected: list[bytes]
) -> None:
    output = Tensor.from_numpy("y", values)
    told = over_grpc(count, signature(output.datatype, max_batch_size, values.shape), output)
    assert (told.shape, told.elements()) == (shape, expected)


INTEGERS = [datatype for datatype in Datatype if datatype.value.startswith(("INT", "UINT"))]


@pytest.mark.parametrize("datatype", INTEGERS, ids=repr)
def test_classes_of_integers_are_written_as_integers(datatype: Datatype) -> None:
    limits = np.iinfo(datatype.dtype)
    output = Tensor.from_numpy("y", np.array([limits.min, 16, limits.max], datatype.dtype))
    expected = [f"{limits.max}:2:bird", "16:1:dog", f"{limits.min}:0:cat"]
    of = signature(datatype, 0, (3,))
    assert over_grpc(3, of, output).elements() == [element.encode() for element in expected]
    assert over_http(3, of, output)[0]["data"] == expected


def test_other_outputs_stay_as_they_are() -> None:
    outputs = (Tensor.from_numpy("y", ROWS), Tensor.from_numpy("z", ROWS))
    sent = {"inputs": [], "outputs": [{"name": "z"}, {"name": "y", "parameters": {"classification": 1}}]}
    asked, form = decoded(post(json.dumps(sent).encode()), signature())
    # what runs the model is told of the classes, and answers with the tensor
    assert [(output.name, output.classification) for output in asked.outputs] == [("z", 0), ("y", 1)]
    _, parts = encode_response(form, InferResponse("m", outputs))
    told = json.loads(bytes(parts[0]))["outputs"]
    assert [(output["name"], output["datatype"]) for output in told] == [("y", "BYTES"), ("z", "FP32")]


@pytest.mark.parametrize("datatype", [Datatype.BOOL, Datatype.BYTES, Datatype.FP16, Datatype.BF16], ids=repr)
def test_datatypes_without_classes(datatype: Datatype) -> None:
    """Refused before the model runs; Triton 2.51 itself does not survive BYTES."""
    found = opened("ModelInfer", asked_over_grpc(1))
    assert found.action.decode is not None
    for ask in (
        lambda: asked_over_http(1, signature(datatype)),
        lambda: found.action.decode(found, signature(datatype)),
    ):
        with pytest.raises(
            InferenceError, match=f"output due to unsupported type '{datatype.value}' of 'y'"
        ) as caught:
            ask()
        assert caught.value.code is ErrorCode.INVALID_TENSOR


def test_an_answer_of_another_datatype_than_the_signature_tells() -> None:
    with pytest.raises(InferenceError, match="unsupported type 'BOOL'"):
        over_http(1, signature(), Tensor.from_numpy("y", np.array([[True]])))


def test_a_count_of_zero_is_the_tensor_over_http() -> None:
    told, _ = over_http(0, signature(), Tensor.from_numpy("y", ROWS))
    assert told["datatype"] == "FP32"
