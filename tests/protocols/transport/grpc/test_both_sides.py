"""The gRPC listener and client on real sockets, each against plain grpcio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from interlingua.protocols.transport.address import Address, parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.grpc.client import GrpcChannelClient
from interlingua.protocols.transport.grpc.library import GrpcioServer
from interlingua.protocols.transport.grpc.library_client import GrpcioClient
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import Context, ErrorCode, InferenceError
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho
from tests.waiting import until

MIB = 1 << 20
CALL, WAIT, RAISE, STREAM = (f"/test.Echo/{name}" for name in ("Call", "Wait", "Raise", "Stream"))
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

Server = GrpcServer | GrpcioServer
ENGINES: dict[str, type[Server]] = {"native": GrpcServer, "library": GrpcioServer}


Client = GrpcChannelClient | GrpcioClient
CLIENTS: dict[str, type[Client]] = {"native": GrpcChannelClient, "library": GrpcioClient}


class OnEachEngine:
    """Its tests run on every engine of a listener."""

    @pytest.fixture(autouse=True, params=ENGINES)
    def _engine(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(ENGINES, "native", ENGINES[request.param])


def made(handler: GrpcEcho, address: Address = LOOPBACK, **options: int) -> Server:
    """A server on the engine of the test."""
    return ENGINES["native"](handler, address, **options)


@asynccontextmanager
async def serving(handler: GrpcEcho, address: Address = LOOPBACK, **options: int) -> AsyncIterator[Server]:
    server = made(handler, address, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


@asynccontextmanager
async def plain(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    """A channel of grpcio's own to our server."""
    async with grpc.aio.insecure_channel(str(server.address), options=UNLIMITED) as channel:
        yield channel


async def called(server: Server, message: bytes = b"x", method: str = CALL, **how: Any) -> bytes:
    async with plain(server) as channel:
        answer: bytes = await channel.unary_unary(method)(message, **how)
        return answer


async def failed(
    server: Server, message: bytes = b"x", method: str = CALL, **how: Any
) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await called(server, message, method, **how)
    return error.value


@asynccontextmanager
async def client(address: Address | str, **options: Any) -> AsyncIterator[Client]:
    made = CLIENTS["native"](parse_url(str(address), "grpc"), ClientOptions(**options))
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def grpcio_server(behaviour: Any, options: Any = ()) -> AsyncIterator[str]:
    """A server of grpcio's own with one method; its address."""
    server = grpc.aio.server(options=options)
    handlers: Mapping[str, Any] = {"Call": grpc.unary_unary_rpc_method_handler(behaviour)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def refused(address: Address | str, request: GrpcRequest, **options: Any) -> InferenceError:
    async with client(address, **options) as sender:
        with pytest.raises(InferenceError) as error:
            await sender.send(request)
    return error.value


class TestServer(OnEachEngine):
    @pytest.mark.parametrize("size", [0, 1, 64, 65_536, 5 * MIB])
    async def test_messages_pass_as_bytes(self, size: int) -> None:
        message = b"m" * size
        async with serving(GrpcEcho()) as server:
            assert await called(server, message) == message

    async def test_an_answer_may_be_a_view(self) -> None:
        async with serving(GrpcEcho(GrpcAnswer(memoryview(b"view")))) as server:
            assert await called(server) == b"view"

    @pytest.mark.parametrize("size", [1, 10_000, 3 * MIB])
    async def test_an_answer_may_be_in_parts(self, size: int) -> None:
        parts = (memoryview(b"p" * size), b"", memoryview(bytearray(b"q" * size)))
        async with serving(GrpcEcho(GrpcAnswer(b"head", parts=parts))) as server:
            assert await called(server) == b"head" + b"p" * size + b"q" * size
            async with plain(server) as channel:
                call = channel.stream_stream(STREAM)(iter([b"1", b"2"]))
                assert [len(each) async for each in call] == [4 + 2 * size] * 2

    async def test_the_limit_of_answers_counts_parts(self) -> None:
        for size, code in ((500, grpc.StatusCode.OK), (501, grpc.StatusCode.RESOURCE_EXHAUSTED)):
            answer = GrpcAnswer(b"x" * 500, parts=(b"x" * size,))
            async with serving(GrpcEcho(answer), max_response_bytes=1000) as server, plain(server) as channel:
                call = channel.unary_unary(CALL)(b"x")
                assert await call.code() is code

    async def test_what_the_handler_receives(self) -> None:
        handler = GrpcEcho()
        sent = (("a", "b"), ("traceparent", "00-1"), ("tracestate", "c=d"), ("e-bin", b"\x00"))
        async with serving(handler) as server:
            await called(server, metadata=sent, timeout=5)
        (request,) = handler.served
        assert (request.method, request.message) == (CALL, b"x")
        assert request.metadata["a"] == "b"
        assert "e-bin" not in request.metadata
        assert (request.context.traceparent, request.context.tracestate) == ("00-1", "c=d")
        assert request.context.peer.startswith("ipv4:127.0.0.1:")
        assert request.context.deadline is not None
        assert 3 < request.context.deadline - time.monotonic() < 6

    async def test_metadata_with_blanks_around_it(self) -> None:
        handler = GrpcEcho()
        sent = (("authorization", "Bearer x "), ("a", "  b c"), ("d", " "))
        async with serving(handler) as server:
            await called(server, metadata=sent)
        found = handler.served[0].metadata
        assert (found["authorization"], found["a"], found["d"]) == ("Bearer x", "b c", "")

    async def test_no_deadline(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server:
            await called(server)
        assert handler.served[0].context.deadline is None

    async def test_status_and_trailers(self) -> None:
        answer = GrpcAnswer(code=5, details="no such model", trailing=(("x-a", "b"),))
        async with serving(GrpcEcho(answer)) as server:
            error = await failed(server)
        assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no such model")
        assert ("x-a", "b") in tuple(error.trailing_metadata())

    @pytest.mark.parametrize("details", ["no" * 100_000, "é" * 100_000, "%" * 100_000, "\n" * 100_000])
    async def test_a_long_text_does_not_cost_the_status(self, details: str) -> None:
        async with serving(GrpcEcho(GrpcAnswer(code=5, details=details))) as server:
            error = await failed(server)
        said = error.details() or ""
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert said.endswith("...") and details.startswith(said[:-3]) and len(said) > 500

    async def test_a_text_of_some_length_arrives_whole(self) -> None:
        details = "é" + "x" * 4090
        async with serving(GrpcEcho(GrpcAnswer(code=5, details=details))) as server:
            assert (await failed(server)).details() == details

    async def test_unknown_methods(self) -> None:
        async with serving(GrpcEcho()) as server:
            assert (await failed(server, method="/test.Echo/No")).code() is grpc.StatusCode.UNIMPLEMENTED

    @pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
    async def test_compressed_messages(self, compression: grpc.Compression) -> None:
        async with serving(GrpcEcho()) as server:
            assert await called(server, b"x" * 10_000, compression=compression) == b"x" * 10_000

    async def test_a_fault_of_the_handler_is_reported_without_internals(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serving(GrpcEcho()) as server:
            error = await failed(server, method=RAISE)
        assert error.code() is grpc.StatusCode.INTERNAL
        assert "promise" not in (error.details() or "")
        assert "unexpected error" in caplog.text

    async def test_a_large_request_is_refused_by_the_name_of_the_option(self) -> None:
        handler = GrpcEcho()
        async with serving(handler, max_request_bytes=1000) as server:
            assert await called(server, b"x" * 1000) == b"x" * 1000
            error = await failed(server, b"x" * 1001)
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "1001 bytes, more than the 1000 that max_request_bytes" in (error.details() or "")
            much = await failed(server, b"x" * (3 * MIB))
            assert much.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(handler.served) == 1

    async def test_a_large_answer_too(self) -> None:
        async with serving(GrpcEcho(), max_response_bytes=1000) as server:
            assert await called(server, b"x" * 1000) == b"x" * 1000
            error = await failed(server, b"x" * 1001)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1001 bytes, more than the 1000 that max_response_bytes" in (error.details() or "")

    async def test_a_cancelled_call_cancels(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, plain(server) as channel:
            call = channel.unary_unary(WAIT)(b"x")
            await asyncio.wait_for(handler.entered.wait(), 30)
            call.cancel()
            await asyncio.wait_for(handler.cancelled.wait(), 30)

    async def test_a_deadline_cancels(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server:
            error = await failed(server, method=WAIT, timeout=0.2)
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await asyncio.wait_for(handler.cancelled.wait(), 30)

    async def test_unix_socket(self, tmp_path: Path) -> None:
        address = Address(path=str(tmp_path / "run" / "x.sock"))
        async with serving(GrpcEcho(), address) as server:
            assert server.address == address
            assert await called(server) == b"x"
            with pytest.raises(OSError, match=r"cannot listen at unix:.*x.sock"):
                await made(GrpcEcho(), address).start()
            assert await called(server) == b"x"
        assert not Path(address.path).exists()

    async def test_a_used_port_is_an_error_that_names_it(self) -> None:
        async with serving(GrpcEcho()) as server:
            with pytest.raises(OSError, match=f"cannot listen at {server.address}"):
                await made(GrpcEcho(), server.address).start()


class TestStreams(OnEachEngine):
    async def test_answers_as_messages_come(self) -> None:
        async with serving(GrpcEcho()) as server, plain(server) as channel:
            call = channel.stream_stream(STREAM)()
            for message in (b"a", b"b"):
                await call.write(message)
                assert await call.read() == message
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK

    async def test_an_answer_with_a_code_is_the_last(self) -> None:
        async with serving(GrpcEcho(GrpcAnswer(code=3, details="no"))) as server, plain(server) as channel:
            call = channel.stream_stream(STREAM)()
            await call.write(b"a")
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert await call.details() == "no"

    async def test_a_client_that_leaves_cancels(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, plain(server) as channel:
            call = channel.stream_stream(STREAM)()
            await call.write(b"wait")
            await asyncio.wait_for(handler.entered.wait(), 30)
            call.cancel()
            await asyncio.wait_for(handler.cancelled.wait(), 30)


class TestStopping(OnEachEngine):
    async def test_running_calls_end(self) -> None:
        handler = GrpcEcho()
        server = made(handler)
        await server.start()
        async with plain(server) as channel:
            call = channel.unary_unary(WAIT)(b"kept")
            await asyncio.wait_for(handler.entered.wait(), 30)
            stopping = asyncio.create_task(server.stop(10))
            await asyncio.sleep(0.1)
            assert not stopping.done()
            handler.release.set()
            assert await call == b"kept"
            assert await stopping == 0

    async def test_the_rest_is_cut_and_counted(self) -> None:
        handler = GrpcEcho()
        server = made(handler)
        await server.start()
        async with plain(server) as channel:
            calls = [channel.unary_unary(WAIT)(b"x") for _ in range(2)]
            await until(lambda: len(handler.served) >= 2)
            assert await server.stop(0.1) == 2
            for call in calls:
                assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert handler.cancelled.is_set()


class TestClient:
    @pytest.fixture(autouse=True, params=CLIENTS)
    def _engine(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(CLIENTS, "native", CLIENTS[request.param])

    @pytest.mark.parametrize("size", [0, 64, 5 * MIB])
    async def test_messages_pass_as_bytes(self, size: int) -> None:
        async def echo(message: bytes, call: Any) -> bytes:
            return message

        message = b"m" * size
        async with grpcio_server(echo, UNLIMITED) as address, client(f"grpc://{address}") as sender:
            assert await sender.send(GrpcRequest(CALL, memoryview(message))) == GrpcAnswer(message)

    async def test_metadata_and_deadline(self) -> None:
        seen: dict[str, Any] = {}

        async def look(message: bytes, call: Any) -> bytes:
            seen.update(call.invocation_metadata(), left=call.time_remaining())
            return b""

        async with grpcio_server(look) as address, client(address) as sender:
            context = Context(deadline=time.monotonic() + 5)
            await sender.send(GrpcRequest(CALL, b"", {"a": "b"}, context))
        assert seen["a"] == "b"
        assert 3 < seen["left"] < 6

    async def test_a_status_of_the_server_is_an_answer(self) -> None:
        async def fail(message: bytes, call: Any) -> None:
            await call.abort(grpc.StatusCode.UNAVAILABLE, "model is loading")

        async with grpcio_server(fail) as address, client(address) as sender:
            assert await sender.send(GrpcRequest(CALL, b"")) == GrpcAnswer(
                code=14, details="model is loading"
            )

    async def test_the_status_of_a_server_that_answers_a_stream_before_it_has_read(self) -> None:
        request = GrpcRequest(STREAM, b"x")

        async def told(sender: Client) -> list[GrpcAnswer]:
            return [answer async for answer in sender.stream(request)]

        async with grpcio_server(None) as address:
            # which is first, the message or the status, is chance: most of all on a fresh channel
            for _ in range(12):
                async with client(address) as sender:
                    for answers in await asyncio.gather(*(told(sender) for _ in range(8))):
                        assert answers == [GrpcAnswer(code=12, details="Method not found!")]

    async def test_over_a_unix_socket(self, tmp_path: Path) -> None:
        address = Address(path=str(tmp_path / "x.sock"))
        async with serving(GrpcEcho(), address), client(address) as sender:
            assert (await sender.send(GrpcRequest(CALL, b"x"))).message == b"x"

    async def test_refused(self) -> None:
        async with serving(GrpcEcho()) as server:
            address = server.address
        error = await refused(address, GrpcRequest(CALL, b"x"))
        assert error.code is ErrorCode.UNAVAILABLE
        assert f"the upstream at {address} cannot be reached" in error.message
        assert "refused" in error.message

    async def test_a_server_that_comes_back_is_found(self) -> None:
        async with client("127.0.0.1:1") as sender:
            with pytest.raises(InferenceError):
                await sender.send(GrpcRequest(CALL, b"x"))
        async with serving(GrpcEcho()) as server:
            address = server.address
            async with client(address) as sender:
                assert (await sender.send(GrpcRequest(CALL, b"1"))).message == b"1"
                await server.stop(0)
                with pytest.raises(InferenceError, match="cannot be reached"):
                    await sender.send(GrpcRequest(CALL, b"2"))
                async with serving(GrpcEcho(), address):
                    async with asyncio.timeout(30):
                        while True:
                            try:
                                assert (await sender.send(GrpcRequest(CALL, b"3"))).message == b"3"
                                break
                            except InferenceError:
                                await asyncio.sleep(0.05)

    async def test_deadline(self) -> None:
        async with serving(GrpcEcho()) as server:
            for secs in (0.2, -1.0):
                context = Context(deadline=time.monotonic() + secs)
                error = await refused(server.address, GrpcRequest(WAIT, b"x", context=context))
                assert error.code is ErrorCode.DEADLINE_EXCEEDED

    async def test_being_cancelled_ends_the_call(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, client(server.address) as sender:
            asking = asyncio.ensure_future(sender.send(GrpcRequest(WAIT, b"x")))
            await asyncio.wait_for(handler.entered.wait(), 30)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.wait_for(handler.cancelled.wait(), 30)

    async def test_an_oversized_answer(self) -> None:
        async with serving(GrpcEcho()) as server:
            error = await refused(server.address, GrpcRequest(CALL, b"x" * 2000), max_response_bytes=1000)
        assert error.code is ErrorCode.TOO_LARGE
        assert "1000 bytes that max_response_bytes of this upstream allows" in error.message

    async def test_a_request_too_large_for_the_server_is_the_servers_word(self) -> None:
        async def echo(message: bytes, call: Any) -> bytes:
            return message

        limit = (("grpc.max_receive_message_length", 1000),)
        async with grpcio_server(echo, limit) as address, client(address) as sender:
            answer = await sender.send(GrpcRequest(CALL, b"x" * 2000))
        assert answer.code == 8
        assert "larger than max (2000 vs. 1000)" in answer.details

    async def test_metadata_that_cannot_be_sent(self) -> None:
        async with serving(GrpcEcho()) as server:
            error = await refused(server.address, GrpcRequest(CALL, b"x", {"A b": "c"}))
        assert error.code is ErrorCode.MALFORMED
        assert "'A b'" in error.message

    async def test_a_server_that_speaks_http_1(self) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        error = await refused(f"{host}:{port}", GrpcRequest(CALL, b"x"))
        server.close()
        assert error.code is ErrorCode.UNAVAILABLE
        assert "HTTP" in error.message
