"""Headers on their way through the daemon: to upstreams, into parameters, and back with the answer.

What arrives is what servers of other makes read: aiohttp, grpcio, frames of bRPC cut by hand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import orjson
import pytest
import yaml
from aiohttp import web

from interlingua.protocols.transport.address import Address
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config import parse
from interlingua.translator.daemon import _listen
from tests.standins import oip_grpc_server
from tests.standins.brpc_client import BrpcStandinClient
from tests.standins.brpc_frames import Received, number, text
from tests.standins.brpc_server import BrpcStandinServer, answer_frame
from tests.standins.grps_contract import GrpsMessage, gtensors
from tests.standins.oip_http_server import Seen, oip_http_server
from tests.waiting import until

SUCCESS = 1
"""The number of that status in grps."""

HIGH, LOW, SPAN = "0af7651916cd43dd", "8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{HIGH}{LOW}-{SPAN}-01"
TRACE = {"traceparent": TRACEPARENT, "tracestate": "congo=t61rcWkgMzE"}
SENT = {**TRACE, "x-request-id": "seven", "x-tenant": "blue", "x-private": "secret", "cookie": "a=b"}
CARRIED = {**TRACE, "x-request-id": "seven", "x-tenant": "blue"}
FOLLOWED = (*SENT, "authorization")
SIGNATURE = {
    "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1]}],
    "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1]}],
}


def followed(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name in FOLLOWED}


@dataclass
class Behind:
    """Servers behind the daemon, by transport, and the headers of the inferences that they were asked for.
    ``others`` has the headers of whatever else each was asked."""

    ports: dict[str, int]
    http: Seen
    grpc: oip_grpc_server.Seen
    brpc: list[Received] = field(default_factory=list)

    def arrived(self, transport: str) -> list[dict[str, str]]:
        return [followed(headers) for inference, headers in self._all(transport) if inference]

    def others(self, transport: str) -> list[dict[str, str]]:
        return [followed(headers) for inference, headers in self._all(transport) if not inference]

    def _all(self, transport: str) -> list[tuple[bool, dict[str, str]]]:
        if transport == "http":
            return [(path.endswith("/infer"), headers) for path, headers in self.http.headers]
        if transport == "grpc":
            return [(method == "ModelInfer", headers) for method, headers in self.grpc.metadata]
        return [(each.asked[1] == "Predict", each.user_fields) for each in self.brpc]


@asynccontextmanager
async def servers() -> AsyncIterator[Behind]:
    async with AsyncExitStack() as running:
        http, over_grpc = Seen(), oip_grpc_server.Seen()
        runner = web.AppRunner(oip_http_server(http))
        await runner.setup()
        running.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server, grpc_port = await oip_grpc_server.start(over_grpc)
        running.push_async_callback(server.stop, 0)

        async def predict(received: Received) -> bytes:
            message = GrpsMessage.FromString(received.payload)
            message.gtensors.tensors[0].name = "OUTPUT0"
            message.status.status = SUCCESS
            return answer_frame(received.correlation_id, message.SerializeToString())

        async def other(received: Received) -> bytes:
            return answer_frame(received.correlation_id, GrpsMessage().SerializeToString())

        methods = {"Predict": predict, **dict.fromkeys(("CheckReadiness", "CheckLiveness"), other)}
        brpc = await running.enter_async_context(BrpcStandinServer(methods).running())
        ports = {"http": runner.addresses[0][1], "grpc": grpc_port, "brpc": brpc.port}
        yield Behind(ports, http, over_grpc, brpc.received)


@asynccontextmanager
async def daemon(behind: Behind | None = None, **document: Any) -> AsyncIterator[dict[str, Address]]:
    """A daemon with a listener for each transport; its addresses. Models ``http``, ``grpc`` and ``brpc`` are
    behind upstreams of those transports."""
    listener = document.pop("listener", {})
    upstream = document.pop("upstream", {"forward_headers": ["X-Tenant"]})
    document.setdefault("models", {})
    upstreams = {}
    for transport, port in (behind.ports if behind else {}).items():
        dialect = "grps" if transport == "brpc" else "oip"
        upstreams[transport] = {
            "dialect": dialect, "transport": transport, "urls": [f"127.0.0.1:{port}"], **upstream
        }  # fmt: skip
        remote = {"http": "identity", "grpc": "identity_fp32", "brpc": ""}[transport]
        model = {"upstream": transport, "remote_model": remote, "signature": SIGNATURE}
        document["models"].setdefault(transport, model)
    own = {"brpc": {}, "http": listener, "grpc": listener}
    listeners = [{"listen": "127.0.0.1:0", "transport": each, **own[each]} for each in own]
    config = parse(yaml.safe_dump({"listeners": listeners, "upstreams": upstreams, **document}))
    assembly = assemble(config, load_local(config))
    bound = await _listen(assembly)
    try:
        yield {each.options.transport: each.address for each in bound}
    finally:
        for each in bound:
            await each.server.stop(0)
        await assembly.close()


BODY = orjson.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}]})


@dataclass
class Told:
    """An answer: whether it is one, its header ``x-request-id``, and its body."""

    well: bool
    request_id: str | None
    body: Any = None


async def by_http(address: Address, model: str, headers: dict[str, str], body: bytes = BODY) -> Told:
    async with aiohttp.ClientSession() as session:
        url = f"http://{address}/v2/models/{model}/infer"
        async with session.post(url, data=body, headers=headers) as reply:
            told = await reply.json(content_type=None)
            return Told(reply.status == 200, reply.headers.get("x-request-id"), told)


async def by_grpc(address: Address, model: str, headers: dict[str, str]) -> Told:
    from tritonclient.grpc import service_pb2 as pb

    message = pb.ModelInferRequest(model_name=model)
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
    message.raw_input_contents.append(bytes(8))
    async with grpc.aio.insecure_channel(str(address)) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(
            message.SerializeToString(), metadata=tuple(headers.items())
        )
        try:
            await call
            trailing = await call.trailing_metadata()
            well = True
        except grpc.aio.AioRpcError as error:
            trailing, well = error.trailing_metadata(), False
    return Told(well, dict(trailing or ()).get("x-request-id"))  # type: ignore[arg-type]


async def by_brpc(address: Address, model: str, headers: dict[str, str], trace: bytes = b"") -> Told:
    import numpy as np

    message = gtensors(model, INPUT0=np.zeros(2, np.float32))
    async with BrpcStandinClient.to(address.host, address.port) as client:
        reply = await client.call("Predict", message.SerializeToString(), user_fields=headers, trace=trace)
    answer = GrpsMessage.FromString(reply.payload)
    well = answer.status.status == SUCCESS and not reply.error[0]
    return Told(well, reply.user_fields.get("x-request-id"), answer.status.msg or reply.error[1])


CALLS: dict[str, Callable[..., Awaitable[Told]]] = {"http": by_http, "grpc": by_grpc, "brpc": by_brpc}
TRANSPORTS = ("http", "grpc", "brpc")
EVERY_WAY = [(caller, target) for caller in TRANSPORTS for target in TRANSPORTS]


@pytest.mark.parametrize("engine", ["native", "library"])
async def test_the_trace_the_request_id_and_listed_headers_reach_every_upstream(engine: str) -> None:
    async with servers() as behind, daemon(behind, listener={"engine": engine}) as addresses:
        for caller, target in EVERY_WAY:
            told = await CALLS[caller](addresses[caller], target, SENT)
            assert told.well and told.request_id == "seven", (caller, target, told)
            assert behind.arrived(target)[-1] == CARRIED, (caller, target)


async def test_nothing_is_made_up_for_a_caller_that_sends_nothing() -> None:
    async with servers() as behind, daemon(behind) as addresses:
        for caller, target in EVERY_WAY:
            told = await CALLS[caller](addresses[caller], target, {})
            assert told.well and told.request_id is None, (caller, target, told)
            assert behind.arrived(target)[-1] == {}, (caller, target)
        assert [each.trace for each in behind.brpc if each.asked[1] == "Predict"] == [{}] * 3


async def test_brpc_fields_carry_the_low_half_of_the_trace_id_and_the_request_id() -> None:
    """What a bRPC server reads into its span: trace 4, parent 6, and request id 7; its own span 5 it numbers
    itself."""
    async with servers() as behind, daemon(behind) as addresses:
        await by_http(addresses["http"], "brpc", SENT)
        (received,) = [each for each in behind.brpc if each.asked[1] == "Predict"]
        assert received.trace == {4: int(LOW, 16), 6: int(SPAN, 16), 7: b"seven"}


async def test_the_numbers_of_a_brpc_caller_become_a_traceparent() -> None:
    """A bRPC client without user fields: the short id is padded with zeros, its sampled span is the parent."""
    trace = number(4, int(LOW, 16)) + number(5, int(SPAN, 16)) + number(6, 99) + text(7, "eight")
    padded = {"traceparent": f"00-{'0' * 16}{LOW}-{SPAN}-01", "x-request-id": "eight"}
    async with servers() as behind, daemon(behind) as addresses:
        for target in TRANSPORTS:
            told = await by_brpc(addresses["brpc"], target, {}, trace)
            assert told.well and told.request_id == "eight"
            assert behind.arrived(target)[-1] == padded
        assert behind.brpc[-1].trace == {4: int(LOW, 16), 6: int(SPAN, 16), 7: b"eight"}


async def test_messages_that_pass_unread_carry_headers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from interlingua.runtime.upstream.upstream import Upstream

    passed = []
    usual = Upstream.forward

    async def forward(self: Upstream, *arguments: Any) -> Any:
        passed.append(self.name)
        return await usual(self, *arguments)

    monkeypatch.setattr(Upstream, "forward", forward)
    async with servers() as behind, daemon(behind) as addresses:
        # the first one finds the server's flavor, and is decoded
        assert (await by_grpc(addresses["grpc"], "grpc", SENT)).well
        assert not passed
        assert (await by_grpc(addresses["grpc"], "grpc", SENT)).well
        assert passed == ["grpc"] and behind.arrived("grpc") == [CARRIED, CARRIED]


async def test_streams_carry_headers() -> None:
    from tritonclient.grpc import service_pb2 as pb

    async with servers() as behind, daemon(behind) as addresses:
        message = pb.ModelInferRequest(model_name="grpc")
        message.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
        message.raw_input_contents.append(bytes(8))
        async with grpc.aio.insecure_channel(str(addresses["grpc"])) as channel:
            call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(
                metadata=tuple(SENT.items())
            )
            await call.write(message.SerializeToString())
            await call.done_writing()
            answers = [pb.ModelStreamInferResponse.FromString(each) async for each in call]
            assert not answers[0].error_message
            assert dict(await call.trailing_metadata())["x-request-id"] == "seven"
        assert {method for method, _ in behind.grpc.metadata} >= {"ModelInfer"}
        assert [headers for headers in behind.arrived("grpc") if headers] == [CARRIED]


async def test_a_value_with_unprintable_characters_stays_here() -> None:
    """User fields of bRPC may hold anything; a header must not end its line."""
    broken = {"traceparent": "00-1\r\nx-admin: yes", "x-request-id": "a\nb"}
    async with servers() as behind, daemon(behind) as addresses:
        for target in TRANSPORTS:
            assert (await by_brpc(addresses["brpc"], target, broken)).well
            assert behind.arrived(target)[-1] == {}
            told = await by_brpc(addresses["brpc"], target, {"x-tenant": "a\nb"})
            assert not told.well and len(behind.arrived(target)) == 1


async def test_the_daemons_own_requests_carry_no_callers_headers(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer one\n")
    options = {
        "forward_headers": ["x-tenant"],
        "headers": {"Authorization": {"file": str(token)}},
        "probe_interval_secs": 0.05,
    }
    models = {
        "http": {"upstream": "http", "remote_model": "identity"},
        "grpc": {"upstream": "grpc", "remote_model": "identity_fp32"},
    }
    async with servers() as behind, daemon(behind, upstream=options, models=models) as addresses:
        for target in TRANSPORTS:
            assert (await by_http(addresses["http"], target, SENT)).well
            assert behind.arrived(target) == [{**CARRIED, "authorization": "Bearer one"}]
        for target in TRANSPORTS:
            await until(partial(behind.others, target))
            others = behind.others(target)
            assert all(headers == {"authorization": "Bearer one"} for headers in others), target


async def test_a_header_from_a_file_follows_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    token = tmp_path / "token"
    token.write_text("Bearer one\n")
    options = {"headers": {"authorization": {"file": str(token)}}}
    async with servers() as behind, daemon(behind, upstream=options) as addresses:

        async def sent() -> str:
            assert (await by_http(addresses["http"], "grpc", {})).well
            return behind.arrived("grpc")[-1]["authorization"]

        assert await sent() == "Bearer one"
        token.write_text("Bearer second\n")
        assert await sent() == "Bearer second"
        token.write_text("Bearer\nthird")  # no header can hold it
        assert await sent() == await sent() == "Bearer second"
        token.unlink()
        assert await sent() == "Bearer second"
        token.write_text("Bearer fourth")
        assert await sent() == "Bearer fourth"
    assert "Bearer" not in caplog.text
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in warnings] == ["header file unreadable, last value kept"] * 2


async def test_a_copy_for_a_mirror_carries_the_trace_but_no_request_id() -> None:
    """The mirror's model is behind an upstream, so a process of its own asks it."""
    options = {"forward_headers": ["x-tenant"]}
    routes = [{"match": {"model": "http"}, "to": "http", "mirror": {"to": "grpc"}}]
    async with servers() as behind, daemon(behind, upstream=options, routes=routes) as addresses:
        assert (await by_http(addresses["http"], "http", SENT)).well
        await until(lambda: behind.arrived("grpc"), 60)
        assert behind.arrived("http") == [CARRIED]
        assert behind.arrived("grpc") == [{**TRACE, "x-tenant": "blue"}]


async def test_the_next_server_of_a_pool_gets_the_same_headers() -> None:
    async with servers() as behind:
        urls = ["127.0.0.1:1", f"127.0.0.1:{behind.ports['http']}"]
        upstream = {"forward_headers": ["x-tenant"], "urls": urls}
        behind.ports = {"http": behind.ports["http"]}
        async with daemon(behind, upstream=upstream) as addresses:
            for _ in range(3):
                assert (await by_http(addresses["http"], "http", SENT)).well
        assert behind.arrived("http") == [CARRIED] * 3


async def test_a_request_id_comes_back_with_a_refusal() -> None:
    async with daemon() as addresses:
        for transport in TRANSPORTS:
            told = await CALLS[transport](addresses[transport], "nowhere", {"x-request-id": "seven"})
            assert not told.well and told.request_id == "seven", transport
        told = await by_http(addresses["http"], "nowhere", {"X-Request-ID": "seven"}, b"no JSON")
        assert (told.request_id, told.body["request_id"]) == ("seven", "seven")
        told = await by_http(addresses["http"], "nowhere", {})
        assert not told.well and list(told.body) == ["error"]
        async with aiohttp.ClientSession() as session:
            url = f"http://{addresses['http']}/nothing/here"
            async with session.get(url, headers={"x-request-id": "eight"}) as reply:
                assert (reply.status, reply.headers["x-request-id"]) == (404, "eight")


@pytest.mark.parametrize("flavor", ["tensorflow", "kserve"])
async def test_errors_of_tfserving_have_the_ids_of_their_request(flavor: str) -> None:
    headers = {"x-request-id": "seven", "traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    tfserving = {"dialects": ["tfserving"], "flavors": {"tfserving": flavor}}
    async with daemon(listener=tfserving) as addresses, aiohttp.ClientSession() as session:
        url = f"http://{addresses['http']}/v1/models/nowhere:predict"
        async with session.post(url, data=b"{}", headers=headers) as reply:
            answer = await reply.json(content_type=None)
            assert (reply.status, reply.headers["x-request-id"]) == (404, "seven")
            assert (answer["request_id"], answer["trace_id"]) == ("seven", "ab" * 16)
        async with session.post(url, data=b"{}") as reply:
            assert list(await reply.json(content_type=None)) == ["error"]


MODEL = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUTPUT0", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([each.parameters()], object))])
            for each in requests
        ]
"""


@pytest.fixture
def parameters_model(tmp_path: Path) -> dict[str, Any]:
    """The configuration of a Python model that answers with the parameters of its requests."""
    folder = tmp_path / "python" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(MODEL)
    (folder.parent / "config.pbtxt").write_text('backend: "python"')
    return {"model_repository": [{"path": str(tmp_path)}]}


@pytest.mark.parametrize("engine", ["native", "library"])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        # Triton's own cases: whatever the case, unless the pattern says otherwise; names as they were sent
        ("my_header.*", {"MY_HEADER_1": "one", "my_header_2": "two"}),
        ("MY_HEADER.*", {"MY_HEADER_1": "one", "my_header_2": "two"}),
        ("(?-i)MY_HEADER.*", {"MY_HEADER_1": "one"}),
        ("header", {"MY_HEADER_1": "one", "my_header_2": "two"}),
        ("^header|header$", {}),
        ("my_header_1|priority|sequence_id", {"MY_HEADER_1": "one"}),
    ],
)
async def test_headers_become_parameters_of_a_python_model(
    parameters_model: dict[str, Any], pattern: str, expected: dict[str, str], engine: str
) -> None:
    headers = {"MY_HEADER_1": "one", "my_header_2": "two", "priority": "u=1", "sequence_id": "7"}
    listener = {"headers_as_parameters": pattern, "engine": engine}
    body = orjson.loads(BODY)
    body["parameters"] = {"MY_HEADER_1": "forged", "other": 5}
    async with daemon(listener=listener, models={}, **parameters_model) as addresses:
        told = await by_http(addresses["http"], "python", headers, orjson.dumps(body))
        assert told.well, told
        given = orjson.loads(told.body["outputs"][0]["data"][0])
        assert given == {"MY_HEADER_1": "forged", "other": 5, **expected}


async def test_metadata_become_parameters_on_the_way_to_a_triton() -> None:
    """Messages with such metadata cannot pass unread."""
    async with servers() as behind, daemon(behind, listener={"headers_as_parameters": "x-t.*"}) as addresses:
        assert (await by_grpc(addresses["grpc"], "grpc", SENT)).well
        (asked,) = behind.grpc.requests
        assert {name: each.string_param for name, each in asked.parameters.items()} == {"x-tenant": "blue"}
        assert (await by_grpc(addresses["grpc"], "grpc", {})).well
        assert not behind.grpc.requests[-1].parameters
