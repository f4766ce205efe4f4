"""Limits hold over all processes of a server, and what a process had that is killed is free again."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon import Daemon
from tests.e2e.test_workers import SPEC, Server, closed, infer
from tests.ports import free_port
from tests.translator.access.credentials import token_lines
from tests.waiting import eventually

__all__ = ["closed"]

SIGNATURE = {"inputs": SPEC, "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]}


class Slow:
    """An upstream that counts its requests in flight. Each takes ``secs``, and until ``open`` is set."""

    def __init__(self) -> None:
        self.secs = 0.02
        self.open = threading.Event()
        self.open.set()
        self.running = self.most = 0
        lock = threading.Lock()
        slow = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                with lock:
                    slow.running += 1
                    slow.most = max(slow.most, slow.running)
                self.rfile.read(int(self.headers["content-length"]))
                time.sleep(slow.secs)
                slow.open.wait()
                output = {"name": "y", "datatype": "FP32", "shape": [1], "data": [7]}
                body = json.dumps({"model_name": "slow", "outputs": [output]}).encode()
                with lock:
                    slow.running -= 1
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"


def config(slow: Slow, shadow: Slow, tokens: Path) -> dict[str, Any]:
    limited = {
        "dialect": "oip",
        "transport": "http",
        "urls": [slow.url],
        "probe_interval_secs": 0,
        "max_concurrency": 3,
        "max_wait_secs": 30,
    }
    return {
        "server": {"workers": 2, "shutdown_timeout_secs": 10},
        "admin": {"listen": "127.0.0.1:0"},
        "auth": {
            "tokens": str(tokens),
            "limits": {"ann": {"max_requests": 2}, "bob": {"requests_per_sec": 4.0}},
        },
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http"},
            {"listen": "127.0.0.1:0", "transport": "http", "max_connections": 5},
            {"listen": "127.0.0.1:0", "transport": "http", "max_connections_per_address": 3},
        ],
        "upstreams": {
            "limited": limited,
            "shadow": {"dialect": "oip", "transport": "http", "urls": [shadow.url], "probe_interval_secs": 0},
            "pair": {
                "dialect": "oip",
                "transport": "http",
                "urls": [f"127.0.0.1:{free_port()}", slow.url],
                "probe_interval_secs": 600,
            },
        },
        "models": {
            "slow": {"upstream": "limited", "signature": SIGNATURE},
            "of_two": {"upstream": "pair", "signature": SIGNATURE},
            "shadow": {"upstream": "shadow", "signature": SIGNATURE},
            "seven": {"backend": "identity", "signature": SIGNATURE},
        },
        "routes": [
            {
                "match": {"model": "seven"},
                "to": "seven",
                "mirror": {"to": "shadow", "max_concurrency": 3, "max_queue_requests": 8},
            }
        ],
    }


def _slow() -> Iterator[Slow]:
    found = Slow()
    yield found
    found.open.set()
    found.server.shutdown()
    found.server.server_close()


slow = pytest.fixture(scope="module")(_slow)
shadow = pytest.fixture(scope="module")(_slow)


@pytest.fixture(scope="module")
def server(slow: Slow, shadow: Slow, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("limits")
    (folder / "tokens").write_text(token_lines(ann="a", bob="b"))
    daemon = Daemon.start(folder, config(slow, shadow, folder / "tokens"))
    try:
        yield Server(daemon)
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()


def ask_all(server: Server, connections: list[HTTPConnection], count: int) -> list[Any]:
    """The answers to ``count`` requests on each connection, all connections at once."""
    with ThreadPoolExecutor(len(connections)) as pool:
        asked = [
            pool.submit(lambda each: [infer(each, [1], "slow") for _ in range(count)], each)
            for each in connections
        ]
        return [answer for each in asked for answer in each.result()]


def test_requests_to_an_upstream_are_limited_in_all_together(server: Server, slow: Slow) -> None:
    slow.most = 0
    assert ask_all(server, server.connections(8), 6) == [[7]] * 48
    # not one fewer, whichever front end has the connections
    assert slow.most == 3
    assert server.get("/upstreams")["limited"]["limited"] == {"under_way": 0, "waiting": 0, "bytes": 0}


def test_the_copies_of_a_mirror_are_limited_in_all_together(server: Server, shadow: Slow) -> None:
    def of_mirror(name: str) -> float:
        return sum(server.metric(f"interlingua_mirror_{name}").values())

    connections = server.connections(1)
    shadow.open.clear()
    try:
        while min(server.connections_of_front_ends()) < 2 or len(connections) < 20:
            connections += server.connections(1)
            assert infer(connections[-1], [7], "seven") == [7]
        count = len(connections) - 1
        eventually(lambda: of_mirror("queue_requests") + of_mirror("dropped_total{") == count)
        assert of_mirror("queue_requests") == 8
        eventually(lambda: shadow.running == 3)
    finally:
        shadow.open.set()
    eventually(lambda: of_mirror("requests_total") == 8 and of_mirror("queue_requests") == 0)
    assert shadow.most == 3
    for _ in range(8):
        infer(connections[1], [7], "seven")
    eventually(lambda: of_mirror("requests_total") == 16)


def test_a_server_that_one_front_end_ejects_is_ejected_in_all(server: Server, slow: Slow) -> None:
    connections = server.connections(6)
    # the others know of it before the answer, if they have the time
    slow.secs = 2.0
    try:
        assert infer(connections[0], [1], "of_two") == [7]
    finally:
        slow.secs = 0.02
    for each in connections * 3:
        assert infer(each, [1], "of_two") == [7]
    gone, there = server.get("/upstreams")["pair"]["servers"]
    # another front end would have tried it once more
    assert (gone["state"], gone["requests"], gone["failures"], gone["ejections"]) == ("ejected", 1, 1, 1)
    assert there["state"] == "in use"


def test_a_killed_front_end_leaves_its_places(server: Server, slow: Slow) -> None:
    connections = server.spread("slow", 7)
    slow.secs = 0.5
    try:
        with ThreadPoolExecutor(len(connections)) as pool:

            def ask(connection: HTTPConnection) -> Any:
                try:
                    return infer(connection, [1], "slow")
                except OSError:
                    return None

            asked = [pool.submit(ask, each) for each in connections]
            eventually(lambda: slow.running >= 3)
            killed = server.kill("front end 0")
            answers = [each.result() for each in asked]
        assert answers.count([7]) + answers.count(None) == len(connections)
        # each front end had two connections at least
        assert answers.count(None) <= len(connections) - 2
        eventually(lambda: not slow.running)
        slow.most, slow.secs = 0, 0.1
        assert ask_all(server, server.connections(6), 4) == [[7]] * 24
        assert slow.most == 3
    finally:
        slow.secs = 0.02
    server.until_ready(killed)


def opened(server: Server, listener: int, count: int) -> list[socket.socket]:
    """Connections that the daemon keeps, of ``count`` opened."""
    host, _, port = server.daemon.addresses[listener].rpartition(":")
    kept = []
    for _ in range(count):
        connection = socket.create_connection((host, int(port)), timeout=20)
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        try:
            answered = connection.recv(65536)
        except ConnectionError:
            answered = b""
        if answered:
            kept.append(connection)
        else:
            connection.close()
    return kept


@pytest.mark.parametrize(("listener", "most"), [(1, 5), (2, 3)])
def test_connections_are_limited_in_all_together(server: Server, listener: int, most: int) -> None:
    # others, so that front ends have different numbers of connections
    uneven = server.connections(3)
    for each in uneven:
        infer(each, [1], "slow")
    kept = opened(server, listener, 9)
    assert len(kept) == most
    kept.pop().close()
    kept += reopened(server, listener, 1)
    assert not opened(server, listener, 2)
    # one of them has a connection at least, and what a process had is free when it has gone
    for name in ("front end 1", "front end 0"):
        server.until_ready(server.kill(name))
        ended = [each for each in kept if has_ended(each)]
        if ended:
            break
    again = reopened(server, listener, len(ended))
    assert not opened(server, listener, 1)
    for each in (*kept, *again):
        each.close()


def reopened(server: Server, listener: int, count: int) -> list[socket.socket]:
    """``count`` connections, each opened once the limit has room for it."""
    kept: list[socket.socket] = []

    def complete() -> bool:
        kept.extend(opened(server, listener, 1))
        return len(kept) >= count

    eventually(complete)
    return kept


def has_ended(connection: socket.socket) -> bool:
    """Whether the daemon has closed a connection on which no answer is due."""
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def statuses(connection: HTTPConnection, token: str, count: int) -> list[int]:
    """The statuses of ``count`` requests of a client."""
    found = []
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]})
    for _ in range(count):
        connection.request("POST", "/v2/models/slow/infer", body, {"x-api-key": token})
        answer = connection.getresponse()
        answer.read()
        found.append(answer.status)
    return found


def test_clients_are_limited_in_all_together(server: Server, slow: Slow) -> None:
    connections = server.connections(8)
    slow.most = 0
    with ThreadPoolExecutor(8) as pool:
        of_ann = [
            status for found in pool.map(lambda each: statuses(each, "a", 6), connections) for status in found
        ]
        assert set(of_ann) == {200, 429}
        assert slow.most <= 2
        began = time.monotonic()
        of_bob = [
            status for found in pool.map(lambda each: statuses(each, "b", 6), connections) for status in found
        ]
        assert set(of_bob) == {200, 429}
        # front ends that count at once may each permit what is left
        assert 4 <= of_bob.count(200) <= 8 + 4 * (time.monotonic() - began)
    # nothing is left of them
    assert statuses(connections[0], "a", 3) == [200] * 3
