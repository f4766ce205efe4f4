"""Rows of varied traffic: their requests differ, and answers to other requests do not count."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest
import yaml

from benchmarks import processes
from benchmarks.bridging import varied
from benchmarks.bridging.pairs import CONFIGS, PAIRS, between, identities
from benchmarks.bridging.requests import Request, request
from benchmarks.bridging.sender import PLACE, drive, numbered, packed, unpacked
from benchmarks.bridging.turns import Found
from benchmarks.bridging.variants import EVERYTHING, SHAPES, VARIANTS
from benchmarks.bridging.varied import VARIED, requests
from benchmarks.cases import OIP_METHOD
from benchmarks.wire import BRPC_FRAME, Frames, Http1
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.brpc.frame import write_answer
from interlingua.translator.config import parse

PAIR = PAIRS[0]
ADDRESSES = dict.fromkeys(("http", "grpc", "brpc", "tcp"), "127.0.0.1:1")


@contextmanager
def server(stale: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """The address of a server that answers with the body of a request, and the requests that it had; a
    ``stale`` one answers with the body of its first request."""
    had: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, suppress(ConnectionResetError):
            while data := connection.recv(1 << 16):
                had.append(data)
                body = (had[0] if stale else data).partition(b"\r\n\r\n")[2]
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield "{}:{}".format(*listening.getsockname()), had
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def order(address: str, parts: frozenset[str]) -> dict[str, object]:
    sent = [packed(each) for each in requests(PAIR, parts, PAIR.model)]
    return {"address": address, "requests": sent, "clients": 4, "count": 30}


def distinct(pattern: bytes, messages: list[bytes]) -> set[bytes]:
    """What ``pattern`` finds in the messages; all of them have it."""
    found = [re.search(pattern, message) for message in messages]
    assert None not in found
    return {match[1] for match in found if match is not None}


def test_no_request_is_sent_twice() -> None:
    with server() as (address, had):
        assert drive(order(address, EVERYTHING.parts), lambda _: None, lambda: None) == {"count": 30}
    assert len(had) > 30
    assert len({len(each) for each in had}) == 1
    for pattern in (rb'"id":"([0-9a-f]{16})"', rb"x-request-id: (\S+)", rb"traceparent: 00-(\S+)-00\r\n"):
        assert len(distinct(pattern, had)) == len(had)


def test_shapes_alternate() -> None:
    with server() as (address, had):
        drive(order(address, frozenset({"shapes"})), lambda _: None, lambda: None)
    assert len(distinct(rb'"shape":(\S+?\])', had)) == SHAPES


def test_the_answer_to_another_request_does_not_count() -> None:
    with server(stale=True) as (address, _), pytest.raises(RuntimeError, match="the answer is wrong"):
        drive(order(address, frozenset({"id"})), lambda _: None, lambda: None)


@pytest.mark.parametrize("row", VARIED, ids=lambda row: row.title)
def test_a_row_has_requests_with_its_parts(row: varied.VariedRow) -> None:
    sent = requests(row.pair, row.variant.parts, row.pair.model)
    assert len(sent) == (SHAPES if "shapes" in row.variant.parts else 1)
    for each in sent:
        one, other = numbered(each, 1), numbered(each, 2)
        assert ("id" in row.variant.parts) == (one.body != other.body)
        assert ("trace headers" in row.variant.parts) == (one.headers != other.headers)
        assert ("token" in row.variant.parts) == ("authorization" in each.headers)
        assert len(one.sent()) == len(other.sent())
        assert each.echoed in each.body
        assert unpacked(packed(each)) == each


def test_every_equal_pair_has_rows_and_titles_differ() -> None:
    equal = [(pair.caller, pair.over) for pair in PAIRS if pair.kind == "equal" and not pair.renamed]
    assert equal == [(name, transport) for name in DIALECTS for transport in DIALECTS[name].bindings]
    assert len({row.title for row in VARIED}) == len(VARIED)
    assert {row.variant.name for row in VARIED} == {"same", *(variant.name for variant in VARIANTS)}


@pytest.mark.parametrize("part", [None, *CONFIGS])
def test_the_daemon_accepts_a_part(part: str | None, tmp_path: Path) -> None:
    config = between(tmp_path, ADDRESSES)
    if part is not None:
        plain = yaml.safe_dump(config)
        CONFIGS[part](config, tmp_path, "http://127.0.0.1:1")
        assert yaml.safe_dump(config) != plain
    parse(yaml.safe_dump(config))
    served = identities()["models"]
    assert all(each.get("remote_model", "") in {"", *served} for each in config["models"].values())


def test_a_row_is_measured_next_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varied, "_QUICK_COUNT", 40)
    rows = [row for row in VARIED if row.pair is PAIR and row.variant.name == "unique id"]
    (found,) = varied.measure(rows, tmp_path, quick=True)
    assert (found.row, found.peer) == ("OIP HTTP -> OIP gRPC, varied: unique id", "same")
    assert found.us > 0
    assert found.peer_us is not None and found.peer_us > 0
    assert (found.target, found.target_us) == (1.4, 25)


@pytest.mark.parametrize(
    ("ratio", "added_us", "target_us", "verdict"),
    [(1.3, 90, 25, "ok"), (2, 20, 25, "ok"), (2, 30, 25, "over"), (2, 20, None, "over")],
)
def test_one_of_two_targets_is_enough(
    ratio: float, added_us: float, target_us: float | None, verdict: str
) -> None:
    assert Found("a row", 1, "same", 1, ratio, 1.4, added_us, target_us).verdict == verdict


def test_answers_are_numbered_over_http() -> None:
    with (
        processes.floor("http") as echo,
        processes.relay("numbered", "http", echo.addresses["http"], "http") as relay,
    ):
        heads = [_head(relay.addresses["http"], request("oip", "http", 64)) for _ in range(3)]
    assert len(distinct(rb"x-request-id: ([0-9a-f]{32})\r\n", heads)) == 3


def _head(address: str, sent: Request) -> bytes:
    host, _, port = address.rpartition(":")
    wire, answer = Http1(sent.sent()), None
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(sent.sent())
        while answer is None:
            answer = wire.feed(connection.recv(1 << 16))
    assert answer == sent.body
    return wire.head


def test_answers_are_numbered_over_grpc() -> None:
    with (
        processes.floor("grpc") as echo,
        processes.relay("numbered", "grpc", echo.addresses["grpc"], "grpc") as relay,
        grpc.insecure_channel(relay.addresses["grpc"]) as channel,
    ):
        call = channel.unary_unary(OIP_METHOD)
        done = [call.with_call(PLACE.encode(), timeout=20) for _ in range(3)]
    assert {answer for answer, _ in done} == {PLACE.encode()}
    assert len({dict(call.initial_metadata())["x-request-id"] for _, call in done}) == 3


def test_a_frame_may_come_in_any_pieces() -> None:
    wire = Frames(BRPC_FRAME, b"request")
    answer = b"".join(write_answer(1, b"message"))
    for _ in range(2):
        assert [wire.feed(answer[at : at + 1]) for at in range(len(answer))][-2:] == [None, answer]
