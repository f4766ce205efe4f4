"""HTTP over HTTP/2 on an HTTP listener: the same handler, with the rules of RFC 9113."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS, STREAM_WINDOW
from interlingua.protocols.transport.http import exchange
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import Buffer, HttpAnswer, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError
from tests.protocols.transport.h2.peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    RST_STREAM,
    START,
    WINDOW_UPDATE,
    Answer,
    RawH2,
    block,
    frame,
    settings,
    window_update,
)
from tests.protocols.transport.peers import HttpEcho, RawHttp, serving, stalling
from tests.waiting import until

PSEUDO = ((":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a:80"))
WIDE = START + settings((4, 2**31 - 1)) + window_update(0, 2**31 - 65_536)


def head(
    stream: int, path: str = "/", *more: tuple[str, str], method: str = "POST", ended: bool = False
) -> bytes:
    """The HEADERS frame of a request."""
    own = {":method": method, ":path": path}
    lines = [(name, own.get(name, value)) for name, value in PSEUDO]
    flags = END_HEADERS | (END_STREAM if ended else 0)
    return frame(HEADERS, flags, stream, block((*lines, *more)))


def post(stream: int, body: bytes, path: str = "/", *more: tuple[str, str], piece: int = 16_384) -> bytes:
    """A whole request."""
    pieces = [body[at : at + piece] for at in range(0, len(body), piece)] or [b""]
    frames = [
        frame(DATA, END_STREAM if number == len(pieces) else 0, stream, each)
        for number, each in enumerate(pieces, 1)
    ]
    return head(stream, path, *more) + b"".join(frames)


@asynccontextmanager
async def connected(
    handler: HttpEcho, start: bytes = WIDE, **options: Any
) -> AsyncIterator[tuple[RawH2, HttpServer]]:
    async with (
        serving(handler, http2=DEFAULT_OPTIONS, **options) as server,
        RawH2.to(server.address, start) as peer,
    ):
        yield peer, server


async def ask(handler: HttpEcho, *sent: bytes, **options: Any) -> Answer:
    """The answer on stream 1."""
    async with connected(handler, **options) as (peer, _):
        await peer.send(*sent)
        return await peer.answer()


async def test_a_request_is_that_of_http1() -> None:
    handler, sent = (
        HttpEcho(),
        (("x-some", "Value"), ("x-some", "2"), ("traceparent", "00-1"), ("tracestate", "a=b")),
    )
    await ask(handler, head(1, "/a%2Fb/%41?x=%20&y", *sent, ("cookie", "a=1"), ("cookie", "b=2"), ended=True))
    (request,) = handler.served
    assert (request.method, request.path, request.query) == ("POST", "/a%2Fb/%41", "x=%20&y")
    assert request.headers == {
        "host": "a:80",
        "x-some": "Value, 2",
        "cookie": "a=1; b=2",
        "traceparent": "00-1",
        "tracestate": "a=b",
    }
    assert (request.context.traceparent, request.context.tracestate) == ("00-1", "a=b")
    assert request.context.peer == "127.0.0.1"


@pytest.mark.parametrize("stated", [True, False], ids=["length", "no length"])
@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 640 << 10, (5 << 20) + 3])
async def test_bodies_come_back_whole(size: int, stated: bool) -> None:
    handler, body = HttpEcho(), os.urandom(size)
    length = (("content-length", str(size)),) if stated else ()
    load = ListenerLoad()
    async with connected(handler, load=load) as (peer, _):
        sending = asyncio.create_task(peer.send(post(1, body, "/", *length)))
        answer = await peer.answer()
        await sending
        assert answer.body == body
        assert answer.head == {":status": "200", "x-kind": "echo", "content-length": str(size)}
        assert memoryview(handler.served[0].body).readonly
        await until(lambda: not load.body_bytes)


async def test_frames_cut_anywhere_padded_and_with_trailers() -> None:
    handler = HttpEcho()
    trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, block((("x-sum", "1"),)))
    parts = (
        head(1),
        frame(DATA, PADDED, 1, b"\3ab\0\0\0"),
        frame(DATA, 0, 1, b""),
        frame(DATA, 0, 1, b"c"),
        trailers,
    )
    async with connected(handler, start=START) as (peer, _):
        for byte in b"".join(parts):
            await peer.send(bytes((byte,)))
        assert (await peer.answer()).body == b"abc"


async def test_a_body_may_begin_with_an_empty_frame() -> None:
    answer = await ask(
        HttpEcho(), head(1), frame(DATA, 0, 1), frame(DATA, 0, 1, b"a"), frame(DATA, END_STREAM, 1)
    )
    assert answer.body == b"a"


async def test_requests_of_one_connection_run_together() -> None:
    handler = HttpEcho()
    async with connected(handler) as (peer, server):
        await peer.send(post(1, b"one", "/wait"))
        await handler.entered.wait()
        await peer.send(post(3, b"two"))
        assert (await peer.answer(3)).body == b"two"
        assert server.at_work == 1
        handler.release.set()
        assert (await peer.answer(1)).body == b"one"
        await until(lambda: not server.at_work)


async def test_head_has_the_length_and_no_body() -> None:
    handler = HttpEcho(answers={"/x": HttpAnswer(200, (), (b"abc",)), "/n": HttpAnswer(204)})
    answer = await ask(handler, head(1, "/x", method="HEAD", ended=True))
    assert (answer.head, answer.body) == ({":status": "200", "content-length": "3"}, b"")
    assert (await ask(handler, head(1, "/n", ended=True))).head == {":status": "204"}


async def test_answers_have_no_fields_of_a_connection() -> None:
    own = (
        ("Connection", "close"),
        ("Transfer-Encoding", "chunked"),
        ("X-Text", " a\r\nb\tc "),
        ("Keep-Alive", "1"),
    )
    answer = await ask(HttpEcho(answers={"/x": HttpAnswer(418, own, (b"abc",))}), head(1, "/x", ended=True))
    assert answer.head == {":status": "418", "x-text": "a  b\tc", "content-length": "3"}


async def test_a_stream_is_sent_as_it_comes() -> None:
    more = asyncio.Event()

    async def parts() -> AsyncIterator[Buffer]:
        yield b"one"
        await more.wait()
        yield bytearray(1 << 20)
        yield b"two"

    handler = HttpEcho(answers={"/s": HttpAnswer(200, (), parts())})
    async with connected(handler) as (peer, _):
        await peer.send(head(1, "/s", ended=True))
        assert (await peer.kind(DATA)).payload == b"one"
        more.set()
        rest = await peer.answer()
        assert rest.body == bytes(1 << 20) + b"two"
        assert rest.ended


async def test_a_stream_that_breaks_off_is_reset() -> None:
    """RFC 9113, 8.1: half an answer must not look complete."""
    closed = asyncio.Event()

    async def parts() -> AsyncIterator[Buffer]:
        try:
            yield b"one"
            raise ConnectionResetError
        finally:
            closed.set()

    answer = await ask(HttpEcho(answers={"/s": HttpAnswer(200, (), parts())}), head(1, "/s", ended=True))
    assert (answer.body, answer.reset) == (b"one", Code.INTERNAL_ERROR)
    assert closed.is_set()


async def test_a_client_with_a_small_window_gets_a_large_answer() -> None:
    body = os.urandom(300_000)
    handler = HttpEcho(answers={"/x": HttpAnswer(200, (), (body,))})
    async with connected(handler, start=START + settings((4, 1000))) as (peer, server):
        await peer.send(head(1, "/x", ended=True))
        got = Answer()
        while not got.ended:
            for made in await peer.until(lambda made: made.stream == 1):
                if made.stream == 1:
                    got.take(made)
                    if made.kind == DATA and made.payload:
                        size = len(made.payload)
                        await peer.send(window_update(0, size), window_update(1, size))
        assert got.body == body
        await until(lambda: not server.at_work)


async def test_a_request_is_refused_before_its_body() -> None:
    handler = HttpEcho(max_body_bytes=10)
    async with connected(handler) as (peer, _):
        await peer.send(head(1, "/refused"), head(3, "/", ("content-length", "11")), post(5, b"x" * 11))
        answers = await peer.answers([1, 3, 5])
        assert [answers[number].head[":status"] for number in (1, 3, 5)] == ["404", "400", "400"]
        assert [error.code for error in handler.refused] == [ErrorCode.TOO_LARGE] * 2
        assert not handler.served
        # the rest of the body is read and thrown away
        await peer.send(frame(DATA, END_STREAM, 3, b"x" * 11), post(7, b"next"))
        assert (await peer.answer(7)).body == b"next"


async def test_a_client_that_goes_on_after_its_answer_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LINGER_SECS", 0.05)
    async with connected(HttpEcho()) as (peer, server):
        await peer.send(head(1, "/refused"))
        came = await peer.until(lambda made: made.kind == RST_STREAM)
        assert [made.kind for made in came if made.stream == 1] == [HEADERS, DATA, RST_STREAM]
        assert came[-1].code == Code.NO_ERROR
        await until(lambda: not server.at_work)


async def test_a_body_that_grows_above_the_limits_is_refused() -> None:
    handler, load = HttpEcho(max_body_bytes=1 << 20), ListenerLoad(max_bytes=300_000)
    async with connected(handler, load=load) as (peer, _):
        await peer.send(head(1, "/wait"), frame(DATA, END_STREAM, 1, bytes(200_000)))
        await handler.entered.wait()
        await peer.send(post(3, bytes(200_000)))
        assert (await peer.answer(3)).head["x-code"] == "OVERLOADED"
        handler.release.set()
        assert len((await peer.answer(1)).body) == 200_000
        await until(lambda: not load.body_bytes)
        await peer.send(post(5, bytes(2 << 20)))
        assert (await peer.answer(5)).head["x-code"] == "TOO_LARGE"


async def test_an_answer_above_its_limit_is_refused() -> None:
    answer = await ask(HttpEcho(), post(1, b"x" * 100), max_response_bytes=99)
    assert answer.head["x-code"] == "TOO_LARGE"


async def test_too_many_headers_are_refused_alone() -> None:
    handler = HttpEcho()
    lines = tuple((f"x-{number}", "v" * 1000) for number in range(80))
    async with connected(handler) as (peer, _):
        whole = head(1, "/", *lines, ended=True)[9:]
        await peer.send(frame(HEADERS, END_STREAM, 1, whole[:16_384]))
        parts = [whole[at : at + 16_384] for at in range(16_384, len(whole), 16_384)]
        await peer.send(*(frame(CONTINUATION, 0, 1, part) for part in parts[:-1]))
        await peer.send(frame(CONTINUATION, END_HEADERS, 1, parts[-1]))
        assert (await peer.answer()).head[":status"] == "431"
        await peer.send(post(3, b"next"))
        assert (await peer.answer(3)).body == b"next"
    assert len(handler.heads) == 1


async def test_a_client_that_expects_100_gets_it() -> None:
    handler = HttpEcho(max_body_bytes=10)
    async with connected(handler) as (peer, _):
        await peer.send(
            head(1, "/", ("expect", "100-continue")), head(3, "/refused", ("expect", "100-continue"))
        )
        first = await peer.kind(HEADERS)
        assert (first.stream, first.fields, first.flags & END_STREAM) == (1, {":status": "100"}, 0)
        assert (await peer.answer(3)).head[":status"] == "404"
        await peer.send(frame(DATA, END_STREAM, 1, b"body"))
        assert (await peer.answer(1)).body == b"body"


def _without(name: str) -> list[tuple[str, str]]:
    return [pair for pair in PSEUDO if pair[0] != name]


MALFORMED = {
    "no method": _without(":method"),
    "no scheme": _without(":scheme"),
    "no path": _without(":path"),
    "empty path": [*_without(":path"), (":path", "")],
    "path without slash": [*_without(":path"), (":path", "v2")],
    "fragment": [*_without(":path"), (":path", "/a#b")],
    "asterisk": [*_without(":path"), (":path", "*")],
    "method with a space": [*_without(":method"), (":method", "GE T")],
    "late pseudo-header": [*_without(":path"), ("x", "1"), (":path", "/")],
    "unknown pseudo-header": [*PSEUDO, (":protocol", "websocket")],
    "repeated pseudo-header": [*PSEUDO, (":path", "/")],
    "other host": [*PSEUDO, ("host", "b")],
    "userinfo": [*_without(":authority"), (":authority", "me@a")],
    "upper case": [*PSEUDO, ("X-Some", "1")],
    "connection": [*PSEUDO, ("connection", "close")],
    "transfer-encoding": [*PSEUDO, ("transfer-encoding", "chunked")],
    "te": [*PSEUDO, ("te", "gzip")],
    "line end in a value": [*PSEUDO, ("x", "a\nb")],
    "two lengths": [*PSEUDO, ("content-length", "1"), ("content-length", "2")],
    "signed length": [*PSEUDO, ("content-length", "+1")],
    "tunnel with a path": [(":method", "CONNECT"), *PSEUDO[1:]],
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_requests_are_reset_alone(name: str) -> None:
    """RFC 9113, 8.1.1."""
    handler = HttpEcho()
    async with connected(handler) as (peer, _):
        await peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(MALFORMED[name])), post(3, b"next"))
        answers = await peer.answers([1, 3])
        assert (answers[1].reset, answers[1].head) == (Code.PROTOCOL_ERROR, {})
        assert answers[3].body == b"next"
    assert len(handler.heads) == 1


async def test_a_body_must_have_its_length() -> None:
    """RFC 9113, 8.1.1."""
    async with connected(HttpEcho()) as (peer, _):
        length = ("content-length", "3")
        await peer.send(head(1, "/", length), frame(DATA, END_STREAM, 1, b"ab"))
        await peer.send(head(3, "/", length), frame(DATA, 0, 3, b"abc"), frame(DATA, END_STREAM, 3, b"d"))
        answers = await peer.answers([1, 3])
        assert [answers[number].reset for number in (1, 3)] == [Code.PROTOCOL_ERROR] * 2


async def test_a_reset_cancels_the_request() -> None:
    handler, load = HttpEcho(), ListenerLoad()
    async with connected(handler, load=load) as (peer, server):
        await peer.send(post(1, bytes(100_000), "/wait"), head(3), frame(DATA, 0, 3, bytes(100_000)))
        await handler.entered.wait()
        await peer.send(frame(RST_STREAM, 0, 1, b"\0\0\0\x08"), frame(RST_STREAM, 0, 3, b"\0\0\0\x08"))
        await asyncio.wait_for(handler.cancelled.wait(), 20)
        await until(lambda: not server.at_work and not load.body_bytes)
        await peer.send(post(5, b"next"))
        assert (await peer.answer(5)).body == b"next"


async def test_a_lost_client_cancels_its_requests() -> None:
    handler, load = HttpEcho(), ListenerLoad()
    async with serving(handler, http2=DEFAULT_OPTIONS, load=load) as server:
        async with RawH2.to(server.address, WIDE) as peer:
            await peer.send(post(1, b"x", "/wait"), head(3), frame(DATA, 0, 3, bytes(100_000)))
            await handler.entered.wait()
        await asyncio.wait_for(handler.cancelled.wait(), 20)
        await until(lambda: not server.at_work and not load.body_bytes and not load.connections)


async def test_a_body_that_stalls_is_refused() -> None:
    handler = HttpEcho()
    async with connected(handler, timeouts=stalling(0.1)) as (peer, _):
        await peer.send(head(1), frame(DATA, 0, 1, b"half"))
        answer = await peer.answer()
        assert answer.head["x-code"] == "DEADLINE_EXCEEDED"
        assert "no byte of the request body arrived for 0.1 seconds" in answer.body.decode()


async def test_an_answer_that_is_not_read_is_given_up() -> None:
    handler = HttpEcho(answers={"/x": HttpAnswer(200, (), (bytes(100_000),))})
    async with connected(handler, start=START + settings((4, 10)), timeouts=stalling(0.1)) as (peer, server):
        await peer.send(head(1, "/x", ended=True))
        assert (await peer.answer()).reset == Code.CANCEL
        await until(lambda: not server.at_work)


async def test_a_handler_that_raises_is_a_fault_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    async with connected(HttpEcho()) as (peer, _):
        await peer.send(head(1, "/raise", ended=True), post(3, b"next"))
        answers = await peer.answers([1, 3])
        assert (answers[1].head[":status"], answers[3].body) == ("500", b"next")
    assert [record.message for record in caplog.records] == ["unexpected error"]


async def test_a_stop_lets_requests_end() -> None:
    handler = HttpEcho()
    async with connected(handler) as (peer, server):
        await peer.send(post(1, b"one", "/wait"))
        await handler.entered.wait()
        stopping = asyncio.create_task(server.stop(20))
        assert (await peer.kind(GOAWAY)).code == Code.NO_ERROR
        handler.release.set()
        assert (await peer.answer()).body == b"one"
        peer.writer.close()
        assert await stopping == 0


async def test_a_server_that_retires_sends_clients_away() -> None:
    handler = HttpEcho()
    async with connected(handler) as (peer, server):
        await peer.send(post(1, b"one"))
        assert (await peer.answer()).body == b"one"
        server.retire()
        await peer.kind(GOAWAY)
        await peer.send(post(3, b"on its way"))
        assert (await peer.answer(3)).body == b"on its way"


async def test_requests_that_outlast_a_stop_are_cut() -> None:
    handler = HttpEcho()
    async with connected(handler) as (peer, server):
        await peer.send(post(1, b"one", "/wait"))
        await handler.entered.wait()
        stopping = asyncio.create_task(server.stop(0))
        assert (await peer.answer()).reset == Code.CANCEL
        peer.writer.close()
        assert await stopping == 1


async def test_grpc_calls_have_no_method_here() -> None:
    kind = (("content-type", "application/grpc+proto"), ("te", "trailers"))
    answer = await ask(HttpEcho(), head(1, "/test.Echo/Call", *kind, ended=True))
    assert (answer.head[":status"], answer.status) == ("200", 12)


async def test_both_versions_share_the_port_and_its_limits() -> None:
    handler, load = HttpEcho(), ListenerLoad(max_connections=2)
    async with connected(handler, load=load) as (peer, server):
        await peer.send(post(1, b"two"))
        assert (await peer.answer()).body == b"two"
        async with RawHttp.to(server.address) as old:
            assert (await old.post("/", b"one")).body == b"one"
            assert load.protocols == {"http": 1, "h2": 1}
            async with RawH2.to(server.address) as third:
                assert await third.ended()


async def test_a_preface_after_a_request_is_none() -> None:
    async with serving(HttpEcho(), http2=DEFAULT_OPTIONS) as server, RawHttp.to(server.address) as old:
        assert (await old.post("/", b"one")).body == b"one"
        await old.send(START)
        assert (await old.reply()).status == 505


@pytest.mark.parametrize("cut", [1, 3, 10, 18, 23, 24])
async def test_a_preface_in_two_pieces(cut: int) -> None:
    async with (
        serving(HttpEcho(), http2=DEFAULT_OPTIONS) as server,
        RawH2.to(server.address, START[:cut]) as peer,
    ):
        await asyncio.sleep(0.02)
        await peer.send(START[cut:], post(1, b"body"))
        assert (await peer.answer()).body == b"body"


class Taking(HttpEcho):
    """Serves bodies while they arrive; each release takes the next piece."""

    taken = 0

    def prefix(self, request: HttpRequest) -> int | None:
        return 1

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        assert request.rest is not None
        self.taken = len(request.body)
        while True:
            await self.release.wait()
            self.release.clear()
            try:
                self.taken += len(await anext(request.rest))
            except (StopAsyncIteration, InferenceError):
                return HttpAnswer(200, (), (b"%d" % self.taken,))


async def taken(handler: Taking, answer: asyncio.Task[Any]) -> None:
    """Wait for the answer of a handler that takes the rest of its body."""

    def done() -> bool:
        handler.release.set()
        return answer.done()

    await until(done, pace_secs=0)


async def test_credit_is_for_what_the_handler_has_taken() -> None:
    handler, size = Taking(), 4 * STREAM_WINDOW
    async with connected(handler) as (peer, _):
        await peer.send(head(1, "/", ("content-length", str(size))))
        sent = credit = 0
        while sent < size:
            while piece := min(16_384, size - sent, STREAM_WINDOW + credit - sent):
                sent += piece
                await peer.send(frame(DATA, END_STREAM if sent == size else 0, 1, bytes(piece)))
            await peer.send(frame(PING, 0, 0, b"all sent"))
            for made in await peer.until(lambda made: made.kind == PING):
                if made.kind == WINDOW_UPDATE and made.stream == 1:
                    credit += int.from_bytes(made.payload, "big")
            assert credit <= handler.taken < sent
            handler.release.set()
            await asyncio.sleep(0)
        answer = asyncio.create_task(peer.answer())
        await taken(handler, answer)
        assert (await answer).body == b"%d" % size


@pytest.mark.parametrize(("rate", "status"), [(1000, "200"), (10**9, "400")])
async def test_a_body_that_is_served_while_it_arrives_has_a_rate(rate: int, status: str) -> None:
    handler, size = Taking(), STREAM_WINDOW
    async with connected(handler, timeouts=Timeouts(None, 0.2, 0.2, 0.2, rate)) as (peer, _):
        await peer.send(head(1, "/", ("content-length", str(size))))
        answer = asyncio.create_task(peer.answer())
        for sent in range(0, size, size // 8):
            await peer.send(frame(DATA, END_STREAM if sent == size // 8 * 7 else 0, 1, bytes(size // 8)))
            handler.release.set()
            await asyncio.wait((answer,), timeout=0.1)
        await taken(handler, answer)
        assert (await answer).head[":status"] == status
