"""REST by bodies written by hand, after TensorFlow Serving's page and its ``json_tensor.cc``."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.path_table import PathTable
from interlingua.protocols.tfserving import DIALECT
from interlingua.protocols.wire import HttpRequest, parts_of
from interlingua.schemas import Datatype, InferResponse, Signature, Tensor, TensorSpec
from tests.protocols.tfserving.exchange import Server

NAN = float("nan")


@pytest.fixture(scope="module")
def server() -> Server:
    return Server()


@pytest.mark.parametrize(
    ("model", "body", "answer"),
    [
        ("floats", {"instances": [[1, 2.5], [3, 4]]}, {"predictions": [[1.0, 2.5], [3.0, 4.0]]}),
        ("row", {"instances": [1.0, 2.0, 5.0]}, {"predictions": [1.0, 2.0, 5.0]}),
        ("row", {"inputs": [1.0, 2.0]}, {"outputs": [1.0, 2.0]}),
        ("row", {"instances": [{"x": 1}, {"x": 2}]}, {"predictions": [1.0, 2.0]}),
        ("row", {"inputs": {"x": [3]}}, {"outputs": [3.0]}),
        ("cube", {"instances": [[[1, 2]], [[3, 4]]]}, {"predictions": [[[1, 2]], [[3, 4]]]}),
        ("scalar", {"inputs": 7}, {"outputs": 7.0}),
        ("fixed", {"inputs": []}, {"outputs": []}),
        ("truth", {"instances": [True, False]}, {"predictions": [True, False]}),
        ("unsigned", {"instances": [2**64 - 1]}, {"predictions": [2**64 - 1]}),
        ("longs", {"instances": [-(2**63)]}, {"predictions": [-(2**63)]}),
        ("halves", {"instances": [0.5, 65504]}, {"predictions": [0.5, 65504.0]}),
        ("texts", {"instances": ["a", {"b64": "YmM="}, "é"]}, {"predictions": ["a", "bc", "é"]}),
        ("texts", {"inputs": ["", {"b64": "//4="}]}, {"outputs": [{"b64": ""}, {"b64": "//4="}]}),
        ("images", {"instances": [{"b64": "YQ=="}]}, {"predictions": [{"b64": "YQ=="}]}),
        ("images", {"instances": [{"image_bytes": {"b64": "YQ=="}}]}, {"predictions": [{"b64": "YQ=="}]}),
        ("row", {"signature_name": "serving_default", "instances": [1]}, {"predictions": [1.0]}),
        (
            "two",
            {"instances": [{"a": 1, "b": ["x"]}, {"b": ["y"], "a": 2}]},
            {"predictions": [{"a": 1, "b": ["x"]}, {"a": 2, "b": ["y"]}]},
        ),
        ("two", {"inputs": {"a": [1], "b": [["x"]]}}, {"outputs": {"a": [1], "b": [["x"]]}}),
    ],
)
async def test_predictions(server: Server, model: str, body: Any, answer: Any) -> None:
    assert await server.predict(model, body) == (200, answer)


async def test_numbers_that_are_not_finite(server: Server) -> None:
    answer = await server.send(
        "POST", "/v1/models/floats:predict", b'{"instances": [[NaN, Infinity], [-Infinity, 0.1]]}'
    )
    assert b"".join(parts_of(answer)) == b'{"predictions":[[NaN,Infinity],[-Infinity,0.1]]}'


@pytest.mark.parametrize("size", [700, 70_000])
async def test_long_arrays(server: Server, size: int) -> None:
    rows = [[index / 7, -float(index)] for index in range(size)]
    status, answer = await server.predict("doubles", {"inputs": [value for row in rows for value in row]})
    assert (status, answer["outputs"]) == (200, [value for row in rows for value in row])
    wide = [[float(index), 0.5] for index in range(size)]
    assert await server.predict("floats", {"instances": wide}) == (200, {"predictions": wide})
    both = [{"a": index, "b": [str(index)]} for index in range(min(size, 7000))]
    assert await server.predict("two", {"instances": both}) == (200, {"predictions": both})


@pytest.mark.parametrize(
    ("model", "body", "status", "text"),
    [
        ("floats", b"", 400, "JSON Parse error: The document is empty"),
        ("floats", b"{", 400, "JSON Parse error: "),
        ("floats", b"[]", 400, "Is not object"),
        ("floats", {}, 400, "Missing 'inputs' or 'instances' key"),
        ("floats", {"inputs": [], "instances": []}, 400, "only one of 'inputs' or 'instances' keys"),
        ("floats", {"instances": 1}, 400, "Excepting 'instances' to be an list/array"),
        ("floats", {"instances": []}, 400, "No values in 'instances' array"),
        ("floats", {"signature_name": 100}, 400, "'signature_name' key must be a string value."),
        ("floats", {"signature_name": "s", "instances": [[1]]}, 400, 'Serving signature name: "s" not found'),
        ("floats", {"instances": [[1, 2], [3]]}, 400, "ragged"),
        ("floats", {"instances": [["1"]]}, 400, "'x': element 0 must be a number, got a string"),
        ("floats", {"instances": [[{"b64": "YQ=="}]]}, 400, "must be a number, got an object"),
        ("ints", {"instances": [128]}, 400, "out of range for INT8"),
        ("ints", {"instances": [1.5]}, 400, "must be an integer"),
        ("texts", {"instances": [1]}, 400, "must be a string"),
        ("texts", {"instances": [{"b64": "*"}]}, 400, "Unable to base64 decode"),
        ("brains", {"instances": [1]}, 400, "tensor 'x' of datatype BF16"),
        ("two", {"instances": [1]}, 400, "instances is a plain list, but expecting list of objects"),
        ("two", {"inputs": [1]}, 400, "inputs is a plain value/list, but expecting an object"),
        ("two", {"inputs": {"c": 1}}, 400, "does not have named input: c"),
        (
            "two",
            {"instances": [{"a": 1, "b": ["x"]}, {"a": 1}]},
            400,
            "Failed to process element: 1 of 'inst",
        ),
        ("two", {"inputs": {"a": [1]}}, 400, "b"),
        ("scalar", {"instances": [1]}, 400, "x"),
        ("nothing", {"instances": [1]}, 404, "Servable not found for request: Latest(nothing)"),
        (
            "floats/versions/9",
            {"instances": [[1]]},
            404,
            "Servable not found for request: Specific(floats, 9)",
        ),
        ("floats/labels/new", {"instances": [[1]]}, 400, "Unrecognized servable version label: new"),
        ("floats/labels/1", {"instances": [[1]]}, 400, "Unrecognized servable version label: 1"),
        ("floats/versions/99999999999999999999", {}, 400, "Failed to convert version: "),
        ("floats/versions/one", {}, 400, "Failed to convert version: one to numeric."),
        ("%FF", {}, 400, "Failed to decode model name"),
    ],
)
async def test_refusals(server: Server, model: str, body: Any, status: int, text: str) -> None:
    got, answer = await server.predict(model, body)
    assert (got, set(answer)) == (status, {"error"}), answer
    assert text in answer["error"]


@pytest.mark.parametrize(
    ("flavor", "form", "document"),
    [
        ("tensorflow", {"instances": [1, 2]}, {"predictions": [{"class": 7}, {"class": 8}]}),
        ("tensorflow", {"inputs": [1, 2]}, {"outputs": {"class": [7, 8]}}),
        ("kserve", {"instances": [1, 2]}, {"predictions": [7, 8]}),
        ("kserve", {"inputs": [1, 2]}, {"outputs": [7, 8]}),
    ],
)
def test_one_output_of_several(flavor: str, form: Any, document: Any) -> None:
    """As backends of tables answer. The original omits the name only if the signature has one output; models
    of KServe answer what their code returns."""
    outputs = (TensorSpec("class", Datatype.INT64, (-1,)), TensorSpec("p", Datatype.FP64, (-1, 3)))
    signature = Signature((TensorSpec("x", Datatype.FP64, (-1,)),), outputs)
    path = "/v1/models/m:predict"
    request = HttpRequest("POST", path, "", {}, json.dumps(form).encode())
    endpoints = DIALECT.bindings["http"].flavored(flavor).endpoints
    methods, request.params = PathTable(endpoints).find(path)
    opened = methods["POST"].open(request)
    assert opened.action.decode is not None
    _, reply_form = opened.action.decode(opened, signature)
    answer = InferResponse("m", (Tensor.from_numpy("class", np.array([7, 8])),))
    written = opened.action.encode(reply_form, answer)
    assert written is not None
    assert json.loads(b"".join(parts_of(written))) == document


@pytest.mark.parametrize("which", ["", "/versions/1", "/versions/01", "/versions/0"])
async def test_versions(server: Server, which: str) -> None:
    assert (await server.predict(f"floats{which}", {"instances": [[1]]}))[0] == 200
    assert await server.rest("GET", f"/v1/models/floats{which}") == (
        200,
        {
            "model_version_status": [
                {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
            ]
        },
    )


async def test_metadata(server: Server) -> None:
    def info(name: str, dtype: str, *sides: str) -> dict[str, Any]:
        dim = [{"size": side, "name": ""} for side in sides]
        return {
            "dtype": dtype,
            "tensor_shape": {"dim": dim, "unknown_rank": False},
            "name": f"{name}:0",
        }

    tensors = {"a": info("a", "DT_INT32", "-1"), "b": info("b", "DT_STRING", "-1", "1")}
    signature = {"inputs": tensors, "outputs": tensors, "method_name": "tensorflow/serving/predict"}
    assert await server.rest("GET", "/v1/models/two/metadata") == (
        200,
        {
            "model_spec": {"name": "two", "signature_name": "", "version": "1"},
            "metadata": {"signature_def": {"signature_def": {"serving_default": signature}}},
        },
    )


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/v1/models/nothing", 404, "Could not find any versions of model nothing"),
        ("GET", "/v1/models/floats/versions/9", 404, "Could not find version 9 of model floats"),
        ("GET", "/v1/models/floats/labels/new", 400, "Unrecognized servable version label: new"),
        ("GET", "/v1/models/nothing/metadata", 404, "Servable not found for request: Latest(nothing)"),
        ("GET", "/v1/models", 400, "Missing model name in request."),
        ("POST", "/v1/models/floats:explain", 405, "Malformed request: POST /v1/models/floats:explain"),
        ("GET", "/v1/models/floats/what", 400, "Malformed request: GET /v1/models/floats/what"),
        ("GET", "/v2", 404, "Malformed request: GET /v2"),
    ],
)
async def test_paths(server: Server, method: str, path: str, status: int, text: str) -> None:
    got, answer = await server.rest(method, path)
    assert got == status
    assert answer["error"].startswith(text)


CLASSIFY = "/v1/models/classes:classify"


async def test_classes(server: Server) -> None:
    examples = [{"scores": [0.25, 0.75]}, {"scores": [1, NAN]}]
    answer = await server.send("POST", CLASSIFY, json.dumps({"examples": examples}).encode())
    assert b"".join(parts_of(answer)) == (
        b'{"results":[[["ant",0.25],["bee",0.75]],[["ant",1.0],["bee",NaN]]]}'
    )
    shared = {"context": {"scores": [0.5, 0.5]}, "examples": [{}], "signature_name": "serving_default"}
    assert await server.rest("POST", CLASSIFY, shared) == (200, {"results": [[["ant", 0.5], ["bee", 0.5]]]})


async def test_regressions(server: Server) -> None:
    body = {"signature_name": "tensorflow/serving/regress", "examples": [{"x": 1.0}, {"x": [2]}]}
    assert await server.rest("POST", "/v1/models/value:regress", body) == (200, {"results": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (CLASSIFY, {}, "Expecting 'examples' value to be an list/array"),
        (CLASSIFY, {"examples": []}, "'examples' value is an empty array"),
        (CLASSIFY, {"examples": [1]}, "Example must be JSON object"),
        (CLASSIFY, {"examples": [{"scores": None}]}, "has element with unexpected JSON type"),
        (CLASSIFY, {"examples": [{"scores": [1]}]}, "has 1 values in each example"),
        (
            CLASSIFY,
            {"examples": [{"scores": [1, 2]}, {"scores": [1]}]},
            "another number of values in example 1",
        ),
        (CLASSIFY, {"examples": [{"scores": [1, 2]}, {}]}, "could not be found in example 1"),
        (CLASSIFY, {"examples": [{"scores": ["a", "b"]}]}, "has strings, the input has numbers"),
        (CLASSIFY, {"examples": [{"other": [1, 2]}]}, "feature 'other' is not an input of the model"),
        (CLASSIFY, {"examples": [{"scores": [1, 2]}], "signature_name": "s"}, 'Serving signature name: "s"'),
        (
            "/v1/models/row:classify",
            {"examples": [{"x": 1}]},
            "Expected Tensor shape: [batch_size num_classes]",
        ),
        ("/v1/models/fixed:regress", {"examples": [{"x": [1, 2, 3]}]}, "Expected output Tensor shape"),
        (
            "/v1/models/value:regress",
            {"examples": [{"x": 1}, {"x": 16777217}]},
            "'x': 16777217 is not exact in FP32",
        ),
        (
            "/v1/models/value:regress",
            {"examples": [{"x": 1e39}]},
            "element 0 (1e+39) is out of range for FP32",
        ),
        ("/v1/models/halves:regress", {"examples": [{"x": -2049}]}, "'x': -2049 is not exact in FP16"),
        (
            "/v1/models/doubles:regress",
            {"examples": [{"x": 2**53 + 1}]},
            "9007199254740993 is not exact in FP64",
        ),
    ],
)
async def test_refused_examples(server: Server, path: str, body: Any, text: str) -> None:
    status, answer = await server.rest("POST", path, body)
    assert status == 400
    assert text in answer["error"]


async def test_whole_numbers_that_floats_hold_exactly(server: Server) -> None:
    body = {"examples": [{"x": 16777216}, {"x": 16777217.5}]}
    assert await server.rest("POST", "/v1/models/value:regress", body) == (
        200,
        {"results": [16777216.0, 16777218.0]},
    )


@pytest.mark.parametrize("path", ["/V1/Models/row:Predict", "/v1/MODELS/row/VERSIONS/1:PREDICT"])
async def test_paths_in_any_case(server: Server, path: str) -> None:
    assert await server.rest("POST", path, {"instances": [1]}) == (200, {"predictions": [1.0]})
    status, answer = await server.rest("POST", path.replace("row", "ROW"), {"instances": [1]})
    assert status == 404 and "ROW" in answer["error"]


@pytest.mark.parametrize("extra", ["", "NaN", '"a": 1, "a": 2', "1, " * 1500 + "1"])
@pytest.mark.parametrize("depth", [101, 400])
async def test_ignored_members_that_nest_deeper_than_100(server: Server, depth: int, extra: str) -> None:
    nested = "[" * (depth - 1) + (f"{{{extra}}}" if ":" in extra else f"[{extra}]") + "]" * (depth - 1)
    body = f'{{"instances": [1, 2], "ignored": {nested}}}'.encode()
    assert await server.rest("POST", "/v1/models/row:predict", body) == (200, {"predictions": [1.0, 2.0]})
    body = f'{{"examples": [{{"x": 1}}], "ignored": {nested}}}'.encode()
    assert await server.rest("POST", "/v1/models/value:regress", body) == (200, {"results": [1.0]})


@pytest.mark.parametrize("depth", [101, 400, 1001, 100_000])
async def test_tensors_that_nest_too_deep(server: Server, depth: int) -> None:
    body = f'{{"instances": {"[" * depth}1{"]" * depth}}}'.encode()
    status, _ = await server.rest("POST", "/v1/models/row:predict", body)
    assert status == 400


async def test_floats_have_the_digits_of_their_width(server: Server) -> None:
    _, answer = await server.predict("row", {"instances": [0.1, 1e-30, 3e38]})
    assert answer == {"predictions": [0.1, 1e-30, 3e38]}
    assert not any(map(math.isnan, answer["predictions"]))
