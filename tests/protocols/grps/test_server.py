"""The endpoints over HTTP: which there are in each flavor, and what they answer beside inference."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from interlingua.protocols.grps.options import PredictOptions, StreamingControl
from interlingua.protocols.wire import HttpRequest
from interlingua.translator.serving.pipeline import Pipeline
from tests.conformance.grps_echo import Echo
from tests.conformance.grps_replay import Reply, pipeline, send

PREDICT = "/grps/v1/infer/predict"
PATHS = {
    "health/live": ("GET", "POST"),
    "health/ready": ("GET", "POST"),
    "health/online": ("GET", "POST"),
    "health/offline": ("GET", "POST"),
    "metadata/server": ("GET", "POST"),
    "metadata/model": ("POST",),
    "infer/predict": ("POST",),
}


def server(flavor: str = "py", options: PredictOptions | None = None) -> Pipeline:
    models = {"your_model": Echo("your_model", "1.0.0")}
    return pipeline(models, flavor, options or PredictOptions(), "your_model")


def ask(told: Pipeline, method: str, target: str, body: bytes = b"", **headers: str) -> Reply:
    path, _, query = target.partition("?")
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return send(told, HttpRequest(method, path, query, given, memoryview(body)))


def predict(told: Pipeline, document: Any, query: str = "", path: str = PREDICT, **headers: str) -> Reply:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers.setdefault("content_type", "application/json")
    return ask(told, "POST", f"{path}{query}", body, **headers)


@pytest.mark.parametrize(("path", "methods"), PATHS.items())
def test_methods(path: str, methods: tuple[str, ...]) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        status = ask(server("py"), method, f"/grps/v1/{path}").status
        assert (status == 405) == (method not in methods)
        assert ask(server("cpp"), method, f"/grps/v1/{path}").status == 200
    assert ask(server("py"), "OPTIONS", f"/grps/v1/{path}").status == 200
    assert ask(server("py"), "GET", f"/grps/v1/{path}/").status == 404
    assert ask(server("cpp"), "GET", f"/grps/v1/{path}/").status == 200


def test_unknown_paths() -> None:
    for flavor, kind in (("py", "text/html; charset=utf-8"), ("cpp", "text/plain")):
        told = ask(server(flavor), "GET", "/nope")
        assert (told.status, told.content_type) == (404, kind)
    assert ask(server("cpp"), "POST", "/grps/v1/monitor/series").status == 405


def test_the_metadata_of_a_model() -> None:
    path = "/grps/v1/metadata/model"
    for flavor in ("py", "cpp"):
        told = ask(server(flavor), "POST", path, b'{"str_data": "your_model"}')
        assert yaml.safe_load(json.loads(told.body or b"")["str_data"])["version"] == "1.0.0"
    statuses = {
        b"": (400, 404),
        b"{}": (400, 404),
        b'{"str_data": ""}': (404, 404),
        b'{"str_data": "nope"}': (404, 404),
    }
    for body, codes in statuses.items():
        for flavor, code in zip(("py", "cpp"), codes, strict=True):
            told = ask(server(flavor), "POST", path, body)
            assert json.loads(told.body or b"")["status"]["code"] == code, (body, flavor)
            assert told.status == (code if flavor == "py" else 200)
    for flavor, kind in (("py", "text/html; charset=utf-8"), ("cpp", "text/plain")):
        for body in (b"{bad", b'{"str_data": 5}', b"[]"):
            told = ask(server(flavor), "POST", path, body)
            assert (told.status, told.content_type) == (400, kind), (body, flavor)


@pytest.mark.parametrize(
    ("control", "query", "headers", "members", "streams"),
    [
        (StreamingControl(), "?streaming=TRUE", {}, {}, True),
        (StreamingControl(), "?streaming=1", {}, {}, False),
        (StreamingControl(), "?a=b&streaming=%74rue&streaming=false", {}, {}, True),
        (StreamingControl("query_param", "s"), "?streaming=true", {}, {}, False),
        (StreamingControl("header_param", "X-Stream"), "", {"x_stream": "True"}, {}, True),
        (StreamingControl("header_param", "X-Stream"), "?X-Stream=true", {}, {}, False),
        (StreamingControl("body_param", "stream"), "", {}, {"stream": True}, True),
        (StreamingControl("body_param", "stream"), "", {}, {"stream": "true"}, False),
        (StreamingControl("body_param", "stream"), "", {}, {"stream": 1}, False),
    ],
)
def test_how_a_stream_is_requested(
    control: StreamingControl, query: str, headers: dict[str, str], members: dict[str, Any], streams: bool
) -> None:
    told = predict(
        server(options=PredictOptions("", False, control)), {"str_data": "x", **members}, query, **headers
    )
    assert (told.chunks is not None) is streams
    assert told.status == 200


def test_a_path_of_ones_own() -> None:
    options = PredictOptions("/mine", False, StreamingControl(content_type="text/plain"))
    for flavor in ("py", "cpp"):
        told = server(flavor, options)
        answers = [predict(told, {"str_data": "x"}, path=path).body for path in ("/mine", PREDICT)]
        assert answers[0] == answers[1]
        assert ask(told, "GET", "/mine", b'{"str_data": "x"}', content_type="application/json").status == 200
        kind = predict(told, {"str_data": "x"}, "?streaming=true", "/mine").content_type
        assert kind == {"py": "text/plain; charset=utf-8", "cpp": "text/plain"}[flavor]
    assert ask(server(), "GET", "/mine").status == 404


def test_content_types() -> None:
    for kind in ("application/json;charset=utf-8", "Application/JSON", " application/json "):
        assert predict(server(), {"str_data": "x"}, content_type=kind).status == 200
    told = predict(server(), b"\x00\xff", content_type="Application/Octet-Stream")
    assert (told.content_type, told.body) == ("application/octet-stream", b"\x00\xff")
    assert predict(server(), {"str_data": "x"}, content_type="text/json").status == 400


def test_which_model() -> None:
    told = server()
    assert predict(told, {"str_data": "x", "model": "your_model-1.0.0"}, "?model=nope").status == 200
    assert predict(told, {"str_data": "x", "model": ""}, "?model=your_model").status == 200
    refused = predict(told, {"str_data": "x"}, "?model=nope%2D1")
    assert json.loads(refused.body or b"")["status"]["msg"] == "Model nope-1 not found."
    streamed = predict(told, {"str_data": "x", "model": "nope"}, "?streaming=true")
    assert (streamed.status, len(streamed.chunks or ())) == (200, 1)
    assert json.loads(streamed.body or b"")["status"]["code"] == 500
