"""The pools that a configuration describes."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, Operation
from tests.translator.test_assembly import assembled
from tests.waiting import until


def upstream(**options: Any) -> Upstream:
    told = {"dialect": "oip", "transport": "http", "urls": ["127.0.0.1:1"], "flavor": "triton", **options}
    return assembled(upstreams={"there": told}, models={"m": {"upstream": "there"}}).upstreams["there"]


async def test_every_url_is_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refusing = "{}:{}".format(*taken.getsockname())
    urls = [refusing, "unix:nobody.sock", f"http://localhost:{refusing.rpartition(':')[2]}/base"]
    target = upstream(urls=urls)
    with pytest.raises(InferenceError) as caught:
        await target.call(Operation.INFER, InferRequest("m", ()))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    reasons = [member.reason for member in target.pool.members]
    assert len(reasons) >= 3 and all("cannot be reached" in reason for reason in reasons)
    assert all(any(url in reason for reason in reasons) for url in urls)
    await target.close()


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_concurrency": 1}, "max_concurrency 1 allows"),
        ({"max_bytes_in_flight": 10}, "max_bytes_in_flight 10 allows"),
        ({"max_concurrency": 1, "max_bytes_in_flight": 10}, "max_concurrency 1 and max_bytes_in_flight 10"),
    ],
)
async def test_what_is_under_way_is_limited(limits: dict[str, int], told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = "{}:{}".format(*silent.getsockname())
        target = upstream(urls=[url], max_wait_secs=0.05, request_timeout_secs=0.5, **limits)
        asking = [
            asyncio.ensure_future(target.call(Operation.INFER, InferRequest("m", ()), context=Context()))
            for _ in range(2)
        ]
        first, second = await asyncio.gather(*asking, return_exceptions=True)
        await target.close()
    assert isinstance(first, InferenceError) and first.code is ErrorCode.DEADLINE_EXCEEDED
    assert isinstance(second, InferenceError) and second.code is ErrorCode.OVERLOADED
    assert told in second.message


@pytest.mark.parametrize(("interval", "probed"), [(0.05, True), (0, False)])
async def test_servers_are_probed_in_their_dialect(interval: float, probed: bool) -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    target = upstream(urls=["{}:{}".format(*server.sockets[0].getsockname())], probe_interval_secs=interval)
    await target.call(Operation.LIVE)

    def was_probed() -> bool:
        return any(each.startswith(b"GET /v2/health/ready") for each in asked)

    if probed:
        await until(was_probed)
    else:
        await asyncio.sleep(0.3)
    await target.close()
    server.close()
    assert asked[0].startswith(b"GET /v2/health/live")
    assert was_probed() is probed


async def test_how_many_failures_leave_a_server_out() -> None:
    for failures in (1, 4):
        (member,) = upstream(eject_after_failures=failures).pool.members
        for count in range(1, 6):
            member.failed("broke off")
            assert member.open is (count >= failures)
