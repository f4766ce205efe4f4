"""Pages of other origins: what a browser lets them do, and what the listener does."""

from __future__ import annotations

from typing import Any

import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import Context, ErrorCode, InferenceError, ServerMetadata
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.grants import read_grants
from interlingua.translator.config import ConfigError, parse
from interlingua.translator.logs import setup as logs
from interlingua.translator.serving.cors import CorsPolicy
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.settings import LogBook

APP, OTHER = "https://app.example.org", "https://other.example.org"


def listener(*origins: str, allow: Any = None, **policy: Any) -> Any:
    service = Service(Router({}), ServerMetadata("s", "1"), log=LogBook(logs.settings("info"), logs.apply))
    listed = frozenset(origins)
    authorization = Authorization("0.0.0.0:1", read_grants(allow or {}), origins=listed)
    cors = CorsPolicy(listed, **policy) if origins else None
    bindings = [DIALECTS["oip"].bindings["http"]]
    return Pipeline(service, "0.0.0.0:1", bindings, authorization=authorization, cors=cors).handlers["http"]


async def send(handler: Any, method: str, path: str, origin: str | None, **headers: str) -> HttpAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"host": "there:8000", **named, **({} if origin is None else {"origin": origin})}
    request = HttpRequest(method, path, "", sent, b"{}", context=Context(peer="127.0.0.1", headers=sent))
    answer = handler.head(request) or await handler.serve(request)
    assert isinstance(answer, HttpAnswer)
    return answer


def of_cors(answer: HttpAnswer) -> dict[str, str]:
    return {
        name.lower(): value for name, value in answer.headers if name.lower().startswith(("access-", "vary"))
    }


async def test_preflight_needs_no_authorization() -> None:
    handler = listener(APP, allow={"inference": ["user:*"], "control": []})
    wanted = {"access_control_request_method": "POST", "access_control_request_headers": "authorization,x-a"}
    answer = await send(handler, "OPTIONS", "/v2/models/m/infer", APP, **wanted)
    assert answer.status == 204
    assert of_cors(answer) == {
        "access-control-allow-origin": APP,
        "vary": "Origin",
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization,x-a",
        "access-control-max-age": "600",
    }
    for origin in (OTHER, "null", None):
        refused = await send(handler, "OPTIONS", "/v2/models/m/infer", origin, **wanted)
        assert (refused.status, of_cors(refused)) == (405, {})
    # it is no preflight
    assert (await send(handler, "OPTIONS", "/v2/models/m/infer", APP)).status == 405


async def test_options_of_the_policy() -> None:
    handler = listener(APP, headers=("x-a", "x-b"), credentials=True, max_age_secs=5)
    answer = await send(handler, "OPTIONS", "/", APP, access_control_request_method="PUT")
    found = of_cors(answer)
    assert found["access-control-allow-headers"] == "x-a, x-b"
    assert found["access-control-max-age"] == "5"
    assert found["access-control-allow-credentials"] == "true"
    assert of_cors(await send(handler, "GET", "/v2", APP))["access-control-allow-credentials"] == "true"


@pytest.mark.parametrize(("path", "status"), [("/v2", 200), ("/v2/models/m", 404), ("/none", 404)])
async def test_pages_of_permitted_origins_read_answers(path: str, status: int) -> None:
    handler = listener(APP)
    answer = await send(handler, "GET", path, APP, x_request_id="7")
    assert answer.status == status
    found = of_cors(answer)
    own = [name.lower() for name, _ in answer.headers if name.lower() not in found]
    assert "x-request-id" in own
    assert found == {
        "access-control-allow-origin": APP,
        "vary": "Origin",
        "access-control-expose-headers": ", ".join(own),
    }
    for origin in (OTHER, "null", None):
        assert of_cors(await send(handler, "GET", path, origin)) == {}
    assert of_cors(await send(listener("*"), "GET", path, OTHER))["access-control-allow-origin"] == OTHER
    assert of_cors(await send(listener(), "GET", path, APP)) == {}


async def test_refusals_are_readable() -> None:
    handler = listener(APP)
    request = HttpRequest("POST", "/v2/models/m/infer", "", {"origin": APP}, context=Context())
    assert handler.head(request) is None
    answer = handler.refuse(request, InferenceError(ErrorCode.TOO_LARGE, "too large"))
    assert (answer.status, of_cors(answer)["access-control-allow-origin"]) == (413, APP)


async def test_privileged_operations_are_for_listed_origins() -> None:
    """A page of any origin may not, however many origins may read answers."""
    for origins, status in ((), 403), (("*",), 403), ((OTHER,), 403), ((APP,), 200), (("*", APP), 200):
        answer = await send(listener(*origins), "POST", "/v2/logging", APP, sec_fetch_site="cross-site")
        assert answer.status == status, origins
    # an image has no origin
    answer = await send(listener(APP), "POST", "/v2/logging", None, sec_fetch_site="cross-site")
    assert answer.status == 403


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            "transport: grpc, cors: {allow_origins: ['*']}",
            "cors: is for transport http, brpc or any, not grpc",
        ),
        ("transport: http, cors: {allow_origins: []}", "cors.allow_origins: must not be empty"),
        ("transport: http, cors: {allow_origins: ['https://a/']}", "'https://a/' is no origin"),
        ("transport: http, cors: {allow_origins: ['null']}", "'null' is no origin"),
        (
            "transport: http, cors: {allow_origins: ['*'], allow_credentials: true}",
            "cors: allow_credentials is for listed origins, not for '*'",
        ),
    ],
)
def test_mistakes_are_errors_of_the_file(options: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(f"listeners: [{{listen: ':0', {options}}}]")
    assert text in str(refused.value)
