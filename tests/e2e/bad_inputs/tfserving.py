"""Bad inputs of TensorFlow Serving's dialect over HTTP and gRPC."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from interlingua.schemas.tfserving import MESSAGES
from tests.e2e.bad_inputs.wires import Grpc, Http

MODEL = "/v1/models/identity_fp32"
SERVICE = "/tensorflow.serving.PredictionService/"
FLOAT, INT32, STRING, RESOURCE, UNKNOWN = 1, 3, 7, 20, 99
RAW = struct.pack("<2f", 1, 2)


def _bodies() -> Iterator[tuple[str, Any]]:
    yield "no JSON", b"{"
    yield "an empty body", b""
    yield "a list", []
    yield "no values", {}
    yield "rows and columns", {"instances": [1], "inputs": [1]}
    yield "instances that are no list", {"instances": 1}
    yield "no instances", {"instances": []}
    yield "an unknown input by row", {"instances": [{"Q": 1}]}
    yield "an unknown input by column", {"inputs": {"Q": [1]}}
    yield "a text for a number", {"inputs": ["a"]}
    yield "a boolean for a number", {"inputs": [True]}
    yield "a null for a number", {"inputs": [None]}
    yield "ragged columns", {"inputs": [[1], [1, 2]]}
    yield "the wrong rank", {"inputs": [[[1]]]}
    yield "bytes for a number", {"inputs": [{"b64": "YQ=="}]}
    yield "base64 that is none", {"inputs": [{"b64": "?"}]}
    yield "an unknown signature", {"inputs": [1], "signature_name": "absent"}
    yield "a signature that is no text", {"inputs": [1], "signature_name": 1}


def _http() -> Iterator[tuple[str, Http]]:
    for name, body in _bodies():
        yield f"predict: {name}", Http(f"{MODEL}:predict", body)
    good = {"inputs": [1, 2]}
    yield "predict: an unknown model", Http("/v1/models/absent:predict", good)
    yield "predict: an unknown version", Http(f"{MODEL}/versions/9:predict", good)
    yield "predict: a version that is no number", Http(f"{MODEL}/versions/x:predict", good)
    yield "predict: an unknown label", Http(f"{MODEL}/labels/absent:predict", good)
    yield "predict: another method", Http(f"{MODEL}:predict", method="GET")
    yield "an unknown verb", Http(f"{MODEL}:explode", good)
    yield "classify: no examples", Http(f"{MODEL}:classify", {})
    yield "regress: examples that are no list", Http(f"{MODEL}:regress", {"examples": 1})
    yield "status of an unknown model", Http("/v1/models/absent", method="GET")
    yield "metadata of an unknown model", Http("/v1/models/absent/metadata", method="GET")


def _predict(model: str = "identity_fp32", **changes: Any) -> Any:
    tensor = {"dtype": FLOAT, "tensor_shape": {"dim": [{"size": 2}]}, "tensor_content": RAW, **changes}
    return MESSAGES["tensorflow.serving.PredictRequest"](
        model_spec={"name": model}, inputs={"INPUT0": tensor}
    )


def _grpc() -> Iterator[tuple[str, Any]]:
    good = _predict()
    yield "no protobuf", b"\xff\xff\xff"
    yield "cut short", good.SerializeToString()[:-3]
    yield "empty", b""
    yield "an unknown model", _predict("absent")
    yield "no inputs", MESSAGES["tensorflow.serving.PredictRequest"](model_spec={"name": "identity_fp32"})
    yield (
        "an unknown input",
        MESSAGES["tensorflow.serving.PredictRequest"](
            model_spec={"name": "identity_fp32"}, inputs={"Q": good.inputs["INPUT0"]}
        ),
    )
    yield (
        "an unknown output",
        MESSAGES["tensorflow.serving.PredictRequest"](
            model_spec={"name": "identity_fp32"},
            inputs={"INPUT0": good.inputs["INPUT0"]},
            output_filter=["Q"],
        ),
    )
    yield (
        "an unknown version",
        MESSAGES["tensorflow.serving.PredictRequest"](
            model_spec={"name": "identity_fp32", "version": {"value": 9}},
            inputs={"INPUT0": good.inputs["INPUT0"]},
        ),
    )
    yield (
        "an unknown signature",
        MESSAGES["tensorflow.serving.PredictRequest"](
            model_spec={"name": "identity_fp32", "signature_name": "absent"},
            inputs={"INPUT0": good.inputs["INPUT0"]},
        ),
    )
    yield "another datatype", _predict(dtype=INT32)
    yield "strings for numbers", _predict(dtype=STRING, tensor_content=b"", string_val=[b"a", b"b"])
    yield "a resource", _predict(dtype=RESOURCE, tensor_content=b"")
    yield "no such datatype", _predict(dtype=UNKNOWN)
    yield "no datatype", _predict(dtype=0)
    yield "content that is too short", _predict(tensor_content=RAW[:4])
    yield "content that is too long", _predict(tensor_content=RAW + b"x")
    yield "more values than elements", _predict(tensor_content=b"", float_val=[1, 2, 3])
    yield "values of another type", _predict(tensor_content=b"", int_val=[1, 2])
    yield "a negative dimension", _predict(tensor_shape={"dim": [{"size": -2}]})
    yield "2^62 by 2^62", _predict(tensor_shape={"dim": [{"size": 2**62}] * 2})
    yield "the wrong rank", _predict(tensor_shape={"dim": [{"size": 1}, {"size": 2}]})


def inputs() -> dict[str, Http | Grpc]:
    found: dict[str, Http | Grpc] = {f"tfserving/http {name}": each for name, each in _http()}
    for name, message in _grpc():
        found[f"tfserving/grpc predict: {name}"] = Grpc(f"{SERVICE}Predict", message)
    found["tfserving/grpc an unknown method"] = Grpc(f"{SERVICE}Absent")
    return found
