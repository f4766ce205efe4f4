"""The status of a version or label that only an upstream of the dialect knows, through a server of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from interlingua.protocols.tfserving import DIALECT
from interlingua.protocols.wire import GrpcRequest, HttpRequest, parts_of
from interlingua.runtime.repository.files import ModelSource, load_models
from interlingua.runtime.target import Target
from interlingua.schemas import ServerMetadata
from interlingua.schemas.tfserving import MESSAGES
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import Conditions
from interlingua.translator.serving.routing.names import Names
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Split
from tests.e2e.daemon import ROOT
from tests.loopback import behind

MODEL = "multi_ver"


def pipeline(models: Mapping[str, Target], *routes: Route) -> Pipeline:
    service = Service(Router(models, routes), ServerMetadata("interlingua", "0"))
    return Pipeline(service, "loopback", list(DIALECT.bindings.values()))


@pytest.fixture(scope="module", params=["http", "grpc"])
def front(request: pytest.FixtureRequest) -> Pipeline:
    """Before a server whose model has the versions 3 and 7, and a label for the first."""
    loaded = load_models([ModelSource(MODEL, ROOT / "examples" / "models" / MODEL)])
    assert not loaded.failed
    labels = Route(Split.only(MODEL), Conditions(MODEL), Names(versions={"stable": "3", "": "7"}))
    there = pipeline(dict(loaded.models), labels)
    return pipeline({MODEL: behind(there, "tfserving", request.param, MODEL)})


async def status(front: Pipeline, which: str) -> tuple[int, str]:
    """The status of the answer, and its versions or its error."""
    handler = front.handlers["http"]
    request = HttpRequest("GET", f"/v1/models/{MODEL}{which}", "", {}, b"")
    answer = handler.head(request) or await handler.serve(request)
    document = json.loads(b"".join(parts_of(answer)))
    found = document.get("model_version_status", ())
    return answer.status, document.get("error") or ",".join(f"{v['version']} {v['state']}" for v in found)


@pytest.mark.parametrize(
    ("which", "code", "words"),
    [
        ("/labels/stable", 200, "3 AVAILABLE"),
        ("/versions/7", 200, "7 AVAILABLE"),
        ("/labels/other", 400, "Unrecognized servable version label: other"),
        ("/versions/9", 404, f"Could not find version 9 of model {MODEL}"),
    ],
)
async def test_over_rest(front: Pipeline, which: str, code: int, words: str) -> None:
    got, text = await status(front, which)
    assert (got, words in text) == (code, True), text


async def test_over_grpc(front: Pipeline) -> None:
    request = MESSAGES["tensorflow.serving.GetModelStatusRequest"]()
    request.model_spec.name, request.model_spec.version_label = MODEL, "stable"
    path = "/tensorflow.serving.ModelService/GetModelStatus"
    answer = await front.handlers["grpc"].serve(GrpcRequest(path, request.SerializeToString()))
    assert answer.code == 0, answer.details
    said = MESSAGES["tensorflow.serving.GetModelStatusResponse"].FromString(answer.message)
    assert [each.version for each in said.model_version_status] == [3]
