"""gRPC by the messages of OpenVINO Model Server's client, whose classes are not ours."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ovmsclient.tfs_compat.grpc.tensors import make_ndarray, make_tensor_proto
from ovmsclient.tfs_compat.protos.tensorflow.core.example.example_pb2 import Example
from ovmsclient.tfs_compat.protos.tensorflow.core.framework import types_pb2 as types
from ovmsclient.tfs_compat.protos.tensorflow.core.framework.tensor_pb2 import TensorProto
from ovmsclient.tfs_compat.protos.tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from interlingua.protocols.tfserving.passthrough_grpc import open_predict
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import Datatype, InferenceError, InferRequest, Signature, TensorSpec
from tests.protocols.tfserving.exchange import Server

MISSING_SPEC = (3, "Missing ModelSpec")


@pytest.fixture(scope="module")
def server() -> Server:
    return Server()


def proto(dtype: int, *sides: int, **values: Any) -> TensorProto:
    made = TensorProto(dtype=dtype, **values)
    made.tensor_shape.SetInParent()
    for side in sides:
        made.tensor_shape.dim.add(size=side)
    return made


def request(model: str, tensors: dict[str, TensorProto], **spec: Any) -> Any:
    made = predict_pb2.PredictRequest(model_spec={"name": model, **spec})
    for name, tensor in tensors.items():
        made.inputs[name].CopyFrom(tensor)
    return made


def answered(answer: GrpcAnswer, kind: Any = predict_pb2.PredictResponse) -> Any:
    assert (answer.code, answer.details) == (0, "")
    return kind.FromString(bytes(answer.whole))


async def predict(server: Server, model: str, tensors: dict[str, TensorProto], **spec: Any) -> Any:
    return answered(await server.call("PredictionService", "Predict", request(model, tensors, **spec)))


HALF = np.array([1.5, -2], np.float16)
BRAIN = np.array([1.5, -2], ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("model", "tensor", "expected"),
    [
        ("row", proto(types.DT_FLOAT, 2, float_val=[1.5, 2]), np.array([1.5, 2], np.float32)),
        ("row", proto(types.DT_FLOAT, 3, float_val=[1, 2]), np.array([1, 2, 2], np.float32)),
        ("row", proto(types.DT_FLOAT, 2), np.zeros(2, np.float32)),
        ("row", proto(types.DT_FLOAT, 0), np.zeros(0, np.float32)),
        (
            "row",
            proto(types.DT_FLOAT, 2, tensor_content=np.array([3, 4], "<f4").tobytes()),
            np.array([3, 4], np.float32),
        ),
        ("floats", make_tensor_proto(np.ones((2, 3), np.float32)), np.ones((2, 3), np.float32)),
        ("scalar", proto(types.DT_FLOAT, float_val=[7]), np.array(7, np.float32)),
        ("doubles", proto(types.DT_DOUBLE, 2, double_val=[1 / 3]), np.array([1 / 3] * 2)),
        ("ints", proto(types.DT_INT8, 2, int_val=[-128, 127]), np.array([-128, 127], np.int8)),
        ("cube", proto(types.DT_INT32, 1, 1, 2, int_val=[-1]), np.array([[[-1, -1]]], np.int32)),
        ("longs", proto(types.DT_INT64, 1, int64_val=[-(2**63)]), np.array([-(2**63)])),
        ("unsigned", proto(types.DT_UINT64, 1, uint64_val=[2**64 - 1]), np.array([2**64 - 1], np.uint64)),
        ("truth", proto(types.DT_BOOL, 3, bool_val=[True, False]), np.array([True, False, False])),
        ("halves", proto(types.DT_HALF, 2, half_val=HALF.view(np.uint16).tolist()), HALF),
        ("halves", make_tensor_proto(HALF), HALF),
    ],
)
async def test_numbers(server: Server, model: str, tensor: TensorProto, expected: Any) -> None:
    answer = await predict(server, model, {"x": tensor})
    (name,) = answer.outputs
    got = make_ndarray(answer.outputs[name])
    assert (got.dtype, got.shape, got.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    assert (answer.model_spec.name, answer.model_spec.version.value) == (model, 1)
    assert answer.model_spec.signature_name == "serving_default"
    # what many clients read
    assert not answer.outputs[name].tensor_content


async def test_brain_floats(server: Server) -> None:
    for values in ({"half_val": BRAIN.view(np.uint16).tolist()}, {"tensor_content": BRAIN.tobytes()}):
        answer = await predict(server, "brains", {"x": proto(types.DT_BFLOAT16, 2, **values)})
        assert list(answer.outputs["x"].half_val) == BRAIN.view(np.uint16).tolist()
        assert answer.outputs["x"].dtype == types.DT_BFLOAT16


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (proto(types.DT_STRING, 3, string_val=[b"a", b"\xff"]), [b"a", b"\xff", b"\xff"]),
        (proto(types.DT_STRING, 2), [b"", b""]),
        (proto(types.DT_STRING, 0), []),
        (proto(types.DT_STRING, 2, tensor_content=b"\x02\x00ab"), [b"ab", b""]),
        (
            proto(types.DT_STRING, 200, string_val=[b"%d" % n for n in range(200)]),
            [b"%d" % n for n in range(200)],
        ),
        (proto(types.DT_STRING, 1, string_val=[b"x" * 70_000]), [b"x" * 70_000]),
    ],
)
async def test_strings(server: Server, tensor: TensorProto, expected: list[bytes]) -> None:
    answer = await predict(server, "texts", {"x": tensor})
    assert list(answer.outputs["x"].string_val) == expected


async def test_values_that_are_not_packed(server: Server) -> None:
    # field 5 twice, each a fixed32
    loose = b"\x08\x01\x12\x04\x12\x02\x08\x02" + b"\x2d\0\0\x80\x3f" + b"\x2d\0\0\0\x40"
    entry = b"\x0a\x01x\x12" + bytes((len(loose),)) + loose
    message = request("row", {}).SerializeToString() + b"\x12" + bytes((len(entry),)) + entry
    answer = answered(await server.call("PredictionService", "Predict", message))
    assert list(answer.outputs["x"].float_val) == [1, 2]


@pytest.mark.parametrize("count", [16, 40_000])
async def test_equal_messages_with_other_numbers(server: Server, count: int) -> None:
    for seed in range(4):
        numbers = np.random.default_rng(seed).integers(-9, 9, (2, count)).astype(np.float32)
        answer = await predict(server, "floats", {"x": make_tensor_proto(numbers)})
        assert make_ndarray(answer.outputs["x"]).tobytes() == numbers.tobytes()
        whole = np.arange(count) * (seed + 1) - 9
        answer = await predict(server, "longs", {"x": proto(types.DT_INT64, count, int64_val=whole)})
        assert make_ndarray(answer.outputs["x"]).tolist() == whole.tolist()


async def test_the_last_of_equal_names_counts(server: Server) -> None:
    first, last = (request("row", {"x": proto(types.DT_FLOAT, 1, float_val=[n])}) for n in (1.0, 2.0))
    message = first.SerializeToString() + last.SerializeToString()
    answer = answered(await server.call("PredictionService", "Predict", message))
    assert list(answer.outputs["x"].float_val) == [2]


async def test_chosen_outputs(server: Server) -> None:
    tensors = {
        "a": proto(types.DT_INT32, 1, int_val=[1]),
        "b": proto(types.DT_STRING, 1, 1, string_val=[b"s"]),
    }
    made = request("two", tensors)
    both = answered(await server.call("PredictionService", "Predict", made))
    assert sorted(both.outputs) == ["a", "b"]
    made.output_filter.append("b")
    one = answered(await server.call("PredictionService", "Predict", made))
    assert list(one.outputs) == ["b"]
    for names, text in ((["c"], "output tensor alias not found in signature: c"), (["a", "a"], "duplicate")):
        made.output_filter[:] = names
        refused = await server.call("PredictionService", "Predict", made)
        assert refused.code == 3
        assert text in refused.details


def test_outputs_of_a_message_that_repeats_are_checked_again() -> None:
    made = request("reloaded", {"x": proto(types.DT_FLOAT, 2, tensor_content=bytes(8))})
    made.output_filter.append("x")
    message = made.SerializeToString()

    def decoded(name: str) -> InferRequest:
        opened = open_predict(GrpcRequest("", message))
        assert opened.action.decode is not None
        signature = Signature((), (TensorSpec(name, Datatype.FP32, (-1,)),))
        return opened.action.decode(opened, signature)[0]

    assert decoded("x") == decoded("x")
    with pytest.raises(InferenceError, match="output tensor alias not found in signature: x"):
        decoded("y")


ONE = {"x": proto(types.DT_FLOAT, 1, float_val=[1])}


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (b"\xff", 13, "unable to parse PredictRequest"),
        (b"", *MISSING_SPEC),
        (request("nothing", ONE), 5, "Servable not found for request: Latest(nothing)"),
        (request("row", ONE, version={"value": 9}), 5, "Servable not found for request: Specific(row, 9)"),
        (request("row", ONE, version_label="new"), 3, "Unrecognized servable version label: new"),
        (request("row", ONE, version_label="1"), 3, "Unrecognized servable version label: 1"),
        (request("row", ONE, signature_name="s"), 3, 'Serving signature name: "s" not found'),
        (request("row", {}), 3, "x"),
        (request("row", {"x": TensorProto()}), 3, "has the datatype DT_INVALID"),
        (request("row", {"x": proto(types.DT_RESOURCE, 1)}), 3, "has the datatype DT_RESOURCE"),
        (request("row", {"x": proto(types.DT_COMPLEX64, 1)}), 3, "has the datatype DT_COMPLEX64"),
        (request("row", {"x": proto(types.DT_FLOAT, 1, float_val=[1, 2])}), 3, "needs 1 values, got 2"),
        (request("row", {"x": proto(types.DT_FLOAT, 1, int_val=[1])}), 3, "has int_val, expected float_val"),
        (request("row", {"x": proto(types.DT_FLOAT, 1, tensor_content=b"abc")}), 3, "needs 4 bytes, got 3"),
        (request("row", {"x": proto(types.DT_FLOAT, -1)}), 3, "negative dimension"),
        (request("row", {"x": proto(types.DT_FLOAT, 2**40, float_val=[1])}), 8, "max_elements"),
        (request("row", {"x": TensorProto(dtype=1, tensor_shape={"unknown_rank": True})}), 3, "unknown rank"),
        (request("ints", {"x": proto(types.DT_INT8, 1, int_val=[128])}), 3, "is 128, outside of INT8"),
        (
            request("texts", {"x": proto(types.DT_STRING, 2, tensor_content=b"\x05a")}),
            3,
            "exactly 2 strings",
        ),
        (request("texts", {"x": proto(types.DT_STRING, 1, tensor_content=b"\x05a")}), 3, "exactly 1 strings"),
    ],
)
async def test_refusals(server: Server, message: Any, code: int, text: str) -> None:
    answer = await server.call("PredictionService", "Predict", message)
    assert answer.code == code
    assert text in answer.details


def examples(*features: dict[str, Any]) -> Any:
    found = []
    for each in features:
        example = Example()
        for name, values in each.items():
            kind = {float: "float_list", int: "int64_list", bytes: "bytes_list"}[type(values[0])]
            getattr(example.features.feature[name], kind).value.extend(values)
        found.append(example)
    return {"example_list": {"examples": found}}


async def test_classes(server: Server) -> None:
    made = classification_pb2.ClassificationRequest(
        model_spec={"name": "classes"}, input=examples({"scores": [0.25, 0.75]}, {"scores": [1, 0]})
    )
    answer = answered(
        await server.call("PredictionService", "Classify", made), classification_pb2.ClassificationResponse
    )
    scores = [[each.score for each in row.classes] for row in answer.result.classifications]
    assert scores == [[0.25, 0.75], [1, 0]]
    assert answer.model_spec.version.value == 1


async def test_regressions_with_a_context(server: Server) -> None:
    context = examples({"x": [0.5]})["example_list"]["examples"][0]
    shared = {"example_list_with_context": {"examples": [Example(), Example()], "context": context}}
    made = regression_pb2.RegressionRequest(model_spec={"name": "value"}, input=shared)
    answer = answered(
        await server.call("PredictionService", "Regress", made), regression_pb2.RegressionResponse
    )
    assert [each.value for each in answer.result.regressions] == [0.5, 0.5]


async def test_examples_are_serialized_for_models_that_parse_them(server: Server) -> None:
    given = examples({"age": [7]}, {"name": [b"ann"]})
    made = classification_pb2.ClassificationRequest(model_spec={"name": "texts"}, input=given)
    answer = await server.call("PredictionService", "Classify", made)
    # the model echoes the strings, which are no classes
    assert (answer.code, answer.details) == (3, "Expected Tensor shape: [batch_size num_classes] but got [2]")


async def test_several_tasks(server: Server) -> None:
    spec = {"name": "value"}
    tasks = [
        {"model_spec": spec, "method_name": f"tensorflow/serving/{name}"} for name in ("classify", "regress")
    ]
    given = examples({"x": [0.5]}, {"x": [0.25]})
    made = inference_pb2.MultiInferenceRequest(tasks=tasks, input=given)
    answer = answered(
        await server.call("PredictionService", "MultiInference", made), inference_pb2.MultiInferenceResponse
    )
    classes, values = answer.results
    assert [row.classes[0].score for row in classes.classification_result.classifications] == [0.5, 0.25]
    assert [each.value for each in values.regression_result.regressions] == [0.5, 0.25]
    for fault, code, text in (
        ({"tasks": []}, 3, "at least one task"),
        ({"tasks": [{**tasks[0], "method_name": "m"}]}, 12, "Unsupported signature method_name: m"),
        ({"tasks": [tasks[0], {**tasks[1], "model_spec": {"name": "row"}}]}, 3, "must access the same model"),
    ):
        broken = inference_pb2.MultiInferenceRequest(**{"input": given, **fault})
        refused = await server.call("PredictionService", "MultiInference", broken)
        assert refused.code == code
        assert text in refused.details


async def test_metadata(server: Server) -> None:
    made = get_model_metadata_pb2.GetModelMetadataRequest(
        model_spec={"name": "two"}, metadata_field=["signature_def"]
    )
    answer = answered(
        await server.call("PredictionService", "GetModelMetadata", made),
        get_model_metadata_pb2.GetModelMetadataResponse,
    )
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("two", 1)
    packed = answer.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    (signature,) = get_model_metadata_pb2.SignatureDefMap.FromString(packed.value).signature_def.values()
    assert signature.method_name == "tensorflow/serving/predict"
    assert sorted(signature.inputs) == ["a", "b"]
    info = signature.outputs["b"]
    assert (info.dtype, [dim.size for dim in info.tensor_shape.dim]) == (types.DT_STRING, [-1, 1])
    for fields, text in (([], "at least one metadata_field"), (["x"], "Metadata field x is not supported")):
        made.metadata_field[:] = fields
        refused = await server.call("PredictionService", "GetModelMetadata", made)
        assert refused.code == 3
        assert text in refused.details


async def test_status(server: Server) -> None:
    made = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "row"})
    answer = answered(
        await server.call("ModelService", "GetModelStatus", made), get_model_status_pb2.GetModelStatusResponse
    )
    (version,) = answer.model_version_status
    assert (version.version, version.state, version.status.error_code) == (1, 30, 0)
    made.model_spec.name = "nothing"
    refused = await server.call("ModelService", "GetModelStatus", made)
    assert (refused.code, refused.details) == (5, "Could not find any versions of model nothing")
    answer = await server.call("ModelService", "GetModelStatus", b"")
    assert (answer.code, answer.details) == MISSING_SPEC
