"""Servers that join and leave by a members file, under load, over every transport."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.e2e.daemon import Daemon
from tests.waiting import eventually

DIALECTS = {"oip": "http", "trtis": "grpc", "grps": "brpc", "graphpipe": "tcp"}
SERVERS = 4
CHANGES = 50
CALLERS = 2
"""Of each dialect."""

TENSOR = {"name": "X", "datatype": "FP32", "shape": [-1]}
IDENTITY = {"backend": "identity", "signature": {"inputs": [TENSOR], "outputs": [TENSOR]}}


def write(path: Path, members: list[Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump({"members": members}))
    os.replace(new, path)


@dataclass(frozen=True)
class Servers:
    """The URLs of the servers of each dialect, and an address for their statistics."""

    urls: dict[str, list[str]]
    statistics: str


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Listeners of one process."""
    folder = tmp_path / "in"
    folder.mkdir()
    urls = {name: [f"unix:{folder}/{name}{number}.sock" for number in range(SERVERS)] for name in DIALECTS}
    listeners: list[dict[str, Any]] = [
        {"listen": url, "transport": transport, "dialects": [name], "default_model": name}
        for name, transport in DIALECTS.items()
        for url in urls[name]
    ]
    models = dict.fromkeys(DIALECTS, IDENTITY)
    listeners.append({"listen": "127.0.0.1:0", "transport": "http"})
    running = Daemon.start(folder, {"server": {"workers": 0}, "listeners": listeners, "models": models})
    try:
        yield Servers(urls, running.addresses[-1])
    finally:
        running.kill()


@pytest.fixture(params=[0, 2])
def front(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Iterator[Daemon]:
    folder = tmp_path / "out"
    folder.mkdir()
    upstreams = {}
    for name, transport in DIALECTS.items():
        write(folder / f"{name}.yaml", servers.urls[name][:1])
        upstreams[name] = {
            "dialect": name,
            "transport": transport,
            "urls": [f"file:{folder}/{name}.yaml"],
            "resolve_interval_secs": 0.02,
        }
    config = {
        "server": {"workers": request.param},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "admin": {"listen": "127.0.0.1:0"},
        "models": {name: {"upstream": name} for name in DIALECTS},
        "upstreams": upstreams,
    }
    running = Daemon.start(folder, config)
    try:
        yield running
    finally:
        running.kill()


def ask(session: requests.Session, url: str, model: str, value: float) -> None:
    """One request, whose answer must be right."""
    tensor = {"name": "X", "datatype": "FP32", "shape": [1], "data": [value]}
    answer = session.post(f"http://{url}/v2/models/{model}/infer", json={"inputs": [tensor]}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["data"] == [value]


def test_no_request_is_lost_or_duplicated(tmp_path: Path, servers: Servers, front: Daemon) -> None:
    stop = threading.Event()

    def load(model: str) -> int:
        with requests.Session() as session:
            count = 0
            while not stop.is_set():
                ask(session, front.addresses[0], model, float(count % 1000))
                count += 1
            return count

    def listed() -> dict[str, list[tuple[str, float, str]]]:
        report = requests.get(f"{front.admin}/upstreams", timeout=60).json()
        return {
            name: sorted((each["url"], each["weight"], each["zone"]) for each in found["servers"])
            for name, found in report.items()
        }

    with ThreadPoolExecutor(CALLERS * len(DIALECTS)) as threads:
        loads = [(name, threads.submit(load, name)) for name in DIALECTS for _ in range(CALLERS)]
        try:
            for number in range(CHANGES):
                places = [(number + step) % SERVERS for step in range(1 + number % 3)]
                wanted = {
                    name: sorted((urls[place], 1.0 + place, "z") for place in places)
                    for name, urls in servers.urls.items()
                }
                for name, members in wanted.items():
                    entries = [dict(zip(("url", "weight", "zone"), each, strict=True)) for each in members]
                    write(tmp_path / "out" / f"{name}.yaml", entries)
                eventually(partial(lambda wanted: listed() == wanted, wanted))
        finally:
            stop.set()
        sent = dict.fromkeys(DIALECTS, 0)
        for name, each in loads:
            sent[name] += each.result()
    assert executed(servers.statistics) == sent
    assert min(sent.values()) > 0

    # a reload needs a readable file; what runs goes on without it
    (tmp_path / "out" / "oip.yaml").unlink()
    front.process.send_signal(signal.SIGHUP)
    refused = front.until("reload refused")
    assert "oip.yaml' cannot be read" in str(refused)
    with requests.Session() as session:
        ask(session, front.addresses[0], "oip", 1.0)


def executed(address: str) -> dict[str, int]:
    """The requests of each model that the servers have executed."""
    found = {}
    for name in DIALECTS:
        [model] = requests.get(f"http://{address}/v2/models/{name}/stats", timeout=60).json()["model_stats"]
        found[name] = model["inference_stats"]["success"]["count"]
    return found
