"""bRPC from a configuration on: a dialect of our own, over a listener, an upstream and HTTP beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from interlingua.protocols.brpc_status import BrpcStatus, unparsable
from interlingua.protocols.dialect import (
    Action,
    Binding,
    BrpcEndpoint,
    Capability,
    Dialect,
    HttpEndpoint,
    Opened,
    UpstreamCall,
)
from interlingua.protocols.manifest import Manifest
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.brpc.server import BrpcServer
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest, HttpAnswer
from interlingua.runtime.repository.files import Loaded
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelRef,
    Operation,
    Readiness,
    Signature,
    Tensor,
)
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.cli import parser
from interlingua.translator.cli.exchange import exchange
from interlingua.translator.config import ConfigError, parse
from interlingua.translator.daemon import _listen
from tests.protocols.transport.peers import RawHttp
from tests.standins.brpc_client import BrpcStandinClient
from tests.standins.brpc_frames import Received, request_frame
from tests.standins.brpc_server import BrpcStandinServer, answer_frame

SERVICE = "octets.v1.OctetService"


def _request(model: str, data: Any, name: str) -> InferRequest:
    view = memoryview(data)
    return InferRequest(model, (Tensor.checked(name, Datatype.UINT8, (len(view),), view),))


def _decode(opened: Opened[Any], signature: Signature) -> tuple[InferRequest, None]:
    return _request(opened.model, opened.message, signature.inputs[0].name), None


def _encode(form: None, response: InferResponse) -> BrpcAnswer:
    data = response.outputs[0].data
    assert isinstance(data, memoryview)
    return BrpcAnswer(data)


def _ready(opened: Opened[BrpcAnswer], said: Readiness) -> BrpcAnswer:
    return BrpcAnswer(b"ready" if said.ready else b"not ready")


INFER: Action[BrpcAnswer] = Action(Operation.INFER, _encode, _decode)
READY: Action[BrpcAnswer] = Action(Operation.MODEL_READY, _ready)


def _open(request: BrpcRequest) -> Opened[BrpcAnswer]:
    model, separator, octets = bytes(request.message).partition(b":")
    if not separator:
        raise InferenceError(ErrorCode.MALFORMED, "a message is MODEL:OCTETS")
    if request.method == "Raise":
        raise RuntimeError("a codec that breaks its promise")
    return Opened(INFER if request.method == "Infer" else READY, model.decode(), message=octets)


def _fail(request: BrpcRequest, opened: Opened[BrpcAnswer] | None, error: InferenceError) -> BrpcAnswer:
    if error.code is ErrorCode.MALFORMED:
        return unparsable(request)
    return BrpcAnswer(b"%s:%s" % (error.code.name.encode(), error.message.encode()))


def _call(argument: InferRequest, signature: Signature | None) -> tuple[BrpcRequest, str]:
    data = argument.inputs[0].data
    assert isinstance(data, memoryview)
    return BrpcRequest(SERVICE, "Infer", argument.model.encode() + b":" + data), argument.model


def _answer(model: str, answer: BrpcAnswer) -> InferResponse:
    view = memoryview(answer.message)
    return InferResponse(model, (Tensor.checked("OUT", Datatype.UINT8, (len(view),), view),))


def _call_ready(argument: ModelRef, signature: Signature | None) -> tuple[BrpcRequest, None]:
    return BrpcRequest(SERVICE, "Ready", argument.name.encode() + b":"), None


OVER_HTTP: Action[HttpAnswer] = Action(
    Operation.INFER,
    lambda form, response: HttpAnswer(200, (), (response.outputs[0].data,)),
    _decode,
)
HTTP_ENDPOINT = HttpEndpoint(
    "POST",
    "/OctetService/Infer",
    lambda request: Opened(OVER_HTTP, "echo", message=request.body),
    lambda request, opened, error: HttpAnswer(500, (), (error.message.encode(),)),
)
CAPABILITY = Capability(frozenset({Datatype.UINT8}))
OCTETS = Dialect.of(
    Binding(
        "octets",
        "brpc",
        CAPABILITY,
        tuple(BrpcEndpoint(SERVICE, name, _open, _fail) for name in ("Infer", "Ready", "Raise")),
        {
            Operation.INFER: UpstreamCall(_call, _answer),
            Operation.MODEL_READY: UpstreamCall(
                _call_ready, lambda form, answer: Readiness(bytes(answer.message) == b"ready")
            ),
        },
        multiplexed={"http": Binding("octets", "http", CAPABILITY, (HTTP_ENDPOINT,))},
    ),
    manifest=Manifest(by_default=True),
)
SPEC = [{"name": "X", "datatype": "UINT8", "shape": [-1]}]
SIGNATURE = {"inputs": SPEC, "outputs": [{**SPEC[0], "name": "OUT"}]}
LISTENER = {"listen": "127.0.0.1:0", "transport": "brpc"}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIALECTS, "octets", OCTETS)


@asynccontextmanager
async def listening(**document: object) -> AsyncIterator[tuple[Assembly, BrpcServer]]:
    """A daemon's parts around ``document``, with a model that echoes and one listener."""
    models: Mapping[str, object] = {"echo": {"backend": "identity", "signature": SIGNATURE}}
    text = yaml.safe_dump({"listeners": [{**LISTENER, "dialects": ["octets"]}], "models": models, **document})
    config = parse(text)
    assembly = assemble(config, load_local(config))
    (bound,) = await _listen(assembly)
    assert isinstance(bound.server, BrpcServer)
    try:
        yield assembly, bound.server
    finally:
        await bound.server.stop(0)
        await assembly.close()


def client(server: BrpcServer) -> Any:
    return BrpcStandinClient.to(server.address.host, server.address.port)


async def test_a_listener() -> None:
    async with listening() as (_, server), client(server) as caller:
        for service in (SERVICE, "OctetService"):
            reply = await caller.call("Infer", b"echo:octets", service=service)
            assert (reply.error, reply.payload) == ((0, ""), b"octets")
        assert (await caller.call("Ready", b"echo:", service=SERVICE)).payload == b"ready"
        failed = await caller.call("Infer", b"nope:", service=SERVICE)
        assert failed.payload.startswith(b"NOT_FOUND:")
        code, words = (await caller.call("Infer", b"none", service=SERVICE)).error
        assert (code, words.partition("Fail")[2]) == (
            BrpcStatus.EREQUEST,
            " to parse request message, CompressType=none, request_size=4",
        )
        assert (await caller.call("Raise", b"echo:", service=SERVICE)).payload.startswith(b"INTERNAL:")
        assert (await caller.call("Infer", b"", service="Other")).error[0] == BrpcStatus.ENOSERVICE
        assert (await caller.call("infer", b"", service="OctetService")).error[0] == BrpcStatus.ENOMETHOD


async def test_http_on_the_same_port() -> None:
    async with listening() as (_, server), RawHttp.to(server.address) as http:
        reply = await http.post("/OctetService/Infer", b"over HTTP")
        assert (reply.status, reply.body) == (200, b"over HTTP")
        # what the dialect answers on an HTTP listener stands there alone
        assert (await http.post("/OctetService/Other")).status == 404
        assert (await http.post("/v2/health/live")).status == 404


async def test_the_limit_of_the_configuration() -> None:
    listener = {**LISTENER, "dialects": ["octets"], "max_request_bytes": 1000, "max_response_bytes": 10}
    async with listening(listeners=[listener]) as (_, server), client(server) as caller:
        code, words = (await caller.call("Infer", b"echo:" + bytes(11), service=SERVICE)).error
        assert code == BrpcStatus.ERESPONSE and "max_response_bytes" in words
        await caller.send(b"PRPC" + (1001).to_bytes(4, "big") + bytes(4))
        assert await caller.ended()


async def test_the_concurrency_of_the_configuration() -> None:
    listener = {**LISTENER, "dialects": ["octets"], "max_concurrency": 1}
    async with listening(listeners=[listener]) as (_, server), client(server) as caller:
        asked = request_frame("Infer", b"echo:x", service=SERVICE)
        await caller.send(asked * 2)
        errors = {(await caller.receive()).error[0] for _ in range(2)}
        assert errors == {0, BrpcStatus.ELIMIT}
    with pytest.raises(ConfigError, match=r"max_concurrency: is for transport brpc, not http"):
        parse(yaml.safe_dump({"listeners": [{"listen": ":0", "transport": "http", "max_concurrency": 1}]}))


async def test_an_upstream() -> None:
    async with listening() as (_, server):
        upstream = {"dialect": "octets", "transport": "brpc", "urls": [f"brpc://{server.address}"]}
        model = {"upstream": "there", "remote_model": "echo", "signature": SIGNATURE}
        config = parse(
            yaml.safe_dump(
                {
                    "listeners": [{"listen": ":0", "transport": "http"}],
                    "upstreams": {"there": upstream},
                    "models": {"m": model},
                }
            )
        )
        assembly = assemble(config, Loaded())
        target = assembly.service.router.models["m"]
        try:
            answers = await asyncio.gather(
                *(target.infer(_request("m", b"%d" % number, "X")) for number in range(50))
            )
            assert [bytes(answer.outputs[0].data) for answer in answers] == [b"%d" % n for n in range(50)]
            assert len(server.connections.open) == 1
            assert (await target.ready()).ready
            await server.stop(0)
            with pytest.raises(InferenceError) as caught:
                await target.infer(_request("m", b"", "X"))
            assert caught.value.code is ErrorCode.UNAVAILABLE
            assert caught.value.origin == "there"
        finally:
            await assembly.close()


async def test_the_callers_deadline_reaches_the_upstream() -> None:
    async def answer(received: Received) -> bytes:
        return answer_frame(received.correlation_id, received.payload)

    async with BrpcStandinServer({"Infer": answer}).running() as standin:
        told = {"dialect": "octets", "transport": "brpc", "urls": [f"127.0.0.1:{standin.port}"]}
        model = {"upstream": "there", "remote_model": "theirs", "signature": SIGNATURE}
        async with (
            listening(upstreams={"there": told}, models={"m": model}) as (_, server),
            client(server) as caller,
        ):
            reply = await caller.call("Infer", b"m:x", service=SERVICE, timeout_ms=5000)
            assert reply.payload == b"theirs:x"
            await caller.call("Infer", b"m:x", service=SERVICE)
        bounded, default = (received.timeout_ms for received in standin.received)
        assert bounded in range(1, 5001)
        assert default in range(50_000, 60_001)


async def test_called_from_the_command_line(tmp_path: Path) -> None:
    octets = np.arange(5, dtype=np.uint8)
    np.save(tmp_path / "x.npy", octets)
    async with listening() as (_, server):
        there = ["--dialect=octets", "--transport=brpc", f"--url={server.address}", "--model=echo"]
        inputs = [f"--input=X=@{tmp_path}/x.npy", "--timeout-secs=10"]
        async with exchange(parser().parse_args(["infer", *there, *inputs])) as request:
            answer = await request.once()
        assert bytes(answer.outputs[0].data) == octets.tobytes()


def test_which_dialects_a_listener_may_have() -> None:
    carried = [name for name, dialect in DIALECTS.items() if "brpc" in dialect.bindings]
    config = parse(yaml.safe_dump({"listeners": [LISTENER]}))
    assert list(config.listeners[0].dialects) == carried
    assert "octets" in carried and "oip" not in carried
    with pytest.raises(ConfigError, match="'oip' does not travel over brpc"):
        parse(yaml.safe_dump({"listeners": [{**LISTENER, "dialects": ["oip"]}]}))
    told = {"dialect": "oip", "transport": "brpc", "urls": ["a:1"]}
    with pytest.raises(ConfigError, match="'oip' does not travel over brpc"):
        parse(yaml.safe_dump({"listeners": [LISTENER], "upstreams": {"there": told}}))


@pytest.mark.parametrize("url", ["http://a:1", "brpc://a:1/base"])
def test_urls_that_bRPC_has_no_use_for(url: str) -> None:
    told = {"dialect": "octets", "transport": "brpc", "urls": [url]}
    with pytest.raises(ConfigError, match=r"upstreams\.there\.urls"):
        parse(yaml.safe_dump({"listeners": [LISTENER], "upstreams": {"there": told}}))
