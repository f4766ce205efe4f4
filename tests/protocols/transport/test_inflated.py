"""Compressed answers of upstreams while too many messages wait for decompression: callers should try again."""

from __future__ import annotations

import gzip
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.wire import HttpAnswer
from interlingua.runtime.offload.lanes import Lanes
from interlingua.runtime.offload.pool import OffloadPool
from interlingua.schemas import ErrorCode, InferenceError
from tests.protocols.transport.brpc import test_client as brpc
from tests.protocols.transport.grpc import test_client as grpc
from tests.protocols.transport.h2.peer import DATA, frame, message
from tests.protocols.transport.http import test_client as http
from tests.protocols.transport.peers import HttpEcho, serving
from tests.standins.brpc_server import answer_frame

PLAIN = random.Random(0).randbytes(20_000)
PACKED = gzip.compress(PLAIN, mtime=0)


@pytest_asyncio.fixture
async def full() -> AsyncIterator[None]:
    """A pool whose one place is taken, and with no room to wait."""
    async with OffloadPool(1) as pool:
        pool._lanes = Lanes(1, waiting=0)
        await pool._lanes.enter("")
        yield


def is_overloaded(error: InferenceError) -> bool:
    assert "answered, but the answer cannot be decompressed now" in error.message
    # the upstream has done its work: another attempt is for the caller
    return error.code is ErrorCode.OVERLOADED and error.retryable and error.begun


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("engine", ["native", "library"])
async def test_over_http(engine: str) -> None:
    answer = HttpAnswer(200, (("content-encoding", "gzip"),), (PACKED,))
    async with serving(HttpEcho(answers={"/": answer})) as server:
        client = CLIENTS["http", engine](http.parse_url(str(server.address)))
        with pytest.raises(InferenceError) as error:
            await client.send(http.a_post(b"x"))
        await client.close()
    assert is_overloaded(error.value)


@pytest.mark.usefixtures("full")
async def test_over_grpc() -> None:
    body = frame(DATA, 0, 1, message(PACKED, 1))
    said = grpc.headers(1, ("grpc-encoding", "gzip")), body, grpc.trailers(1)
    assert is_overloaded(await grpc.refused(grpc.saying(*said)))


@pytest.mark.usefixtures("full")
async def test_over_brpc() -> None:
    answer = answer_frame(1, PACKED, compress_type=2)
    async with brpc.answering(answer).running() as server, brpc.Client(server) as client:
        assert is_overloaded(await brpc.failure(client))
