"""Two daemons behind a balancer that sends every request anywhere: one of one process, one of several."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import yaml
from tritonclient.utils import InferenceServerException

from interlingua.schemas import Datatype
from tests.e2e.daemon import STOP_SECS, Daemon
from tests.e2e.sequence_clients import Ask, Refusal, clients_of, input_of, options_of
from tests.ports import free_port
from tests.runtime.onnx_models import node, value, write
from tests.waiting import eventually

STATE = 'state { input_name: "sum" output_name: "next" data_type: TYPE_INT32 dims: 1 }'
MODEL = f"""
input {{ name: "IN" data_type: TYPE_INT32 dims: 1 }} output {{ name: "OUT" data_type: TYPE_INT32 dims: 1 }}
max_batch_size: 4 sequence_batching {{ {STATE} max_sequence_idle_microseconds: 300000000
oldest {{ max_candidate_sequences: 256 }} }}
"""
"""Answers with the sum of the sequence so far."""


SETTLE_SECS = 0.6
IDS = itertools.count(1)


@dataclass
class Fleet:
    """Two daemons, the URLs of their peer listeners, the members file that names these, and the configurations."""

    daemons: list[Daemon]
    urls: list[str]
    members: Path
    configs: list[dict[str, Any]]

    def take_over(self, number: int) -> None:
        """Start the successor of a daemon, and wait until that has ended."""
        old = self.daemons[number]
        new = Daemon.begin(self.members.parent / str(number), self.configs[number], "--take-over")
        self.daemons[number] = new
        try:
            new.until("took over")
            assert old.process.wait(STOP_SECS) == 0
        finally:
            old.kill()
        new.addresses = old.addresses

    def list_members(self, *urls: str) -> None:
        new = self.members.with_suffix(".new")
        new.write_text(yaml.safe_dump(list(urls)))
        os.replace(new, self.members)

    @property
    def clients(self) -> list[dict[str, Ask]]:
        return [clients_of(*each.addresses[:2]) for each in self.daemons]

    def counts(self) -> dict[str, int]:
        """What became of requests, of all daemons."""
        found: dict[str, int] = {}
        for daemon in self.daemons:
            for line in requests.get(f"{daemon.admin}/metrics", timeout=60).text.splitlines():
                if line.startswith("interlingua_peer_requests_total{"):
                    outcome = line.split('outcome="')[1].split('"')[0]
                    found[outcome] = found.get(outcome, 0) + int(float(line.rpartition(" ")[2]))
        return found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write(
        folder / "sums" / "1" / "model.onnx",
        [node("Add", ["IN", "sum"], ["OUT"]), node("Identity", ["OUT"], ["next"])],
        [value(each, Datatype.INT32, ["n", 1]) for each in ("IN", "sum")],
        [value(each, Datatype.INT32, ["n", 1]) for each in ("OUT", "next")],
    )
    (folder / "sums" / "config.pbtxt").write_text(MODEL)
    return folder


@contextmanager
def started(folder: Path, models: Path, *, listed: bool) -> Iterator[Fleet]:
    """Two daemons with their peers as names in a file if ``listed``, else as addresses in the configuration."""
    ports = [free_port() for _ in range(2)]
    urls = [f"{'localhost' if listed else '127.0.0.1'}:{port}" for port in ports]
    (folder / "key").write_text("of-the-peers")
    found = Fleet([], urls, folder / "peers.yaml", [])
    found.list_members(*urls)
    allow = {"inference": [f"key:x-peer={folder}/key"]}
    try:
        for number, port in enumerate(ports):
            own = folder / str(number)
            own.mkdir()
            listeners: list[dict[str, Any]] = [
                {"listen": "127.0.0.1:0", "transport": kind} for kind in ("http", "grpc")
            ]
            peers = f"127.0.0.1:{port}"
            listeners.append({"listen": peers, "transport": "grpc", "dialects": ["oip"], "allow": allow})
            config = {
                "server": {"workers": 2 * number, "handover_socket": str(own / "handover.sock")},
                "listeners": listeners,
                "admin": {"listen": "127.0.0.1:0"},
                "model_repository": [{"path": str(models)}],
                # nothing of a forwarded request is routed a second time
                "routes": [{"match": {"model": "alias"}, "to": "sums", "rename": {"inputs": {"X": "IN"}}}],
                "peers": {
                    "listener": peers,
                    "urls": [f"file:{found.members}"] if listed else urls,
                    "headers": {"x-peer": {"file": f"{folder}/key"}},
                    "resolve_interval_secs": 0.05,
                    "settle_secs": SETTLE_SECS,
                    "probe_interval_secs": 1.0,
                },
            }
            found.configs.append(config)
            found.daemons.append(Daemon.begin(own, config))
        for each in found.daemons:
            each.until("serving")
            each.addresses = [line["address"] for line in each.log if line["event"] == "listening"]
            each.until_metric("interlingua_peers_settled 1")
        yield found
    finally:
        for each in found.daemons:
            each.kill()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Fleet]:
    with started(tmp_path_factory.mktemp("fleet"), models, listed=False) as found:
        yield found


def test_requests_of_a_sequence_may_arrive_anywhere(fleet: Fleet) -> None:
    clients = fleet.clients
    chance = random.Random(7)

    def run(identity: int) -> list[int]:
        sums = []
        for step in range(1, 7):
            ask = clients[chance.randrange(2)][chance.choice(list(clients[0]))]
            flags = "s" if step == 1 else "e" if step == 6 else ""
            sums += ask("sums", step * identity, identity, flags)
        return sums

    identities = list(itertools.islice(IDS, 24))
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(run, identities))
    assert found == [[each * total for total in (1, 3, 6, 10, 15, 21)] for each in identities]
    counts = fleet.counts()
    assert counts["refused"] == 0 and counts["local"] + counts["forwarded"] == 24 * 6
    assert counts["forwarded"] == counts["received"] > 24

    # text as an id, and a route that renames
    for step, (address, flags) in enumerate(zip([*addresses(fleet)] * 2, ("s", "", "", "e"), strict=True)):
        with triton_http.InferenceServerClient(address) as client:
            tensor = triton_http.InferInput("X", [1, 1], "INT32")
            tensor.set_data_from_numpy(input_value(step))
            result = client.infer("alias", [tensor], request_id="r", **options_of("my sequence", flags))
            assert result.as_numpy("OUT").tolist() == [[(0, 1, 3, 6)[step]]]
            assert result.get_response()["model_name"] == "alias" and result.get_response()["id"] == "r"


def addresses(fleet: Fleet) -> Iterator[str]:
    return (each.addresses[0] for each in fleet.daemons)


def input_value(number: int) -> Any:
    return np.array([[number]], np.int32)


def owned_by(fleet: Fleet, number: int) -> int:
    """The id of a sequence that the daemon ``number`` owns, found by where its requests arrive."""
    clients = fleet.clients
    while True:
        identity = next(IDS)
        before = fleet.counts()["forwarded"]
        assert clients[number]["oip over http"]("sums", 0, identity, "se") == [0]
        if fleet.counts()["forwarded"] == before:
            return identity


def tried(ask: Ask, number: int, identity: int, flags: str = "") -> tuple[str, Any]:
    """The code and the text of a refusal, or of an answer "" and the sum."""
    try:
        return "", ask("sums", number, identity, flags)
    except Refusal as refusal:
        return refusal.code, refusal.message


def test_a_list_that_changes(tmp_path: Path, models: Path) -> None:
    """A sequence never goes on with an old state, wherever its requests arrive. How often a busy machine makes the
    daemons forget it does not matter."""
    with started(tmp_path, models, listed=True) as fleet:
        asks = [each["oip over http"] for each in fleet.clients]
        identities = list(itertools.islice(IDS, 8))
        for count, urls in enumerate((fleet.urls, fleet.urls[:1], fleet.urls, fleet.urls[1:])):
            fleet.list_members(*urls)
            for identity in identities:
                begin_again(asks, identity, 1000 * count)
        take_over(fleet)
        # a list that cannot be confirmed is no list
        fleet.members.unlink()
        eventually(lambda: "not been confirmed" in tried(asks[0], 0, identities[0])[1])
        for each in fleet.daemons:
            assert requests.get(f"{each.admin}/health/ready", timeout=60).ok  # for all other requests
        fleet.list_members(*fleet.urls)
        begin_again(asks, identities[0], 9000)


def take_over(fleet: Fleet) -> None:
    """A successor takes the place of a daemon in the list, without the states of its sequences."""
    fleet.list_members(*fleet.urls)
    asks = [each["oip over http"] for each in fleet.clients]
    identities = list(itertools.islice(IDS, 8))
    for identity in identities:
        begin_again(asks, identity, 100)
    fleet.take_over(0)
    found = [settled(asks[0], identity) for identity in identities]
    assert all(answer == [103] or "must specify the START flag" in answer for answer in found)
    assert found.count([103]) < len(identities)
    begin_again(asks, identities[0], 200)


def settled(ask: Ask, identity: int) -> Any:
    """The answer to a request of a sequence, or the refusal, when the owner is certain."""
    found: list[tuple[str, Any]] = []
    eventually(lambda: found.append(tried(ask, 1, identity)) or found[-1][0] != "503")
    return found[-1][1]


def begin_again(asks: list[Ask], identity: int, number: int) -> None:
    """Have a sequence begin, and go on at all daemons; whatever runs before is of its last begin."""
    expected: int | None = None

    def whole() -> bool:
        nonlocal expected
        code, answer = tried(asks[0], number, identity, "s")
        if code:
            assert code == "503", answer
            return False
        assert answer == [number]
        expected = number
        for ask in asks:
            code, answer = tried(ask, 1, identity)
            if code:
                assert code == "503" or "must specify the START flag" in answer, answer
                return False
            expected += 1
            assert answer == [expected]
        return True

    # what went on before may go on, or has to begin again
    eventually(whole)


def test_only_peers_forward(fleet: Fleet) -> None:
    there = owned_by(fleet, 1)
    forwarded = {"interlingua-forwarded": "1"}
    with triton_http.InferenceServerClient(fleet.daemons[0].addresses[0]) as client:
        tensors = [input_of(triton_http, 1, 1)]
        result = client.infer("sums", tensors, headers=dict(forwarded), **options_of(there, "se"))
        # on other listeners the header means nothing
        assert result.as_numpy("OUT").tolist() == [[1]]
    tensors = [input_of(triton_grpc, 1, 1)]
    with triton_grpc.InferenceServerClient(fleet.urls[0]) as client:
        with pytest.raises(InferenceServerException, match="This protocol is restricted"):
            client.infer("sums", tensors, headers=dict(forwarded), **options_of(there, "se"))
        # never forwarded a second time
        headers = {**forwarded, "x-peer": "of-the-peers"}
        with pytest.raises(InferenceServerException, match="disagree on the owner"):
            client.infer("sums", tensors, headers=headers, **options_of(there, "se"))


def test_a_daemon_dies(fleet: Fleet) -> None:
    """The last test: the fleet does not recover."""
    here, there = owned_by(fleet, 0), owned_by(fleet, 1)
    clients = fleet.clients[0]
    ask = clients["oip over http"]
    assert ask("sums", 1, here, "s") == [1] and ask("sums", 10, there, "s") == [10]
    fleet.daemons[1].kill()
    for each in clients.values():
        with pytest.raises(Refusal):
            each("sums", 10, there)
    assert tried(ask, 10, there)[0] == tried(ask, 10, there, "s")[0] == "503"
    assert ask("sums", 2, here, "e") == [3]
