"""The flavor of KServe's version 1, by bodies written by hand."""

from __future__ import annotations

import json

import pytest

from interlingua.protocols.wire import parts_of
from tests.protocols.tfserving.exchange import MODELS, Server

EVENT = {"ce-specversion": "1.0", "ce-id": "36077800", "ce-source": "io.kserve.test", "ce-type": "a.request"}


@pytest.fixture(scope="module")
def server() -> Server:
    return Server("kserve")


async def test_models(server: Server) -> None:
    assert await server.rest("GET", "/") == (200, {"status": "alive"})
    status, answer = await server.rest("GET", "/v1/models")
    assert (status, set(answer["models"])) == (200, set(MODELS))
    assert await server.rest("GET", "/v1/models/row") == (200, {"name": "row", "ready": True})
    status, answer = await server.rest("GET", "/v1/models/nothing")
    assert status == 503
    assert answer["error"].startswith("Model with name nothing is not ready.")


async def test_predictions(server: Server) -> None:
    assert await server.predict("row", {"instances": [1, 2]}) == (200, {"predictions": [1.0, 2.0]})
    status, answer = await server.predict("nothing", {"instances": [1, 2]})
    assert status == 404
    assert answer["error"].startswith("Model with name nothing does not exist.")


async def test_explanations_are_refused_by_name(server: Server) -> None:
    status, answer = await server.rest("POST", "/v1/models/row:explain", {"instances": [1]})
    assert (status, answer) == (501, {"error": "model 'row' has no explainer: ':explain' is not supported"})


async def test_cloud_events(server: Server) -> None:
    headers = {**EVENT, "ce-time": "2026-01-01T00:00:00Z", "ce-trace": "7"}
    answer = await server.send("POST", "/v1/models/row:predict", {"instances": [1]}, headers)
    told = {name.lower(): value for name, value in answer.headers}
    assert json.loads(b"".join(parts_of(answer))) == {"predictions": [1.0]}
    assert told["content-type"] == "application/json"
    assert (told["ce-type"], told["ce-source"]) == (
        "io.kserve.inference.response",
        "io.kserve.inference.row",
    )
    assert (told["ce-specversion"], "ce-trace" in told) == ("1.0", False)
    assert told["ce-id"] not in ("", EVENT["ce-id"])
    assert told["ce-time"] > headers["ce-time"]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({name: value for name, value in EVENT.items() if name != "ce-type"}, "header ce-type is missing"),
        ({**EVENT, "ce-specversion": "9"}, "unknown specversion"),
    ],
)
async def test_invalid_cloud_events(server: Server, headers: dict[str, str], text: str) -> None:
    answer = await server.rest("POST", "/v1/models/row:predict", {"instances": [1]}, headers=headers)
    assert answer[0] == 400
    assert text in answer[1]["error"]


async def test_paths_of_the_other_flavor_are_unknown(server: Server) -> None:
    assert await server.rest("GET", "/v1/models/row/metadata") == (404, {"detail": "Not Found"})
    assert await server.rest("POST", "/v1/models/row") == (405, {"detail": "Method Not Allowed"})
