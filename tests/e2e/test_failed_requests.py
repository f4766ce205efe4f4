"""A request that fails leaves no memory, at once: the collector may run late, or never in an idle daemon."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import failing, processes
from benchmarks.failing import FAILURES, Failure
from interlingua.protocols.registry import DIALECTS
from tests.e2e.bad_inputs.wires import TRANSPORTS, connections
from tests.e2e.daemon import ROOT
from tests.e2e.test_bad_inputs import INPUTS
from tests.waiting import eventually

MIB = 1 << 20
REQUESTS, REQUEST_BYTES = 20, 20 * MIB
LEFT_MIB = 100
SMALL_BYTES = MIB // 4
"""Small requests, but above the limit on responses of ``failing``."""

KEPT = (
    "interlingua.schemas.",
    "interlingua.protocols.wire.",
    "interlingua.protocols.dialect.",
    "interlingua.translator.",
)
"""The modules of requests, messages, errors and what serves one request. Connections are in others."""

Daemon = tuple[processes.Server, Mapping[str, Failure]]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with failing.daemon(tmp_path_factory.mktemp("failing")) as running:
        yield running


NATIVE = [each for each in FAILURES if each.engine == "native"]


# a cancelled request may run on, and hold its memory until then
@pytest.mark.parametrize("name", [each.name for each in NATIVE if each.kind != "cancelled"])
def test_failed_requests_leave_no_memory(daemon: Daemon, name: str) -> None:
    server, failures = daemon
    asyncio.run(failing.fail(failures[name], REQUEST_BYTES, 1))  # the allocator keeps some blocks
    before = server.resident_mib()
    asyncio.run(failing.fail(failures[name], REQUEST_BYTES, REQUESTS))
    eventually(lambda: server.resident_mib() < before + LEFT_MIB)


class Garbage:
    """What only a garbage collector frees, of the daemon ``pid``."""

    def __init__(self, pid: int, path: Path) -> None:
        self._pid = pid
        self._path = path
        self._read = 0

    def collect(self) -> dict[str, int]:
        """The unreachable objects of one request that have come since the last time, by type."""
        os.kill(self._pid, signal.SIGUSR2)
        eventually(lambda: len(self._lines()) > self._read)
        counts: dict[str, int] = json.loads(self._lines()[self._read])
        self._read += 1
        return {
            name: count
            for name, count in counts.items()
            if name.startswith(KEPT) or (name.startswith("frame of") and " in interlingua." in name)
        }

    def _lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


@pytest.fixture
def garbage_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "garbage"
    monkeypatch.setenv("GARBAGE", str(path))
    return path


COLLECTING = ("tests.e2e.collecting",)


def test_failures_leave_nothing_to_the_collector(tmp_path: Path, garbage_path: Path) -> None:
    with failing.daemon(tmp_path, COLLECTING) as (server, failures):
        garbage = Garbage(server.pid, garbage_path)
        garbage.collect()  # of the start
        for failure in failures.values():
            asyncio.run(failing.fail(failure, SMALL_BYTES, 2))
            assert not garbage.collect(), failure.name


@pytest.mark.parametrize("engine", ["native", "library"])
def test_bad_inputs_leave_nothing_to_the_collector(engine: str, tmp_path: Path, garbage_path: Path) -> None:
    listeners: list[dict[str, Any]] = [
        {
            "listen": "127.0.0.1:0",
            "transport": each,
            "dialects": [name for name, dialect in DIALECTS.items() if each in dialect.bindings],
            **({"engine": engine} if each in ("http", "grpc") else {}),
        }
        for each in TRANSPORTS
    ]
    config = {
        "server": {"log_format": "json", "workers": 0},
        "admin": {"listen": "127.0.0.1:0"},
        "listeners": listeners,
        "model_repository": [{"path": str(ROOT / "examples" / "models"), "control": "explicit"}],
        "default_model": "identity_fp32",
    }
    inputs = list(INPUTS.values())
    with processes.daemon(tmp_path, config, COLLECTING) as server:
        garbage = Garbage(server.pid, garbage_path)
        garbage.collect()
        open_ = connections(SimpleNamespace(addresses=server.listening))  # type: ignore[arg-type]
        try:
            for each in inputs:
                each.send(open_[each.transport])
            assert not garbage.collect()
        finally:
            for connection in open_.values():
                connection.close()
    assert len(inputs) > 1000
