"""The status of a version or label that only an upstream of the dialect knows, through a server of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from interlingua.protocols.tfserving import DIALECT
from interlingua.protocols.wire import GrpcRequest, HttpRequest, parts_of
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.files import ModelSource, load_models
from interlingua.runtime.target import Target
from interlingua.schemas import ModelState, ModelStatus, ServerMetadata, VersionStatus
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


class Failing(LocalModel):
    """A model whose version 3 has failed, as its status says."""

    async def status(self) -> ModelStatus:
        found = await super().status()
        versions = [
            VersionStatus("3", ModelState.UNAVAILABLE, "out of memory") if each.version == "3" else each
            for each in found.versions
        ]
        return replace(found, versions=tuple(versions))


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_the_status_without_a_version_has_all(transport: str) -> None:
    loaded = load_models([ModelSource(MODEL, ROOT / "examples" / "models" / MODEL)])
    model = loaded.models[MODEL]
    front = pipeline({MODEL: behind(pipeline(dict(loaded.models)), "tfserving", transport, MODEL)})
    numbers = sorted(map(int, model.loaded), reverse=True)
    assert len(numbers) > 1
    assert await status(front, "") == (200, ",".join(f"{number} AVAILABLE" for number in numbers))
    model.__class__ = Failing
    code, text = await status(front, "")
    assert (code, "7 AVAILABLE" in text, "3 END" in text) == (200, True, True)
    code, text = await status(front, "/versions/3")
    assert (code, text) == (200, "3 END")
    assert front.service.router.models[MODEL].readiness().ready


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


async def test_answers_have_the_label(front: Pipeline, request: pytest.FixtureRequest) -> None:
    handler = front.handlers["http"]
    asked = HttpRequest("GET", f"/v1/models/{MODEL}/labels/stable/metadata")
    answer = handler.head(asked) or await handler.serve(asked)
    document = json.loads(b"".join(parts_of(answer)))
    assert document["model_spec"] == {"name": MODEL, "signature_name": "", "version_label": "stable"}
    predict = MESSAGES["tensorflow.serving.PredictRequest"]()
    predict.model_spec.name, predict.model_spec.version_label = MODEL, "stable"
    predict.inputs["INPUT0"].dtype = 3
    predict.inputs["INPUT0"].tensor_shape.dim.add(size=1)
    path = "/tensorflow.serving.PredictionService/Predict"
    found = await front.handlers["grpc"].serve(GrpcRequest(path, predict.SerializeToString()))
    assert found.code == 0, found.details
    spec = MESSAGES["tensorflow.serving.PredictResponse"].FromString(bytes(found.whole)).model_spec
    over_rest = request.node.callspec.params["front"] == "http"  # where answers have no version
    assert spec.WhichOneof("version_choice") == (None if over_rest else "version_label")
    assert spec.version_label == ("" if over_rest else "stable")


async def test_a_version_that_no_server_has_is_named_once(front: Pipeline) -> None:
    handler = front.handlers["http"]
    request = HttpRequest("POST", f"/v1/models/{MODEL}/versions/9:predict", "", {}, b'{"instances":[1]}')
    answer = handler.head(request) or await handler.serve(request)
    text = json.loads(b"".join(parts_of(answer)))["error"]
    words = f"Servable not found for request: Specific({MODEL}, 9)"
    assert (answer.status, text.startswith(words), text.count(words)) == (404, True, 1), text
