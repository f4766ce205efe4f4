"""Bytes that a request holds beyond its body as it came count in ``max_inflight_bytes``: those of decompressed
bodies and of messages of streams. What exceeds it gets "try again" in the dialect's form."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator

import aiohttp
import grpc
import pytest
from tritonclient.grpc import service_pb2

from benchmarks.bridging.requests import request
from interlingua.protocols.transport.load import Load
from tests.standins.brpc_frames import request_frame
from tests.translator.test_overload import Serving, exchanged, serving
from tests.waiting import until

OTHERS = 1_000_000
"""The bytes of other requests."""

SIZE = 1 << 19
LIMIT = OTHERS + SIZE // 2
"""A tensor of that size exceeds it, but not when it is compressed."""

REFUSED = f"bytes of requests in flight, its max_inflight_bytes is {LIMIT}; try again"


@contextlib.contextmanager
def others(load: Load) -> Iterator[None]:
    """Other requests hold bytes, and they alone do in the end."""
    load.body_bytes += OTHERS
    load.max_bytes = LIMIT
    yield
    load.body_bytes -= OTHERS


async def released(server: Serving) -> None:
    loads = (server.assembly.load, *server.assembly.loads)
    await until(lambda: not any(load.body_bytes for load in loads))


@pytest.mark.parametrize("dialect", ["oip", "graphpipe"])
async def test_decompressed_bodies_over_http(dialect: str) -> None:
    sent = request(dialect, "http", SIZE)
    body = gzip.compress(sent.body)
    assert len(body) < SIZE // 2
    headers = {**sent.headers, "content-encoding": "gzip"}
    async with serving() as server, aiohttp.ClientSession() as client:
        url, load = f"http://{server.addresses['http']}{sent.path}", server.assembly.load
        with others(load):
            async with client.post(url, data=body, headers=headers) as reply:
                assert reply.status == 429 and reply.headers["Retry-After"] == "1"
                assert REFUSED in await reply.text()
        load.max_bytes = 1000
        async with client.post(url, data=body, headers=headers) as reply:
            assert reply.status == 200  # the only one is accepted, however large
            assert sent.echoed in await reply.read()
        await released(server)


@pytest.mark.parametrize("size", [SIZE, 64])
async def test_decompressed_messages_over_grpc(size: int) -> None:
    sent = request("oip", "grpc", size)
    async with serving() as server:
        options = {"compression": grpc.Compression.Gzip}
        async with grpc.aio.insecure_channel(server.addresses["grpc"], **options) as channel:
            call = channel.unary_unary(sent.path)
            with others(server.assembly.load):
                if size == SIZE:
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await call(sent.body)
                    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    assert REFUSED in refused.value.details()
                else:
                    assert sent.echoed in await call(sent.body)
            server.assembly.load.max_bytes = 1000
            assert sent.echoed in await call(sent.body)
            await released(server)


async def test_decompressed_calls_over_brpc() -> None:
    sent = request("grps", "grpc", SIZE)
    frame = request_frame("Predict", gzip.compress(sent.body), compress_type=2)
    async with serving() as server:
        load = server.assembly.load
        with others(load):
            answer = await exchanged(server.addresses["brpc"], frame)
            assert b"[E2004]the server holds" in answer and REFUSED.encode() in answer
        answer = await exchanged(server.addresses["brpc"], frame)
        assert b"[E" not in answer and len(answer) > 1000
        await released(server)


@pytest.mark.parametrize("engine", ["native", "library"])
async def test_messages_of_streams(engine: str) -> None:
    """Our own engine counts what waits for the handler, too, and ends the call of a message that exceeds it; the
    library's leaves its message to the handler."""
    small, fitting, large = (request("oip", "grpc", size).body for size in (64, 18_000, SIZE))
    async with serving(engine) as server, grpc.aio.insecure_channel(server.addresses["grpc"]) as channel:
        stream = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        load, call = server.assembly.load, stream()
        with others(load):
            for message in (small, fitting):
                await call.write(message)
                assert not (await call.read()).error_message
            await call.write(large)
            if engine == "native":
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call.read()
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert f"its max_inflight_bytes is {LIMIT}" in refused.value.details()
                call = stream()
            else:
                assert REFUSED in (await call.read()).error_message
            await call.write(small)
            assert not (await call.read()).error_message
        load.max_bytes = 1000
        await call.write(large)
        assert not (await call.read()).error_message
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        await released(server)
