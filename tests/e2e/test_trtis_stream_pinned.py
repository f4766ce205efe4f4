"""Requests of one StreamInfer call through an upstream with two servers.

A version 1 client's stream is one connection, so all its requests are answered by one server, also those that
belong to no sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from tests.e2e.background import Background
from tests.e2e.daemon import Daemon
from tests.standins.trtis_grpc_client import GrpcContext, TrtisGrpc
from tests.standins.trtis_server import Seen, TrtisServer, start_grpc

ONES = np.ones((1, 16), np.int32)
SUCCESS = 1


@dataclass
class World:
    """A daemon before two servers, ``seen`` by each, which ``stop`` by their place."""

    background: Background
    seen: list[Seen]
    servers: list[Any]
    context: GrpcContext

    def counts(self) -> list[int]:
        return [len(each.inferences) for each in self.seen]

    def stop(self, place: int) -> None:
        self.background.run(self.servers[place].stop(None))


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    background = Background()
    seen = [Seen(), Seen()]
    started = [background.run(start_grpc(TrtisServer(each))) for each in seen]
    config = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "grpc"}],
        "upstreams": {
            "pair": {
                "dialect": "trtis",
                "transport": "grpc",
                "urls": [f"127.0.0.1:{port}" for _, port in started],
            }
        },
        "models": {"simple": {"upstream": "pair"}},
    }
    daemon = Daemon.start(tmp_path_factory.mktemp("pinned"), config)
    client = TrtisGrpc(daemon.addresses[0])
    try:
        servers = [server for server, _ in started]
        yield World(background, seen, servers, client.context("simple"))
    finally:
        client.close()
        daemon.kill()
        for server, _ in started:
            background.run(server.stop(None))
        background.close()


class Stream:
    """A StreamInfer call that is kept open."""

    def __init__(self, context: GrpcContext) -> None:
        self._context = context
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._answers = context.client.stream(iter(self._requests.get, None))

    def ask(self, count: int) -> list[int]:
        """The codes of the answers to ``count`` requests, sent all at once."""
        for _ in range(count):
            self._requests.put(
                self._context.request({"INPUT0": ONES, "INPUT1": ONES}, ["OUTPUT0", "OUTPUT1"])
            )
        return [next(self._answers).request_status.code for _ in range(count)]

    def end(self) -> None:
        self._requests.put(None)
        assert list(self._answers) == []


def test_uncorrelated_requests_of_one_stream_go_to_one_server(world: World) -> None:
    stream = Stream(world.context)
    assert stream.ask(12) == [SUCCESS] * 12
    stream.end()
    assert sorted(world.counts()) == [0, 12]


def test_streams_are_spread(world: World) -> None:
    for _ in range(2):
        stream = Stream(world.context)
        assert stream.ask(6) == [SUCCESS] * 6
        stream.end()
    assert world.counts() == [6, 6]


def test_a_stream_whose_server_has_died_goes_to_one_other(world: World) -> None:
    stream = Stream(world.context)
    assert stream.ask(12) == [SUCCESS] * 12
    place = world.counts().index(12)
    world.stop(place)
    told = stream.ask(12)
    # what was on its way when the connection broke is not sent twice
    assert stream.ask(12) == [SUCCESS] * 12
    stream.end()
    answered = told.count(SUCCESS) + 12
    assert world.counts()[1 - place] == answered and world.counts()[place] == 12


def test_single_calls_still_go_to_both(world: World) -> None:
    for _ in range(12):
        world.context.infer({"INPUT0": ONES, "INPUT1": ONES}, ["OUTPUT0"])
    assert world.counts() == [6, 6]
