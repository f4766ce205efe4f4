"""What a listener knows of requests: connections share it, and nothing that belongs to one alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from interlingua.protocols.fast_path import FastCaller
from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.http.repeated_requests import KnownRequests, RepeatedRequests
from interlingua.protocols.transport.http1.headers import RequestHeaders, parse_headers
from interlingua.protocols.wire import Buffer, HttpAnswer, HttpRequest
from interlingua.schemas import Context
from tests.protocols.transport.peers import HttpEcho, RawHttp, serving


@dataclass
class Path:
    """Answers messages that begin like the one it was found for."""

    begins: bytes
    answered: list[bytes] = field(default_factory=list)

    def begin(self, message: Buffer, context: Context, caller: FastCaller) -> Any:
        body = bytes(message)
        if not body.startswith(self.begins):
            return None
        self.answered.append(body)
        answer = HttpAnswer(200, (("x-kind", "fast"),), (body,))
        asyncio.get_running_loop().call_soon(caller.answered, answer)
        return self


@dataclass
class Fast(HttpEcho):
    """Finds a fast path, or none, for a request that repeats."""

    found: list[Path | None] = field(default_factory=list)
    finds: bool = True

    def fast_path(self, request: HttpRequest) -> Path | None:
        self.found.append(Path(bytes(request.body[:1])) if self.finds else None)
        return self.found[-1]


async def kinds(address: Address, *bodies: bytes, path: str = "/") -> list[str]:
    """Which way each of the ``bodies`` was answered, on a connection of their own."""
    found = []
    async with RawHttp.to(address) as http:
        for body in bodies:
            reply = await http.post(path, body)
            assert (reply.status, reply.body) == (200, body)
            found.append(reply.headers["x-kind"])
    return found


async def test_a_connection_begins_with_the_path_that_another_has_found() -> None:
    handler = Fast()
    async with serving(handler) as server:
        assert await kinds(server.address, b"a1", b"a2", b"a3") == ["echo", "echo", "fast"]
        assert await kinds(server.address, b"a4", b"a5") == ["fast", "fast"]
        assert await kinds(server.address, b"a6", path="/other") == ["echo"]
        assert await kinds(server.address, b"a67") == ["echo"]  # of another length
        assert len(handler.found) == 1


async def test_a_connection_for_every_request() -> None:
    handler = Fast()
    async with serving(handler) as server:
        assert [(await kinds(server.address, b"a1"))[0] for _ in range(4)] == ["echo", "echo", "fast", "fast"]


async def test_requests_with_the_same_headers_but_other_messages() -> None:
    """They find paths of their own as soon as without the one that another connection has found."""
    handler = Fast()
    async with serving(handler) as server:
        assert await kinds(server.address, b"a1", b"a2", b"a3") == ["echo", "echo", "fast"]
        async with RawHttp.to(server.address) as first:
            assert (await first.post("/", b"a4")).headers["x-kind"] == "fast"
            for begins in (b"b", b"c", b"d"):
                bodies = [begins + bytes([number]) for number in range(5)]
                assert (await kinds(server.address, *bodies))[2:] == ["fast"] * 3
            assert (await first.post("/", b"a5")).headers["x-kind"] == "fast"


async def test_requests_without_a_path_seldom_look_for_one() -> None:
    handler = Fast(finds=False)
    async with serving(handler) as server:
        for number in range(40):
            assert await kinds(server.address, b"a%d" % (number % 10)) == ["echo"]
    assert len(handler.found) == 6  # of the connections 2, 3, 5, 9, 17 and 33


def headers(path: str) -> RequestHeaders:
    return parse_headers(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n".encode())


async def test_a_client_with_a_certificate_has_its_own_paths() -> None:
    known, handler = KnownRequests(), Fast()
    own = headers("/")

    def repeating(is_named: bool) -> RepeatedRequests:
        requests = RepeatedRequests(handler, known, is_named)
        requests.begin(own)
        return requests

    def found(requests: RepeatedRequests) -> bool:
        for _ in range(2):
            requests.serve(HttpRequest("POST", "/", body=b"a1"), own)
        return requests.path is not None

    assert found(repeating(is_named=True))
    assert repeating(is_named=False).path is None
    assert found(repeating(is_named=False))
    assert repeating(is_named=False).path is not None
    assert repeating(is_named=True).path is None


def test_only_so_many_are_kept() -> None:
    known = KnownRequests()
    first = headers("/0")
    for number in range(200):
        known.count(headers(f"/{number}"))
        kept = [each for each in range(200) if known.headers(headers(f"/{each}").raw) is not None]
        assert number in kept
        assert len(kept) <= 64
    assert known.path(first) is None
    long = headers("/" + 5000 * "x")
    assert known.count(long) == known.count(long) == 0
    assert known.headers(long.raw) is None
