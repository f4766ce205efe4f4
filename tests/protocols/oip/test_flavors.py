"""A listener with the quirks of KServe or MLServer, held against what those servers were recorded to do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from interlingua.protocols.oip import DIALECT
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpRequest, parts_of
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    IndexQuery,
    InferenceError,
    InferResponse,
    ModelStatus,
    Operation,
    Readiness,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.conformance.oip_recordings import http_recordings

FLAVORS = ("kserve", "mlserver")
PATHS = {name: PathTable(flavor.endpoints) for name, flavor in DIALECT.bindings["http"].flavors.items()}
GRPC = {
    name: {endpoint.method: endpoint for endpoint in flavor.endpoints}
    for name, flavor in DIALECT.bindings["grpc"].flavors.items()
}
RECORDED = {(one.server, one.name): one for server in FLAVORS for one in http_recordings(server)}
SPECS = tuple(TensorSpec(name, Datatype.INT32, (-1,)) for name in ("A", "B"))
SIGNATURE = Signature(SPECS, SPECS)
SERVICE = "/inference.GRPCInferenceService/"


def exchange(flavor: str, request: HttpRequest, result: Any) -> tuple[int, Any, Any]:
    """Status and JSON of the answer to ``request`` with ``result``, which may be an error; and what was
    opened."""
    methods, request.params = PATHS[flavor].find(request.path)
    endpoint = methods[request.method]
    opened = None
    try:
        opened = endpoint.open(request)
        form: Any = opened
        if opened.action.decode is not None:
            _, form = opened.action.decode(opened, SIGNATURE)
        if isinstance(result, InferenceError):
            raise result
        answer = opened.action.encode(form, result)
    except InferenceError as error:
        answer = endpoint.fail(request, opened, error)
    assert answer is not None
    body = b"".join(parts_of(answer))
    return answer.status, json.loads(body) if body else None, opened


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("name", ["live", "ready", "model_ready", "model_ready_unknown"])
def test_probes_are_answered_as_recorded(flavor: str, name: str) -> None:
    recorded = RECORDED[flavor, name]
    reply = recorded.reply
    assert reply is not None
    state = Readiness(reply.status == 200, "" if reply.status == 200 else "it is not")
    status, document, _ = exchange(flavor, recorded.request(), state)
    assert status == reply.status
    theirs = json.loads(reply.body) if reply.body else None
    if status == 200:
        assert document == theirs
    else:
        assert document.keys() == theirs.keys() == {"error"}


@pytest.mark.parametrize("path", ["", "/ready", "/infer"])
def test_versions_with_names_in_paths(path: str) -> None:
    for written, version in (("v0.1.0", "v0.1.0"), ("a%20b", "a b"), ("007", "7")):
        request = HttpRequest("POST" if path == "/infer" else "GET", f"/v2/models/m/versions/{written}{path}")
        methods, request.params = PATHS["mlserver"].find(request.path)
        opened = methods[request.method].open(request)
        assert (opened.model, opened.version) == ("m", version)
    request = HttpRequest("GET", "/v2/models/m/versions/v0.1.0")
    methods, request.params = PATHS["kserve"].find(request.path)
    with pytest.raises(InferenceError, match="Not Found"):
        methods["GET"].open(request)


@pytest.mark.parametrize("name", ["load", "unload"])
@pytest.mark.parametrize("flavor", FLAVORS)
def test_control_is_answered_as_recorded(flavor: str, name: str) -> None:
    recorded = RECORDED[flavor, name]
    assert recorded.reply is not None
    status, document, _ = exchange(flavor, recorded.request(), None)
    assert (status, document) == (200, json.loads(recorded.reply.body) if recorded.reply.body else None)


@pytest.mark.parametrize(("flavor", "status"), [("kserve", 503), ("mlserver", 404)])
def test_a_model_that_there_is_not_to_load(flavor: str, status: int) -> None:
    recorded = RECORDED[flavor, "load_unknown"]
    assert recorded.reply is not None
    missing = InferenceError(ErrorCode.INTERNAL, "failed to load 'nope'")
    assert exchange(flavor, recorded.request(), missing)[0] == status == recorded.reply.status


def test_the_list_of_models() -> None:
    recorded = RECORDED["kserve", "model_list"]
    assert recorded.reply is not None
    theirs = json.loads(recorded.reply.body)
    models = tuple(ModelStatus(name) for name in theirs["models"])
    status, document, opened = exchange("kserve", recorded.request(), models)
    assert (status, document) == (200, theirs)
    assert (opened.action.operation, opened.argument) == (Operation.REPOSITORY_INDEX, IndexQuery(ready=True))
    assert not PATHS["mlserver"].find("/v2/models")[0]


def infer(outputs: list[str] | None = None, **members: Any) -> HttpRequest:
    data = {"shape": [1], "datatype": "INT32", "data": [1]}
    document = {"inputs": [{"name": "A", **data}, {"name": "B", **data}], **members}
    if outputs is not None:
        document["outputs"] = [{"name": name} for name in outputs]
    return HttpRequest("POST", "/v2/models/m/infer", body=json.dumps(document).encode())


def answered(*names: str, version: str = "1") -> InferResponse:
    tensors = tuple(Tensor.from_numpy(name, np.array([7], np.int32)) for name in names)
    return InferResponse("m", tensors, version)


def test_members_without_a_value() -> None:
    _, document, _ = exchange("kserve", infer(id="i"), answered("A", version=""))
    assert (document["model_version"], document["parameters"], document["id"]) == (None, None, "i")
    _, document, _ = exchange("kserve", infer(), replace(answered("A"), parameters={"k": 1}))
    assert (document["model_version"], document["parameters"]) == ("1", {"k": 1})
    _, document, _ = exchange("mlserver", infer(), answered("A", version=""))
    assert document["parameters"] == {}
    assert "model_version" not in document


@pytest.mark.parametrize("flavor", FLAVORS)
def test_an_id_is_invented(flavor: str) -> None:
    ids = {exchange(flavor, infer(), answered("A"))[1]["id"] for _ in range(3)}
    assert [len(each) for each in ids] == [36, 36, 36]


def test_outputs_in_the_order_of_the_request() -> None:
    for flavor, order in (("kserve", ["B", "A"]), ("mlserver", ["A", "B"])):
        _, document, _ = exchange(flavor, infer(["B", "A"]), answered("A", "B"))
        assert [each["name"] for each in document["outputs"]] == order


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize(
    "name", ["not_json", "empty_obj", "json_array", "inputs_obj", "missing_shape", "id_int", "params_not_obj"]
)
def test_a_body_that_fails_the_validation(flavor: str, name: str) -> None:
    recorded = RECORDED[flavor, name]
    assert recorded.reply is not None
    status, document, _ = exchange(flavor, recorded.request(), None)
    assert status == recorded.reply.status == 422
    assert document["detail"][0]["msg"] == document["error"] and "request_id" not in document
    asked = recorded.request()
    asked.headers = {**asked.headers, "x-request-id": "seven"}
    assert exchange(flavor, asked, None)[:2] == (422, {**document, "request_id": "seven"})


@pytest.mark.parametrize("flavor", FLAVORS)
def test_what_the_model_refuses_is_no_failed_validation(flavor: str) -> None:
    refused = InferenceError(ErrorCode.INVALID_TENSOR, "no")
    assert exchange(flavor, infer(), refused)[:2] == (400, {"error": "no"})


@pytest.mark.parametrize("flavor", FLAVORS)
def test_over_grpc(flavor: str) -> None:
    ready = GRPC[flavor][SERVICE + "ModelReady"]
    message = service_pb2.ModelReadyRequest(name="m").SerializeToString()
    opened = ready.open(GrpcRequest(ready.method, message))
    assert opened.action.encode(opened, Readiness(True)) == GrpcAnswer(b"\x08\x01")
    told = opened.action.encode(opened, Readiness(False, "why \ud800"))
    assert told is not None
    assert (told.code, told.details) == (5, "why \\ud800")
    endpoint = GRPC[flavor][SERVICE + "ModelInfer"]
    for given in ("", "mine"):
        message = service_pb2.ModelInferRequest(model_name="m", id=given).SerializeToString()
        opened = endpoint.open(GrpcRequest(endpoint.method, message))
        assert opened.action.decode is not None
        request, form = opened.action.decode(opened, SIGNATURE)
        assert request.id == form.id
        assert request.id == given if given else len(request.id) == 36
