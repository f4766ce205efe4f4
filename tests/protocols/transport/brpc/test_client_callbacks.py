"""Calls that the bRPC client makes without a task, held against the same calls with one."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interlingua.protocols.plans import CallbackClient
from interlingua.protocols.transport.brpc.client import BrpcConnectionClient
from interlingua.protocols.wire import BrpcRequest
from interlingua.schemas import ErrorCode, InferenceError
from tests.protocols.transport.brpc.test_client import Client, echo, never, request
from tests.standins.brpc_frames import Received
from tests.standins.brpc_server import BrpcStandinServer, answer_frame
from tests.waiting import until


class Waiter:
    """A ``SentWaiter`` with its outcome."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(self) -> bool:
        return self.outcome.done()

    def set_result(self, reply: Any) -> None:
        self.outcome.set_result(reply)

    def set_exception(self, fault: Exception) -> None:
        self.outcome.set_result(fault)


async def without_task(client: BrpcConnectionClient, asked: BrpcRequest) -> Any:
    assert isinstance(client, CallbackClient)
    waiter, deadline = Waiter(), asked.context.deadline
    assert deadline is not None
    handle = client.begin(client.prepare(asked, len(asked.message)), asked.message, deadline, waiter)
    assert handle is not None
    return await client.finish(asked, await waiter.outcome)


Send = Callable[[BrpcConnectionClient, BrpcRequest], Awaitable[Any]]

ANSWERS: dict[str, Callable[[int], bytes]] = {
    "an answer": lambda identity: answer_frame(identity, b"message"),
    "an empty answer": lambda identity: answer_frame(identity),
    "a compressed answer": lambda identity: answer_frame(
        identity, zlib.compress(b"message"), compress_type=3
    ),
    "an attachment": lambda identity: answer_frame(identity, b"message", attachment=b"ignored"),
    "a wrong attachment": lambda identity: answer_frame(identity, b"12345", attachment_size=6),
    "a negative attachment": lambda identity: answer_frame(identity, b"12345", attachment_size=-6),
    "no gzip": lambda identity: answer_frame(identity, b"no gzip", compress_type=2),
    "an unknown coding": lambda identity: answer_frame(identity, b"", compress_type=9),
    "an answer that is too large": lambda identity: answer_frame(identity, bytes(200_000)),
    "too large inflated": lambda identity: answer_frame(
        identity, zlib.compress(bytes(500_000)), compress_type=3
    ),
    "an error": lambda identity: answer_frame(identity, code=2001, words="[E2001]its own words"),
    "log off": lambda identity: answer_frame(identity, code=2003, words="going"),
    "no frame": lambda identity: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an end": lambda identity: b"",
}


async def _outcomes(send: Send, make: Callable[[int], bytes]) -> tuple[Any, ...]:
    standin: BrpcStandinServer

    async def answer(received: Received) -> bytes | None:
        data = make(received.correlation_id)
        if not data:
            standin.drop()
        return data or None

    standin = BrpcStandinServer({"Predict": answer, "Echo": echo})
    async with standin.running() as server, Client(server, max_response_bytes=100_000) as client:
        await client.send(request("Echo"))
        try:
            found: Any = bytes((await send(client, request(message=b"asked"))).message)
        except InferenceError as error:
            found = type(error), error.code, error.message.replace(str(server.port), "port"), error.begun
        connection = client._connection
        assert connection is not None
        state = connection.usable, connection._abandoned, len(connection._waiting)
        echoed = bytes((await client.send(request("Echo", b"next"))).message)
        return found, state, echoed, server.connections, [each.payload for each in server.received]


@pytest.mark.parametrize("what", ANSWERS)
async def test_the_outcome_of_a_call(what: str) -> None:
    assert await _outcomes(without_task, ANSWERS[what]) == await _outcomes(
        lambda client, asked: client.send(asked), ANSWERS[what]
    )


async def test_no_answer_before_the_deadline() -> None:
    methods = {"Predict": never, "Echo": echo}
    async with BrpcStandinServer(methods).running() as server, Client(server) as client:
        await client.send(request("Echo"))
        with pytest.raises(InferenceError) as caught:
            await without_task(client, request(secs=0.1))
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
        # nothing was heard on that connection, which may be dead
        await client.send(request("Echo"))
        assert server.connections == 2


async def test_a_deadline_that_has_passed() -> None:
    async with BrpcStandinServer({"Echo": echo}).running() as server, Client(server) as client:
        await client.send(request("Echo"))
        with pytest.raises(InferenceError) as caught:
            await without_task(client, request("Echo", secs=-1))
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
        assert len(server.received) == 1


async def test_without_a_connection_nothing_is_sent() -> None:
    async with BrpcStandinServer({"Echo": echo}).running() as server, Client(server) as client:
        asked = request("Echo")
        assert (
            client.begin(client.prepare(asked, len(asked.message)), b"", time.monotonic() + 10, Waiter())
            is None
        )
        await client.send(asked)
        assert len(server.received) == 1


async def test_a_cancelled_call_whose_answer_comes_is_ignored() -> None:
    release = asyncio.Event()

    async def late(received: Received) -> bytes:
        await release.wait()
        return answer_frame(received.correlation_id, b"late")

    async with BrpcStandinServer({"Late": late, "Echo": echo}).running() as server, Client(server) as client:
        await client.send(request("Echo"))
        waiter, asked = Waiter(), request("Late")
        handle = client.begin(client.prepare(asked, len(asked.message)), b"", time.monotonic() + 10, waiter)
        assert handle is not None
        client.cancel(handle, waiter)
        await until(lambda: len(server.received) == 2)
        release.set()
        for number in range(3):
            answer = await client.send(request("Echo", b"%d" % number))
            assert bytes(answer.message) == b"%d" % number
        connection = client._connection
        assert connection is not None
        await until(lambda: connection._abandoned == 0)
        assert not waiter.done()
        assert server.connections == 1


async def test_calls_of_both_kinds_share_a_connection() -> None:
    async def late(received: Received) -> bytes:
        await asyncio.sleep(received.correlation_id % 5 / 1000)
        return answer_frame(received.correlation_id, received.payload)

    async with BrpcStandinServer({"Predict": late}).running() as server, Client(server) as client:
        await client.send(request())
        asked = [request(message=b"%d" % number) for number in range(200)]
        sends: tuple[Send, Send] = without_task, lambda client, asked: client.send(asked)
        answers = await asyncio.gather(
            *(sends[number % 2](client, each) for number, each in enumerate(asked))
        )
        assert [bytes(answer.message) for answer in answers] == [each.message for each in asked]
        assert server.connections == 1
