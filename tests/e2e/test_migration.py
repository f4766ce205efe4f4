"""docs/migration.md, carried out while clients of the old dialect ask all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ovmsclient
import pytest

from tests.e2e.background import Background
from tests.e2e.daemon import ROOT, Daemon
from tests.e2e.walkthrough import Walkthrough, steps
from tests.ports import free_port
from tests.standins import tfserving_server
from tests.standins.graphpipe_server import Seen as SeenByGraphPipe
from tests.standins.graphpipe_server import graphpipe_server
from tests.standins.grps_brpc import GrpsBrpc
from tests.standins.grps_client import GrpsGrpc, GrpsHttp
from tests.standins.grps_contract import arrays_of, gtensors
from tests.standins.grps_http_server import grps_http_server
from tests.standins.grps_server import GrpsServer
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp
from tests.standins.trtis_server import Seen, TrtisServer, start_grpc

PAGE = ROOT / "docs" / "migration.md"
GRAPHPIPE_NAMES = (["graph/a:0", "graph/b:0"], ["graph/sum:0", "graph/difference:0"])
LOCAL_PORTS = ("8000", "8001", "8002", "8003", "8010", "8500", "8501")

Check = Callable[[int], None]
"""Asks one question, different for each number, and compares the answer. Raises where it is wrong."""


class Traffic:
    """A client that asks one question after the other, but while it is paused."""

    def __init__(self, client: Callable[[], Check]) -> None:
        self.answered = 0
        self._client = client
        self._turn = threading.Lock()
        self._failure: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        try:
            check = self._client()
            while not self._over.wait(0.01):
                with self._turn:
                    check(self.answered)
                    self.answered += 1
        except Exception as failure:
            self._failure = failure

    @contextmanager
    def paused(self) -> Iterator[None]:
        with self._turn:
            yield

    def more(self, count: int) -> None:
        """Wait until so many more questions have been answered, and rightly."""
        if self._thread.ident is None:
            self._thread.start()
        goal, until = self.answered + count, time.monotonic() + 60
        while self.answered < goal:
            if self._failure is not None:
                raise self._failure
            assert time.monotonic() < until, f"{self.answered} of {goal} answers"
            time.sleep(0.01)

    def end(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(60)


def question(number: int) -> tuple[Any, Any]:
    given = (np.arange(32, dtype=np.int32) * (number % 1000 + 1)).reshape(2, 1, 16)
    return given[0], given[1]


def trtis_old(running: ExitStack, background: Background) -> dict[str, str]:
    server, port = background.run(start_grpc(TrtisServer(Seen())))
    running.callback(lambda: background.run(server.stop(None)))
    return {"old:8001": f"127.0.0.1:{port}"}


def trtis_clients(running: ExitStack, places: dict[str, str]) -> Check:
    clients: list[Any] = [TrtisHttp(places["localhost:8000"]), TrtisGrpc(places["localhost:8001"])]
    for client in clients:
        running.callback(client.close)

    def check(number: int) -> None:
        one, two = question(number)
        client = clients[number % 2]
        answer = client.infer("simple", {"INPUT0": one, "INPUT1": two}, ["OUTPUT0", "OUTPUT1"])
        np.testing.assert_array_equal(answer.outputs["OUTPUT0"], one + two)
        np.testing.assert_array_equal(answer.outputs["OUTPUT1"], one - two)

    return check


def graphpipe_old(running: ExitStack, background: Background) -> dict[str, str]:
    return {"old:8000": background.serve(graphpipe_server(SeenByGraphPipe(), GRAPHPIPE_NAMES, "int32"))}


def graphpipe_client(running: ExitStack, places: dict[str, str]) -> Check:
    from graphpipe import remote

    def check(number: int) -> None:
        one, two = question(number)
        outputs = remote.execute_multi(
            f"http://{places['localhost:8000']}",
            [one, two],
            *(GRAPHPIPE_NAMES if number % 2 else (None, None)),
        )
        np.testing.assert_array_equal(outputs[0], one + two)
        np.testing.assert_array_equal(outputs[1], one - two)

    return check


def grps_old(running: ExitStack, background: Background) -> dict[str, str]:
    return {"old:8000": background.serve(grps_http_server(GrpsServer("cpp", online={"all": True})))}


def grps_clients(running: ExitStack, places: dict[str, str]) -> Check:
    kinds: list[tuple[Callable[[str], Any], str]] = [
        (GrpsHttp, "localhost:8000"),
        (GrpsGrpc, "localhost:8001"),
        (GrpsBrpc, "localhost:8010"),
    ]

    def check(number: int) -> None:
        one, two = question(number)
        asked = gtensors(INPUT0=one, INPUT1=two)
        asked.model = "simple-1.0.0"
        make, place = kinds[number % 3]
        # a connection each: the daemon is stopped and started in between
        with closing(make(places[place])) as client:
            outputs = arrays_of(client.predict(asked))
        np.testing.assert_array_equal(outputs["OUTPUT0"], one + two)
        np.testing.assert_array_equal(outputs["OUTPUT1"], one - two)

    return check


def tfserving_old(running: ExitStack, background: Background) -> dict[str, str]:
    return {"old:8500": tfserving_server.start(running)}


def tfserving_clients(running: ExitStack, places: dict[str, str]) -> Check:
    clients = [
        ovmsclient.make_http_client(places["localhost:8501"]),
        ovmsclient.make_grpc_client(places["localhost:8500"]),
    ]
    running.callback(clients[0].session.close)
    running.callback(clients[1].channel.close)

    def check(number: int) -> None:
        one, two = question(number)
        answer = clients[number % 2].predict({"INPUT0": one, "INPUT1": two}, "simple", timeout=30.0)
        np.testing.assert_array_equal(answer["OUTPUT0"], one + two)
        np.testing.assert_array_equal(answer["OUTPUT1"], one - two)

    return check


MOVES: dict[str, tuple[Callable[..., dict[str, str]], Callable[..., Check]]] = {
    "From the TensorRT Inference Server to Triton": (trtis_old, trtis_clients),
    "From GraphPipe to KServe": (graphpipe_old, graphpipe_client),
    "From grps to the Open Inference Protocol": (grps_old, grps_clients),
    "From TensorFlow Serving to Triton": (tfserving_old, tfserving_clients),
}


def start_new(folder: Path, http: int, grpc: int) -> Daemon:
    """Another daemon, which speaks the Open Inference Protocol alone, in place of the new server."""
    return Daemon.start(
        folder,
        {
            "listeners": [
                {"listen": f"127.0.0.1:{http}", "transport": "http", "dialects": ["oip"]},
                {"listen": f"127.0.0.1:{grpc}", "transport": "grpc", "dialects": ["oip"]},
            ],
            "model_repository": [{"path": str(ROOT / "examples" / "models"), "load": ["simple"]}],
        },
    )


def move(section: str, folder: Path, new: dict[str, str], between: Callable[[str, Traffic], None]) -> None:
    """Carry out one section; ``between`` is called after each step with its name."""
    old, client = MOVES[section]
    with ExitStack() as running:
        background = Background()
        running.callback(background.close)
        ports = {port: f"127.0.0.1:{free_port()}" for port in LOCAL_PORTS}
        places = {
            **{f"{host}:{port}": here for port, here in ports.items() for host in ("localhost", "127.0.0.1")},
            **old(running, background),
            **new,
            "run/": f"{folder}/run/",
        }
        np.save(folder / "ramp.npy", np.arange(1, 17, dtype=np.int32)[None])
        np.save(folder / "ones.npy", np.ones((1, 16), np.int32))
        traffic = Traffic(partial(client, running, places))
        walk = Walkthrough(folder, places, traffic.paused)
        running.callback(walk.kill)
        running.callback(traffic.end)
        for step in steps(PAGE, section):
            walk.carry_out(step)
            traffic.more(30)
            between(step.name, traffic)
        traffic.end()
        walk.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("section", MOVES)
def test_every_step_is_as_the_page_says(section: str, tmp_path: Path) -> None:
    http, grpc = free_port(), free_port()
    daemons = [start_new(tmp_path, http, grpc)]
    seen: list[str] = []

    def between(step: str, traffic: Traffic) -> None:
        seen.append(step)
        if step == "Share":
            # the old server stands in for the new one
            with traffic.paused():  # what is under way when a server dies may have run there
                daemons[0].kill()
            traffic.more(20)
            with traffic.paused():
                daemons[0] = start_new(tmp_path, http, grpc)

    new = {"new:8000": f"127.0.0.1:{http}", "new:8001": f"127.0.0.1:{grpc}"}
    try:
        move(section, tmp_path, new, between)
    finally:
        daemons[0].kill()
    assert seen == ["In front", "Record", "Rehearse", "Mirror", "Share", "Done"]
