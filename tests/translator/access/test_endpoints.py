"""No endpoint of any dialect answers a caller whom the listener does not permit."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.reflection import REFLECTION_METHODS
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import BrpcRequest, FramedRequest, GrpcRequest, HttpRequest
from interlingua.schemas import Context, ServerMetadata
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.build import authenticator_of
from interlingua.translator.access.classes import CLASSES
from interlingua.translator.access.grants import read_grants
from interlingua.translator.config.auth import AuthOptions
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.conformance.grps_echo import Echo
from tests.translator.access.credentials import token_lines

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


async def asked(handler: Any, place: str, key: Any) -> str:
    """What the endpoint answers, with everything around it."""
    context = Context(peer="127.0.0.1")
    if place.endswith("http"):
        path = re.sub(r"\{(version|offset|size|device)\}", "1", key.path)
        path = re.sub(r"\{mode\}", "live", re.sub(r"\{(?!mode)\w+\}", "m", path)).replace("*", "/")
        method = "POST" if key.method == "*" else key.method
        request = HttpRequest(method, path, "", {"accept": "text/html"}, b"", context=context)
        answer = handler.head(request) or await handler.serve(request)
        return f"{answer.headers} {b''.join(answer.parts)!r}"
    if place.endswith("grpc"):
        call = GrpcRequest(key, b"", {}, context)
        if handler.offers(key) == "stream":
            return str([answer async for answer in handler.stream(call, _nothing())])
        return str(await handler.serve(call))
    if place == "brpc":
        return str(await handler.serve(BrpcRequest(*key, b"", context)))
    return str(b"".join((await handler.serve(FramedRequest(b"", context=context))).parts))


@pytest.mark.parametrize(("dialect", "flavor"), FLAVORS)
async def test_refused(dialect: str, flavor: str) -> None:
    seen: set[str] = set()
    for place, handler in nobody(dialect, flavor).handlers.items():
        for key in handler._endpoints:
            said = (await asked(handler, place, key)).replace("\\", "")
            refused = REFUSED.search(said)
            if refused is None:
                assert any(re.search(text, said) for text in INCOMPLETE), (place, _named(key), said)
            else:
                seen.add(refused[1])
    assert "metadata" in seen
    assert seen <= set(CLASSES)


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
