"""The bRPC listener before a stand-in client: out of order, under load, with bytes that are none of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import hashlib
import socket
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cramjam
import grpc.aio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlingua.protocols.brpc_status import unparsable
from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.brpc import server as brpc_server
from interlingua.protocols.transport.brpc.server import BrpcServer
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import BrpcAnswer, BrpcHandler, BrpcRequest
from interlingua.schemas.offload import DecodingLimits
from tests.protocols.transport.h2.peer import START, RawH2, call, message
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, HttpEcho, RawHttp, stalling
from tests.standins.brpc_client import BrpcStandinClient
from tests.standins.brpc_frames import SERVICE, frame, number, request_frame, text
from tests.waiting import until

GOLDEN = Path(__file__).parents[3] / "golden" / "grps" / "brpc"
METHODS = ("Predict", "Wait", "Raise", "Fail", "Unparsable", "Large", "Sleep")


@dataclass
class BrpcEcho(BrpcHandler):
    """Answers ``Predict`` with its message, ``Sleep`` with it after so many milliseconds as it says;
    ``Wait`` waits for ``release``."""

    served: list[BrpcRequest] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0

    def knows(self, service: str) -> bool:
        return service in (SERVICE, "GrpsBrpcService")

    def offers(self, service: str, method: str) -> bool:
        return self.knows(service) and method in METHODS

    async def serve(self, request: BrpcRequest) -> BrpcAnswer:
        self.served.append(request)
        self.entered.set()
        request.context.cancel.on_cancel(self._cancelled)
        match request.method:
            case "Wait":
                await self.release.wait()
            case "Sleep":
                await asyncio.sleep(int(bytes(request.message)) / 1000)
            case "Raise":
                raise RuntimeError("a handler that breaks its promise")
            case "Fail":
                return BrpcAnswer(code=2001, text="as it said")
            case "Unparsable":
                return unparsable(request)
            case "Large":
                return BrpcAnswer(bytes(int(bytes(request.message))))
        return BrpcAnswer(request.message)

    def _cancelled(self) -> None:
        self.cancelled += 1


@dataclass
class Serving:
    """A started server, its handlers, and connections to it."""

    server: BrpcServer
    echo: BrpcEcho
    http: HttpEcho
    grpc: GrpcEcho

    def client(self) -> contextlib.AbstractAsyncContextManager[BrpcStandinClient]:
        address = self.server.address
        return BrpcStandinClient.to(address.path or address.host, address.port)


@asynccontextmanager
async def serving(address: Address = LOOPBACK, **options: Any) -> AsyncIterator[Serving]:
    echo, http, over_grpc = BrpcEcho(), HttpEcho(), GrpcEcho()
    server = BrpcServer(echo, http, over_grpc, address, **options)
    await server.start()
    try:
        yield Serving(server, echo, http, over_grpc)
    finally:
        await server.stop(0)
        assert not server.connections.open and not server.at_work


def identity(server: BrpcServer) -> str:
    address = server.address
    digest = hashlib.md5(f"{address.host}:{address.port}".encode()).hexdigest()
    return "".join(high + low for low, high in zip(digest[::2], digest[1::2], strict=True))


async def refused(data: bytes, code: int, words: str, **options: Any) -> None:
    """``data`` gets this error, and the connection goes on."""
    async with serving(**options) as here, here.client() as client:
        await client.send(data)
        reply = await client.receive()
        assert reply.error == (code, f"[{identity(here.server)}][E{code}]{words}")
        assert reply.payload == b""
        assert (await client.call("Predict", b"on")).payload == b"on"


# calls


async def test_one_call() -> None:
    async with serving() as here, here.client() as client:
        reply = await client.call("Predict", b"payload", correlation_id=0x100000002)
        assert (reply.correlation_id, reply.error, reply.payload) == (0x100000002, (0, ""), b"payload")
        (request,) = here.echo.served
        assert (request.service, request.method) == (SERVICE, "Predict")
        assert (request.context.peer, request.context.deadline) == ("127.0.0.1", None)


async def test_the_recorded_bytes_to_the_byte() -> None:
    """The answer's frame around a message that an echo can give is the recorded one."""
    recorded = (GOLDEN / "Predict_str.c2s").read_bytes()
    async with serving() as here, here.client() as client:
        await client.send(recorded)
        head = await client.reader.readexactly(12 + 12)
        payload = await client.reader.readexactly(len(recorded) - 12 - 51)
    answer = (GOLDEN / "Predict_str.s2c").read_bytes()
    size = 12 + len(payload)
    assert head == answer[:4] + size.to_bytes(4, "big") + answer[8:24]
    assert payload == recorded[12 + 51 :]


async def test_every_recorded_request_gets_the_recorded_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = [path for path in sorted(GOLDEN.glob("*.c2s")) if path.read_bytes().startswith(b"PRPC")]
    methods = ("Online", "Offline", "CheckLiveness", "CheckReadiness", "ServerMetadata", "ModelMetadata")
    monkeypatch.setattr("tests.protocols.transport.brpc.test_server.METHODS", (*METHODS, *methods))
    answered = 0
    async with serving() as here, here.client() as client:
        for path in recorded:
            await client.send(path.read_bytes())
            head = await client.reader.readexactly(12)
            body = await client.reader.readexactly(int.from_bytes(head[4:8], "big"))
            answer = path.with_suffix(".s2c").read_bytes()
            if answer and not path.name.startswith("httpport"):  # there the answer stands twice
                assert head[8:] + body[:12] == answer[8:24], path.name
                answered += 1
    assert answered > 20


@pytest.mark.parametrize("correlation_id", [0, 1, -1, 2**63 - 1, -(2**63)])
async def test_correlation_ids_are_echoed(correlation_id: int) -> None:
    async with serving() as here, here.client() as client:
        assert (await client.call("Predict", correlation_id=correlation_id)).correlation_id == correlation_id
        assert (await client.call("Nope", correlation_id=correlation_id)).correlation_id == correlation_id


async def test_an_absent_correlation_id_is_answered_as_zero() -> None:
    async with serving() as here, here.client() as client:
        reply = await client.call("Predict", correlation_id=None)
        assert reply.meta[4] == [0]


async def test_an_empty_message_is_valid() -> None:
    async with serving() as here, here.client() as client:
        reply = await client.call("Predict", b"")
        assert (reply.error, reply.payload) == ((0, ""), b"")


async def test_a_thousand_pipelined_calls_out_of_order() -> None:
    async with serving() as here, here.client() as client:
        order = [(id * 7919) % 1000 for id in range(1000)]
        delays = {id: (id * 31) % 50 for id in order}
        requests = [request_frame("Sleep", str(delays[id]).encode(), id) for id in order]
        sending = asyncio.ensure_future(client.send(b"".join(requests)))
        replies = [await client.receive() for _ in order]
        await sending
        assert {reply.correlation_id: int(reply.payload) for reply in replies} == delays
        assert client.order != order
        assert all(reply.error == (0, "") for reply in replies)


async def test_a_slow_call_does_not_hold_up_the_next() -> None:
    async with serving() as here, here.client() as client:
        await client.send(request_frame("Wait", b"slow", 1) + request_frame("Predict", b"fast", 2))
        assert (await client.receive()).payload == b"fast"
        here.echo.release.set()
        assert (await client.receive()).payload == b"slow"


async def test_large_messages_both_ways() -> None:
    message = bytes(range(256)) * (1 << 14)
    async with serving() as here, here.client() as client:
        for _ in range(3):
            assert (await client.call("Predict", message)).payload == message


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    async with serving(parse_address(f"unix:{tmp_path}/s")) as here, here.client() as client:
        assert (await client.call("Predict", b"local")).payload == b"local"
        assert here.echo.served[0].context.peer == ""
        assert (await client.call("Nope")).error[0] == 1002


async def test_answers_do_not_wait_for_more() -> None:
    async with serving() as here, here.client() as client:
        await client.call("Predict")
        (connection,) = here.server.connections.open
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_the_deadline_of_the_meta() -> None:
    async with serving() as here, here.client() as client:
        began = time.monotonic()
        await client.call("Predict", timeout_ms=1500)
        await client.call("Predict", timeout_ms=0)
        await client.call("Predict", timeout_ms=-1)
        deadline, none, negative = (request.context.deadline for request in here.echo.served)
        assert deadline is not None
        assert began + 1.5 <= deadline <= time.monotonic() + 1.5
        assert none is None and negative is None


async def test_an_attachment_is_ignored() -> None:
    async with serving() as here, here.client() as client:
        assert (await client.call("Predict", b"message", attachment=b"rest")).payload == b"message"
        assert (await client.call("Predict", b"message", attachment_size=-3)).payload == b"message"
        packed = gzip.compress(b"message")
        reply = await client.call("Predict", packed, attachment=b"rest", compress_type=2)
        assert reply.payload == b"message"


@pytest.mark.parametrize(
    ("kind", "packed"),
    [
        (1, bytes(cramjam.snappy.compress_raw(b"message"))),
        (2, gzip.compress(b"message")),
        (3, zlib.compress(b"message")),
    ],
    ids=["snappy", "gzip", "zlib"],
)
async def test_a_compressed_request_is_answered_uncompressed(kind: int, packed: bytes) -> None:
    async with serving() as here, here.client() as client:
        reply = await client.call("Predict", packed, compress_type=kind)
        assert (reply.payload, reply.compress_type, reply.error) == (b"message", 0, (0, ""))
        assert (here.echo.served[0].compression, here.echo.served[0].size) == (
            ("snappy", "gzip", "zlib")[kind - 1],
            len(packed),
        )


async def test_the_short_name_of_the_service() -> None:
    async with serving() as here, here.client() as client:
        assert (await client.call("Predict", b"x", service="GrpsBrpcService")).payload == b"x"


# refusals


async def test_an_unknown_method() -> None:
    await refused(request_frame("predict"), 1002, f"Fail to find method={SERVICE}/predict")


async def test_an_unknown_service_with_a_package() -> None:
    await refused(request_frame("Predict", service="a.B"), 1002, "Fail to find method=a.B/Predict")


async def test_an_unknown_method_of_the_short_name() -> None:
    asked = request_frame("Nope", service="GrpsBrpcService")
    await refused(asked, 1002, "Fail to find method=GrpsBrpcService/Nope")


async def test_an_unknown_service_without_a_package() -> None:
    await refused(request_frame("Predict", service="Other"), 1001, "Fail to find service=Other")


@pytest.mark.parametrize("meta", [b"", number(4, 5), text(2, number(1, 0)) + number(4, 5)])
async def test_a_meta_without_a_request(meta: bytes) -> None:
    await refused(frame(meta), 1001, "Fail to find service=")


async def test_an_attachment_larger_than_the_message() -> None:
    asked = request_frame("Predict", b"12345", attachment_size=6)
    await refused(asked, 1003, "attachment_size=6 is larger than request_size=5")


@pytest.mark.parametrize(
    ("kind", "name", "payload"),
    [
        (1, "snappy", b"\xff\xff\xff"),
        (2, "gzip", b"no gzip"),
        (3, "zlib", b"no zlib"),
        (4, "unknown", b"lz4"),
        (-1, "unknown", b""),
        (2**31 - 1, "unknown", b""),
    ],
)
async def test_a_message_that_does_not_decompress(kind: int, name: str, payload: bytes) -> None:
    words = f"Fail to parse request message, CompressType={name}, request_size={len(payload)}"
    await refused(request_frame("Predict", payload, compress_type=kind), 1003, words, max_request_bytes=4096)


PACKED = {"snappy": cramjam.snappy.compress_raw, "gzip": gzip.compress, "zlib": zlib.compress}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"max_request_bytes": 1 << 20}, "max_request_bytes"),
        ({"limits": DecodingLimits(max_decompressed_bytes=1 << 20)}, "max_decompressed_bytes"),
    ],
)
async def test_a_message_beyond_a_limit_is_refused_by_its_name(
    name: str, options: dict[str, Any], option: str
) -> None:
    packed = bytes(PACKED[name](bytes((1 << 20) + 1)))
    coding = "deflate" if name == "zlib" else name
    words = f"the {coding} body has more than the {1 << 20} bytes that {option} of this listener allows, when decompressed"
    asked = request_frame("Predict", packed, compress_type=list(PACKED).index(name) + 1)
    await refused(asked, 1003, words, **options)


@pytest.mark.parametrize("name", PACKED)
async def test_a_message_of_any_ratio(name: str) -> None:
    packed = bytes(PACKED[name](bytes(4_000_000)))
    assert name == "snappy" or len(packed) * 900 < 4_000_000
    async with serving() as here, here.client() as client:
        reply = await client.call("Predict", packed, compress_type=list(PACKED).index(name) + 1)
        assert len(reply.payload) == 4_000_000


@pytest.mark.parametrize(
    ("number_", "name"), [(1, "json"), (2, "proto_json"), (3, "proto_text"), (4, "unknown")]
)
async def test_a_message_that_is_not_protobuf_is_refused_by_its_content_type(number_: int, name: str) -> None:
    asked = request_frame("Predict", b"{}", extra=number(10, number_))
    await refused(asked, 1003, f"content_type={number_} ({name}) is not supported: messages are protobuf")


async def test_the_content_type_of_protobuf() -> None:
    async with serving() as here, here.client() as client:
        assert (await client.call("Predict", b"x", extra=number(10, 0))).payload == b"x"


async def test_a_message_that_the_handler_cannot_parse() -> None:
    words = "Fail to parse request message, CompressType=none, request_size=7"
    await refused(request_frame("Unparsable", b"abcd", attachment=b"efg"), 1003, words)


async def test_an_error_of_the_handler() -> None:
    await refused(request_frame("Fail"), 2001, "as it said")


async def test_a_handler_that_raises() -> None:
    await refused(request_frame("Raise"), 2001, "internal error; the server's log has the details")


async def test_an_answer_that_is_too_large() -> None:
    words = "the answer has 11 bytes, more than the 10 that max_response_bytes of this listener allows"
    await refused(request_frame("Large", b"11"), 2002, words, max_response_bytes=10)


async def test_more_calls_than_are_allowed() -> None:
    async with serving(max_concurrency=2) as here, here.client() as one, here.client() as other:
        await one.send(request_frame("Wait", b"a", 1))
        await other.send(request_frame("Wait", b"b", 2))
        await until(lambda: len(here.echo.served) == 2)
        reply = await one.call("Predict", correlation_id=3)
        assert reply.correlation_id == 3
        assert reply.error == (2004, f"[{identity(here.server)}][E2004]Reached server's max_concurrency=2")
        here.echo.release.set()
        assert {(await one.receive()).payload, (await other.receive()).payload} == {b"a", b"b"}
        assert (await one.call("Predict", b"again")).payload == b"again"


async def test_requests_over_http_are_within_the_same_limit() -> None:
    async with serving(max_concurrency=1) as here, here.client() as client:
        await client.send(request_frame("Wait", b"a", 1))
        await until(lambda: len(here.echo.served) == 1)
        async with RawHttp.to(here.server.address) as http:
            reply = await http.post("/full")
            assert (reply.status, reply.headers["x-bd-error-code"]) == (503, "2004")
            assert reply.body == b"[E2004]Reached server's max_concurrency=1"
            here.echo.release.set()
            assert (await client.receive()).payload == b"a"
            assert (await http.post("/again", b"room")).body == b"room"
    async with serving(max_concurrency=1) as here, here.client() as client:
        async with RawHttp.to(here.server.address) as http:
            await http.send(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
            await until(lambda: here.server.at_work == 1)
            assert (await client.call("Predict")).error[0] == 2004
            await http.send(b"end")
            assert (await http.reply()).body == b"end"
        assert (await client.call("Predict", b"again")).payload == b"again"


# connections that end


@pytest.mark.parametrize(
    "data",
    [
        b"PRPX" + bytes(8),
        b"\x00\x01",
        b"QQ",
        # sofa_pbrpc and hulu_pbrpc, which the original speaks on the same port
        b"SOFA" + bytes(20),
        b"HULU" + bytes(8),
        frame(b"\xff\xff\xff"),
        frame(text(1, text(1, SERVICE))),
        frame(text(1, text(2, "Predict"))),
        b"PRPC" + (4097).to_bytes(4, "big") + (10).to_bytes(4, "big"),
        b"PRPC" + b"\xff" * 8,
        request_frame("Predict", b"answered first") + b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_closes_the_connection(data: bytes) -> None:
    async with serving(max_request_bytes=4096) as here, here.client() as client:
        await client.send(data)
        # an answer that was on its way may be lost, as with the original
        with contextlib.suppress(ConnectionResetError):
            assert len(await asyncio.wait_for(client.reader.read(), 30)) in (0, 38)
        await until(lambda: not here.server.connections.open)


async def test_a_meta_longer_than_its_body_is_dropped_in_silence() -> None:
    async with serving() as here, here.client() as client:
        await client.send(b"PRPC" + (3).to_bytes(4, "big") + (4).to_bytes(4, "big") + b"abc")
        assert (await client.call("Predict", b"next")).payload == b"next"
        assert len(client.order) == 1


async def test_an_idle_connection_is_closed() -> None:
    async with serving(timeouts=Timeouts(idle_secs=0.5)) as here, here.client() as client:
        assert (await client.call("Predict", b"x")).payload == b"x"
        assert await client.ended()


async def test_half_a_frame_is_waited_for_a_while() -> None:
    async with serving(timeouts=stalling(0.1)) as here, here.client() as client, here.client() as idle:
        await client.send(request_frame("Predict", b"payload")[:-1])
        assert await client.ended()
        assert (await idle.call("Predict", b"x")).payload == b"x"


async def test_a_slow_call_is_no_idle_connection() -> None:
    async with serving(timeouts=stalling(0.3, idle_secs=0.3)) as here, here.client() as client:
        assert (await client.call("Sleep", b"800")).payload == b"800"


async def test_a_client_that_goes_cancels_its_calls() -> None:
    async with serving() as here:
        async with here.client() as client:
            await client.send(request_frame("Wait", b"", 1) + request_frame("Wait", b"", 2))
            await until(lambda: len(here.echo.served) == 2)
            client.writer.transport.abort()
        await until(lambda: here.echo.cancelled == 2 and not here.server.connections.in_flight)


async def test_a_client_that_closes_its_side_has_gone() -> None:
    async with serving() as here, here.client() as client:
        await client.send(request_frame("Wait"))
        await here.echo.entered.wait()
        client.writer.write_eof()
        assert await client.ended()
        await until(lambda: here.echo.cancelled == 1 and not here.server.connections.in_flight)


# limits


async def test_no_more_calls_at_work_than_a_connection_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brpc_server, "MAX_IN_FLIGHT", 10)
    async with serving() as here, here.client() as client, here.client() as other:
        await client.send(b"".join(request_frame("Wait", b"x", id) for id in range(100)))
        await until(lambda: len(here.echo.served) == 10)
        await asyncio.sleep(0.05)
        assert len(here.server.connections.in_flight) == 10
        assert (await other.call("Predict", b"y")).payload == b"y"
        here.echo.release.set()
        assert {(await client.receive()).correlation_id for _ in range(100)} == set(range(100))


async def test_no_more_bytes_at_work_than_one_call_may_have() -> None:
    async with serving(max_request_bytes=10_000) as here, here.client() as client:
        await client.send(b"".join(request_frame("Wait", bytes(4900), id) for id in range(20)))
        await until(lambda: len(here.echo.served) == 3)
        await asyncio.sleep(0.05)
        assert len(here.server.connections.in_flight) == 3
        here.echo.release.set()
        assert {(await client.receive()).correlation_id for _ in range(20)} == set(range(20))


async def test_what_is_decompressed_counts() -> None:
    packed = gzip.compress(bytes(490_000))
    async with serving(max_request_bytes=1_000_000) as here, here.client() as client:
        await client.send(b"".join(request_frame("Wait", packed, id, compress_type=2) for id in range(20)))
        await until(lambda: len(here.echo.served) == 3)
        await asyncio.sleep(0.05)
        assert len(here.server.connections.in_flight) == 3
        here.echo.release.set()
        assert {len((await client.receive()).payload) for _ in range(20)} == {490_000}


async def test_a_client_that_takes_nothing_is_let_go() -> None:
    """It is not read from either: its calls wait in its own socket."""
    async with serving(timeouts=stalling(0.3)) as here, here.client() as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]

        async def flood() -> None:
            for id in range(1000):
                await client.send(request_frame("Large", b"1000000", id))

        flooding = asyncio.ensure_future(flood())
        await until(
            lambda: (
                here.server.connections.open
                and not next(iter(here.server.connections.open))._backlog.writable
            )
        )
        await until(lambda: not here.server.connections.open)
        flooding.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await flooding
        assert len(here.echo.served) < 1000


# HTTP beside it


async def test_http_on_the_same_port() -> None:
    async with serving() as here, RawHttp.to(here.server.address) as http, here.client() as client:
        reply = await http.post("/GrpsBrpcService/Predict", b"body")
        assert (reply.status, reply.body) == (200, b"body")
        assert (await http.post("/again", b"kept")).body == b"kept"
        assert (await client.call("Predict", b"x")).payload == b"x"
        assert not {connection for connection in here.server.connections.open if connection._first}


async def test_http_that_comes_byte_by_byte() -> None:
    async with serving() as here, RawHttp.to(here.server.address) as http:
        for octet in b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n":
            await http.send(bytes((octet,)))
            await asyncio.sleep(0)
        assert (await http.reply()).status == 200


async def test_frames_that_come_byte_by_byte() -> None:
    async with serving() as here, here.client() as client:
        for octet in request_frame("Predict", b"drops"):
            await client.send(bytes((octet,)))
            await asyncio.sleep(0)
        assert (await client.receive()).payload == b"drops"


@asynccontextmanager
async def grpc_to(here: Serving) -> AsyncIterator[Any]:
    """Calls a method by its name, over grpcio's client."""
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(str(here.server.address), options=options) as channel:
        yield lambda method, message, **options: channel.unary_unary(f"/test.Echo/{method}")(
            message, **options
        )


async def test_grpc_on_the_same_port() -> None:
    """brpc tells gRPC from baidu_std by what a connection begins with."""
    async with serving() as here, here.client() as client, grpc_to(here) as call:
        assert await call("Call", b"over HTTP/2", timeout=10) == b"over HTTP/2"
        assert (await client.call("Predict", b"x")).payload == b"x"
        large = bytes(5 << 20)
        assert await call("Call", large, timeout=10) == large
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await call("Nothing", b"", timeout=10)
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert not {connection for connection in here.server.connections.open if connection._first}


async def test_grpc_that_comes_byte_by_byte() -> None:
    async with serving() as here, RawH2.to(here.server.address, b"") as peer:
        for octet in START + call(1, b"drops"):
            await peer.send(bytes((octet,)))
            await asyncio.sleep(0)
        assert (await peer.answer()).body == message(b"drops")


async def test_one_limit_for_all_that_the_port_speaks() -> None:
    async with serving(max_concurrency=1) as here, here.client() as client, grpc_to(here) as call:
        await client.send(request_frame("Wait", b""))
        await here.echo.entered.wait()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call("Call", b"", timeout=10)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.value.details() == "Reached server's max_concurrency=1"
        here.echo.release.set()
        await client.receive()
        assert await call("Call", b"room", timeout=10) == b"room"
        waiting = asyncio.ensure_future(call("Wait", b"", timeout=10))
        await until(lambda: len(here.grpc.served) == 2)
        assert (await client.call("Predict", b"")).error[0] == 2004
        here.grpc.release.set()
        assert await waiting == b""


async def test_one_message_over_grpc_is_as_large_as_a_frame_may_be() -> None:
    async with serving(max_request_bytes=4096, max_response_bytes=100) as here, grpc_to(here) as call:
        for size, key in ((4097, "max_request_bytes"), (101, "max_response_bytes")):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call("Call", bytes(size), timeout=10)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert key in refused.value.details()


async def test_a_running_grpc_call_ends_before_the_server_stops() -> None:
    async with serving() as here, grpc_to(here) as call:
        waiting = asyncio.ensure_future(call("Wait", b"done", timeout=10))
        await here.grpc.entered.wait()
        stopped = asyncio.ensure_future(here.server.stop(10))
        await asyncio.sleep(0.05)
        assert not stopped.done()
        here.grpc.release.set()
        assert await waiting == b"done"
        assert await stopped == 0


async def test_a_running_grpc_call_is_cut_when_time_is_over() -> None:
    async with serving() as here, grpc_to(here) as call:
        waiting = asyncio.ensure_future(call("Wait", b"", timeout=10))
        await here.grpc.entered.wait()
        assert await here.server.stop(0.05) == 1
        with pytest.raises(grpc.aio.AioRpcError) as cut:
            await waiting
        assert cut.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_one_stop_ends_all() -> None:
    async with (
        serving() as here,
        RawHttp.to(here.server.address) as http,
        here.client() as client,
        grpc_to(here) as call,
    ):
        await http.post("/kept", b"")
        await client.call("Predict")
        await call("Call", b"", timeout=10)
        assert await here.server.stop(1) == 0
        assert await http.ended()
        assert await client.ended()
        # the fixture stops it once more, which has nothing left to do


# stopping


async def test_a_running_call_ends_and_new_ones_go_to_another_server() -> None:
    async with serving() as here, here.client() as client:
        await client.send(request_frame("Wait", b"old", 1))
        await here.echo.entered.wait()
        stopping = asyncio.ensure_future(here.server.stop(5))
        await until(lambda: here.server.connections.stopping)
        reply = await client.call("Predict", correlation_id=2)
        assert reply.error == (2003, f"[{identity(here.server)}][E2003]Server is stopping")
        here.echo.release.set()
        assert (await client.receive()).payload == b"old"
        assert await client.ended()
        assert await stopping == 0


async def test_what_does_not_end_in_time_is_cut() -> None:
    async with serving() as here, here.client() as client:
        await client.send(request_frame("Wait", b"", 1) + request_frame("Wait", b"", 2))
        await until(lambda: len(here.echo.served) == 2)
        assert await here.server.stop(0.05) == 2
        assert here.echo.cancelled == 2
        assert await client.ended()


# whatever the bytes


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.binary(max_size=40).map(lambda rest: b"PRPC" + rest),
            st.builds(
                lambda size, meta_size, rest: (
                    b"PRPC" + size.to_bytes(4, "big") + meta_size.to_bytes(4, "big") + rest
                ),
                st.integers(0, 2**32 - 1),
                st.integers(0, 2**32 - 1),
                st.binary(max_size=40),
            ),
            st.builds(
                request_frame,
                st.sampled_from(["Predict", "Nope", "Raise"]),
                st.binary(max_size=40),
                st.integers(-(2**63), 2**63 - 1),
                compress_type=st.integers(-2, 6),
                attachment_size=st.integers(-50, 50),
            ),
        ),
        max_size=4,
    ),
    st.integers(1, 50),
)
def test_any_bytes(pieces: list[bytes], step: int) -> None:
    """Answered, or the connection ends; nothing is left behind, and the next client is served."""

    async def attempt() -> None:
        async with serving() as here:
            async with here.client() as client:
                data = b"".join(pieces)
                with contextlib.suppress(OSError):  # the server may have closed it meanwhile
                    for place in range(0, len(data), step):
                        client.writer.write(data[place : place + step])
                        await asyncio.sleep(0)
                    client.writer.write_eof()
                    await asyncio.wait_for(client.reader.read(), 30)
            async with here.client() as client:
                assert (await client.call("Predict", b"well")).payload == b"well"
            await until(lambda: not here.server.connections.open and not here.server.connections.in_flight)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(attempt())


async def test_nothing_is_left_of_many_connections() -> None:
    async with serving() as here:

        async def visit(number: int) -> None:
            async with here.client() as client:
                await client.call("Predict", bytes(10_000))
                await client.send(request_frame("Wait", bytes(10_000)) + b"PRPX"[: number % 5])

        for number in range(20):
            await visit(number)
        await until(lambda: not here.server.connections.open)
        here.echo.served.clear()
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(100):
                await visit(number)
            await until(lambda: not here.server.connections.open and not here.server.connections.in_flight)
            here.echo.served.clear()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 500_000
        finally:
            tracemalloc.stop()
        assert len(asyncio.all_tasks()) == 1
