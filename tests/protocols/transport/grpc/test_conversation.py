"""A call that says several messages, against a server of grpcio's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.grpc.conversation import converse
from interlingua.protocols.wire import GrpcAnswer

Behaviour = Callable[[Iterator[bytes], Any], Iterator[bytes]]


def echo(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for number, request in enumerate(requests):
        yield b"%d %s" % (number, request)


def at_the_end(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    yield from list(requests)


def one_and_away(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    yield next(requests)


def unread(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")
    yield b""


def slow(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    yield next(requests)
    while context.is_active():
        time.sleep(0.02)


def said(
    behaviour: Behaviour,
    messages: list[bytes],
    waits: list[int],
    timeout_secs: float = 10,
    method: str = "Talk",
) -> tuple[list[bytes], GrpcAnswer]:
    """What comes of ``messages`` to a server of ``behaviour``."""
    talk = grpc.stream_stream_rpc_method_handler(behaviour)
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(
            pool, handlers=[grpc.method_handlers_generic_handler("a.Service", {"Talk": talk})]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            url = parse_url(f"127.0.0.1:{port}", "grpc")
            return asyncio.run(converse(url, f"/a.Service/{method}", messages, waits, timeout_secs))
        finally:
            server.stop(None).wait()


@pytest.mark.parametrize("waits", [[0, 0, 0], [1, 1, 1], [0, 2, 0]])
def test_answers_come_in_order(waits: list[int]) -> None:
    answers, status = said(echo, [b"a", b"b", b"c"], waits)
    assert (answers, status.code) == ([b"0 a", b"1 b", b"2 c"], 0)


def test_nothing_is_said() -> None:
    assert said(echo, [], []) == ([], GrpcAnswer())


def test_an_answer_that_comes_at_the_end_is_waited_for_in_vain() -> None:
    assert said(at_the_end, [b"a", b"b"], [0, 0])[0] == [b"a", b"b"]
    answers, status = said(at_the_end, [b"a", b"b"], [1, 0], timeout_secs=0.3)
    assert (answers, status.code) == ([], 4)


def test_a_call_may_end_before_all_is_said() -> None:
    answers, status = said(one_and_away, [b"a", b"b", b"c"], [1, 1, 1])
    assert (answers, status.code) == ([b"a"], 0)


def test_the_status_of_a_server_that_does_not_read_is_its_own() -> None:
    for _ in range(20):
        answers, status = said(unread, [b"a", b"b"], [0, 0])
        assert (answers, status.code, status.details) == ([], 9, "not today")
    assert said(echo, [b"a"], [0], method="Else")[1].code == 12


def test_a_call_that_does_not_end_is_given_up() -> None:
    answers, status = said(slow, [b"a"], [0], timeout_secs=0.3)
    assert (answers, status.code) == ([b"a"], 4)


def test_no_server_there() -> None:
    answers, status = asyncio.run(converse(parse_url("127.0.0.1:1", "grpc"), "/a/B", [b"a"], [0], 5))
    assert (answers, status.code) == ([], 14)
