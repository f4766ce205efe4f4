"""A model behind a grps server, over every transport and before both kinds of server: the stand-ins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from interlingua.protocols.grps.client_deployment import DeployedModel, read_models
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.brpc.client import BrpcConnectionClient
from interlingua.protocols.transport.grpc.client import GrpcChannelClient
from interlingua.protocols.transport.http.client import PooledHttpClient
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Readiness,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.standins.grps_brpc import BrpcServing
from tests.standins.grps_contract import GrpsMessage
from tests.standins.grps_grpc_server import start_grpc
from tests.standins.grps_http_server import Posted, grps_http_server
from tests.standins.grps_server import ALL, GrpsServer

GRPS = DIALECTS["grps"]
WIRES = [(transport, flavor) for transport in ("http", "grpc", "brpc") for flavor in ("py", "cpp")]
CLIENTS: Mapping[str, Any] = {
    "http": PooledHttpClient,
    "grpc": GrpcChannelClient,
    "brpc": BrpcConnectionClient,
}

A = np.arange(6, dtype=np.int32).reshape(2, 3)
B = np.full((2, 3), 7, np.int32)
SUMS = (Tensor.from_numpy("INPUT0", A), Tensor.from_numpy("INPUT1", B))
STRICT = Signature(
    tuple(TensorSpec(name, Datatype.INT32, (-1, 3)) for name in ("INPUT0", "INPUT1")),
    tuple(TensorSpec(name, Datatype.INT32, (-1, 3)) for name in ("OUTPUT0", "OUTPUT1")),
    8,
)
TEXT = Signature(
    (TensorSpec("str_data", Datatype.BYTES, (1,)),), (TensorSpec("str_data", Datatype.BYTES, (1,)),)
)

wires = pytest.mark.parametrize("wire", WIRES, ids="/".join)
streaming = pytest.mark.parametrize("wire", [wire for wire in WIRES if wire[0] != "brpc"], ids="/".join)


class Bench:
    """A stand-in and an upstream of it."""

    def __init__(self, server: GrpsServer, upstream: Upstream, posted: list[Posted]) -> None:
        self.server = server
        self.upstream = upstream
        self.posted = posted

    def model(self, remote: str, **options: Any) -> UpstreamModel:
        return UpstreamModel("ours", self.upstream, remote, **options)


@asynccontextmanager
async def bench(wire: tuple[str, str], *, recut: int = 0, flavor: str = "auto") -> AsyncIterator[Bench]:
    transport, server_flavor = wire
    server, posted = GrpsServer(server_flavor), []
    calls = GRPS.bindings[transport].calls
    flavors = GRPS.bindings[transport].call_flavors
    if flavor != "auto":
        calls, flavors = flavors.get(flavor, calls), {}
    async with serving(server, transport, posted, recut) as address:
        client = CLIENTS[transport](parse_url(address, transport))
        upstream = Upstream("there", calls, [client], 10.0, flavors)
        try:
            yield Bench(server, upstream, posted)
        finally:
            await upstream.close()


@asynccontextmanager
async def serving(server: GrpsServer, transport: str, posted: list[Posted], recut: int) -> AsyncIterator[str]:
    if transport == "http":
        runner = web.AppRunner(grps_http_server(server, posted, recut=recut))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address, stop = "{}:{}".format(*runner.addresses[0][:2]), runner.cleanup
    elif transport == "grpc":
        listening, port = await start_grpc(server)
        address, stop = f"127.0.0.1:{port}", partial(listening.stop, None)
    else:
        standin = BrpcServing(server)
        address, stop = f"127.0.0.1:{await standin.start()}", standin.stop
    try:
        yield address
    finally:
        await stop()


def text(value: bytes | str, name: str = "str_data") -> Tensor:
    return Tensor.from_numpy(name, np.array([value], object))


async def reported(model: UpstreamModel, *inputs: Tensor) -> dict[str, Any]:
    answer = await model.infer(InferRequest("ours", inputs))
    return {tensor.name: tensor.numpy().tolist() for tensor in answer.outputs}


async def failure(model: UpstreamModel, *inputs: Tensor, version: str = "") -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        await model.infer(InferRequest("ours", inputs, version=version))
    assert caught.value.origin == "there"
    return caught.value


@wires
async def test_tensors_by_name(wire: tuple[str, str]) -> None:
    async with bench(wire) as there:
        for declared in (None, STRICT):
            model = there.model("simple-1.0.0", declared=declared)
            request = InferRequest("ours", SUMS, (RequestedOutput("OUTPUT1"),), id="seven")
            answer = await model.infer(request)
            assert answer.outputs == (Tensor.from_numpy("OUTPUT1", A - B),)
            assert (answer.model, answer.id) == ("ours", "seven")
            assert await reported(model, *SUMS) == {"OUTPUT0": (A + B).tolist(), "OUTPUT1": (A - B).tolist()}
        message = there.server.seen[-1]
        assert message.model == "simple-1.0.0"
        assert [(each.name, list(each.shape)) for each in message.gtensors.tensors] == [
            ("INPUT0", [2, 3]),
            ("INPUT1", [2, 3]),
        ]


@wires
async def test_every_datatype_there_and_back(wire: tuple[str, str]) -> None:
    async with bench(wire) as there:
        model = there.model("")
        inputs = tuple(Tensor.from_numpy(name, array) for name, array in ALL.items())
        answer = await model.infer(InferRequest("ours", inputs))
        assert answer.outputs == inputs
        assert there.server.seen[-1].model == ""
        answer = await there.model("", declared=TEXT).infer(InferRequest("ours", (text("all"),)))
        assert {tensor.name: tensor for tensor in answer.outputs} == {
            tensor.name: tensor for tensor in inputs
        }


@wires
async def test_the_ends_of_the_ranges(wire: tuple[str, str]) -> None:
    """Of floats protobuf's reader of JSON refuses what is a hair above the largest, however it rounds."""
    ends = tuple(
        Tensor.from_numpy(f"f{bits}", np.array([limits.max, limits.min, limits.smallest_subnormal], dtype))
        for bits, dtype, limits in (
            (bits, f"f{bits // 8}", np.finfo(f"f{bits // 8}")) for bits in (16, 32, 64)
        )
    )
    async with bench(wire) as there:
        answer = await there.model("").infer(InferRequest("ours", ends))
        assert answer.outputs == ends


@wires
async def test_text_for_numbers(wire: tuple[str, str]) -> None:
    """A server that answers with something else than what is declared."""
    async with bench(wire) as there:
        declared = Signature(TEXT.inputs, (TensorSpec("prob", Datatype.FP32, (-1,)),))
        error = await failure(there.model("", declared=declared), text("x"))
        assert error.code is ErrorCode.BAD_UPSTREAM and "'prob'" in error.message


@wires
async def test_renamed_and_unnamed(wire: tuple[str, str]) -> None:
    spec = TensorSpec("data", Datatype.FP32, (-1,))
    declared = Signature((spec,), (TensorSpec("doubled", Datatype.FP32, (-1,)),))
    async with bench(wire) as there:
        model = there.model("scale", inputs={"data": ""}, declared=declared)
        given = Tensor.from_numpy("data", np.array([1, 2.5], np.float32))
        answer = await model.infer(InferRequest("ours", (given,), version="2.0"))
        assert there.server.seen[-1].model == "scale-2.0"
        assert answer.outputs == (Tensor.from_numpy("doubled", np.array([2, 5], np.float32)),)


@wires
async def test_text_and_bytes_as_what_they_are(wire: tuple[str, str]) -> None:
    async with bench(wire) as there:
        model = there.model("", declared=TEXT)
        assert await reported(model, text("你好 <>")) == {"str_data": ["你好 <>".encode()]}
        assert there.server.seen[-1].str_data == "你好 <>"
        model = there.model("")
        assert await reported(model, text(b"\0\xff", "bin_data")) == {"bin_data": [b"\0\xff"]}
        assert there.server.seen[-1].bin_data == b"\0\xff"
        assert await reported(model, text("bin")) == {"bin_data": [b"\0\1bin\xff"]}
        assert await reported(model, text("binempty")) == {"bin_data": [b""]}
        assert await reported(model, text("empty")) == {}
        assert await reported(there.model("my-dashed-model-2.0.0-rc1"), text("x")) == {
            "str_data": [b"tag:dashed"]
        }


@wires
async def test_not_a_number(wire: tuple[str, str]) -> None:
    given = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    async with bench(wire) as there:
        answer = await there.model("").infer(InferRequest("ours", (text("nan"),)))
        assert np.array_equal(answer.outputs[0].numpy(), given[:3], equal_nan=True)
        for array in (given, given.astype(np.float64), given.astype(np.float16)):
            answer = await there.model("").infer(InferRequest("ours", (Tensor.from_numpy("f", array),)))
            assert np.array_equal(answer.outputs[0].numpy(), array, equal_nan=True)


@wires
async def test_errors_of_the_server(wire: tuple[str, str]) -> None:
    async with bench(wire) as there:
        declared = there.model("", declared=TEXT)
        error = await failure(declared, text("err:custom failure"))
        assert (error.code, error.message) == (ErrorCode.MODEL_FAILED, "custom failure")
        error = await failure(declared, text("raise:boom"))
        assert error.code is ErrorCode.MODEL_FAILED and "boom" in error.message
        error = await failure(there.model("nobody-1", declared=TEXT), text("x"))
        assert error.code is ErrorCode.NOT_FOUND and "nobody-1" in error.message
        error = await failure(there.model("simple-1.0.0"), SUMS[0].renamed("other"))
        assert error.code is ErrorCode.MODEL_FAILED


@wires
async def test_a_model_that_is_not_listed(wire: tuple[str, str]) -> None:
    async with bench(wire) as there:
        for remote, version in (("nobody", ""), ("simple", "9"), ("", "1")):
            error = await failure(there.model(remote), *SUMS, version=version)
            assert error.code in (ErrorCode.NOT_FOUND, ErrorCode.UNREPRESENTABLE)
        assert not there.server.seen


@wires
async def test_health_and_metadata(wire: tuple[str, str]) -> None:
    async with bench(wire) as there:
        ask = there.upstream.call
        assert (await ask(Operation.LIVE)).ready
        assert await ask(Operation.READY) == Readiness(False, "Service Unavailable")
        assert not (await there.model("simple-1.0.0").ready()).ready
        assert await ask(Operation.SET_ONLINE) is None
        assert await there.model("simple-1.0.0").ready() == Readiness(True)
        assert await ask(Operation.SET_OFFLINE) is None
        assert not (await ask(Operation.READY)).ready
        assert (await ask(Operation.SERVER_METADATA)).name == wire[1]
        index = await ask(Operation.REPOSITORY_INDEX)
        assert [model.name for model in index] == [
            "your_model-1.0.0",
            "my-dashed-model-2.0.0-rc1",
            "simple-1.0.0",
            "scale-2.0",
        ]
        metadata = await there.model("my-dashed-model").metadata()
        assert (metadata.name, metadata.versions, metadata.platform) == ("ours", ("2.0.0-rc1",), "customized")
        status = await there.model("simple-1.0.0", declared=STRICT).status()
        assert [version.version for version in status.versions] == ["1.0.0"]


@wires
async def test_metadata_of_all_models_is_one_fetch_off_the_event_loop(
    wire: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``metadata/server`` of a C++ server takes 7 ms; read once for each of 30 models, in Python and on the
    event loop, it held every other client up for 600."""
    threads = []

    def read(told: str) -> tuple[DeployedModel, ...]:
        threads.append(threading.current_thread())
        return read_models(told)

    monkeypatch.setattr("interlingua.protocols.grps.client.read_models", read)
    async with bench(wire) as there:
        models = [there.model(remote, declared=STRICT) for remote in ("simple-1.0.0", "scale-2.0") * 15]
        for _ in range(2):
            told = await asyncio.gather(*(model.status() for model in models))
            assert [status.versions[0].version for status in told] == ["1.0.0", "2.0"] * 15
            index = await there.upstream.call(Operation.REPOSITORY_INDEX)
            assert len(index) == 4
        assert there.server.metadata_asked == 1
        (thread,) = threads
        assert thread is not threading.main_thread()


async def test_metadata_that_are_none_are_refused_to_all_who_ask() -> None:
    async with answering(200, "application/json", b'{"status": {"status": 1}, "str_data": "a: ["}') as model:
        told = await asyncio.gather(*(model.metadata() for _ in range(3)), return_exceptions=True)
        for error in told:
            assert isinstance(error, InferenceError)
            assert (error.code, error.origin) == (ErrorCode.BAD_UPSTREAM, "there")
            assert error.message.startswith(
                "upstream 'there': the upstream's metadata is not usable: not YAML"
            )


async def streamed(model: UpstreamModel, what: str) -> list[InferResponse]:
    async with aclosing(model.stream(InferRequest("ours", (text(what),), id="seven"))) as responses:
        return [response async for response in responses]


@streaming
async def test_a_stream(wire: tuple[str, str]) -> None:
    for recut in (0, 1, 7):
        async with bench(wire, recut=recut) as there:
            *pieces, last = await streamed(there.model("", declared=TEXT), "stream")
            assert [piece.outputs[0].elements() for piece in pieces] == [
                [f"stream data {number}".encode()] for number in range(3)
            ]
            assert [piece.final for piece in pieces] == [False] * 3
            assert (last.final, last.outputs) == (True, ())
            assert {piece.id for piece in pieces} == {"seven"}


@pytest.mark.parametrize("recut", [0, 1, 7])
async def test_bytes_that_the_python_server_streams_over_http_are_refused(recut: int) -> None:
    """It writes the text of a bytes object, ``b'\\x00raw\\xff'``, which is not what its model gave."""
    async with bench(("http", "py"), recut=recut) as there:
        with pytest.raises(InferenceError, match=r"b'….*transport: grpc") as refused:
            await streamed(there.model(""), "stream-bytes")
        assert (refused.value.code, refused.value.origin) == (ErrorCode.UNREPRESENTABLE, "there")
        pieces = there.model("").stream(InferRequest("ours", (text("stream-kinds"),)))
        assert (await anext(pieces)).outputs == (text('one {"status": "\\'),)
        assert [tensor.name for tensor in (await anext(pieces)).outputs] == list(ALL)
        with pytest.raises(InferenceError, match=r"b'…"):
            await anext(pieces)
        # one answer is not a stream, and its bytes are what they are
        assert await reported(there.model(""), text("bin")) == {"bin_data": [b"\0\1bin\xff"]}


@pytest.mark.parametrize(
    "wire", [wire for wire in WIRES if wire[0] == "grpc" or wire == ("http", "cpp")], ids="/".join
)
async def test_a_stream_of_every_kind(wire: tuple[str, str]) -> None:
    async with bench(wire) as there:
        one, tensors, raw, nothing, last = await streamed(there.model(""), "stream-kinds")
        assert one.outputs == (text('one {"status": "\\'),)
        assert [tensor.name for tensor in tensors.outputs] == list(ALL)
        assert raw.outputs == (text(b"\0raw\xff", "bin_data"),)
        assert nothing.outputs == () and not nothing.final
        assert last.final
        octets = await streamed(there.model(""), "stream-bytes")
        got = b"".join(element for each in octets for tensor in each.outputs for element in tensor.elements())
        assert got == b'data: {\0\xff}\n\n"'
        assert [each.final for each in await streamed(there.model(""), "stream-none")] == [True]


@streaming
@pytest.mark.parametrize(
    ("what", "words"), [("stream-err", "bad thing mid-stream"), ("stream-raise", "boom")]
)
async def test_a_stream_that_fails(wire: tuple[str, str], what: str, words: str) -> None:
    async with bench(wire) as there:
        one, failed, last = await streamed(there.model(""), what)
        assert one.outputs == (text("stream data 0"),)
        assert failed.error is not None and last.final
        assert failed.error.code is ErrorCode.MODEL_FAILED and words in failed.error.message
        assert failed.error.origin == "there"


@streaming
async def test_a_stream_that_fails_at_once(wire: tuple[str, str]) -> None:
    async with bench(wire) as there:
        model = there.model("nobody-1", declared=TEXT)
        with pytest.raises(InferenceError) as caught:
            await streamed(model, "x")
        assert caught.value.code is ErrorCode.NOT_FOUND


async def test_without_streams_there_is_one_answer() -> None:
    async with bench(("brpc", "cpp")) as there:
        (only,) = await streamed(there.model("", declared=TEXT), "hello")
        assert only.final and only.outputs == (text("hello"),)


@pytest.mark.parametrize("flavor", ["py", "cpp"])
async def test_what_is_sent_over_http(flavor: str) -> None:
    async with bench(("http", flavor)) as there:
        await there.model("simple-1.0.0").infer(InferRequest("ours", SUMS))
        await there.model("your_model-1.0.0").infer(InferRequest("ours", (text(b"\0", "bin_data"),)))
        await streamed(there.model("your_model-1.0.0"), "stream")
        tensors, raw, stream = there.posted
        assert (tensors.path, tensors.query) == ("/grps/v1/infer/predict", "")
        assert tensors.headers["Content-Type"] == "application/json"
        assert (raw.query, raw.headers["Content-Type"]) == (
            "model=your_model-1.0.0",
            "application/octet-stream",
        )
        assert raw.body == b"\0"
        assert stream.query == "streaming=true"


async def test_a_name_that_only_one_server_decodes() -> None:
    given = text(b"\0", "bin_data")
    async with bench(("http", "py")) as there:
        error = await failure(there.model("a&b é", declared=TEXT, strict_signature=False), given)
        assert error.code is ErrorCode.NOT_FOUND and "a&b é" in error.message
        assert there.server.seen[-1].model == "a&b é"
    async with bench(("http", "cpp")) as there:
        error = await failure(there.model("a&b é", declared=TEXT, strict_signature=False), given)
        assert error.code is ErrorCode.UNREPRESENTABLE


async def test_a_configured_flavor_is_not_detected() -> None:
    async with bench(("http", "cpp"), flavor="cpp") as there:
        lenient = there.model("a&b é", declared=TEXT, strict_signature=False)
        error = await failure(lenient, text(b"\0", "bin_data"))
        assert error.code is ErrorCode.UNREPRESENTABLE


@asynccontextmanager
async def answering(
    status: int, content_type: str, body: bytes, **headers: str
) -> AsyncIterator[UpstreamModel]:
    """A model behind a server that answers everything so."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, body=body, headers={"Content-Type": content_type, **headers})

    application = web.Application()
    application.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = PooledHttpClient(parse_url("{}:{}".format(*runner.addresses[0][:2]), "http"))
    upstream = Upstream("there", GRPS.bindings["http"].calls, [client], 10.0)
    try:
        yield UpstreamModel("ours", upstream, "", declared=TEXT)
    finally:
        await upstream.close()
        await runner.cleanup()


SUCCESS = b'{"status": {"code": 200, "msg": "OK", "status": "SUCCESS"}, "str_data": "x"}'
JSON = "application/json"


@pytest.mark.parametrize(
    ("status", "content_type", "body", "headers", "code", "words"),
    [
        (
            404,
            "text/html",
            b"<title>404</title>\n<h1>Not\nFound</h1>",
            {},
            "BAD_UPSTREAM",
            "404: 404 Not Found",
        ),
        (503, "text/plain", b"Reached", {"x-bd-error-code": "2004"}, "OVERLOADED", "Reached"),
        (503, "text/plain", b"", {}, "UNAVAILABLE", "503: no message"),
        (500, "text/plain", b"x", {"x-bd-error-code": "99999"}, "BAD_UPSTREAM", "500: x"),
        (200, "text/html", b"<p>welcome", {}, "BAD_UPSTREAM", "200: welcome"),
        (200, JSON, b"{", {}, "BAD_UPSTREAM", "not valid"),
        (200, JSON, b"[]", {}, "BAD_UPSTREAM", "not valid"),
        (500, JSON, SUCCESS, {}, "BAD_UPSTREAM", "500"),
        (401, JSON, b'{"detail": "who"}', {}, "UNAUTHENTICATED", "who"),
    ],
)
async def test_answers_that_are_none(
    status: int, content_type: str, body: bytes, headers: dict[str, str], code: str, words: str
) -> None:
    async with answering(status, content_type, body, **headers) as model:
        error = await failure(model, text("x"))
        assert (error.code.name, words in error.message) == (code, True), error.message
        if content_type == "text/html" and status == 200:
            return  # a stream may be of any type
        with pytest.raises(InferenceError) as caught:
            await streamed(model, "x")
        assert (caught.value.code.name, words in caught.value.message) == (code, True), caught.value.message


async def test_a_stream_that_ends_within_a_document() -> None:
    async with answering(200, "application/octet-stream", SUCCESS + SUCCESS[:-1]) as model:
        found: list[InferResponse] = []

        async def take() -> None:
            async for response in model.stream(InferRequest("ours", (text("x"),))):
                found.append(response)

        with pytest.raises(InferenceError, match="within a document") as caught:
            await take()
        assert caught.value.code is ErrorCode.BAD_UPSTREAM
        assert [response.outputs for response in found] == [(text("x"),)]


async def test_the_standin_reads_what_we_write_as_a_message() -> None:
    """The server's classes are protoc's own."""
    async with bench(("brpc", "cpp")) as there:
        await there.model("").infer(InferRequest("ours", (Tensor.from_numpy("x", np.array(7, np.int64)),)))
        (message,) = there.server.seen
        assert isinstance(message, GrpsMessage)
        assert list(message.gtensors.tensors[0].flat_int64) == [7] and not message.gtensors.tensors[0].shape
