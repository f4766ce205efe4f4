"""The bRPC client before a stand-in server: many calls on one connection, and a server that misbehaves."""

from __future__ import annotations

import asyncio
import gc
import gzip
import time
import zlib
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.protocols.transport.address import parse_address, parse_url
from interlingua.protocols.transport.brpc.client import BrpcConnectionClient
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest
from interlingua.schemas import Context, ErrorCode, InferenceError
from tests.protocols.transport.brpc.test_server import serving
from tests.standins.brpc_frames import SERVICE, Received
from tests.standins.brpc_server import BrpcStandinServer, answer_frame
from tests.waiting import until

GOLDEN = Path(__file__).parents[3] / "golden" / "grps" / "brpc"


async def echo(received: Received) -> bytes:
    return answer_frame(received.correlation_id, received.payload)


async def never(received: Received) -> None:
    return None


def request(method: str = "Predict", message: bytes = b"", secs: float | None = 10) -> BrpcRequest:
    deadline = None if secs is None else time.monotonic() + secs
    return BrpcRequest(SERVICE, method, message, Context(deadline=deadline))


class Client:
    """A client of ours, closed at the end."""

    def __init__(self, server: BrpcStandinServer | str, **options: Any) -> None:
        url = server if isinstance(server, str) else f"brpc://127.0.0.1:{server.port}"
        self._client = BrpcConnectionClient(parse_url(url, "brpc"), ClientOptions(**options))

    async def __aenter__(self) -> BrpcConnectionClient:
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await asyncio.sleep(0)  # those that waited hear of it in the next turn of the loop
        connection = self._client._connection
        assert connection is None or not connection._waiting


async def failure(client: BrpcConnectionClient, asked: BrpcRequest | None = None) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        await client.send(asked or request())
    return caught.value


def answering(data: bytes) -> BrpcStandinServer:
    """A server that sends ``data`` whatever it is asked."""

    async def answer(received: Received) -> bytes:
        return data

    return BrpcStandinServer({"Predict": answer, "Echo": echo})


async def test_a_call_is_the_recorded_one() -> None:
    async def recorded(received: Received) -> bytes:
        return answer_frame(received.correlation_id, (GOLDEN / "Predict_str.s2c").read_bytes()[24:])

    async with BrpcStandinServer({"Predict": recorded}).running() as server, Client(server) as client:
        message = (GOLDEN / "Predict_str.c2s").read_bytes()[12 + 51 :]
        answer = await client.send(request(message=message, secs=None))
        assert bytes(answer.message) == (GOLDEN / "Predict_str.s2c").read_bytes()[24:]
        (received,) = server.received
        assert received.asked == (SERVICE, "Predict")
        assert received.payload == message
        assert received.meta.keys() == {1, 3, 4}
        assert received.timeout_ms is None


async def test_the_deadline_travels() -> None:
    async with BrpcStandinServer({"Predict": echo}).running() as server, Client(server) as client:
        await client.send(request(secs=2))
        await client.send(request(secs=10**9))
        assert server.received[0].timeout_ms in range(1500, 2001)
        assert server.received[1].timeout_ms == 2**31 - 1


async def test_a_thousand_calls_on_one_connection_out_of_order() -> None:
    async def late(received: Received) -> bytes:
        await asyncio.sleep(hash(received.payload) % 20 / 1000)
        return answer_frame(received.correlation_id, received.payload)

    async with BrpcStandinServer({"Predict": late}).running() as server, Client(server) as client:
        messages = [b"%d" % number for number in range(1000)]
        answers = await asyncio.gather(*(client.send(request(message=each)) for each in messages))
        assert [bytes(answer.message) for answer in answers] == messages
        assert server.connections == 1
        assert len({received.correlation_id for received in server.received}) == 1000


async def test_our_client_and_our_server_over_a_unix_socket(tmp_path: Path) -> None:
    address = parse_address(f"unix:{tmp_path}/s")
    async with serving(address), Client(str(address)) as client:
        message = bytes(range(256)) * 20_000
        assert bytes((await client.send(request(message=message))).message) == message
        error = await failure(client, request("Nope"))
        assert (error.code, error.message) == (
            ErrorCode.UNSUPPORTED,
            f"Fail to find method={SERVICE}/Nope",
        )


async def test_many_large_calls_do_not_pile_up_in_the_client() -> None:
    async with serving() as here, Client(f"{here.server.address}") as client:
        message = bytes(1 << 20)
        answers = await asyncio.gather(*(client.send(request(message=message)) for _ in range(30)))
        assert all(bytes(answer.message) == message for answer in answers)


@pytest.mark.parametrize(
    ("kind", "packed"),
    [
        (1, bytes(cramjam.snappy.compress_raw(b"message"))),
        (2, gzip.compress(b"message", mtime=0)),
        (3, zlib.compress(b"message")),
    ],
)
async def test_compressed_answers_with_attachments(kind: int, packed: bytes) -> None:
    answer = answer_frame(1, packed, compress_type=kind, attachment=b"ignored")
    async with answering(answer).running() as server, Client(server) as client:
        assert bytes((await client.send(request())).message) == b"message"


# errors


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (1001, ErrorCode.UNSUPPORTED),
        (1003, ErrorCode.MALFORMED),
        (1004, ErrorCode.UNAUTHENTICATED),
        (1008, ErrorCode.DEADLINE_EXCEEDED),
        (1011, ErrorCode.OVERLOADED),
        (2001, ErrorCode.MODEL_FAILED),
        (2003, ErrorCode.UNAVAILABLE),
        (2004, ErrorCode.OVERLOADED),
        (2002, ErrorCode.BAD_UPSTREAM),
        (-7, ErrorCode.BAD_UPSTREAM),
    ],
)
async def test_errors_of_the_server(number: int, code: ErrorCode) -> None:
    words = f"[0123456789abcdef][E{number}]its own [words]"
    said = answer_frame(1, code=number, words=words)
    async with answering(said).running() as server, Client(server) as client:
        error = await failure(client)
        expected = "its own [words]" if number > 0 else f"[E{number}]its own [words]"
        assert (error.code, error.message) == (code, expected)


@pytest.mark.parametrize("refusals", [1, 2, 3])
async def test_a_server_that_stops_has_a_successor(refusals: int) -> None:
    """It refuses calls without processing them; those that it has taken it answers."""
    release = asyncio.Event()
    refused = 0

    async def late(received: Received) -> bytes:
        await release.wait()
        return answer_frame(received.correlation_id, b"late")

    async def stops(received: Received) -> bytes:
        nonlocal refused
        refused += 1
        if refused <= refusals:
            return answer_frame(received.correlation_id, code=2003, words="[E2003]Server is stopping")
        return answer_frame(received.correlation_id, received.payload)

    standin = BrpcStandinServer({"Predict": stops, "Late": late})
    async with standin.running() as server, Client(server) as client:
        waiting = asyncio.ensure_future(client.send(request("Late")))
        await until(lambda: len(server.received) == 1)
        if refusals < 3:
            assert bytes((await client.send(request(message=b"asked"))).message) == b"asked"
        else:
            error = await failure(client, request(message=b"asked"))
            assert (error.code, error.message) == (ErrorCode.UNAVAILABLE, "Server is stopping")
        release.set()
        assert bytes((await waiting).message) == b"late"
        assert server.connections == min(refusals + 1, 3)


async def test_an_error_without_words_and_one_in_another_encoding() -> None:
    async with answering(answer_frame(1, code=5)).running() as server, Client(server) as client:
        assert (await failure(client)).message == "bRPC error 5"
    said = answer_frame(1, code=2001, words=b"\xc4\xe3")
    async with answering(said).running() as server, Client(server) as client:
        assert (await failure(client)).message == "��"


async def test_no_server_there() -> None:
    async with BrpcStandinServer().running() as server:
        pass
    async with Client(server) as client:
        error = await failure(client)
        assert error.code is ErrorCode.UNAVAILABLE
        assert "cannot be reached: Connection refused" in error.message


async def test_a_name_that_does_not_exist() -> None:
    async with Client("nowhere.invalid:1") as client:
        assert (await failure(client)).code is ErrorCode.UNAVAILABLE


async def test_no_answer_before_the_deadline() -> None:
    methods = {"Predict": never, "Echo": echo}
    async with BrpcStandinServer(methods).running() as server, Client(server) as client:
        error = await failure(client, request(secs=0.3))
        assert error.code is ErrorCode.DEADLINE_EXCEEDED
        # nothing was heard on that connection, which may be dead
        await client.send(request("Echo"))
        assert server.connections == 2
        # this one has been heard since, and is kept
        late = asyncio.ensure_future(failure(client, request(secs=0.6)))
        await asyncio.sleep(0)
        await client.send(request("Echo"))
        assert (await late).code is ErrorCode.DEADLINE_EXCEEDED
        await client.send(request("Echo"))
        assert server.connections == 2


async def test_a_deadline_that_has_passed() -> None:
    async with BrpcStandinServer({"Predict": echo}).running() as server, Client(server) as client:
        assert (await failure(client, request(secs=-1))).code is ErrorCode.DEADLINE_EXCEEDED
        assert server.connections == 0


async def test_a_retired_connection_still_answers_who_waits_on_it() -> None:
    release = asyncio.Event()

    async def late(received: Received) -> bytes:
        await release.wait()
        return answer_frame(received.correlation_id, b"late")

    methods = {"Predict": never, "Late": late, "Echo": echo}
    async with BrpcStandinServer(methods).running() as server, Client(server) as client:
        waiting = asyncio.ensure_future(client.send(request("Late")))
        assert (await failure(client, request(secs=0.05))).code is ErrorCode.DEADLINE_EXCEEDED
        await client.send(request("Echo"))
        release.set()
        assert bytes((await waiting).message) == b"late"
        await until(lambda: len(server.open) <= 1)


async def test_a_late_reply_is_thrown_away() -> None:
    late: list[Received] = []

    async def later(received: Received) -> None:
        late.append(received)

    async def after(received: Received) -> bytes:
        return answer_frame(late[0].correlation_id, b"late") + answer_frame(received.correlation_id, b"own")

    methods = {"Predict": later, "After": after}
    async with BrpcStandinServer(methods).running() as server, Client(server) as client:
        cancelled = asyncio.ensure_future(client.send(request()))
        await until(lambda: late, pace_secs=0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert bytes((await client.send(request("After"))).message) == b"own"
        assert server.connections == 1


async def test_a_connection_that_breaks_is_made_again() -> None:
    methods = {"Predict": never, "Echo": echo}
    async with BrpcStandinServer(methods).running() as server, Client(server) as client:
        waiting = [asyncio.ensure_future(failure(client)) for _ in range(5)]
        await until(lambda: len(server.received) >= 5, pace_secs=0)
        server.drop()
        for error in await asyncio.gather(*waiting):
            assert error.code is ErrorCode.UNAVAILABLE
            assert error.message.endswith("closed the connection without an answer")
        await client.send(request("Echo"))
        assert server.connections == 2


async def test_a_server_that_comes_back() -> None:
    async with BrpcStandinServer({"Predict": echo}).running() as server, Client(server) as client:
        await client.send(request())
        assert client._connection is not None
        server.drop()
        await client._connection.lost
        assert bytes((await client.send(request(message=b"again"))).message) == b"again"
        assert server.connections == 2


async def test_calls_share_one_attempt_to_connect() -> None:
    async with BrpcStandinServer({"Predict": echo}).running() as server, Client(server) as client:
        first = asyncio.ensure_future(client.send(request()))
        others = [asyncio.ensure_future(client.send(request())) for _ in range(10)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(*others)
        assert server.connections == 1


# answers that are none


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"PRPC" + (8).to_bytes(4, "big") + (2).to_bytes(4, "big") + b"\xff\xff" + bytes(6),
        answer_frame(1, b"12345", attachment_size=6),
        answer_frame(1, b"no gzip", compress_type=2),
        answer_frame(1, b"", compress_type=9),
    ],
)
async def test_garbage_is_a_bad_upstream(data: bytes) -> None:
    async with answering(data).running() as server, Client(server) as client:
        error = await failure(client)
        assert error.code is ErrorCode.BAD_UPSTREAM
        assert f"127.0.0.1:{server.port}" in error.message
        await client.send(request("Echo"))


async def test_an_answer_that_is_too_large_fails_its_own_call_alone() -> None:
    async def large(received: Received) -> bytes:
        return answer_frame(received.correlation_id, bytes(500_000))

    async def packed(received: Received) -> bytes:
        return answer_frame(received.correlation_id, zlib.compress(bytes(500_000)), compress_type=3)

    methods = {"Predict": large, "Packed": packed, "Echo": echo}
    standin = BrpcStandinServer(methods)
    async with standin.running() as server, Client(server, max_response_bytes=100_000) as client:
        for method in ("Predict", "Packed"):
            error, answer = await asyncio.gather(
                failure(client, request(method)), client.send(request("Echo", b"well"))
            )
            assert error.code is ErrorCode.TOO_LARGE
            assert "more than the 100000 that max_response_bytes" in error.message
            assert bytes(answer.message) == b"well"
        assert server.connections == 1


@settings(max_examples=50, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.binary(max_size=40).map(lambda rest: b"PRPC" + rest),
        st.builds(
            answer_frame,
            st.sampled_from([1, 2, -1]),
            st.binary(max_size=30),
            compress_type=st.integers(-2, 6),
            attachment_size=st.integers(-40, 40),
            code=st.integers(-(2**31), 2**31 - 1),
            words=st.binary(max_size=20),
        ),
    ),
    st.booleans(),
)
def test_whatever_a_server_sends(data: bytes, closes: bool) -> None:
    """An answer or an InferenceError, in time; nothing is left behind."""

    async def attempt() -> None:
        server = answering(data)
        async with server.running(), Client(server) as client:
            asked = asyncio.ensure_future(client.send(request(secs=0.05)))
            # a busy machine may not send it in time
            await until(lambda: server.received or asked.done(), pace_secs=0)
            if closes:
                await asyncio.sleep(0.005)
                server.drop()
            (outcome,) = await asyncio.gather(asked, return_exceptions=True)
            assert isinstance(outcome, BrpcAnswer | InferenceError)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(attempt())
    gc.collect()


async def test_closing_fails_what_waits() -> None:
    async with BrpcStandinServer({"Predict": never}).running() as server:
        async with Client(server) as client:
            waiting = asyncio.ensure_future(failure(client))
            await until(lambda: server.received, pace_secs=0)
        assert (await waiting).code is ErrorCode.UNAVAILABLE


async def test_closing_while_connecting_fails_the_call() -> None:
    async with BrpcStandinServer({"Predict": never}).running() as server:
        async with Client(server) as client:
            waiting = asyncio.ensure_future(failure(client))
            for _ in range(2):
                await asyncio.sleep(0)
        assert (await waiting).code is ErrorCode.UNAVAILABLE
