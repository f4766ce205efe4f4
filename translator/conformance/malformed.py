"""Rules for invalid messages: the server never accepts them, and survives."""

from __future__ import annotations

import http.client
import socket

from hypothesis import strategies as st

from interlingua.protocols.wire import HttpCall
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.errors import InapplicableError, ViolationError, expect, skip_if
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.replies import http_request
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.wire import Mistake

MALFORMED = Group("malformed")

_SECS = 10.0


@MALFORMED("A truncated message is refused, and the server survives.")
def cut_short(server: ServerUnderTest, draw: Draw) -> None:
    sent = server.encoded(server.sample())
    body = server.form.body(sent)
    end = draw(st.integers(0, max(len(body) - 1 - server.wire.padding, 0)))
    _not_accepted(server, server.send(server.form.with_body(sent, body[:end])), f"{end} of {len(body)} bytes")
    _lives(server)


@MALFORMED("Bytes that are not a message are refused, and the server survives.")
def garbage(server: ServerUnderTest, draw: Draw) -> None:
    sent = server.encoded(server.sample())
    # byte 255 starts no JSON, no protobuf field and no flatbuffers offset
    noise = b"\xff" + draw(st.binary(max_size=64))
    if len(noise) == len(server.form.body(sent)):
        # a raw body of the same length would be valid
        noise += b"\xff"
    _not_accepted(server, server.send(server.form.with_body(sent, noise)), "garbage")
    _lives(server)


@MALFORMED("A message with bytes changed on the way never kills the server.")
def changed(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(server.sequential, "a changed request may start a sequence that is never ended")
    sent = server.encoded(server.sample())
    body = server.form.body(sent)
    place = st.integers(0, len(body))
    start, end = sorted((draw(place), draw(place)))
    broken = draw(
        st.sampled_from(
            (
                body[:start] + body[end:],
                body[:end] + body[start:],
                body[:start] + draw(st.binary(min_size=1, max_size=4)) + body[start + 1 :],
            )
        )
    )
    server.send(server.form.with_body(sent, broken))
    _lives(server)


@MALFORMED("A connection on which a request was refused serves the next one.", once=True)
def connection_kept(server: ServerUnderTest, draw: Draw) -> None:
    good = server.encoded(server.sample())
    if not isinstance(good, HttpCall):
        raise InapplicableError("connections are not visible over this transport")
    bad = http_request(server.form.with_body(good, b"\xff\xff"))
    connection = _connection(server)
    try:
        statuses = []
        for sent in (good, bad, good):
            path = f"{server.place.base}{sent.path}" + (f"?{sent.query}" if sent.query else "")
            connection.request(sent.method, path, server.form.body(sent), dict(sent.headers))
            reply = connection.getresponse()
            reply.read()
            statuses.append(reply.status)
            skip_if(reply.will_close and sent is not bad, "the server closes every connection")
            if reply.will_close:
                # announced by the server: the client knows to reconnect
                raise InapplicableError("the server closes a connection on which a request was refused")
    except (OSError, http.client.HTTPException) as error:
        raise ViolationError(
            f"the connection broke without notice after statuses {statuses}: {error!r}", WireExchange(bad)
        ) from error
    finally:
        connection.close()
    expect(statuses[0] == statuses[2], f"on one connection, statuses {statuses}", WireExchange(bad))


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SECS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_SECS)
        self.sock.connect(self._path)


def _connection(server: ServerUnderTest) -> http.client.HTTPConnection:
    address = server.address
    if address.path:
        return _UnixConnection(address.path)
    return http.client.HTTPConnection(address.host, address.port, timeout=_SECS)


def _not_accepted(server: ServerUnderTest, exchange: WireExchange, what: str) -> None:
    """Accept an error in any form, or a closed connection, but no successful answer."""
    if exchange.reply is None:
        return
    expect(not server.wire.succeeded(exchange), f"{what} was taken for a request", exchange)
    if not server.silent:  # a model that refuses all requests may report that instead
        server.wire.check_error(exchange, Mistake.MALFORMED)


def _lives(server: ServerUnderTest) -> None:
    """Require that the server still answers a good request."""
    last = server.last
    after = server.infer(server.sample())
    if after.reply is None or (after.error is not None and not server.silent):
        # retry: the server may have closed the connection
        after = server.infer(server.sample())
    broken = after.reply is None or (after.error is not None and not server.silent)
    if broken and after.error is not None:
        raise ViolationError(f"afterwards a good request failed: {after.error.message}", last)
