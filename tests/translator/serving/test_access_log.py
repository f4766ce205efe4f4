"""The access log: exactly one record of each request, in every dialect and transport."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import yaml

from interlingua.protocols.brpc_status import BrpcStatus
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import Address, parse_url
from interlingua.protocols.transport.allowance import Allowance
from interlingua.protocols.transport.clients import client_of
from interlingua.protocols.wire import BrpcRequest, GrpcRequest, HttpRequest
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config.loader import parse
from interlingua.translator.daemon import Listening, _listen
from interlingua.translator.logs import setup as logs
from interlingua.translator.serving.access_log import AccessLog, RequestOutcome, Size
from tests.protocols.transport.h2.peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    START,
    block,
    frame,
    head,
    message,
)
from tests.standins.brpc_frames import request_frame
from tests.translator.serving.test_request_metrics import Echo, pipeline
from tests.waiting import eventually, until

TENSORS = [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
IDENTITY = {"backend": "identity", "signature": {"inputs": TENSORS, "outputs": TENSORS}}
SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, -1)),), (TensorSpec("x", Datatype.FP32, (-1, -1)),)
)


def _listener(transport: str, **options: Any) -> dict[str, Any]:
    dialects = [name for name, dialect in DIALECTS.items() if transport in dialect.bindings]
    return {"listen": "127.0.0.1:0", "transport": transport, "dialects": dialects, **options}


LISTENERS = [
    _listener("http", default_model="near", max_request_bytes=4096),
    _listener("grpc"),
    _listener("brpc"),
    _listener("tcp", default_model="near"),
]
WAYS = [
    (dialect.name, binding.transport)
    for dialect in DIALECTS.values()
    for binding in dialect.bindings.values()
    if Operation.INFER in binding.calls
]
HTTP2_HEAD = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v2/models/near/infer"),
    (":authority", "a"),
)
TRACE = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def json_log() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.set_up("info", "json")
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Recorded:
    """A running server, and its access log at ``path``."""

    def __init__(self, assembly: Assembly, listening: list[Listening], path: Path) -> None:
        self.assembly, self.path = assembly, path
        self.addresses: dict[str, Address] = {each.options.transport: each.address for each in listening}
        self._seen = 0

    async def new(self, count: int = 1) -> list[dict[str, Any]]:
        """The records since the last call, at least ``count``."""
        await until(lambda: self.path.read_bytes().count(b"\n") >= self._seen + count)
        lines = self.path.read_bytes().splitlines()
        found = [orjson.loads(line) for line in lines[self._seen :]]
        self._seen = len(lines)
        return found

    @asynccontextmanager
    async def client(self, dialect: str, transport: str) -> AsyncIterator[Upstream]:
        binding = DIALECTS[dialect].bindings[transport]
        upstream = Upstream(
            "there",
            binding.calls,
            [client_of(transport)(parse_url(str(self.addresses[transport]), transport))],
            20.0,
        )
        try:
            yield upstream
        finally:
            await upstream.close()

    async def infer(self, dialect: str, transport: str, model: str, version: str = "") -> None:
        binding = DIALECTS[dialect].bindings[transport]
        tensor = Tensor("x", Datatype.FP32, (1, 2), memoryview(np.ones(2, np.float32).tobytes()))
        headers = {"x-request-id": "r1"}
        context = Context(traceparent=f"00-{TRACE}-0123456789abcdef-01", headers=headers)
        named = model if binding.capability.model_name and binding.capability.many_models else ""
        request = InferRequest(named, (tensor,), version=version, context=context)
        async with self.client(dialect, transport) as upstream:
            await upstream.call(Operation.INFER, request, SIGNATURE, context)


@asynccontextmanager
async def running(path: Path, mode: str = "all", **document: Any) -> AsyncIterator[Recorded]:
    server = {"access_log": mode, "access_log_file": str(path)}
    config = parse(yaml.safe_dump({"server": server, "listeners": LISTENERS, **document}))
    assembly = assemble(config, load_local(config))
    listening = await _listen(assembly)
    try:
        yield Recorded(assembly, listening, path)
    finally:
        await asyncio.gather(*(each.server.stop(0) for each in listening))
        await assembly.close()


@asynccontextmanager
async def both(tmp_path: Path) -> AsyncIterator[tuple[Recorded, str]]:
    """A server with a model ``near``, and ``far`` on another one, whose address is given."""
    async with running(tmp_path / "far.log", "none", models={"near": IDENTITY}) as far:
        url = str(far.addresses["grpc"])
        upstream = {"dialect": "oip", "transport": "grpc", "urls": [url], "flavor": "triton"}
        models = {"near": IDENTITY, "far": {"upstream": "there", "remote_model": "near"}}
        async with running(tmp_path / "access.log", models=models, upstreams={"there": upstream}) as near:
            yield near, url


STATUS_OK = {"http": 200, "grpc": "OK", "brpc": 0, "tcp": None}


@pytest.mark.parametrize(("dialect", "transport"), WAYS, ids=[f"{d}/{t}" for d, t in WAYS])
async def test_one_record_of_each_inference(dialect: str, transport: str, tmp_path: Path) -> None:
    capability = DIALECTS[dialect].bindings[transport].capability
    async with both(tmp_path) as (near, url):
        for model in ("near", "far") if transport != "tcp" else ("near",):
            if not (capability.model_name and capability.many_models) and model == "far":
                continue
            before = time.time()
            await near.infer(dialect, transport, model)
            (record,) = [
                each for each in await near.new() if each.get("operation") in ("infer", "infer_stream")
            ]
            assert (record["event"], record["level"], record["logger"]) == (
                "request",
                "info",
                "interlingua.access",
            )
            assert (record["dialect"], record["transport"]) == (dialect, transport)
            assert record["listener"] == "127.0.0.1:0"
            assert record["model"] == model and record["version"] == "1"
            expected = ("local", None, None) if model == "near" else ("upstream", "there", url)
            assert (record["target"], record.get("upstream"), record.get("server")) == expected
            assert (record.get("status"), record["code"]) == (STATUS_OK[transport], "OK")
            assert "error" not in record and "dialect_status" not in record
            assert record["request_bytes"] >= 8 and record["response_bytes"] >= 8
            stages = [key for key in record if key.endswith("_us")]
            # over TCP the headers may come alone
            if "read_us" in record or transport == "grpc":
                assert stages.pop(1) == "read_us"
            assert stages.pop() == "write_us"
            if "decode_us" in record:
                run = ["queue_us", "exec_us"] if model == "near" else ["upstream_us"]
                assert stages == ["duration_us", "route_us", "decode_us", *run, "encode_us"]
            else:  # it passed through
                assert stages == ["duration_us", "route_us", "upstream_us"]
            assert sum(record[stage] for stage in stages[1:]) <= record["duration_us"]
            assert record["duration_us"] <= (time.time() - before) * 1e6
            assert record["peer"].startswith("127.0.0.1") or "127.0.0.1" in record["peer"]
            if transport != "tcp":
                assert (record["trace_id"], record["request_id"]) == (TRACE, "r1")
            assert record["number"] > 0


LEAVING = {"http": "oip", "grpc": "oip", "brpc": "grps", "tcp": "graphpipe"}


@pytest.mark.parametrize("transport", LEAVING)
async def test_one_record_of_a_client_that_leaves(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # an end of the connection may be half of one, for whose client the server waits
    monkeypatch.setattr("interlingua.protocols.transport.http.connection.has_gone", lambda _: True)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    async with running(tmp_path / "access.log", models={"near": IDENTITY}, default_model="near") as near:
        monkeypatch.setattr(type(near.assembly.service.router.models["near"]), "infer", never)
        asking = asyncio.create_task(near.infer(LEAVING[transport], transport, "near"))
        await until(lambda: near.assembly.load.requests)
        asking.cancel()
        (record,) = await near.new()
        await until(lambda: not near.assembly.load.requests)
        assert near.assembly.service.access.recorded == 1
    assert (record["code"], record["level"], record.get("status")) == ("CANCELLED", "info", None)


LATE_SECS = 0.05
DELAYS = (LATE_SECS, 0.5, 5.0)
"""A busy machine may not see the headers before the rest comes, so the delay grows."""
MESSAGE_BYTES = 16 << 20
"""More than the buffers of a socket."""


@pytest.mark.parametrize(
    ("transport", "start"),
    [
        ("http", b"POST /v2/models/near/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"),
        ("grpc", START + head(1, "/inference.GRPCInferenceService/ModelInfer")),
        ("h2", START + frame(HEADERS, END_HEADERS, 1, block(HTTP2_HEAD))),
        ("brpc", request_frame("Predict", bytes(1 << 20))[: 1 << 19]),
        ("tcp", (1 << 20).to_bytes(4, "little") + bytes(1 << 19)),
    ],
    ids=["http", "grpc", "h2", "brpc", "tcp"],
)
async def test_the_time_of_a_body_that_comes_late(transport: str, start: bytes, tmp_path: Path) -> None:
    rest = {
        "http": b'{"a": "b"',
        "grpc": frame(DATA, END_STREAM, 1, message(b"\xff")),
        "h2": frame(DATA, END_STREAM, 1, b"{"),
        "brpc": request_frame("Predict", bytes(1 << 20))[1 << 19 :],
        "tcp": bytes(1 << 19),
    }[transport]
    listeners = [{**each, "max_request_bytes": 1 << 21} for each in LISTENERS]
    async with running(tmp_path / "access.log", models={"near": IDENTITY}, listeners=listeners) as near:
        address = near.addresses["http" if transport == "h2" else transport]
        for delay in DELAYS:
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(start)
            await writer.drain()
            await asyncio.sleep(delay)
            writer.write(rest)
            (record,) = await near.new()
            writer.close()
            if record.get("read_us", 0) >= delay * 0.5e6:
                break
    assert record["code"] != "OK" and delay * 0.5e6 <= record["read_us"] < 60e6


async def test_the_time_of_an_answer_that_is_read_late(tmp_path: Path) -> None:
    """The record is made when the answer is written, or when its client is gone."""
    body = np.ones(MESSAGE_BYTES // 4, np.float32).tobytes()
    shape = [1, MESSAGE_BYTES // 4]
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "parameters": {"binary_data_size": len(body)}}
    form = orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    request = (
        f"POST /v2/models/near/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {len(form) + len(body)}\r\n"
        f"inference-header-content-length: {len(form)}\r\nconnection: close\r\n\r\n"
    ).encode()
    listeners = [{**each, "max_request_bytes": 1 << 25} for each in LISTENERS]
    async with running(tmp_path / "access.log", models={"near": IDENTITY}, listeners=listeners) as near:
        address, log = near.addresses["http"], near.assembly.service.access
        for reads in (True, False):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(request + form + body)
            await until(lambda count=1 if reads else 2: log.recorded >= count)
            await asyncio.sleep(LATE_SECS)
            if reads:
                async with asyncio.timeout(20):
                    assert len(await reader.read()) > MESSAGE_BYTES
            else:
                writer.transport.abort()
            (record,) = await near.new()
            writer.close()
            assert record["code"] == "OK" and record["write_us"] >= LATE_SECS * 1e6


@pytest.mark.parametrize("transport", ["grpc", "h2"])
@pytest.mark.parametrize("end", ["reset", "abort"])
async def test_an_answer_over_http2_that_is_never_read(transport: str, end: str, tmp_path: Path) -> None:
    """Its flow-control window is 64 KiB, so that most of the answer waits for it."""
    floats = 50_000
    data = np.ones(floats, np.float32).tobytes()
    if transport == "grpc":
        request = MESSAGES["inference.ModelInferRequest"](model_name="near", raw_input_contents=[data])
        request.inputs.add(name="x", datatype="FP32", shape=[1, floats])
        begin, body = head(1, "/inference.GRPCInferenceService/ModelInfer"), request.SerializeToString()
        body = message(body)
    else:
        size = {"binary_data_size": len(data)}
        tensor = {"name": "x", "shape": [1, floats], "datatype": "FP32", "parameters": size}
        form = orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
        length = ("inference-header-content-length", str(len(form)))
        begin, body = frame(HEADERS, END_HEADERS, 1, block((*HTTP2_HEAD, length))), form + data
    pieces = [frame(DATA, 0, 1, body[at : at + 16_384]) for at in range(0, len(body), 16_384)]
    listeners = [{**each, "max_request_bytes": 1 << 20} for each in LISTENERS]
    async with running(tmp_path / "access.log", models={"near": IDENTITY}, listeners=listeners) as near:
        log, address = near.assembly.service.access, near.addresses["http" if transport == "h2" else "grpc"]
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(START + begin + b"".join(pieces) + frame(DATA, END_STREAM, 1))
        await until(lambda: log.recorded)
        await asyncio.sleep(LATE_SECS)
        assert not near.path.read_bytes()
        if end == "reset":
            writer.write(frame(RST_STREAM, 0, 1, (8).to_bytes(4, "big")))
        else:
            writer.transport.abort()
        (record,) = await near.new()
        writer.close()
    assert record["code"] == "OK" and record["write_us"] >= LATE_SECS * 1e6


DIALECT_STATUS = {"trtis": "UNAVAILABLE", "grps": 500}


@pytest.mark.parametrize(("dialect", "transport"), WAYS, ids=[f"{d}/{t}" for d, t in WAYS])
async def test_one_record_of_each_refusal(dialect: str, transport: str, tmp_path: Path) -> None:
    """By default: successes have no record, refusals one."""
    models = {"near": {"backend": "identity", "signature": {"inputs": [{**TENSORS[0], "name": "other"}],
                                                            "outputs": [{**TENSORS[0], "name": "other"}]}}}  # fmt: skip
    capability = DIALECTS[dialect].bindings[transport].capability
    named = capability.model_name and capability.many_models and transport != "tcp"
    async with running(
        tmp_path / "access.log", "errors", models=models if not named else {"near": IDENTITY}
    ) as near:
        if named:
            await near.infer(dialect, transport, "near")
        with pytest.raises(InferenceError):
            await near.infer(dialect, transport, "absent")
        (record,) = await near.new()
    assert (record["dialect"], record["transport"]) == (dialect, transport)
    assert record["code"] == ("NOT_FOUND" if named else "INVALID_TENSOR")
    assert record["level"] == "warning" and record["error"]
    assert record.get("status") != STATUS_OK[transport] or dialect in DIALECT_STATUS or transport == "tcp"
    if named:
        assert record["model"] == "absent" and "target" not in record
        assert record.get("dialect_status") == DIALECT_STATUS.get(dialect)


async def http(recorded: Recorded, head: str, body: bytes = b"") -> bytes:
    address = recorded.addresses["http"]
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(
        f"{head}\r\nhost: a\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
    )
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


async def test_refusals_before_a_handler(tmp_path: Path) -> None:
    async with running(tmp_path / "access.log", "errors", models={"near": IDENTITY}) as near:
        for head, body, status, code in (
            ("GET /nothing?token=s3cr3t HTTP/1.1", b"", 404, "NOT_FOUND"),
            ("PUT /v2/models/near/infer HTTP/1.1", b"", 405, "NOT_FOUND"),
            ("POST /v2/models/near/infer HTTP/1.1", bytes(5000), 413, "TOO_LARGE"),
            (
                "POST /v2/models/near/infer HTTP/1.1\r\nauthorization: Bearer s3cr3ts3cr3t",
                b"{",
                400,
                "MALFORMED",
            ),
        ):
            assert f" {status} ".encode() in (await http(near, head, body)).split(b"\r\n")[0]
            (record,) = await near.new()
            assert (record["status"], record["code"], record["transport"]) == (status, code, "http")
            assert record["request"] == " ".join(head.split()[:2]).partition("?")[0]
    assert "s3cr3t" not in (tmp_path / "access.log").read_text()


async def test_the_number_of_an_error_leads_to_its_record(tmp_path: Path) -> None:
    """Errors of trtis have the server's count of requests, which the record has next to the trace id."""
    async with running(tmp_path / "access.log", "errors", models={"near": IDENTITY}) as near:
        await near.infer("oip", "http", "near")
        head = f"POST /api/infer/absent HTTP/1.1\r\ntraceparent: 00-{TRACE}-0123456789abcdef-01"
        said = await http(near, f'{head}\r\nnv-inferrequest: batch_size: 1 input {{ name: "x" }}')
        (record,) = await near.new()
    (number,) = re.findall(rb"NV-Status: .*request_id: ([0-9]+)", said)
    assert (record["number"], record["trace_id"]) == (int(number), TRACE)


async def test_refusals_of_a_transport(tmp_path: Path) -> None:
    """What no handler sees: malformed input, unknown methods and services, messages above a limit."""
    async with running(tmp_path / "access.log", "errors", models={"near": IDENTITY}) as near:
        address = near.addresses["http"]
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"no request\r\n\r\n")
        assert b" 501 " in await asyncio.wait_for(reader.read(), 20)
        writer.close()
        (malformed,) = await near.new()
        assert (malformed["transport"], malformed["status"], malformed["code"]) == ("http", 501, "MALFORMED")
        grpc = client_of("grpc")(parse_url(str(near.addresses["grpc"]), "grpc"))
        brpc = client_of("brpc")(parse_url(str(near.addresses["brpc"]), "brpc"))
        try:
            await grpc.send(GrpcRequest("/no.Service/Method", b"", context=Context()))
            (unknown,) = await near.new()
            with pytest.raises(InferenceError):
                await brpc.send(BrpcRequest("no.Service", "Method", b""))
            (absent,) = await near.new()
        finally:
            await grpc.close()
            await brpc.close()
    assert (unknown["transport"], unknown["request"]) == ("grpc", "/no.Service/Method")
    assert (unknown["status"], unknown["code"]) == ("UNIMPLEMENTED", "UNSUPPORTED")
    assert (absent["transport"], absent["request"]) == ("brpc", "no.Service/Method")
    assert (absent["status"], absent["code"]) == (1002, "UNSUPPORTED")
    assert all(each["peer"] and each["listener"] == "127.0.0.1:0" for each in (malformed, unknown, absent))


async def test_clients_have_their_names(tmp_path: Path) -> None:
    """The identity is in the record, and never the secret."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann: sha256:{hashlib.sha256(b's3cr3t').hexdigest()}\n")
    auth = {"tokens": str(tokens)}
    path = tmp_path / "access.log"
    async with running(path, "all", models={"near": IDENTITY}, auth=auth) as near:
        for token, status, code in (("s3cr3t", 200, "OK"), ("s3cr3tt", 401, "UNAUTHENTICATED")):
            head = f"GET /v2 HTTP/1.1\r\nauthorization: Bearer {token}"
            assert f" {status} ".encode() in (await http(near, head)).split(b"\r\n")[0]
            (record,) = await near.new()
            assert (record["status"], record["code"]) == (status, code)
            assert record.get("identity") == ("ann" if code == "OK" else None)
    assert "s3cr3t" not in path.read_text()


async def test_shed_requests_are_recorded(tmp_path: Path) -> None:
    async with running(tmp_path / "access.log", "errors", models={"near": IDENTITY}) as near:
        near.assembly.load.max_requests = 0
        with pytest.raises(InferenceError):
            await near.infer("oip", "http", "near")
        (record,) = await near.new()
    assert (record["status"], record["code"]) == (429, "OVERLOADED")


STATUS_TOO_LARGE = {
    ("oip", "http"): 413,
    ("graphpipe", "http"): 413,
    ("trtis", "http"): 400,
    ("grps", "http"): 413,
    ("grps", "brpc"): int(BrpcStatus.ERESPONSE),
}


@pytest.mark.parametrize(("dialect", "transport"), WAYS, ids=[f"{d}/{t}" for d, t in WAYS])
async def test_one_record_of_an_answer_above_the_limit(dialect: str, transport: str, tmp_path: Path) -> None:
    """With the status that the client reads; it does not count as a success either."""
    bounded = [{**each, "max_response_bytes": 20} for each in LISTENERS]
    async with running(
        tmp_path / "access.log", models={"near": IDENTITY}, listeners=bounded, default_model="near"
    ) as near:
        with pytest.raises(InferenceError, match="max_response_bytes"):
            await near.infer(dialect, transport, "near")
        (record,) = await near.new()
        # those of an answer are made before it is sent
        assert near.assembly.service.access.recorded == 1
        (metrics,) = [
            each for by in near.assembly.request_metrics for each in by.values() if each.received_bytes
        ]
    assert (record["code"], record["level"]) == ("TOO_LARGE", "warning")
    assert "that max_response_bytes of this listener allows" in record["error"]
    default = {"grpc": "RESOURCE_EXHAUSTED", "tcp": None}.get(transport, 413)
    assert record.get("status") == STATUS_TOO_LARGE.get((dialect, transport), default)
    assert record["response_bytes"] < 500
    assert [(code and code.name, count) for (_, code), count in metrics.ended.items()] == [("TOO_LARGE", 1)]


async def test_a_stream_with_an_answer_above_the_limit(tmp_path: Path) -> None:
    bounded = [{**each, "max_response_bytes": 20} for each in LISTENERS]
    async with running(tmp_path / "access.log", models={"near": IDENTITY}, listeners=bounded) as near:
        message = MESSAGES["inference.ModelInferRequest"](
            model_name="near", raw_input_contents=[np.ones(2, np.float32).tobytes()]
        )
        message.inputs.add(name="x", datatype="FP32", shape=[1, 2])

        async def messages() -> AsyncIterator[bytes]:
            yield message.SerializeToString()

        client = client_of("grpc")(parse_url(str(near.addresses["grpc"]), "grpc"))
        try:
            call = GrpcRequest("/inference.GRPCInferenceService/ModelStreamInfer", b"", context=Context())
            (answer,) = [each async for each in client.stream(call, messages())]
        finally:
            await client.close()
        records = await near.new(2)
    assert answer.code == 8 and "max_response_bytes" in answer.details
    assert [(each["event"], each["code"], each["status"]) for each in records] == [
        ("request", "TOO_LARGE", "RESOURCE_EXHAUSTED"),
        ("stream", "TOO_LARGE", "RESOURCE_EXHAUSTED"),
    ]


async def test_a_stream_has_a_record_as_its_messages_have(tmp_path: Path) -> None:
    async with running(tmp_path / "access.log", models={"near": IDENTITY}) as near:
        data = np.ones(2, np.float32).tobytes()
        made = MESSAGES["inference.ModelInferRequest"]
        good = made(model_name="near", raw_input_contents=[data])
        good.inputs.add(name="x", datatype="FP32", shape=[1, 2])
        sent = [each.SerializeToString() for each in (good, made(model_name="absent"), good)]

        async def messages() -> AsyncIterator[bytes]:
            for message in sent:
                yield message

        client = client_of("grpc")(parse_url(str(near.addresses["grpc"]), "grpc"))
        try:
            call = GrpcRequest("/inference.GRPCInferenceService/ModelStreamInfer", b"", context=Context())
            answers = [each async for each in client.stream(call, messages())]
        finally:
            await client.close()
        records = await near.new(4)
    assert len(answers) >= 3
    assert sorted(each["code"] for each in records if each["event"] == "request") == ["NOT_FOUND", "OK", "OK"]
    (stream,) = [each for each in records if each["event"] == "stream"]
    assert stream is records[-1]
    assert (stream["messages"], stream["request_bytes"]) == (3, sum(map(len, sent)))
    assert stream["answers"] >= 3 and stream["status"] == "OK"
    assert stream["response_bytes"] == sum(each.size for each in answers if each.code == 0)


@pytest.mark.parametrize(
    ("failure", "code", "answered"),
    [
        (None, "OK", True),
        (InferenceError(ErrorCode.MODEL_FAILED, "late"), "MODEL_FAILED", True),
        (None, "CANCELLED", False),
    ],
)
async def test_a_stream_over_http_has_one_record(
    failure: Exception | None, code: str, answered: bool
) -> None:
    events: list[dict[str, Any]] = []
    server = pipeline(Echo(times=3, failure=failure))
    # the one that its endpoints have
    log = server.service.access
    log._write, log.mode = events.extend, "all"
    request = HttpRequest("POST", "/v2/models/m/generate_stream", body=b'{"x": [1]}')
    handler = server.handlers["http"]
    assert handler.head(request) is None
    answer = await handler.serve(request)
    assert not events
    sent = 0
    if answered:
        async for part in answer.parts:
            sent += len(part)
    else:  # the client disconnects
        sent += len(await anext(answer.parts))
        await answer.parts.aclose()
    (event,) = written(log, events)
    assert (event["code"], event["status"], event["operation"]) == (code, 200, "infer_stream")
    assert event["response_bytes"] >= sent > 0
    assert event.get("error", "") == (
        "late" if failure else "cancelled before the answer was complete" if code == "CANCELLED" else ""
    )


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_client_cannot_forge_a_record(form: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("info", form)
    log = AccessLog("all")
    hostile = "\n\r\x1b[2J\u2028\x00 12:00:00 info request"
    context = Context(headers={"x-request-id": hostile, "x-forwarded-for": hostile}, peer="p")
    outcome = RequestOutcome(
        400, ErrorCode.MALFORMED, f"no model {hostile}, Authorization: Bearer s3cr3ts3cr3t"
    )
    log.add({}, f"GET /{hostile}", context, outcome, Size(0, 0), (None, hostile, ""))
    log.close()
    (line,) = capsys.readouterr().err.rstrip("\n").split("\n")
    assert line.isprintable() and "s3cr3t" not in line


# --- the log itself


def record(log: AccessLog, failure: ErrorCode | None = None) -> None:
    context = Context(peer="p", began=time.monotonic_ns())
    log.add({"listener": "l"}, "GET /", context, RequestOutcome(200, failure), Size(1, 2))


def written(log: AccessLog, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    log.close()
    return events


def test_errors_are_limited_and_counted() -> None:
    now = 0.0
    events: list[dict[str, Any]] = []
    log = AccessLog("errors", allowance=Allowance(2, 1.0, lambda: now), write=events.extend)
    for _ in range(5):
        record(log, ErrorCode.INTERNAL)
    now = 1.0
    record(log, ErrorCode.INTERNAL)
    assert [each.get("suppressed") for each in written(log, events)] == [None, None, 3]
    assert (log.recorded, log.suppressed, log.dropped) == (3, 3, 0)


@pytest.mark.parametrize(("mode", "count"), [("none", 0), ("errors", 1), ("all", 1)])
def test_modes(mode: Any, count: int) -> None:
    events: list[dict[str, Any]] = []
    log = AccessLog(mode, write=events.extend)
    record(log, ErrorCode.INTERNAL)
    assert len(written(log, events)) == count
    assert log.mode == mode


def test_a_reader_that_stops_delays_no_request() -> None:
    """The thread blocks in its write; the bounded queue drops and counts, and what was kept is written."""
    read, write = os.pipe()
    os.set_blocking(write, True)
    log = AccessLog("all", write=lambda events: [os.write(write, bytes(4096)) for _ in events] and None)
    try:
        began = time.monotonic()
        for _ in range(20_000):
            record(log)
        assert log.dropped > 10_000
        assert time.monotonic() - began < 15
        dropped = log.dropped
        drained = 0
        while drained < 4096 * (20_000 - dropped):
            drained += len(os.read(read, 1 << 16))
        log.close()
        assert log.dropped == dropped
    finally:
        os.close(read)
        os.close(write)


def test_a_renamed_file_gets_no_more_lines(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    config = parse(
        yaml.safe_dump(
            {"server": {"access_log": "all", "access_log_file": str(path)}, "listeners": LISTENERS[1:2]}
        )
    )
    log = assemble(config, load_local(config)).service.access
    record(log)
    eventually(path.read_bytes)
    path.rename(tmp_path / "old")
    record(log)
    log.close()
    assert [len((tmp_path / name).read_bytes().splitlines()) for name in ("old", "access.log")] == [1, 1]


def test_fields_of_clients_are_short_and_escaped(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    log = AccessLog("all", write=events.extend)
    context = Context(headers={"x-request-id": "r" * 9000}, peer="p")
    outcome = RequestOutcome(400, ErrorCode.MALFORMED, "e" * 9000)
    log.add({}, "GET /" + "p" * 9000, context, outcome, Size(0, 0), (Operation.INFER, "m" * 9000, "v" * 9000))
    (event,) = written(log, events)
    assert max(len(value) for value in event.values() if isinstance(value, str)) <= 512
    assert replace(context) == context
