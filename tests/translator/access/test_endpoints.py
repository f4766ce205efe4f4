"""No endpoint of any dialect answers a caller whom the listener does not permit."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.reflection import REFLECTION_METHODS
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import BrpcRequest, FramedRequest, GrpcRequest, HttpRequest
from interlingua.schemas import Context, InferenceError, ServerMetadata
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.build import authenticator_of
from interlingua.translator.access.classes import CLASSES, WITH_MODEL
from interlingua.translator.access.grants import read_grants
from interlingua.translator.config.auth import AuthOptions
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.conformance.grps_echo import Echo
from tests.translator.access.credentials import token_lines

V1_STREAM = "/nvidia.inferenceserver.GRPCService/StreamInfer"

REFUSED = re.compile("does not permit operations of class '([a-z_]+)' to this caller")

INCOMPLETE = (
    "request has no '(key|raw_handle)' field",
    '"Not Found"',
    "GraphPipe message is empty",
    "is not offered, only",
    "missing header NV-InferRequest",
    "No content type in headers",
    "No model name",
    "Content type is not supported",
    "The model name is empty",
    "Not Found",
    "unknown health mode",
    "request type is not specified",
    "unknown sharedmemorycontrol request type",
    "GPUs not supported",
    "Missing ModelSpec",
    "at least one task",
    "Only ModelConfigList is currently supported",
    "has no explainer",
)
"""The errors of requests without the members that their endpoint needs, which are read first, and of those that
no server of ours supports."""


def nobody(dialect: str, flavor: str = "") -> Pipeline:
    """A listener of ``dialect`` that permits nothing to anybody."""
    service = Service(Router({"m": Echo("m", "1")}), ServerMetadata("interlingua", "0"))
    grants = read_grants({name: [] for name in CLASSES})
    bindings = [each.flavored(flavor) for each in DIALECTS[dialect].bindings.values()]
    return Pipeline(service, "0.0.0.0:1", bindings, "m", authorization=Authorization("0.0.0.0:1", grants))


FLAVORS = [(name, flavor) for name, dialect in DIALECTS.items() for flavor in dialect.flavors or ("",)]


def _named(key: Any) -> str:
    return f"{key.method} {key.path}" if hasattr(key, "path") else str(key)


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


def asking(place: str, key: Any) -> Any:
    """An empty request for an endpoint."""
    context = Context(peer="127.0.0.1")
    if place.endswith("http"):
        path = re.sub(r"\{(version|offset|size|device)\}", "1", key.path)
        path = re.sub(r"\{mode\}", "live", re.sub(r"\{(?!mode)\w+\}", "m", path)).replace("*", "/")
        method = "POST" if key.method == "*" else key.method
        return HttpRequest(method, path, "", {"accept": "text/html"}, b"", context=context)
    if place.endswith("grpc"):
        return GrpcRequest(key, b"", {}, context)
    return BrpcRequest(*key, b"", context) if place == "brpc" else FramedRequest(b"", context=context)


def class_refused(answer: Any) -> str | None:
    """The class of operations that ``answer`` refuses."""
    said = str(answer) if not hasattr(answer, "parts") else f"{answer} {b''.join(answer.parts)!r}"
    refused = REFUSED.search(said.replace("\\", ""))
    return None if refused is None else refused[1]


def endpoints(pipeline: Pipeline) -> Iterator[tuple[str, Any, Any]]:
    for place, handler in pipeline.handlers.items():
        for key in handler._endpoints:
            yield place, handler, key


@pytest.mark.parametrize(("dialect", "flavor"), FLAVORS)
async def test_every_endpoint_refuses_from_the_head(dialect: str, flavor: str) -> None:
    seen = set()
    for place, handler, key in endpoints(nobody(dialect, flavor)):
        request = asking(place, key)
        answer = handler.head(request) if place.endswith("http") else handler.refusal(request)
        operations = handler._endpoints[key][0].operations
        if str(key) == V1_STREAM:
            assert answer is None  # a refusal has the id of its message
            (answer,) = [each async for each in handler.stream(request, _nothing())]
        elif not place.endswith("http") and WITH_MODEL.intersection(operations):
            assert answer is None  # the audit log has the model of the message
            continue
        refused = class_refused(answer)
        assert refused, (place, _named(key), answer)
        seen.add(refused)
    assert {"inference", "health", "metadata"} <= seen <= set(CLASSES)


@pytest.mark.parametrize(("dialect", "flavor"), FLAVORS)
async def test_every_endpoint_states_its_operations(dialect: str, flavor: str) -> None:
    """And refuses what its head has let pass."""
    for place, handler, key in endpoints(nobody(dialect, flavor)):
        request, (endpoint, *_) = asking(place, key), handler._endpoints[key]
        if place.endswith("http"):
            assert handler.head(request)  # the segments of the path
        opened, said = None, ""
        try:
            opened = endpoint.open(request)
        except InferenceError as error:
            said = str(error)
        if opened is None:
            assert any(re.search(text, said) for text in INCOMPLETE), (place, _named(key), said)
            continue
        if str(key) != V1_STREAM:
            assert opened.action.operation in endpoint.operations, (place, _named(key))
        if not (place.endswith("grpc") and handler.offers(key) == "stream"):
            assert class_refused(await handler.serve(request)), (place, _named(key))


async def test_server_reflection_is_metadata() -> None:
    async def ask(handler: Any) -> list[Any]:
        call = GrpcRequest(min(REFLECTION_METHODS), b"", {}, Context(peer="127.0.0.1"))
        return [answer async for answer in handler.stream(call, _nothing())]

    (refusal,) = await ask(nobody("oip").handlers["grpc"])
    assert (refusal.code, "'metadata'" in refusal.details) == (7, True)
    service = Service(Router({}), ServerMetadata("interlingua", "0"))
    (answer,) = await ask(Pipeline(service, "0.0.0.0:1", [DIALECTS["oip"].bindings["grpc"]]).handlers["grpc"])
    assert answer.code == 0


async def test_server_reflection_needs_credentials(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(token_lines(ann="right", bob="other"))
    service = Service(Router({}), ServerMetadata("interlingua", "0"))
    authenticator = authenticator_of(AuthOptions(tokens=str(tmp_path / "tokens")))
    grants = read_grants({"metadata": ["user:ann"]})
    authorization = Authorization("0.0.0.0:1", grants, authenticator=authenticator)
    binding = DIALECTS["oip"].bindings["grpc"]
    handler = Pipeline(service, "0.0.0.0:1", [binding], authorization=authorization).handlers["grpc"]
    for headers, code in (
        ({"x-api-key": "right"}, 0),
        ({"x-api-key": "other"}, 7),
        ({"x-api-key": "wrong"}, 16),
        ({}, 16),
    ):
        call = GrpcRequest(min(REFLECTION_METHODS), b"", headers, Context(headers=headers))
        assert [answer.code async for answer in handler.stream(call, _nothing())] == [code]
