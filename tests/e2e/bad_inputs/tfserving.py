"""Bad inputs of TensorFlow Serving's dialect over HTTP and gRPC."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator
from typing import Any

from interlingua.protocols.tfserving.codec import CLASSIFY_METHOD, NUMBER_OF
from interlingua.schemas import Datatype
from interlingua.schemas.tfserving import MESSAGES
from tests.e2e.bad_inputs.datatypes import Claim, claims, numbers, right
from tests.e2e.bad_inputs.wires import Grpc, Http

MODEL = "/v1/models/identity_fp32"
SERVICE = "/tensorflow.serving.PredictionService/"
FLOAT, INT32, STRING, RESOURCE, UNKNOWN = 1, 3, 7, 20, 99
MODELS = "/tensorflow.serving.ModelService/"
NUMBERS = [datatype for datatype in NUMBER_OF if datatype is not Datatype.BYTES]
GOOD = {"inputs": [1, 2]}
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
    for datatype in Datatype:
        # JSON has no form of BF16
        if datatype not in (Datatype.BYTES, Datatype.BF16):
            for name, values in numbers(datatype):
                yield f"predict: {datatype.value} with {name}", _values(datatype, values)
    for name, strings in NO_STRINGS.items():
        yield f"predict: BYTES with {name}", _values(Datatype.BYTES, strings)
    yield "predict: BF16 in JSON", _values(Datatype.BF16, [1, 2])
    for name, body in _batches():
        yield f"predict: {name}", Http("/v1/models/simple:predict", body)
    for method, path, body in _paths():
        yield f"{method} {path}", Http(path, body, {}, method)
    packed = gzip.compress(json.dumps(GOOD).encode(), mtime=0)
    for name, coding, data in (
        ("an unknown content coding", "br", packed),
        ("two content codings", "gzip, gzip", packed),
        ("gzip that is none", "gzip", b"{}"),
        ("gzip cut short", "gzip", packed[:-4]),
        ("gzip followed by other bytes", "gzip", packed + b"x"),
        ("gzip with a wrong checksum", "gzip", packed[:-8] + bytes(4) + packed[-4:]),
    ):
        yield f"predict: {name}", Http(f"{MODEL}:predict", data, {"Content-Encoding": coding})
    for verb in ("classify", "regress"):
        for name, body in _examples():
            yield f"{verb}: {name}", Http(f"/v1/models/classy:{verb}", body)
        yield (
            f"{verb}: a model of two inputs",
            Http(f"/v1/models/simple:{verb}", {"examples": [{"INPUT0": 1}]}),
        )
        yield f"{verb}: an unknown model", Http(f"/v1/models/absent:{verb}", {"examples": [{"DATA": 1}]})


def _values(datatype: Datatype, values: Any) -> Http:
    return Http(f"/v1/models/{right(datatype).model}:predict", {"inputs": values})


NO_STRINGS: dict[str, Any] = {
    "a number": [1],
    "a null": [None],
    "a boolean": [True],
    "an object": [{}],
    "base64 that is none": [{"b64": "?"}],
    "base64 that is a number": [{"b64": 1}],
    "base64 and more": [{"b64": "YQ==", "a": 1}],
    "ragged rows": [["a"], ["a", "b"]],
    "the wrong rank": [["a"]],
}


def _batches() -> Iterator[tuple[str, Any]]:
    row = [0] * 16
    for name, rows in {
        "a plain value for two inputs": [row],
        "one input of two by row": [{"INPUT0": row}],
        "rows of other inputs": [{"INPUT0": row, "INPUT1": row}, {"INPUT0": row}],
        "a row that is no object": [{"INPUT0": row, "INPUT1": row}, 1],
        "an input too many by row": [{"INPUT0": row, "INPUT1": row, "Q": row}],
        "a row that is too short": [{"INPUT0": row[1:], "INPUT1": row}],
        "rows of other lengths": [{"INPUT0": row, "INPUT1": row}, {"INPUT0": row[1:], "INPUT1": row}],
        "a batch above the limit": [{"INPUT0": row, "INPUT1": row}] * 9,
    }.items():
        yield name, {"instances": rows}
    for name, columns in {
        "a plain value by column for two inputs": [row],
        "one input of two by column": {"INPUT0": [row]},
        "an input too many by column": {"INPUT0": [row], "INPUT1": [row], "Q": [row]},
        "batches that differ": {"INPUT0": [row], "INPUT1": [row, row]},
        "a batch of nothing": {"INPUT0": [], "INPUT1": []},
        "no batch": {"INPUT0": row, "INPUT1": row},
    }.items():
        yield name, {"inputs": columns}


def _examples() -> Iterator[tuple[str, Any]]:
    good = {"DATA": [1, 2, 3, 4, 5]}
    yield "no JSON", b"{"
    yield "an empty body", b""
    yield "a list", []
    yield "no examples", {}
    yield "examples that are no list", {"examples": 1}
    yield "an empty list", {"examples": []}
    yield "an example that is a number", {"examples": [1]}
    yield "an unknown signature", {"examples": [good], "signature_name": "absent"}
    yield "a signature that is no text", {"examples": [good], "signature_name": []}
    yield "a context that is no object", {"examples": [good], "context": 1}
    yield "an unknown feature", {"examples": [{"Q": 1}]}
    yield "a feature too many", {"examples": [{**good, "Q": 1}]}
    yield "a feature that is missing in one", {"examples": [good, {}]}
    yield "too few values", {"examples": [{"DATA": [1]}]}
    yield "other numbers of values", {"examples": [good, {"DATA": [1]}]}
    yield "a text for a number", {"examples": [{"DATA": ["a"] * 5}]}
    yield "a null for a number", {"examples": [{"DATA": [None] * 5}]}
    yield "rows for numbers", {"examples": [{"DATA": [[1]] * 5}]}
    yield "more examples than a batch has", {"examples": [good] * 5}


def _paths() -> Iterator[tuple[str, str, Any]]:
    for model in (
        "absent", "identity_fp32/versions/9", "identity_fp32/versions/x", "identity_fp32/versions/-1",
        f"identity_fp32/versions/{10**30}", "identity_fp32/labels/absent", "a%2fb", "%00", "%ff", "a%0Ab", "%2e%2e",
    ):  # fmt: skip
        yield "POST", f"/v1/models/{model}:predict", GOOD
        yield "GET", f"/v1/models/{model}", b""
        yield "GET", f"/v1/models/{model}/metadata", b""
    for method, path in (
        ("GET", f"{MODEL}:predict"), ("PUT", f"{MODEL}:predict"), ("DELETE", MODEL), ("POST", MODEL),
        ("POST", f"{MODEL}/metadata"), ("POST", f"{MODEL}:explode"), ("POST", f"{MODEL}:"), ("GET", "/v1/nothing"),
        ("GET", f"{MODEL}/versions"), ("GET", f"{MODEL}/labels/"), ("GET", f"{MODEL}/versions/1/nothing"),
        ("GET", "/v1/models"), ("POST", "/v1/models"),
    ):  # fmt: skip
        yield method, path, b""


def _predict(model: str = "identity_fp32", **changes: Any) -> Any:
    tensor = {"dtype": FLOAT, "tensor_shape": {"dim": [{"size": 2}]}, "tensor_content": RAW, **changes}
    return MESSAGES["tensorflow.serving.PredictRequest"](
        model_spec={"name": model}, inputs={"INPUT0": tensor}
    )


def _predictions() -> Iterator[tuple[str, Any]]:
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


def _claimed(claim: Claim) -> dict[str, Any]:
    dims = [{"size": side} for side in claim.shape]
    return {"dtype": NUMBER_OF[claim.datatype], "tensor_shape": {"dim": dims}, "tensor_content": claim.data}


def _datatypes() -> Iterator[tuple[str, Any]]:
    # without any value, all elements are zero
    for name, model, claim in claims(NUMBERS, but=("no data",)):
        yield name, _request("Predict", model_spec={"name": model}, inputs={claim.name: _claimed(claim)})


def _request(kind: str, **fields: Any) -> Any:
    return MESSAGES[f"tensorflow.serving.{kind}Request"](**fields)


def _calls() -> Iterator[tuple[str, Grpc]]:
    example = {"features": {"feature": {"DATA": {"float_list": {"value": [1] * 5}}}}}
    fine = {"example_list": {"examples": [example]}}
    for rpc, kind in (("Classify", "Classification"), ("Regress", "Regression")):

        def call(
            name: str = "classy", given: Any = fine, method: str = rpc, of: str = kind, **spec: Any
        ) -> Grpc:
            return Grpc(f"{SERVICE}{method}", _request(of, model_spec={"name": name, **spec}, input=given))

        yield f"{rpc}: no protobuf", Grpc(f"{SERVICE}{rpc}", b"\xff")
        yield f"{rpc}: no model", Grpc(f"{SERVICE}{rpc}", _request(kind, input=fine))
        yield f"{rpc}: an unknown model", call("absent")
        yield f"{rpc}: an unknown version", call(version={"value": 9})
        yield f"{rpc}: an unknown label", call(version_label="absent")
        yield f"{rpc}: an unknown signature", call(signature_name="absent")
        yield f"{rpc}: a model of another kind", call("identity_fp32")
        yield f"{rpc}: no input", call(given={})
        yield f"{rpc}: no examples", call(given={"example_list": {}})
        for name, features in {
            "an unknown feature": {"Q": {"float_list": {"value": [1]}}},
            "too few values": {"DATA": {"float_list": {"value": [1]}}},
            "strings for numbers": {"DATA": {"bytes_list": {"value": [b"a"] * 5}}},
            "no values": {"DATA": {}},
        }.items():
            given = {"example_list": {"examples": [{"features": {"feature": features}}]}}
            yield f"{rpc}: {name}", call(given=given)
        yield (
            f"{rpc}: a feature that is missing in one",
            call(given={"example_list": {"examples": [example, {}]}}),
        )
        yield (
            f"{rpc}: more examples than a batch has",
            call(given={"example_list": {"examples": [example] * 5}}),
        )
    spec = {"name": "classy"}
    for name, tasks in {
        "no tasks": [],
        "another method": [{"model_spec": spec, "method_name": "absent"}],
        "no method": [{"model_spec": spec}],
        "two models": [
            {"model_spec": {"name": each}, "method_name": CLASSIFY_METHOD} for each in ("classy", "digits")
        ],
        "a task without a model": [{"method_name": CLASSIFY_METHOD}],
        "an unknown model": [{"model_spec": {"name": "absent"}, "method_name": CLASSIFY_METHOD}],
    }.items():
        yield (
            f"MultiInference: {name}",
            Grpc(f"{SERVICE}MultiInference", _request("MultiInference", tasks=tasks, input=fine)),
        )
    for name, fields in {
        "no model": {"metadata_field": ["signature_def"]},
        "an unknown model": {"model_spec": {"name": "absent"}, "metadata_field": ["signature_def"]},
        "no field": {"model_spec": spec},
        "an unknown field": {"model_spec": spec, "metadata_field": ["absent"]},
        "an unknown version": {
            "model_spec": {**spec, "version": {"value": 9}},
            "metadata_field": ["signature_def"],
        },
    }.items():
        yield f"metadata: {name}", Grpc(f"{SERVICE}GetModelMetadata", _request("GetModelMetadata", **fields))
    for name, stated in {
        "an unknown model": {"name": "absent"},
        "an unknown version": {**spec, "version": {"value": 9}},
        "an unknown label": {**spec, "version_label": "absent"},
    }.items():
        yield (
            f"status: {name}",
            Grpc(f"{MODELS}GetModelStatus", _request("GetModelStatus", model_spec=stated)),
        )
    yield "status: no model", Grpc(f"{MODELS}GetModelStatus")
    for method in (f"{SERVICE}MultiInference", f"{SERVICE}GetModelMetadata", f"{MODELS}GetModelStatus"):
        yield f"{method.rpartition('/')[2]}: no protobuf", Grpc(method, b"\xff")
    yield "an unknown method", Grpc(f"{SERVICE}Absent")


def _reloads() -> Iterator[tuple[str, Any]]:
    """Lists of models."""
    fine = {"name": "m", "base_path": "/none/m", "model_platform": "tensorflow"}
    for name, changes in {
        "no name": {"name": ""},
        "no path": {"base_path": ""},
        "a relative path": {"base_path": "m"},
        "a folder that is in no repository": {},
        "a path with a NUL": {"base_path": "/\0"},
        "no platform": {"model_platform": ""},
        "a platform and a type": {"model_type": 1},
        "another type": {"model_platform": "", "model_type": 2},
        "versions without a number": {"model_version_policy": {"specific": {}}},
    }.items():
        yield name, _request_of({**fine, **changes})
    yield "a model twice", _request_of(fine, fine)
    yield "no list", MESSAGES["tensorflow.serving.ReloadConfigRequest"]()
    yield "no protobuf", b"\xff"


def _request_of(*listed: dict[str, Any]) -> Any:
    config = {"model_config_list": {"config": listed}}
    return MESSAGES["tensorflow.serving.ReloadConfigRequest"](config=config)


def inputs() -> dict[str, Http | Grpc]:
    found: dict[str, Http | Grpc] = {f"tfserving/http {name}": each for name, each in _http()}
    for name, message in (*_predictions(), *_datatypes()):
        found[f"tfserving/grpc predict: {name}"] = Grpc(f"{SERVICE}Predict", message)
    for name, message in _reloads():
        found[f"tfserving/grpc reload: {name}"] = Grpc(f"{MODELS}HandleReloadConfigRequest", message)
    return {**found, **{f"tfserving/grpc {name}": each for name, each in _calls()}}
