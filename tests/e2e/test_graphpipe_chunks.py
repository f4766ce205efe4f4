"""Requests as TensorFlow's GraphPipe plug-in sends them: in chunks, with a Content-Length beside, behind an
`Expect: 100-continue`. They are refused unless a listener takes them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from graphpipe import convert

from interlingua.translator.config import ConfigError, parse
from tests.e2e.daemon import Daemon

SIGNATURE = {
    side: [{"name": name, "datatype": "FP32", "shape": [-1]}]
    for side, name in (("inputs", "x"), ("outputs", "y"))
}
X = np.arange(5, dtype=np.float32)
BODY = bytes(
    convert.serialize_infer_request(convert.InferReq(config="", input_tensors=[X], input_names=["x"]))
)
GET = b"GET /control/is_alive HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Of a listener that takes such requests, and of one that does not."""
    listener = {
        "listen": "127.0.0.1:0",
        "transport": "http",
        "dialects": ["graphpipe"],
        "default_model": "echo",
    }
    daemon = Daemon.start(
        tmp_path_factory.mktemp("chunks"),
        {
            "listeners": [{**listener, "accept_te_with_length": True}, listener],
            "models": {"echo": {"backend": "identity", "signature": SIGNATURE}},
        },
    )
    try:
        yield daemon.addresses[0], daemon.addresses[1]
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def head(length: int) -> bytes:
    return (
        f"POST / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nTransfer-Encoding: chunked\r\nContent-Length: {length}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n\r\n"
    ).encode()


def chunks(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def said(address: str, first: bytes, rest: bytes = b"") -> bytes:
    """All that is answered until the connection ends."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(first)
        answer = b""
        if rest:
            answer = connection.recv(1 << 16)
            connection.sendall(rest)
        while piece := connection.recv(1 << 16):
            answer += piece
    return answer


def test_the_chunks_count_and_the_connection_ends(addresses: tuple[str, str]) -> None:
    answer = said(addresses[0], head(len(BODY)), chunks(BODY))
    interim, _, final = answer.partition(b"\r\n\r\n")
    assert interim == b"HTTP/1.1 100 Continue"
    status, _, body = final.partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 200 ") and b"connection: close" in status.lower()
    [array], errors = convert.deserialize_infer_response(body)
    assert (array == X).all() and not errors


@pytest.mark.parametrize("length", [0, 1, len(BODY) + 100])
def test_the_length_is_ignored(addresses: tuple[str, str], length: int) -> None:
    answer = said(addresses[0], head(length) + chunks(BODY))
    assert answer.count(b"HTTP/1.1 200 ") == 1


def test_what_follows_is_no_request(addresses: tuple[str, str]) -> None:
    answer = said(addresses[0], head(len(BODY)) + chunks(BODY) + GET * 3)
    assert answer.count(b"HTTP/1.1 200 ") == 1 and b"ok\n" not in answer


def test_other_requests_keep_their_connection(addresses: tuple[str, str]) -> None:
    plain = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(BODY)
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answer = said(addresses[0], plain + GET + last)
    assert answer.count(b"HTTP/1.1 200 ") == 3


def test_without_the_option_they_are_refused(addresses: tuple[str, str]) -> None:
    answer = said(addresses[1], head(len(BODY)) + chunks(BODY) + GET)
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"transport": "http"},
            "is for listeners that speak graphpipe alone, not oip, graphpipe, trtis, grps",
        ),
        ({"transport": "http", "dialects": ["graphpipe", "oip"]}, "alone, not graphpipe, oip"),
        ({"transport": "tcp"}, "is for transport http, not tcp"),
        ({"transport": "http", "dialects": ["graphpipe"], "engine": "library"}, "engine native, not library"),
    ],
)
def test_only_listeners_of_graphpipe_alone_may_take_them(options: dict[str, Any], words: str) -> None:
    listener = {"listen": ":0", **options, "accept_te_with_length": True}
    with pytest.raises(ConfigError, match=words):
        parse(str({"listeners": [listener]}).replace("True", "true"))
